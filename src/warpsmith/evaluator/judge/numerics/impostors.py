"""Impostors: results that are wrong on purpose, each standing for a kernel that skips work.

An impostor is made from values that such a kernel could use: the inputs, an earlier result, the right result with a
part missing, a coarser arithmetic. `calibration` finds out whether a task notices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from warpsmith.evaluator.judge.numerics import tolerance
from warpsmith.evaluator.judge.numerics.coarse_arithmetic import (
    NEXT_COARSER,
    CoarseProducts,
    CoarserPrecision,
    round_mantissa,
)
from warpsmith.evaluator.judge.numerics.compare import Errors
from warpsmith.evaluator.judge.numerics.reference import ReferenceResult, run_reference
from warpsmith.model.task import Task, TensorSpec, Workload
from warpsmith.tasks.program import Program

_TAIL_PARTS = 16  # a tail is the last one of so many parts
_AXES = {-1: "last axis", 0: "first axis"}
_MOST_COPIES = 8  # inputs that are tried as copies, per output
_SAMPLE = 1 << 20  # elements among which the most frequent value is found
_SAME_ROWS = 1e-9  # rows that vary by less are constant
_NO_INFLUENCE = 1e-12  # of the scale of a fp64 result: less is rounding of fp64
_VISIBLE = 0.3  # of a roundoff: a little less than the rms error of rounding once

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class EarlierResults:
    """The results of an earlier call on other inputs of the task's own distribution, which a kernel may have kept."""

    results: Tensors
    constants: Tensors  # for each output the nearest constant

    @staticmethod
    def of(results: Tensors) -> EarlierResults:
        """The results with their constants."""
        return EarlierResults(results, tuple(_typical(result) for result in results))


class ImpostorContext:
    """One input set, and the values that a kernel that skips work could use."""

    def __init__(
        self,
        program: Program,
        expected: ReferenceResult,
        earlier: EarlierResults,
        *,
        reduction: int,
        has_memory: bool = True,
        other_seed: int = 0,
    ) -> None:
        self.expected = expected
        self.precision = program.task.precision
        self.step: CoarserPrecision = NEXT_COARSER[self.precision]
        self.reduction = reduction  # terms summed per element
        self.earlier = earlier
        self.has_memory = has_memory  # whether memory suffices to run the reference for an impostor
        self._program = program
        self._device = expected.baseline[0].device
        self._other_seed = other_seed

    def right(self, position: int) -> Tensor:
        """The expected result in the output's own type."""
        return self.expected.outputs[position].to(self.expected.baseline[position].dtype, copy=True)

    @cached_property
    def coarse(self) -> Tensors:
        """The results of rounded inputs, rounded again, one step too coarsely."""
        results = self._program.run({n: round_mantissa(t, self.step.bits) for n, t in self.expected.inputs.items()})
        return tuple(round_mantissa(result, self.step.bits) for result in results)

    @cached_property
    def coarse_products(self) -> Tensors | None:
        """The results with only the operands of products rounded; None if the task has no products."""
        with CoarseProducts(self.step.bits) as mode:
            results = self._program.run(self.expected.inputs)
        return results if mode.seen else None

    @cached_property
    def unread(self) -> dict[int, Tensors | None]:
        """By axis: results of inputs whose tail repeats the block before it; None if no input has a tail."""
        return {axis: self._without_tail(axis) for axis in _AXES}

    @cached_property
    def other_inputs(self) -> dict[str, Tensor]:
        """Other inputs of the task's own distribution; a constant one is the same in all of them."""
        workload = self.expected.case.workload
        return self._program.inputs(workload, seed=self._other_seed, device=self._device)

    def without(self, name: str) -> Tensors:
        """The results of a kernel that takes other values for one input than it is given."""
        return self._program.run({**self.expected.inputs, name: self.other_inputs[name]})

    def influence(self, name: str, position: int) -> float:
        """How much one input changes the fp64 result, relative to the scale of that result."""
        inputs = {**self.expected.inputs, name: self.other_inputs[name]}
        right = self.expected.outputs[position]
        changed = run_reference(self._program, self._program.widen(inputs))[position]
        found = tolerance.measure_errors(changed, right, None)
        return found.rms if isinstance(found, Errors) else math.inf

    def _without_tail(self, axis: int) -> Tensors | None:
        kept = self._program.structured(device=self._device)
        free = {t.name for t in self._program.task.inputs if "float" in t.dtype} - kept
        changed = {
            name: repeated_tail(tensor, axis, block=True)
            for name, tensor in self.expected.inputs.items()
            if name in free and _has_tail(tensor, axis)
        }
        return self._program.run({**self.expected.inputs, **changed}) if changed else None


Make = Callable[[ImpostorContext, int], Tensor | None]


