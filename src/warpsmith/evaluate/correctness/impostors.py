"""Results that are wrong on purpose, each standing for a kernel that skips work.

An impostor is made from what such a kernel would have: the inputs, an earlier result, the right result with a part
missing, a coarser arithmetic. Whether a task notices is for `calibration` to find out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from warpsmith.core.task import Task, TensorSpec, Workload
from warpsmith.evaluate.correctness import numerics
from warpsmith.evaluate.correctness.coarse import BELOW, CoarseProducts, Step, rounded
from warpsmith.evaluate.correctness.oracle import Truth
from warpsmith.evaluate.correctness.scanning import Errors
from warpsmith.tasks.program import Program

_TAIL_PARTS = 16  # a tail is the last one of so many parts
_AXES = {-1: "last axis", 0: "first axis"}
_MOST_COPIES = 8  # inputs tried as copies, per output
_SAMPLE = 1 << 20  # elements looked at for the most frequent value
_SAME_ROWS = 1e-9  # rows that vary by less than this are meant to be constant
_VISIBLE = 0.3  # of a roundoff: a little less than the rms error of rounding once

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Earlier:
    """What a kernel may remember: the results of an earlier call on other inputs of the task's own distribution."""

    results: Tensors
    constants: Tensors  # for each output the constant that comes nearest

    @staticmethod
    def of(results: Tensors) -> Earlier:
        """The same with its constants."""
        return Earlier(results, tuple(_typical(result) for result in results))


class Scene:
    """One case, and what a kernel that skips work could have at hand there."""

    def __init__(self, program: Program, truth: Truth, earlier: Earlier, *, reduction: int, roomy: bool = True) -> None:
        self.truth = truth
        self.precision = program.task.precision
        self.step: Step = BELOW[self.precision]
        self.reduction = reduction  # terms summed per element
        self.earlier = earlier
        self.roomy = roomy  # whether there is memory for results that have to be computed
        self._program = program
        self._device = truth.baseline[0].device

    def right(self, position: int) -> Tensor:
        """The expected result in the output's own type, to be spoilt."""
        return self.truth.expected[position].to(self.truth.baseline[position].dtype, copy=True)

    @cached_property
    def coarse(self) -> Tensors:
        """Inputs and results rounded one step too coarsely."""
        results = self._program.run({n: rounded(t, self.step.bits) for n, t in self.truth.inputs.items()})
        return tuple(rounded(result, self.step.bits) for result in results)

    @cached_property
    def coarse_products(self) -> Tensors | None:
        """Only the operands of products rounded; None where nothing is multiplied."""
        with CoarseProducts(self.step.bits) as mode:
            results = self._program.run(self.truth.inputs)
        return results if mode.seen else None

    @cached_property
    def unread(self) -> dict[int, Tensors | None]:
        """By axis: results of inputs whose tail holds what comes before it; None where none has a tail."""
        return {axis: self._without_tail(axis) for axis in _AXES}

    def _without_tail(self, axis: int) -> Tensors | None:
        kept = self._program.structured(device=self._device)
        free = {t.name for t in self._program.task.inputs if "float" in t.dtype} - kept
        changed = {
            name: repeated_tail(tensor, axis, block=True)
            for name, tensor in self.truth.inputs.items()
            if name in free and _has_tail(tensor, axis)
        }
        return self._program.run({**self.truth.inputs, **changed}) if changed else None


Make = Callable[[Scene, int], Tensor | None]


@dataclass(frozen=True)
class Kind:
    """One way to be wrong."""

    name: str
    make: Make  # the result for the output at a position; None where it cannot be made
    does: (
        str  # what such a kernel does, after "a kernel that "; {output}, {constant}, {step}, {precision} are filled in
    )
    why: str  # why it passes where it does
    advice: str
    unfit: str = ""  # why it cannot be made, where that may be
    equal: str = ""  # what it means where it is the very result everywhere; "": it passes then
    excused: Callable[[Scene, int], bool] | None = None  # whether honest kernels are no better there
    costly: bool = False  # the reference has to run for it


@dataclass(frozen=True)
class Disguise:
    """A kind of impostor in one output of a task."""

    kind: Kind
    position: int


def disguises(task: Task) -> Iterator[Disguise]:
    """Every impostor to try on a task, the crudest first."""
    for position, output in enumerate(task.outputs):
        copies = [_copy(spec, output, task.workloads[0]) for spec in _copied(task, output)]
        for kind in (ZEROS, CONSTANT, *copies, STALE, SMOOTHED, *TAILS, *UNREAD, *COARSE):
            yield Disguise(kind, position)


# --- without looking at the inputs ---


def _zeros(scene: Scene, position: int) -> Tensor | None:
    return torch.zeros_like(scene.truth.baseline[position])


def _constant(scene: Scene, position: int) -> Tensor | None:
    like, value = scene.truth.baseline[position], scene.earlier.constants[position]
    return value.to(like.dtype).expand(like.shape).contiguous()


def _typical(result: Tensor) -> Tensor:
    """The mean, or the most frequent whole number."""
    if result.dtype is torch.bool:
        return result.float().mean() >= 0.5
    if result.is_floating_point() or result.is_complex():
        wide = result.to(torch.complex128 if result.is_complex() else torch.float64)
        return torch.where(wide.isfinite(), wide, 0).mean()
    return result.flatten()[:_SAMPLE].mode().values


def _stale(scene: Scene, position: int) -> Tensor | None:
    return scene.earlier.results[position]


