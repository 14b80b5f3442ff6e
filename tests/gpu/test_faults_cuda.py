"""Faults of our own on a real GPU: workers killed, contexts lost, a device that does not come back, two at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.faults.conftest import FRAGILE, World, commented, judges, kill
from tests.faults.test_faults_two_evaluators import SUPERVISOR, account, files_of

from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings

pytestmark = pytest.mark.gpu

Kernel = Callable[[str], Candidate]
TaskFile = Callable[[str], Path]


@pytest.fixture
def world(gpu: None, marked_temp: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    here = World(marked_temp)
    monkeypatch.setenv("WARPSMITH_CACHE", str(here.cache))
    yield here
    here.end()


def test_a_judge_whose_context_is_lost_costs_only_time(
    gpu_settings: Settings, kernel: Kernel, task_file: TaskFile, world: World
) -> None:
    """The judge is killed while the first candidate is timed; hosts that trap the device come in between."""
    killed: list[int] = []

    def disturb(progress: Progress) -> None:
        if progress.stage == "time" and not killed:
            killed.append(kill(judges(world)))

    names = ["right", "device_trap", "illegal_address", "right", "aborts", "right"]
    batch = [commented(kernel(f"{name}.cu"), f"disturbed {i}") for i, name in enumerate(names)]
    messages: list[str] = []
    with Evaluator("cuda", gpu_settings, on_progress=disturb, on_message=messages.append) as evaluator:
        judged = dict(evaluator.evaluate(task_file("softmax"), batch))
    assert killed == [1]
    assert sorted(judged) == list(range(len(names)))
    statuses = {"right": Status.OK, "device_trap": Status.LAUNCH_FAILED, "aborts": Status.CRASHED}
    statuses["illegal_address"] = Status.OUT_OF_BOUNDS
    for i, name in enumerate(names):
        assert judged[i].status is statuses[name], judged[i].reason
    assert sum("Trying again" in message for message in messages) == 1, messages
    assert world.left() == []


def test_a_host_killed_from_outside_is_judged_again(
    gpu_settings: Settings, kernel: Kernel, task_file: TaskFile, world: World
) -> None:
    """All hosts die at once, those that wait for their turn too."""
    killed: list[int] = []

    def disturb(progress: Progress) -> None:
        if progress.stage == "time" and not killed:
            killed.append(kill(world.hosts()))

    batch = [commented(kernel("right.cu"), f"host killed {i}") for i in range(5)]
    with Evaluator("cuda", gpu_settings, on_progress=disturb) as evaluator:
        judged = dict(evaluator.evaluate(task_file("softmax"), batch))
    assert killed[0] >= 1
    assert [judged[i].status for i in range(5)] == [Status.OK] * 5, [judged[i].reason for i in range(5)]
    assert world.left() == []


def test_a_gpu_that_does_not_come_back_ends_the_batch_in_one_sentence(
    gpu_settings: Settings, kernel: Kernel, tmp_path: Path, world: World
) -> None:
    gone, fragile = tmp_path / "gone", tmp_path / "fragile.py"
    fragile.write_text(FRAGILE.format(gone=gone))
    order: list[int] = []

    def fall_off(progress: Progress) -> None:
        if progress.stage == "load":
            order.append(progress.index)
        if progress.stage == "check" and len(order) == 2:
            gone.touch()
            kill(judges(world))

    batch = [commented(kernel("right.cu"), f"falls off {i}") for i in range(8)]
    with Evaluator("cuda", gpu_settings, use_cache=False, on_progress=fall_off) as evaluator:
        judged = dict(evaluator.evaluate(fragile, batch))
        assert judged[order[0]].status is Status.OK, judged[order[0]].reason
        lost = [judged[i] for i in range(8) if i != order[0]]
        assert {v.status for v in lost} == {Status.NOT_JUDGED}
        assert {v.reason for v in lost} == {lost[0].reason}
        assert lost[0].reason.startswith("the device does not answer")
        assert "check nvidia-smi and run again" in lost[0].reason
        gone.unlink()
        assert evaluator.evaluate_one(fragile, batch[0]).status is Status.OK
    assert world.left() == []


def test_two_evaluators_with_caches_of_their_own_share_a_gpu(
    kernel: Kernel, task_file: TaskFile, tmp_path: Path, world: World
) -> None:
    processes = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        files = files_of(folder, kernel("right.cu"), 3, ".cu")
        script = SUPERVISOR.replace('"cpu"', '"cuda"')
        cache = str(world.folder / f"cache-{name}")
        processes.append(world.start("-c", script, str(task_file("softmax")), *files, WARPSMITH_CACHE=cache))
    accounts = [account(process) for process in processes]
    for one in accounts:
        assert one.statuses == dict.fromkeys(range(3), "ok"), json.dumps(one.lines)
    spans = sorted(span for one in accounts for span in one.timed())
    assert len(spans) == 6
    assert [(a, b) for a, b in pairwise(spans) if b[0] < a[1]] == []
    assert world.left() == []
