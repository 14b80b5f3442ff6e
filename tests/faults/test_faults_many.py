"""Two hundred candidates, every third of which crashes: each judged once and rightly, and nothing is left or leaks."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.conftest import World, commented
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings

pytestmark = pytest.mark.slow  # minutes in all; `make test-all` runs them

COUNT = 200
CRASHES = {  # kernel of tests/kernels/cpu: what becomes of it
    "segfaults": (Status.CRASHED, Status.OUT_OF_BOUNDS),
    "aborts": (Status.CRASHED,),
    "exits": (Status.REJECTED,),  # it imports exit(): a guard sees that before it runs
    "stack_overflow": (Status.CRASHED,),
    "null_pointer": (Status.CRASHED,),
}
RARE = {"hangs": (Status.TIMED_OUT,), "memory_bomb": (Status.CRASHED, Status.OUT_OF_MEMORY)}


def plan() -> list[str]:
    """The kernel of each candidate: every third fails, in turn in every way; the slow ways come a few times only."""
    names, common, rare = [], list(CRASHES), list(RARE)
    for i in range(COUNT):
        if i % 3 != 2:
            names.append("right")
        elif i % 51 == 2:
            names.append(rare[(i // 51) % len(rare)])
        else:
            names.append(common[(i // 3) % len(common)])
    return names


def in_use() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_candidates_of_which_every_third_crashes(
    quick_settings: Settings, kernel: Callable[[str], Candidate], plain: Candidate, tiny: Path, world: World
) -> None:
    names = plan()
    assert Counter(name == "right" for name in names)[False] == 66
    limits = replace(quick_settings.limits, launch_s=0.5, start_s=20.0)
    settings = replace(quick_settings, min_samples=5, max_samples=5, timing_budget_s=0.0, limits=limits)
    sources = {name: plain if name == "right" else kernel(f"{name}.cpp") for name in names}
    batch = [commented(sources[name], f"one of many {i}") for i, name in enumerate(names)]
    before = in_use()
    messages: list[str] = []
    with Evaluator("cpu", settings, on_message=messages.append) as evaluator:
        evaluator.describe(tiny)
        started = in_use()
        judged = list(evaluator.evaluate(tiny, batch))
        after = in_use()
    assert sorted(index for index, _ in judged) == list(range(COUNT)), "each exactly once"
    expected = {"right": (Status.OK,), **CRASHES, **RARE}
    wrong = [
        f"{index} {names[index]}: {verdict.status} {verdict.reason}"
        for index, verdict in judged
        if verdict.status not in expected[names[index]] or verdict.candidate != batch[index].id
    ]
    assert wrong == [], messages
    # Builders start on demand; beyond them nothing grows with the number of candidates.
    builders = len(os.sched_getaffinity(0))
    assert after[0] <= started[0] + 2, "descriptors"
    assert after[1] <= started[1] + builders, "threads"
    assert in_use() <= (before[0] + 1, before[1]), "all is given back"
    assert world.left() == []
