"""The judge's buffers of one workload: whether each call does its own work and no other."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest
import torch
from tests.attacks.model import FOLDER

from warpsmith.evaluator.judge.numerics.poison import PoisonPattern
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.judge.workload_buffers import UsedMemory, WorkloadBuffers, buffers_of_set
from warpsmith.evaluator.protocol.buffer_layout import lay_out
from warpsmith.tasks.load import load_task


@pytest.fixture(scope="module")
def buffers() -> WorkloadBuffers:
    program = load_task(str(FOLDER / "tasks" / "small_softmax.py"))
    workload = program.task.workloads[0]
    layout = lay_out(buffers_of_set(program.task, workload), 5, "cpu")
    memory = torch.zeros(layout.total_bytes, dtype=torch.uint8)
    return WorkloadBuffers(program, workload, layout, memory, 0)


def _write(buffers: WorkloadBuffers, index: int, share: float = 1.0) -> None:
    flat = buffers.sets[index].outputs[0].view(-1)
    flat[: round(share * flat.numel())] = 0.75


CALLED = (3, 0, 4, 1)


def test_calls_in_their_order_are_accepted(buffers: WorkloadBuffers) -> None:
    buffers.poison(range(5))
    for index in CALLED:
        assert not buffers.undone_before_others(CALLED)
        _write(buffers, index, 0.5)
        assert not buffers.undone_before_others(CALLED)
        _write(buffers, index)
    assert not buffers.undone_before_others(CALLED)


@pytest.mark.parametrize("ahead", [(0,), (1,), (4, 0, 3)])
def test_work_for_a_later_call_is_seen(buffers: WorkloadBuffers, ahead: tuple[int, ...]) -> None:
    buffers.poison(range(5))
    _write(buffers, CALLED[0], 0.5)
    for index in ahead:
        _write(buffers, index, 0.1)
    undone = buffers.undone_before_others(CALLED)
    assert (CALLED[0], 0) in undone
    for index in CALLED:
        _write(buffers, index)
    with pytest.raises(CandidateFailed, match=r"impossible speed: .* before the call on another set had ended"):
        buffers.check_order(undone)


def test_what_is_never_written_is_not_called_work_ahead(buffers: WorkloadBuffers) -> None:
    buffers.poison(range(5))
    for index in CALLED:
        _write(buffers, index, 0.5)
    undone = buffers.undone_before_others(CALLED)
    assert len(undone) == 3
    buffers.check_order(undone)  # another check says that elements were never written


@pytest.mark.parametrize("ordinary", [False, True])
def test_a_pattern_that_results_may_hold_marks_nothing(ordinary: bool) -> None:
    pattern = PoisonPattern(0x3333_4444_5555_6666, ordinary)
    always = (torch.float32, torch.float64, torch.complex64)
    unless_ordinary = (torch.float16, torch.bfloat16, torch.int32, torch.int64)
    never = (torch.bool, torch.int8, torch.uint8, torch.int16, torch.float8_e4m3fn)
    assert all(pattern.marks(torch.zeros(4, dtype=dtype)) for dtype in always)
    assert all(pattern.marks(torch.zeros(4, dtype=dtype)) is not ordinary for dtype in unless_ordinary)
    assert not any(pattern.marks(torch.zeros(4, dtype=dtype)) for dtype in never)


def test_outputs_are_filled_like_memory_of_a_user(buffers: WorkloadBuffers) -> None:
    (output,) = buffers.sets[2].outputs
    earlier, result = torch.randn(output.shape), torch.randn(output.shape)
    held = {}
    for how in UsedMemory:
        buffers.fill_outputs(2, how, (earlier,), (result,))
        assert buffers.poison_of(2) is None
        held[how] = output.clone()
    assert torch.equal(held[UsedMemory.EARLIER], earlier)
    assert not held[UsedMemory.ZEROS].any()
    displaced = held[UsedMemory.DISPLACED].view(-1)
    assert not torch.equal(displaced, result.view(-1))
    assert torch.equal(displaced.sort().values, result.view(-1).sort().values)
    assert held[UsedMemory.NOISE].view(torch.int32).unique().numel() > 0.99 * output.numel()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.float8_e4m3fn, torch.complex64])
def test_any_type_of_output_can_be_filled(buffers: WorkloadBuffers, dtype: torch.dtype) -> None:
    for shape in ((), (0,), (3, 5)):
        output = torch.ones(shape).to(dtype)
        group = replace(buffers.sets[0], outputs=(output,))
        other = copy(buffers)
        other.sets = (group,)
        for how in UsedMemory:
            other.fill_outputs(0, how, (output.clone(),), (output.clone(),))
