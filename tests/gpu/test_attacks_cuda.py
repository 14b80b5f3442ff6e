"""Every attack in CUDA, PyTorch and Triton is rejected on a real GPU, and every honest twin passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.attacks.corpus_gpu import HARMLESS_ON_GPU, ON_GPU
from tests.attacks.model import Attack, judge, record_attack, record_honest

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Settings

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

Record = Callable[[str, object], None]
Verdicts = dict[tuple[Path, Path], Evaluation]
_TWINS = {(attack.task, attack.twin): attack for attack in ON_GPU}
_BY_TASK = sorted(ON_GPU, key=lambda attack: attack.task)  # a judge is opened once per task


@pytest.fixture(scope="module")
def attack_settings(gpu_settings: Settings) -> Settings:
    """Some never come back, and some take long on purpose."""
    return replace(gpu_settings, limits=replace(gpu_settings.limits, launch_s=3.0, total_s=60.0))


@pytest.fixture(scope="module")
def verdicts(gpu: None, attack_settings: Settings, cache_folder: Path) -> Verdicts:
    """Attacks and twins in one go, with all guards."""
    jobs = [(a.task_path, file) for a in _BY_TASK if _can_run(a) for file in (a.path, a.twin_path)]
    with Evaluator("cuda", attack_settings, use_cache=False) as evaluator:
        return judge(evaluator, jobs)


@pytest.fixture(scope="module")
def unfiltered(attack_settings: Settings, verdicts: Verdicts) -> Verdicts:
    """Those that the imports gave away, once more without looking at imports."""
    settings = replace(attack_settings, without=("imports",))
    jobs = [(a.task_path, a.path) for a in _BY_TASK if _filtered(a, verdicts)]
    with Evaluator("cuda", settings, use_cache=False) as evaluator:
        return judge(evaluator, jobs)


def _can_run(attack: Attack) -> bool:
    return all(backend_named(name).available().run for name in _backends(attack))


def _backends(attack: Attack) -> set[str]:
    return {attack.backend} | ({"triton"} if "triton" in attack.twin else set())


def _filtered(attack: Attack, verdicts: Verdicts) -> bool:
    verdict = verdicts.get((attack.task_path, attack.path))
    return verdict is not None and attack.has_dynamic_defence and attack.filtered(verdict)


def _verdict(verdicts: Verdicts, attack: Attack, file: Path) -> Evaluation:
    if not _can_run(attack):
        pytest.skip(f"{attack.name} needs {', '.join(sorted(_backends(attack)))}, which cannot run here")
    return verdicts[attack.task_path, file]


@pytest.mark.parametrize("attack", ON_GPU, ids=lambda attack: attack.name)
def test_an_attack_is_rejected_on_a_gpu(attack: Attack, verdicts: Verdicts, record_property: Record) -> None:
    failings = attack.failings(_verdict(verdicts, attack, attack.path))
    record_attack(record_property, failings)
    assert not failings


@pytest.mark.parametrize("attack", ON_GPU, ids=lambda attack: attack.name)
def test_imports_are_not_the_only_defence(attack: Attack, verdicts: Verdicts, unfiltered: Verdicts) -> None:
    if not attack.has_dynamic_defence:
        assert attack.note, "why nothing else stops it must be said"
        return
    found = unfiltered if _filtered(attack, verdicts) else verdicts
    verdict, twin = _verdict(found, attack, attack.path), _verdict(verdicts, attack, attack.twin_path)
    if attack.file in HARMLESS_ON_GPU and attack.gains_nothing(verdict, twin):
        return
    assert not attack.failings(verdict, filtered=False)


@pytest.mark.parametrize(("task", "twin"), sorted(_TWINS))
def test_an_honest_twin_passes_on_a_gpu(task: str, twin: str, verdicts: Verdicts, record_property: Record) -> None:
    attack = _TWINS[task, twin]
    failings = attack.twin_failings(_verdict(verdicts, attack, attack.twin_path))
    record_honest(record_property, failings)
    assert not failings
