"""Which calls a kernel covers: element types, device, memory layout, shapes.

A kernel is used only for what it was tested with: the shapes of its task's workloads, and other shapes if verification
tested others. A mismatch is a short code with the index of the tensor, so that `torch.compile` can trace the checks;
`describe` puts it into words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from warpsmith.model.errors import WarpsmithError
from warpsmith.model.task import Dim, Task
from warpsmith.tasks.program import DTYPES, Program

Mismatch = tuple[str, int]
_INT32 = 2**31


class KernelCoverage:
    """The calls that one kernel covers."""

    def __init__(self, program: Program, kind: str, *, any_shape: bool, gradients: bool = True) -> None:
        task = program.task
        self.kind = kind
        self._cuda = kind == "cuda"
        self.any_shape = any_shape
        self._gradients = gradients
        self._program = program
        self._names = tuple(spec.name for spec in task.inputs)
        self._dtypes = tuple(DTYPES[spec.dtype] for spec in task.inputs)
        self._dims: tuple[tuple[Dim, ...], ...] = tuple(spec.dims for spec in task.inputs)
        self._fixed = tuple(task.fixed_axes.items())
        self._bound = tuple(a for a in task.axes if any(a in dims for dims in self._dims))
        self._known = tuple({tuple(w.sizes[a] for a in self._bound) for w in task.workloads})
        self._most = max(_INT32, *(max(spec.numel(w.sizes) for spec in task.tensors) + 1 for w in task.workloads))

    @property
    def task(self) -> Task:
        """The task of the kernel."""
        return self._program.task

    @property
    def derives(self) -> bool:
        """True if an output has an axis that no input has."""
        return len(self._bound) < len(self.task.axes)

    def mismatch(self, tensors: Sequence[Tensor]) -> Mismatch | None:
        """Why these tensors are not covered, shapes aside."""
        graded = not self._gradients and torch.is_grad_enabled()
        cuda, dtypes = self._cuda, self._dtypes
        for place, tensor in enumerate(tensors):
            if tensor.dtype != dtypes[place]:
                return "type", place
            if not (tensor.is_cuda if cuda else tensor.is_cpu):
                return "device", place
            if cuda and place and tensor.device != tensors[0].device:
                return "devices", place
            if tensor.layout != torch.strided or not tensor.is_contiguous():
                return "layout", place
            if graded and tensor.requires_grad:
                return "gradient", place
        if torch.is_autocast_enabled(self.kind):
            return "autocast", 0
        return None

    def shape_mismatch(self, shapes: Sequence[Sequence[int]]) -> Mismatch | None:
        """Why these shapes are not covered."""
        sizes: dict[str, int] = {}
        for place, (dims, shape) in enumerate(zip(self._dims, shapes)):  # noqa: B905  (for torch.compile)
            if len(shape) != len(dims):
                return "rank", place
            for dim, extent in zip(dims, shape):  # noqa: B905
                if isinstance(dim, int):
                    if extent != dim:
                        return "extent", place
                elif dim in sizes:
                    if extent != sizes[dim]:
                        return "axis", place
                else:
                    sizes[dim] = extent
        for axis, extent in self._fixed:
            if axis in sizes and sizes[axis] != extent:
                return "fixed", 0
        if not self.any_shape:
            given = tuple([sizes[axis] for axis in self._bound])
            return None if given in self._known else ("workload", 0)
        for axis in self._bound:
            if sizes[axis] == 0:
                return "empty", 0
        for place, shape in enumerate(shapes):
            if prod(shape) >= self._most:
                return "large", place
        return None

    def sizes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int] | None:
        """The size of every axis; None if the reference does not take these shapes."""
        bound = self.bound(shapes)
        if not self.derives:
            return bound
        task = self.task
        same = [w.sizes for w in task.workloads if all(w.sizes[axis] == size for axis, size in bound.items())]
        if len(same) == 1:
            return same[0]
        try:
            return self._program.workload("call", bound).sizes
        except WarpsmithError:
            return None

    def bound(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The sizes of the axes that inputs have."""
        pairs = zip(self._dims, shapes, strict=True)
        return {d: n for dims, shape in pairs for d, n in zip(dims, shape, strict=True) if isinstance(d, str)}

    def describe(self, mismatch: Mismatch, tensors: Sequence[Tensor]) -> str:
        """A mismatch in words."""
        code, place = mismatch
        name, tensor = self._names[place], tensors[place]
        shape = [] if tensor.is_nested else list(tensor.shape)
        dims = ", ".join(map(str, self._dims[place]))
        words: Mapping[str, str] = {
            "type": f"{name} is {_short(tensor.dtype)}, but the kernel takes {_short(self._dtypes[place])}",
            "device": f"{name} is on {tensor.device.type}, but the kernel runs on {self.kind}",
            "devices": f"{name} is on {tensor.device}, {self._names[0]} on {tensors[0].device}",
            "layout": f"{name} is not contiguous",
            "gradient": f"{name} requires a gradient, and a kernel for a recurrent module has none; "
            "call it under torch.no_grad()",
            "autocast": f"autocast is on for {self.kind}, but the kernel computes in its own types",
            "rank": f"{name} has the shape {shape}, but the kernel takes [{dims}]",
            "extent": f"{name} has the shape {shape}, but the kernel takes [{dims}]",
            "axis": f"{name} has the shape {shape}, which does not fit the other arguments: it takes [{dims}]",
            "fixed": f"the kernel is compiled only for {', '.join(f'{a} = {n}' for a, n in self._fixed)}, the same in "
            "every workload of its task; for other sizes add a workload to the task and optimise again",
            "workload": f"the kernel was only tested at {self._tested()}; for other sizes the bundle needs a "
            "certificate: `warpsmith export RUN --verify`",
            "empty": "a tensor is empty",
            "large": f"{name} has 2^31 elements or more, and the kernel was never tested at such sizes",
            "kind": f"{name} is no plain tensor: nested, without memory, a subclass, or inside a transform (vmap)",
            "tangent": f"{name} has a tangent of forward-mode differentiation, which the kernel does not compute",
            "sizes": "the reference does not take these shapes",
            "refused": "the kernel refused these sizes",
        }
        return words[code]

    def _tested(self) -> str:
        if not self._bound:
            return "its one size"
        shown = ["(" + ", ".join(f"{a}={w.sizes[a]}" for a in self._bound) + ")" for w in self.task.workloads]
        return ", ".join(shown[:6]) + (", …" if len(shown) > 6 else "")


class NoCoverage(KernelCoverage):
    """No call is covered: there is no kernel that may be used here."""

    def __init__(self, program: Program, why: str) -> None:
        super().__init__(program, "cpu", any_shape=True)
        self._why = why

    def mismatch(self, tensors: Sequence[Tensor]) -> Mismatch | None:
        """Always a mismatch."""
        return "none", 0

    def describe(self, mismatch: Mismatch, tensors: Sequence[Tensor]) -> str:
        """Why there is no kernel."""
        return self._why


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
