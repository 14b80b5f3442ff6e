"""What the judge takes from a host that says what its calls are; host and replayer are played here."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from warpsmith.evaluator.cuda_replay.call_data import (
    DevicePlace,
    KernelLaunch,
    MemoryCopy,
    RecordedCall,
    encode_call,
)
from warpsmith.evaluator.cuda_replay.handover import Handover
from warpsmith.evaluator.cuda_replay.rules import Unreplayable
from warpsmith.evaluator.protocol.messages import AssignCalls, CallsAssigned, RecordedCalls
from warpsmith.model.settings import Limits

OUTPUT = torch.empty(16)
WORK = encode_call(RecordedCall((KernelLaunch("add", "", (8, 1, 1), (256, 1, 1), 0, ()),), ()))
COPY = encode_call(RecordedCall((MemoryCopy(DevicePlace(OUTPUT.data_ptr()), DevicePlace(1 << 40), OUTPUT.nbytes),), ()))


class Peer:
    """Answers with one message, and keeps what it was asked."""

    def __init__(self, answer: object, *, returns_tensors: bool = False) -> None:
        self.answer = answer
        self.asked: list[Any] = []
        self.returns_tensors = returns_tensors
        self.stage = ""

    def ask(self, message: object, *_rest: object) -> object:
        self.asked.append(message)
        return self.answer


def assigned(deliveries: Sequence[str], *, returns_tensors: bool) -> list[Any]:
    """What the replayer is asked to do when a host claims one call with these deliveries."""
    buffers = SimpleNamespace(set_numbers=range(1), sets=[SimpleNamespace(outputs=(OUTPUT,))])
    driver = SimpleNamespace(attribute=lambda _number: 1 << 16)
    host = Peer(RecordedCalls((WORK,), tuple(deliveries), (), ""), returns_tensors=returns_tensors)
    replayer = Peer(CallsAssigned(True, ""))
    handover = Handover(cast(Any, None), cast(Any, driver), [], Limits())
    handover._assign(cast(Any, host), cast(Any, replayer), cast(Any, buffers))
    return replayer.asked


def test_results_are_copied_after_the_call() -> None:
    assert assigned([COPY], returns_tensors=True) == [AssignCalls((0,), (WORK,), (COPY,), ())]
    assert assigned([], returns_tensors=False) == [AssignCalls((0,), (WORK,), (), ())]


@pytest.mark.parametrize(
    ("deliveries", "returns_tensors", "why"),
    [
        ([WORK], True, "computes while its results are copied"),
        (["[[], []]"], True, "not a recorded call"),
        ([], True, "another number of calls"),
        ([COPY], False, "another number of calls"),  # work that nobody asked for would not be timed
        ([WORK], False, "another number of calls"),
    ],
)
def test_work_after_the_clock_has_stopped_is_not_replayed(
    deliveries: Sequence[str], returns_tensors: bool, why: str
) -> None:
    with pytest.raises(Unreplayable, match=why):
        assigned(deliveries, returns_tensors=returns_tensors)