@dataclass(frozen=True)
class ImpostorKind:
    """One way to be wrong."""

    name: str
    make: Make  # the result for the output at a position; None if it cannot be made
    does: str  # completes "a kernel that "; {output}, {constant}, {step} and {precision} are filled in
    why: str  # why it may pass
    advice: str
    unfit: str = ""  # why it cannot be made for some tasks
    equal: str = ""  # what it means if it equals the right result everywhere; "": it passes
    excused: Callable[[ImpostorContext, int], bool] | None = None  # whether an honest result may be the same
    excuse: str = "an honest result is rounded as coarsely"
    costly: bool = False  # the reference runs to make it
    one_of_many: bool = False  # there is one for each input: a task may have hundreds


@dataclass(frozen=True)
class OutputImpostor:
    """A kind of impostor for one output of a task."""

    kind: ImpostorKind
    position: int


def impostors_for(task: Task) -> Iterator[OutputImpostor]:
    """All impostors to try on a task, the crudest first."""
    for position, output in enumerate(task.outputs):
        copies = [_copy(spec, output, task.workloads[0]) for spec in _copied(task, output)]
        several = task.inputs if len(task.inputs) > 1 else ()  # without its only input a result is a stale one
        ignored = [_ignored(spec) for spec in several]
        for kind in (ZEROS, CONSTANT, *copies, STALE, SMOOTHED, *TAILS, *UNREAD, *COARSE, *ignored):
            yield OutputImpostor(kind, position)


# --- without looking at the inputs ---


def _zeros(context: ImpostorContext, position: int) -> Tensor | None:
    return torch.zeros_like(context.expected.baseline[position])


def _constant(context: ImpostorContext, position: int) -> Tensor | None:
    like, value = context.expected.baseline[position], context.earlier.constants[position]
    return value.to(like.dtype).expand(like.shape).contiguous()


def _typical(result: Tensor) -> Tensor:
    """The mean, or the most frequent integer."""
    if result.dtype is torch.bool:
        return result.float().mean() >= 0.5
    if result.is_floating_point() or result.is_complex():
        wide = result.to(torch.complex128 if result.is_complex() else torch.float64)
        return torch.where(wide.isfinite(), wide, 0).mean()
    return result.flatten()[:_SAMPLE].mode().values


def _stale(context: ImpostorContext, position: int) -> Tensor | None:
    return context.earlier.results[position]


_DEPENDS = "choose inputs or an output that depend on the data"
ZEROS = ImpostorKind(
    "zeros",
    _zeros,
    "writes only zeros to {output}",
    "its right value is 0 to rounding on every input tried",
    _DEPENDS,
)
CONSTANT = ImpostorKind(
    "constant",
    _constant,
    "writes {constant} everywhere in {output}",
    "that is its right value to rounding on every input tried",
    _DEPENDS,
)
STALE = ImpostorKind(
    "stale result",
    _stale,
    "writes the {output} of an earlier call again",
    "it is the same to rounding for all inputs tried",
    _DEPENDS,
)


# --- from the inputs ---


def _copied(task: Task, output: TensorSpec) -> list[TensorSpec]:
    """Inputs whose copy has the shape of an output."""
    sizes = task.workloads[0].sizes
    wanted = output.shape(sizes)
    fitting = []
    for spec in task.inputs:
        shape = spec.shape(sizes)
        same = math.prod(shape) == math.prod(wanted)
        if (same or _spreads(shape, wanted)) and not ("complex" in spec.dtype and "complex" not in output.dtype):
            fitting.append(spec)
    return fitting[:_MOST_COPIES]


