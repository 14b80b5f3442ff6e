"""The judge's buffers of one workload: whether each call does its own work and no other."""

from __future__ import annotations

import math
import random
from copy import copy
from dataclasses import replace

import pytest
import torch
from tests.attacks.model import FOLDER

from warpsmith.evaluator.judge.numerics.poison import PoisonPattern
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.judge.workload_buffers import UsedMemory, WorkloadBuffers, _mix, _spread, buffers_of_set
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


# --- the weights of timed calls ---


def _weights(values: torch.Tensor, times: int) -> torch.Tensor:
    """Weights after so many changes."""
    spread, mixed = _spread(values), values.clone()
    for number in range(times):
        _mix(mixed, spread, random.Random(number))
    return mixed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [16, 300, 40_000])
def test_weights_keep_their_spread_and_nothing_else(count: int, dtype: torch.dtype) -> None:
    own = (0.3 + 2 * torch.randn(count, generator=torch.Generator().manual_seed(1))).to(dtype)
    mixed = _weights(own, 200).double()
    assert bool(mixed.isfinite().all())
    assert 0.6 < float(mixed.std()) / float(own.double().std()) < 1.6
    assert abs(float(mixed.mean() - own.double().mean())) < 5 * float(own.double().std()) / math.sqrt(count)


def test_what_was_derived_from_weights_is_of_no_use() -> None:
    """Neither their values nor sums of them are found again, in any order."""
    own = torch.randn(1 << 14, generator=torch.Generator().manual_seed(2))
    mixed = _weights(own, 1)
    assert float(torch.isin(mixed, own).double().mean()) < 0.01  # by chance
    rows, others = own.view(128, -1), mixed.view(128, -1)
    for power in (1, 2, 8):
        known, new = (x.pow(power).sum(1).sort().values for x in (rows, others))
        assert float((known - new).abs().median()) > 1e-3 * float(known.std())
    spectra = [torch.fft.rfft(x).abs() for x in (own, mixed)]  # which rotating does not change
    assert float((spectra[0] - spectra[1]).abs().mean()) > 0.1 * float(spectra[0].mean())


@pytest.mark.parametrize(
    "own",
    [
        torch.rand(1000, generator=torch.Generator().manual_seed(3)),  # such as variances
        torch.arange(1000.0) - 500,  # such as positions
        torch.randn(64, 64, generator=torch.Generator().manual_seed(4)).tril().view(-1),
        torch.randn(9, generator=torch.Generator().manual_seed(5)),
        torch.arange(1000),
    ],
    ids=["positive", "whole numbers", "triangle", "few", "integers"],
)
def test_state_that_cannot_be_mixed_is_rotated(own: torch.Tensor) -> None:
    rotated = _weights(own, 1)
    assert not torch.equal(rotated, own)
    assert torch.equal(rotated.sort().values, own.sort().values)
