"""Workers that die, and a judge that cannot be set up again: tried again where it helps, given up where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.conftest import FRAGILE, World, commented, judges, kill
from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings

pytestmark = pytest.mark.slow  # minutes in all; `make test-all` runs them


def test_a_host_killed_from_outside_is_judged_again_and_only_then_blamed(
    quick_settings: Settings, plain: Candidate, tiny: Path, world: World
) -> None:
    """One candidate loses its host once, the other every time; both while they are being timed."""
    deaths = [0, 0]

    def disturb(progress: Progress) -> None:
        if progress.stage == "time" and (progress.index == 1 or deaths[0] == 0):
            deaths[progress.index] += kill(world.hosts())

    messages: list[str] = []
    batch = [commented(plain, f"host killed {i}") for i in range(2)]
    with Evaluator("cpu", quick_settings, on_progress=disturb, on_message=messages.append) as evaluator:
        judged = dict(evaluator.evaluate(tiny, batch))
    assert deaths == [1, 2]
    assert judged[0].status is Status.OK, judged[0].reason
    assert judged[1].status is Status.CRASHED
    assert "killed by the system" in judged[1].reason
    assert sum("Trying again" in message for message in messages) == 2, messages
    assert world.left() == []


def test_a_judge_killed_while_it_opens_a_task_costs_only_time(
    quick_settings: Settings, plain: Candidate, tmp_path: Path, world: World
) -> None:
    flag = tmp_path / "opened"
    slow = tmp_path / "slow.py"
    # The first judge that reads this file waits to be killed; it says so by making the flag.
    waiting = f'if not (flag := Path("{flag}")).exists():\n    flag.touch()\n    os.kill(os.getpid(), 9)\n'
    text = FRAGILE.format(gone=tmp_path / "never").replace("import torch\n", f"import os\nimport torch\n{waiting}", 1)
    slow.write_text(text)
    messages: list[str] = []
    with Evaluator("cpu", quick_settings, on_message=messages.append) as evaluator:
        verdict = evaluator.evaluate_one(slow, commented(plain, "slow to open"))
    assert flag.exists()
    assert verdict.status is Status.OK, verdict.reason
    assert any("was killed while opening the task, probably" in message for message in messages), messages
    assert world.left() == []


def test_a_device_that_falls_off_ends_the_batch_in_one_sentence(
    quick_settings: Settings, plain: Candidate, tmp_path: Path, world: World
) -> None:
    """The judge dies in the middle of the second of 40 candidates, and no new one can be set up."""
    gone = tmp_path / "gone"
    fragile = tmp_path / "fragile.py"
    fragile.write_text(FRAGILE.format(gone=gone))
    batch = [commented(plain, f"falls off {i // 20}") for i in range(40)]
    order: list[int] = []

    def fall_off(progress: Progress) -> None:
        if progress.stage == "load":
            order.append(progress.index)
        if progress.stage == "check" and len(order) == 2:
            gone.touch()
            assert kill(judges(world)) == 1

    messages: list[str] = []
    with Evaluator(
        "cpu", quick_settings, use_cache=False, on_progress=fall_off, on_message=messages.append
    ) as evaluator:
        judged = list(evaluator.evaluate(fragile, batch))
        assert len(order) == 2, "nobody else was tried"
        assert sorted(index for index, _ in judged) == list(range(40))
        by_index = dict(judged)
        assert by_index[order[0]].status is Status.OK, by_index[order[0]].reason
        lost = [by_index[i] for i in range(40) if i != order[0]]
        assert {v.status for v in lost} == {Status.NOT_JUDGED}
        assert len({v.reason for v in lost}) == 1
        assert "CUDA error: unknown error" in lost[0].reason
        assert "run again" in lost[0].reason
        assert len(messages) < 6, messages
        # Once it is back, the same evaluator works on.
        gone.unlink()
        assert evaluator.evaluate_one(fragile, batch[0]).status is Status.OK
    assert world.left() == []
