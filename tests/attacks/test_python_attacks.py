"""Every Python attack that a CPU can run is rejected there, and every honest module beside it passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attacks.corpus_gpu import AHEAD, CUDA, PYTHON, PYTHON_ON_CPU, PYTHON_ON_GPU
from tests.attacks.model import FOLDER, Attack, judge, record_attack, record_honest
from warpsmith.backends.python_source import modules_named
from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.guards.attack_classes import BY_NUMBER
from warpsmith.evaluator.guards.imports import PLUGIN as IMPORTS
from warpsmith.evaluator.guards.symbol_lists import PYTHON as PYTHON_TEXT
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.evidence import BuiltObject
from warpsmith.model.settings import Settings

Record = Callable[[str, object], None]
Verdicts = dict[tuple[Path, Path], Evaluation]
Made = Callable[[Settings], AbstractContextManager[Evaluator]]
_HERE = (*PYTHON, *PYTHON_ON_CPU)
_ALL = (*CUDA, *_HERE, *PYTHON_ON_GPU, AHEAD)
_BY_TASK = sorted(_HERE, key=lambda attack: attack.task)
_TWINS = {attack.twin: attack for attack in _HERE}
pytestmark = pytest.mark.timeout(1500)  # one batch: a busy machine needs its time


@pytest.fixture(scope="module")
def patient(quick_settings: Settings) -> Settings:
    most = 64 << 20  # of a file: a copy of a library fits
    limits = replace(quick_settings.limits, start_s=20.0, launch_s=1.0, total_s=200.0, scratch_bytes=most)
    return replace(quick_settings, limits=limits)


@pytest.fixture(scope="module")
def verdicts(patient: Settings, with_settings: Made) -> Verdicts:
    """All of them in one go, task by task, whatever their text says: the other defences have to hold alone."""
    with with_settings(replace(patient, without=("imports",))) as evaluator:
        return judge(evaluator, [(a.task_path, file) for a in _BY_TASK for file in (a.path, a.twin_path)])


@pytest.mark.parametrize("attack", _HERE, ids=lambda attack: attack.name)
def test_an_attack_in_python_is_rejected(attack: Attack, verdicts: Verdicts, record_property: Record) -> None:
    failings = attack.failings(verdicts[attack.task_path, attack.path], filtered=False)
    record_attack(record_property, failings)
    assert not failings


@pytest.mark.parametrize("attack", _HERE, ids=lambda attack: attack.name)
def test_a_text_that_names_the_harness_is_enough(attack: Attack) -> None:
    found = IMPORTS.objection(BuiltObject(PYTHON_TEXT, modules_named(attack.path.read_text()), ()))
    assert (found is not None) == (attack.unfiltered is not None)
    if found is not None:
        assert found.status in attack.statuses
        assert re.search(attack.says, found.reason)


def test_working_ahead_of_the_clock_gains_nothing(patient: Settings, with_settings: Made) -> None:
    with with_settings(replace(patient, without=("imports",))) as evaluator:
        found = judge(evaluator, [(AHEAD.task_path, file) for file in (AHEAD.path, AHEAD.twin_path)])
    attack, honest = found[AHEAD.task_path, AHEAD.path], found[AHEAD.task_path, AHEAD.twin_path]
    assert honest.ok, honest.reason
    if attack.ok:  # seven eighths of its work would be hidden
        assert attack.workloads[0].latency_ms > honest.workloads[0].latency_ms / 3
    else:
        assert not AHEAD.failings(attack)


def test_such_a_file_is_not_even_imported(patient: Settings, cache_folder: Path) -> None:
    attack = next(attack for attack in _HERE if attack.file == "python/patched_host.py")
    stages: list[str] = []
    with Evaluator("cpu", patient, on_progress=lambda progress: stages.append(progress.stage)) as evaluator:
        verdict = evaluator.evaluate_one(attack.task_path, read_candidate(attack.path))
    assert not attack.failings(verdict)
    assert stages == ["judged"]


@pytest.mark.parametrize("twin", sorted(_TWINS))
def test_an_honest_module_passes(twin: str, verdicts: Verdicts, record_property: Record) -> None:
    attack = _TWINS[twin]
    failings = attack.twin_failings(verdicts[attack.task_path, attack.twin_path])
    record_honest(record_property, failings)
    assert not failings


def test_every_class_is_attacked_on_a_gpu() -> None:
    assert {attack.number for attack in (*CUDA, *PYTHON, *PYTHON_ON_GPU)} == set(BY_NUMBER)


def test_every_file_is_in_a_list() -> None:
    listed = {a.file for a in _ALL} | {a.twin for a in _ALL}
    folders = (FOLDER / "cuda", FOLDER / "python")
    assert {f"{f.parent.name}/{f.name}" for folder in folders for f in folder.iterdir() if f.is_file()} == listed


def test_every_attack_has_a_name_of_its_own_and_a_task() -> None:
    assert len({attack.name for attack in _ALL}) == len(_ALL)
    assert all(attack.task_path.is_file() for attack in _ALL)