def _spreads(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a tensor of one shape can be broadcast to the other."""
    tail = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def _copy(spec: TensorSpec, output: TensorSpec, workload: Workload) -> ImpostorKind:
    """The impostor that copies one input. If the right result is a conversion or a broadcast, it is excused."""
    plain = spec.dtype == output.dtype and spec.numel(workload.sizes) == output.numel(workload.sizes)

    def make(context: ImpostorContext, position: int) -> Tensor | None:
        source, like = context.expected.inputs[spec.name], context.expected.baseline[position]
        if source.numel() == like.numel():
            return source.reshape(like.shape).to(like.dtype, copy=True)
        return source.to(like.dtype).expand(like.shape).contiguous() if _spreads(source.shape, like.shape) else None

    return ImpostorKind(
        f"copy of {spec.name}",
        make,
        f"only copies {spec.name} to {{output}}",
        "nothing else shows in it on any input tried",
        "choose an operator that computes something, or inputs on which it does",
        unfit="its shape does not fit",
        equal="" if plain else "the operator is this very conversion",
    )


# --- from the right result ---


def _smoothed(context: ImpostorContext, position: int) -> Tensor | None:
    right = context.expected.outputs[position]
    if not right.is_floating_point() or not _has_tail(right, -1):
        return None
    mean = right.mean(dim=-1, keepdim=True)
    if bool(((right - mean).abs() <= _SAME_ROWS * mean.abs()).all()):
        return None
    return mean.to(context.expected.baseline[position].dtype).expand(right.shape).contiguous()


SMOOTHED = ImpostorKind(
    "row means",
    _smoothed,
    "writes one value per row of {output}",
    "its rows vary by less than rounding on every input tried",
    "choose inputs of a larger spread, or return one value per row",
    unfit="no rows of different numbers",
)


def _has_tail(tensor: Tensor, axis: int) -> bool:
    """Whether there is a tail along an axis; a single axis counts as the last."""
    return tensor.dim() > (0 if axis == -1 else 1) and tensor.shape[axis] > 1


def _tail(tensor: Tensor, axis: int) -> int:
    """The length of the tail along an axis."""
    return max(1, tensor.shape[axis] // _TAIL_PARTS)


def dropped_tail(tensor: Tensor, axis: int) -> Tensor:
    """The tensor with a tail of zeros."""
    result, size = tensor.clone(), _tail(tensor, axis)
    result.narrow(axis, tensor.shape[axis] - size, size).zero_()
    return result


def repeated_tail(tensor: Tensor, axis: int, *, block: bool = False) -> Tensor:
    """The tensor with its tail replaced by the value, or the block, before it."""
    count, size = tensor.shape[axis], _tail(tensor, axis)
    result = tensor.clone()
    before = tensor.narrow(axis, count - 2 * size, size) if block else tensor.narrow(axis, count - size - 1, 1)
    result.narrow(axis, count - size, size).copy_(before)
    return result


def _spoilt(axis: int, spoil: Callable[[Tensor, int], Tensor]) -> Make:
    def make(context: ImpostorContext, position: int) -> Tensor | None:
        right = context.right(position)
        return spoil(right, axis) if _has_tail(right, axis) else None

    return make


TAILS = tuple(
    ImpostorKind(
        f"{what} tail, {_AXES[axis]}",
        _spoilt(axis, spoil),
        f"{does} the last sixteenth of {{output}} along the {_AXES[axis]}",
        "that part makes no difference on any input tried",
        "choose inputs or an output in which it does",
        unfit="nothing to leave out",
        equal="these are its right values",
    )
    for axis in _AXES
    for what, does, spoil in (
        ("dropped", "leaves out", dropped_tail),
        ("repeated", "does not compute", repeated_tail),
    )
)


# --- by computing something else ---


def _unread(axis: int) -> Make:
    def make(context: ImpostorContext, position: int) -> Tensor | None:
        found = context.unread[axis]
        return None if found is None else found[position]

    return make


UNREAD = tuple(
    ImpostorKind(
        f"unread tail, {_AXES[axis]}",
        _unread(axis),
        f"never reads the last sixteenth of its inputs along the {_AXES[axis]}",
        "{output} sums up so many values that some can be left out",
        "sum fewer values, or draw them with mixed signs and sizes",
        unfit="nothing to leave out",
        equal="no influence on the result",
        costly=True,
    )
    for axis in _AXES
)


def _ignored(spec: TensorSpec) -> ImpostorKind:
    """The impostor that ignores one input. If the operator does not depend on that input it is excused."""
    whole_number = "float" not in spec.dtype and "complex" not in spec.dtype and spec.dtype != "bool"

    def make(context: ImpostorContext, position: int) -> Tensor | None:
        if whole_number and context.expected.baseline[position].is_cuda:
            return None  # an index that does not fit the other inputs would end the device's context
        return context.without(spec.name)[position]

    def excused(context: ImpostorContext, position: int) -> bool:
        try:
            return context.influence(spec.name, position) < _NO_INFLUENCE
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return True  # nothing is known against the task

    return ImpostorKind(
        f"ignores {spec.name}",
        make,
        f"ignores {spec.name}",
        f"other values of {spec.name} change {{output}} by less than rounding on every input tried",
        f"draw {spec.name} so that it matters, or leave it out",
        unfit="the reference refuses other values beside the remaining inputs",
        equal="no influence on the result",
        excused=excused,
        excuse="no influence on the result",
        costly=True,
        one_of_many=True,
    )


def _coarse(context: ImpostorContext, position: int) -> Tensor | None:
    return context.coarse[position] if context.expected.limits[position] is not None else None


def _coarse_products(context: ImpostorContext, position: int) -> Tensor | None:
    found = context.coarse_products
    return found[position] if found is not None and context.expected.limits[position] is not None else None


def _as_coarse(context: ImpostorContext, position: int) -> bool:
    """Whether honest sums of this length, or the output's own type, are as coarse as the coarser arithmetic."""
    like = context.expected.baseline[position]
    floor = tolerance.error_limit(Errors(0.0, 0.0), like, context.precision, reduction=context.reduction, factor=1.0)
    return floor.rms > _VISIBLE * context.step.roundoff


_FINER = "draw inputs of mixed signs, or declare another precision"
COARSE = (
    ImpostorKind(
        "lower precision",
        _coarse,
        "computes in {step} instead of {precision}",
        "rounding to {step} shows on no input tried",
        _FINER,
        unfit="whole numbers are exact",
        equal="low bits do not matter",
        excused=_as_coarse,
        costly=True,
    ),
    ImpostorKind(
        "lower-precision products",
        _coarse_products,
        "multiplies in {step} instead of {precision}",
        "rounding the factors to {step} shows on no input tried",
        _FINER,
        unfit="no matrix products",
        equal="low bits do not matter",
        excused=_as_coarse,
        costly=True,
    ),
)
