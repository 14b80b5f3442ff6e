"""What a kernel may be given: element types, device, memory layout, shapes.

A kernel is only trusted with what it was tried on: the shapes of its task's workloads, and others where verification
tried others. A fault is a short code with the place of the tensor, so that `torch.compile` can follow the checks;
`said` puts it into words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from warpsmith.core.errors import WarpsmithError
from warpsmith.core.task import Dim, Task
from warpsmith.tasks.program import DTYPES, Program

Fault = tuple[str, int]
_INT32 = 2**31


class Coverage:
    """The limits of one kernel."""

    def __init__(self, program: Program, kind: str, *, any_shape: bool) -> None:
        task = program.task
        self.kind = kind
        self._cuda = kind == "cuda"
        self.any_shape = any_shape
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
        """What the kernel computes."""
        return self._program.task

    @property
    def derives(self) -> bool:
        """Whether outputs have extents that no input shows."""
        return len(self._bound) < len(self.task.axes)

    def fault(self, tensors: Sequence[Tensor]) -> Fault | None:
        """What is wrong with these tensors besides their shapes."""
        graded = torch.is_grad_enabled()
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

    def shape_fault(self, shapes: Sequence[Sequence[int]]) -> Fault | None:
        """What is wrong with the shapes."""
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
        if not self.any_shape:
            given = tuple([sizes[axis] for axis in self._bound])
            return None if given in self._known else ("workload", 0)
        for axis, extent in self._fixed:
            if axis in sizes and sizes[axis] != extent:
                return "fixed", 0
        for axis in self._bound:
            if sizes[axis] == 0:
                return "empty", 0
        for place, shape in enumerate(shapes):
            if prod(shape) >= self._most:
                return "large", place
        return None

    def sizes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int] | None:
        """Every axis for shapes without a fault; None where the reference itself does not take them."""
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
        """The axes that inputs show."""
        pairs = zip(self._dims, shapes, strict=True)
        return {d: n for dims, shape in pairs for d, n in zip(dims, shape, strict=True) if isinstance(d, str)}

    def said(self, fault: Fault, tensors: Sequence[Tensor]) -> str:
        """A fault in words."""
        code, place = fault
        name, tensor = self._names[place], tensors[place]
        shape = [] if tensor.is_nested else list(tensor.shape)
        dims = ", ".join(map(str, self._dims[place]))
        words: Mapping[str, str] = {
            "type": f"{name} is {_short(tensor.dtype)}, and the kernel takes {_short(self._dtypes[place])}",
            "device": f"{name} is on {tensor.device.type}, and the kernel runs on {self.kind}",
            "devices": f"{name} is on {tensor.device}, {self._names[0]} on {tensors[0].device}",
            "layout": f"{name} is not contiguous",
            "gradient": f"{name} requires a gradient, which the kernel does not give; call it under torch.no_grad()",
            "autocast": f"autocast is on for {self.kind}, and the kernel computes in its own types",
            "rank": f"{name} has the shape {shape}, and the kernel takes [{dims}]",
            "extent": f"{name} has the shape {shape}, and the kernel takes [{dims}]",
            "axis": f"{name} has the shape {shape}, which does not fit the other arguments: it takes [{dims}]",
            "fixed": f"the kernel is compiled for {', '.join(f'{a} = {n}' for a, n in self._fixed)} alone",
            "workload": f"the kernel was only tried at {self._tried()}; for other sizes it needs the certificate that "
            "`warpsmith export RUN --verify` puts into the bundle",
            "empty": "a tensor is empty",
            "large": f"{name} has 2^31 elements or more, and the kernel was never tried at such sizes",
            "kind": f"{name} is no plain tensor: nested, without memory, of a subclass, or in a transform such as vmap",
            "tangent": f"{name} has a tangent of forward-mode differentiation, and the kernel gives none",
            "sizes": "the reference does not take these shapes",
            "refused": "the kernel refused these sizes",
        }
        return words[code]

    def _tried(self) -> str:
        if not self._bound:
            return "its one size"
        shown = ["(" + ", ".join(f"{a}={w.sizes[a]}" for a in self._bound) + ")" for w in self.task.workloads]
        return ", ".join(shown[:6]) + (", …" if len(shown) > 6 else "")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
