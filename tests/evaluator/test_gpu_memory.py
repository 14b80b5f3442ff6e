"""Whose memory of a device it is, if several programs use the device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from warpsmith.evaluator.cuda_driver import Driver
from warpsmith.evaluator.judge import examiner
from warpsmith.evaluator.judge.examiner import GpuMemory
from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Limits

LIMITS = Limits(memory_bytes=8, workspace_bytes=2)


class SharedDevice:
    """A device of 100 bytes on which a candidate and other programs hold memory."""

    def __init__(self, candidate: int, others: int) -> None:
        self.candidate, self.others, self.ended = candidate, others, False

    def memory(self) -> tuple[int, int]:
        return 100 - self.others - (0 if self.ended else self.candidate), 100

    def end(self) -> None:
        self.ended = True


def check(monkeypatch: pytest.MonkeyPatch, device: SharedDevice, said: int | None) -> None:
    """Check a candidate before which 20 bytes were taken; `said`: what the driver says that it holds."""
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(examiner, "process_gpu_memory", lambda index, pid: said)
    memory = GpuMemory(cast(Driver, device), torch.device("cuda", 0), LIMITS)
    memory.check(cast(HostClient, cast(Any, SimpleNamespace(pid=1, end=device.end))), taken_before=20)


@pytest.mark.parametrize(("candidate", "others", "said"), [(10, 20, None), (10, 60, 10), (10, 60, 0)])
def test_what_others_hold_is_not_the_candidates(
    monkeypatch: pytest.MonkeyPatch, candidate: int, others: int, said: int | None
) -> None:
    device = SharedDevice(candidate, others)
    check(monkeypatch, device, said)
    assert not device.ended


@pytest.mark.parametrize("said", [11, None])
def test_a_candidate_that_holds_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, said: int | None) -> None:
    with pytest.raises(CandidateFailed) as failure:
        check(monkeypatch, SharedDevice(candidate=11, others=60), said)
    assert failure.value.status is Status.OUT_OF_MEMORY


def test_where_only_its_end_can_tell_the_candidate_is_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SharedDevice(candidate=10, others=60)
    with pytest.raises(CandidateFailed) as failure:
        check(monkeypatch, device, said=None)
    assert failure.value.status is Status.NOT_JUDGED
    assert device.ended