_DEPENDS = "choose inputs or an output that depend on the data"
ZEROS = Kind(
    "zeros",
    _zeros,
    "writes only zeros to {output}",
    "its right value is 0 to rounding on every input tried",
    _DEPENDS,
)
CONSTANT = Kind(
    "constant",
    _constant,
    "writes {constant} everywhere in {output}",
    "that is its right value to rounding on every input tried",
    _DEPENDS,
)
STALE = Kind(
    "stale result",
    _stale,
    "writes the {output} of an earlier call again",
    "it is the same to rounding for all inputs tried",
    _DEPENDS,
)


# --- from the inputs ---


def _copied(task: Task, output: TensorSpec) -> list[TensorSpec]:
    """Inputs that could be passed off as an output."""
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


def _copy(spec: TensorSpec, output: TensorSpec, workload: Workload) -> Kind:
    """Copying one input. A conversion or a broadcast that is exactly right is an operator; a plain copy is none."""
    plain = spec.dtype == output.dtype and spec.numel(workload.sizes) == output.numel(workload.sizes)

    def make(scene: Scene, position: int) -> Tensor | None:
        source, like = scene.truth.inputs[spec.name], scene.truth.baseline[position]
        if source.numel() == like.numel():
            return source.reshape(like.shape).to(like.dtype, copy=True)
        return source.to(like.dtype).expand(like.shape).contiguous() if _spreads(source.shape, like.shape) else None

    return Kind(
        f"copy of {spec.name}",
        make,
        f"only copies {spec.name} to {{output}}",
        "nothing else shows in it on any input tried",
        "choose an operator that computes something, or inputs on which it does",
        unfit="its shape does not fit",
        equal="" if plain else "the operator is this very conversion",
    )


# --- from the right result ---


def _smoothed(scene: Scene, position: int) -> Tensor | None:
    expected = scene.truth.expected[position]
    if not expected.is_floating_point() or not _has_tail(expected, -1):
        return None
    mean = expected.mean(dim=-1, keepdim=True)
    if bool(((expected - mean).abs() <= _SAME_ROWS * mean.abs()).all()):
        return None
    return mean.to(scene.truth.baseline[position].dtype).expand(expected.shape).contiguous()


SMOOTHED = Kind(
    "row means",
    _smoothed,
    "writes one value per row of {output}",
    "its rows vary by less than rounding on every input tried",
    "choose inputs of a larger spread, or return one value per row",
    unfit="no rows of different numbers",
)


def _has_tail(tensor: Tensor, axis: int) -> bool:
    """Whether there is something along an axis to leave out; the first is the last where there is only one."""
    return tensor.dim() > (0 if axis == -1 else 1) and tensor.shape[axis] > 1


def _tail(tensor: Tensor, axis: int) -> int:
    """How many places along an axis the tail has."""
    return max(1, tensor.shape[axis] // _TAIL_PARTS)


def dropped_tail(tensor: Tensor, axis: int) -> Tensor:
    """The tensor with a tail of zeros."""
    result, size = tensor.clone(), _tail(tensor, axis)
    result.narrow(axis, tensor.shape[axis] - size, size).zero_()
    return result


def repeated_tail(tensor: Tensor, axis: int, *, block: bool = False) -> Tensor:
    """The tensor with its last value before the tail, or the block before it, in the tail's place."""
    count, size = tensor.shape[axis], _tail(tensor, axis)
    result = tensor.clone()
    before = tensor.narrow(axis, count - 2 * size, size) if block else tensor.narrow(axis, count - size - 1, 1)
    result.narrow(axis, count - size, size).copy_(before)
    return result


def _spoilt(axis: int, spoil: Callable[[Tensor, int], Tensor]) -> Make:
    def make(scene: Scene, position: int) -> Tensor | None:
        right = scene.right(position)
        return spoil(right, axis) if _has_tail(right, axis) else None

    return make


TAILS = tuple(
    Kind(
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
    def make(scene: Scene, position: int) -> Tensor | None:
        found = scene.unread[axis]
        return None if found is None else found[position]

    return make


UNREAD = tuple(
    Kind(
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


def _coarse(scene: Scene, position: int) -> Tensor | None:
    return scene.coarse[position] if scene.truth.limits[position] is not None else None


def _coarse_products(scene: Scene, position: int) -> Tensor | None:
    found = scene.coarse_products
    return found[position] if found is not None and scene.truth.limits[position] is not None else None


def _as_rough(scene: Scene, position: int) -> bool:
    """Whether honest sums of this length, or the output's own type, are as rough as the coarser step."""
    like = scene.truth.baseline[position]
    floor = numerics.limit(Errors(0.0, 0.0), like, scene.precision, reduction=scene.reduction, factor=1.0)
    return floor.rms > _VISIBLE * scene.step.roundoff


_FINER = "draw inputs of mixed signs, or declare another precision"
COARSE = (
    Kind(
        "lower precision",
        _coarse,
        "computes in {step} instead of {precision}",
        "rounding to {step} shows on no input tried",
        _FINER,
        unfit="whole numbers are exact",
        equal="low bits do not matter",
        excused=_as_rough,
        costly=True,
    ),
    Kind(
        "lower-precision products",
        _coarse_products,
        "multiplies in {step} instead of {precision}",
        "rounding the factors to {step} shows on no input tried",
        _FINER,
        unfit="no matrix products",
        equal="low bits do not matter",
        excused=_as_rough,
        costly=True,
    ),
)
