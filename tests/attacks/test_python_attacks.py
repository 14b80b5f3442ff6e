"""Every Python attack that a CPU can run is rejected there, and every honest module beside it passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attacks.corpus_gpu import CUDA, PYTHON, PYTHON_ON_CPU, PYTHON_ON_GPU
from tests.attacks.model import FOLDER, Attack, judge, record_attack, record_honest
from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Evaluation
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.guards.classes import BY_NUMBER

Record = Callable[[str, object], None]
Verdicts = dict[tuple[Path, Path], Evaluation]
_HERE = (*PYTHON, *PYTHON_ON_CPU)
_ALL = (*CUDA, *_HERE, *PYTHON_ON_GPU)
_BY_TASK = sorted(_HERE, key=lambda attack: attack.task)
_TWINS = {attack.twin: attack for attack in _HERE}
pytestmark = pytest.mark.timeout(900)  # one batch: a busy machine needs its time
_MEASURED = {"cuda/patched_flush.cu"}  # takes no result, only a cold cache: its gain is measured in the record


@pytest.fixture(scope="module")
def patient(quick_settings: Settings) -> Settings:
    return replace(quick_settings, limits=replace(quick_settings.limits, start_s=20.0, launch_s=1.0, total_s=200.0))


@pytest.fixture(scope="module")
def verdicts(patient: Settings, cache_folder: Path) -> Verdicts:
    """All of them in one go, task by task."""
    jobs = [(attack.task_path, file) for attack in _BY_TASK for file in (attack.path, attack.twin_path)]
    with Evaluator("cpu", patient) as evaluator:
        return judge(evaluator, jobs)


@pytest.fixture(scope="module")
def unfiltered(patient: Settings, verdicts: Verdicts) -> Verdicts:
    """Those that their text gave away, once more without looking at it."""
    jobs = [(a.task_path, a.path) for a in _BY_TASK if _filtered(a, verdicts)]
    with Evaluator("cpu", replace(patient, without=("imports",))) as evaluator:
        return judge(evaluator, jobs)


def _filtered(attack: Attack, verdicts: Verdicts) -> bool:
    return attack.has_dynamic_defence and attack.filtered(verdicts[attack.task_path, attack.path])


@pytest.mark.parametrize("attack", _HERE, ids=lambda attack: attack.name)
def test_an_attack_in_python_is_rejected(attack: Attack, verdicts: Verdicts, record_property: Record) -> None:
    failings = attack.failings(verdicts[attack.task_path, attack.path])
    record_attack(record_property, failings)
    assert not failings


@pytest.mark.parametrize("attack", _HERE, ids=lambda attack: attack.name)
def test_its_text_is_not_the_only_thing_against_it(attack: Attack, verdicts: Verdicts, unfiltered: Verdicts) -> None:
    found = unfiltered if _filtered(attack, verdicts) else verdicts
    assert not attack.failings(found[attack.task_path, attack.path], filtered=False)


@pytest.mark.parametrize("twin", sorted(_TWINS))
def test_an_honest_module_passes(twin: str, verdicts: Verdicts, record_property: Record) -> None:
    attack = _TWINS[twin]
    failings = attack.twin_failings(verdicts[attack.task_path, attack.twin_path])
    record_honest(record_property, failings)
    assert not failings


def test_every_class_is_attacked_on_a_gpu() -> None:
    assert {attack.number for attack in (*CUDA, *PYTHON, *PYTHON_ON_GPU)} == set(BY_NUMBER)


def test_every_file_is_in_a_list() -> None:
    listed = {a.file for a in _ALL} | {a.twin for a in _ALL} | _MEASURED
    folders = (FOLDER / "cuda", FOLDER / "python")
    assert {f"{f.parent.name}/{f.name}" for folder in folders for f in folder.iterdir() if f.is_file()} == listed


def test_every_attack_has_a_name_of_its_own_and_a_task() -> None:
    assert len({attack.name for attack in _ALL}) == len(_ALL)
    assert all(attack.task_path.is_file() for attack in _ALL)
