"""Honest kernels that use what others do not: static tables, memory of threads, locks, exceptions, assembly, time.

Each of these could be taken for a trick by one of the guards, and none of them is one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings

HERE = Path(__file__).resolve().parent / "unusual"
TASKS = HERE.parent.parent / "attacks" / "tasks"
SLOW = "slow_call"  # a fifth of a second for each call
NAMES = sorted(path.stem for path in HERE.glob("*.cpp") if path.stem != SLOW)
Made = Callable[[Settings], AbstractContextManager[Evaluator]]


@pytest.fixture(scope="module")
def verdicts(quick_settings: Settings, all_processors: Made) -> dict[str, Evaluation]:
    """All of them in one go, with all processors."""
    candidates = [read_candidate(HERE / f"{name}.cpp") for name in NAMES]
    with all_processors(quick_settings) as evaluator:
        found = evaluator.evaluate(TASKS / "small_softmax.py", candidates)
        return {NAMES[index]: verdict for index, verdict in found}


def test_there_are_twelve() -> None:
    assert len(NAMES) + 1 == 12


@pytest.mark.parametrize("name", NAMES)
def test_an_unusual_kernel_is_not_refused(name: str, verdicts: dict[str, Evaluation]) -> None:
    assert verdicts[name].status is Status.OK, verdicts[name].reason


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_kernel_may_take_its_time(quick_settings: Settings, all_processors: Made) -> None:
    limits = replace(quick_settings.limits, total_s=300.0)
    with all_processors(replace(quick_settings, limits=limits)) as evaluator:
        verdict = evaluator.evaluate_one(TASKS / "product_512.py", read_candidate(HERE / f"{SLOW}.cpp"))
    assert verdict.status is Status.OK, verdict.reason
    assert verdict.workloads[0].latency_ms > 100.0
