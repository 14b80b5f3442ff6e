"""Records the ATen operations of a reference, on tensors without data.

The result is a `model.task.Outline`, plain data that needs no torch. Recording takes milliseconds, because nothing is
compiled and no fake tensor is made; a reference that cannot be recorded this way gets an outline of the family
"other". Bytes and operations are counted in `hardware.work`.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.model.errors import WarpsmithError
from warpsmith.model.task import (
    CONTRACTIONS,
    MOVES,
    REDUCTIONS,
    Dim,
    Family,
    Operation,
    Outline,
    OutlineValue,
    Task,
    Workload,
)
from warpsmith.tasks.meta_tracing import known_number
from warpsmith.tasks.native import prime_sizes
from warpsmith.tasks.program import Program, dtype_name
from warpsmith.tasks.user_code import Attempt

UNKNOWN = "?"
"""The name in `{"$": "?"}`: a number that depends on the sizes but on no product of axes."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VIEWS = frozenset(
    ("clone", "contiguous", "_unsafe_view", "reshape", "_reshape_copy", "detach", "lift_fresh", "alias", "expand_copy")
)
_MOVED = _VIEWS | MOVES
_PARTS = (2, 3, 4)  # of an axis, whose length may be an extent
_CONSTANTS = frozenset(
    ("full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "scalar_tensor", "new_zeros", "new_ones")
)
_POINTWISE = _words(
    "where hardswish hardswish_ hardtanh leaky_relu masked_fill _to_copy copy_ rsub prelu _prelu_kernel"
    " log_sigmoid_forward"
)


def outline(program: Program) -> Outline:
    """The outline of a program's reference; of the family "other" if it cannot be recorded. Never raises."""
    task = program.task
    inputs = tuple(OutlineValue(spec.name, spec.dtype, spec.dims) for spec in task.inputs)
    recorded: list[_Trace] = []
    for workloads in _runs(program):
        recorded = [trace for workload in workloads if (trace := _traced(program, workload)) is not None]
        if len(recorded) == len(workloads) and all(t.ended for t in recorded) and _alike(recorded):
            nodes = tuple(_node(task, recorded, index) for index in range(len(recorded[0].calls)))
            outputs = tuple(recorded[0].outputs)
            complete = recorded[0].sound and len(outputs) == len(task.outputs)
            return Outline(_family(recorded[0]) if complete else Family.OTHER, inputs, nodes, outputs)
    if not recorded:
        return Outline(Family.OTHER, inputs, (), ())
    seen = tuple(_node(task, recorded[:1], index) for index in range(len(recorded[0].calls)))
    return Outline(Family.OTHER, inputs, seen, tuple(recorded[0].outputs))


def _runs(program: Program) -> Iterator[list[Workload]]:
    """Sets of workloads that distinguish axes: with primes as sizes first, then the task's own."""
    task = program.task
    if task.axes:
        with contextlib.suppress(WarpsmithError):
            yield [program.workload(f"primes {n}", sizes) for n, sizes in enumerate(prime_sizes(task.axes))]
    largest = max(task.workloads, key=lambda w: sum(t.nbytes(w.sizes) for t in task.tensors))
    yield [largest, *(w for w in task.workloads if w is not largest)]


@dataclass
class _Call:
    op: str  # "aten.add.Tensor"
    name: str  # "add"
    args: object  # JSON, with numbers not yet replaced by axes
    kwargs: object
    results: list[tuple[str, str, tuple[int, ...]]]  # name, dtype, shape
    operand: int  # elements of its largest operand
    pointwise: bool = False
    view: bool = False


@dataclass
class _Trace:
    sizes: Mapping[str, int]
    calls: list[_Call] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    sound: bool = True  # the records describe the run completely
    ended: bool = False  # the reference did not raise


class _Recorder(TorchDispatchMode):
    """Records each call. Keeps all tensors alive, because tensors are identified by their id."""

    def __init__(self, trace: _Trace, inputs: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trace = trace
        self._keep: list[Tensor] = list(inputs.values())
        self._names: dict[int, str] = {id(t): name for name, t in inputs.items()}
        self._inputs = {_place(t): name for name, t in inputs.items()}
        self._holders: dict[int, int] = {}  # the number of tensors in a storage
        self._made = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise the first operator imports torch's compiler, which takes a second or two

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.lift_fresh.default and self.name(args[0]) is None and not args[0].dim():
            return func(*args)  # `torch.tensor(0.5)`: recorded where it is used
        given, options = self._json(args), self._json(kwargs)
        result = func(*args, **kwargs)
        tensors = [t for t in (result if isinstance(result, list | tuple) else (result,)) if isinstance(t, Tensor)]
        operands = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        before = {id(t): self._names.get(id(t)) for t in tensors}
        results = [(self._new(t), dtype_name(t), tuple(t.shape)) for t in tensors]
        name = func._schema.name.removeprefix("aten::")
        if func._schema.is_mutable:
            shared = any(self._holders.get(_storage(t), 1) > 1 for t in operands[:1])
            target = operands[0] if operands else None
            simple = len(tensors) == 1 and tensors[0] is target and before[id(tensors[0])] is not None
            # A write that another tensor shares cannot be described by a list of operations.
            self._trace.sound &= simple and not shared
        self._trace.calls.append(
            _Call(
                f"aten.{name}.{func._overloadname}" if func.namespace == "aten" else str(func),
                name,
                given,
                options,
                results,
                max((t.numel() for t in operands), default=0),
                torch.Tag.pointwise in func.tags,
                bool(func.is_view),
            )
        )
        return result

    def name(self, tensor: Tensor) -> str | None:
        """The name of a tensor; an input keeps its name when a module wraps it in a new tensor object."""
        return self._names.get(id(tensor)) or self._inputs.get(_place(tensor))

    def _new(self, tensor: Tensor) -> str:
        if id(tensor) not in self._names:
            self._holders[_storage(tensor)] = self._holders.get(_storage(tensor), 0) + 1
        self._keep.append(tensor)
        self._names[id(tensor)] = f"%{self._made}"
        self._made += 1
        return self._names[id(tensor)]

    def _constant(self, tensor: Tensor) -> str | None:
        """The name of a tensor that holds one number which the reference wrote down; records how it is made."""
        number = known_number(tensor)
        if number is None:
            return None
        name = self._new(tensor)
        call = _Call("aten.scalar_tensor.default", "scalar_tensor", [number], {}, [(name, dtype_name(tensor), ())], 0)
        self._trace.calls.append(call)
        return name

    def _json(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            name = self.name(value) or self._constant(value)
            if name is None:
                self._trace.sound = False
            return {"$": name or UNKNOWN}
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if isinstance(value, list | tuple):
            return [self._json(v) for v in value]
        if isinstance(value, dict):
            return {key: self._json(v) for key, v in value.items() if key not in ("device", "layout", "pin_memory")}
        return value if isinstance(value, bool | int | float | str) or value is None else None


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _place(tensor: Tensor) -> tuple[object, ...]:
    return (_storage(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _traced(program: Program, workload: Workload) -> _Trace | None:
    """A recorded run on meta tensors; None if the reference cannot run on them."""
    trace = _Trace(workload.sizes)
    with Attempt(Path(program.task.name)) as attempt:
        fake = program.fake_inputs(workload)
        if any(type(t) is not Tensor or not t.is_meta for t in fake.tensors.values()):
            return None  # its code reads values, or needs fake tensors
        recorder = _Recorder(trace, fake.tensors)
        with fake.mode, recorder:
            outputs = program.run(fake.tensors)
        trace.outputs = [recorder.name(tensor) or UNKNOWN for tensor in outputs]
    trace.ended = attempt.error is None
    trace.sound &= trace.ended and UNKNOWN not in trace.outputs
    return trace if trace.calls or trace.sound else None


def _alike(traces: Sequence[_Trace]) -> bool:
    first = traces[0]
    return all(
        trace.outputs == first.outputs
        and [(c.op, [(*r[:2], len(r[2])) for r in c.results]) for c in trace.calls]
        == [(c.op, [(*r[:2], len(r[2])) for r in c.results]) for c in first.calls]
        for trace in traces
    )


def _node(task: Task, traces: Sequence[_Trace], index: int) -> Operation:
    calls = [trace.calls[index] for trace in traces]
    sizes = [trace.sizes for trace in traces]
    results = tuple(
        OutlineValue(
            name,
            dtype,
            tuple(_dim([c.results[place][2][d] for c in calls], sizes) for d in range(len(shape))),
        )
        for place, (name, dtype, shape) in enumerate(calls[0].results)
    )
    return Operation(
        calls[0].op,
        json.dumps(_merged([c.args for c in calls], sizes)),
        json.dumps(_merged([c.kwargs for c in calls], sizes)),
        results,
    )


def _dim(extents: Sequence[int], sizes: Sequence[Mapping[str, int]]) -> Dim:
    """The one axis that has these extents in all runs; a number where they agree; else a product, "2*rows*cols".

    The last resort is a part of an axis: "cols//2", or "(cols+1)//2" where halves are rounded up.
    """

    def factor(axes: Sequence[str]) -> int:
        """The number that times the axes' product is the extent in every run; 0 if there is none."""
        quotients = {divmod(e, math.prod(s[a] for a in axes)) for e, s in zip(extents, sizes, strict=True)}
        return next(iter(quotients))[0] if len(quotients) == 1 and next(iter(quotients))[1] == 0 else 0

    named = [axis for axis in sizes[0] if factor([axis]) == 1]
    if len(set(extents)) == 1:
        # Two axes may have the same size in all of the task's own workloads: then the number is used.
        return named[0] if len(named) == 1 else extents[0]
    if named:
        return named[0]
    for count in (1, 2, 3, 4):
        for axes in combinations(sizes[0], count):
            if number := factor(axes):
                return "*".join((*((str(number),) if number > 1 else ()), *axes))
    for axis, parts in product(sizes[0], _PARTS):
        for added in (0, parts - 1):
            if all((s[axis] + added) // parts == e for e, s in zip(extents, sizes, strict=True)):
                return f"({axis}+{added})//{parts}" if added else f"{axis}//{parts}"
    return UNKNOWN


def _merged(found: Sequence[Any], sizes: Sequence[Mapping[str, int]]) -> object:
    """The arguments of one call from all runs, merged: a number that equals an axis in every run becomes that axis."""
    first = found[0]
    if isinstance(first, dict):
        return {key: _merged([f[key] for f in found], sizes) for key in first}
    if isinstance(first, list):
        if any(len(f) != len(first) for f in found):
            return {"$": UNKNOWN}
        return [_merged([f[place] for f in found], sizes) for place in range(len(first))]
    if all(f == first or (f != f and first != first) for f in found):
        return first
    if isinstance(first, int):
        dim = _dim(found, sizes)
        return {"$": dim}
    return {"$": _share(found, sizes)}


def _share(found: Sequence[Any], sizes: Sequence[Mapping[str, int]]) -> str:
    """A number that is divided by one axis in every run, "0.1/cols" (label smoothing)."""
    for axis in sizes[0] if all(type(each) is float for each in found) else ():
        number = float(f"{found[0] * sizes[0][axis]:.15g}")
        if all(number / s[axis] == each for each, s in zip(found, sizes, strict=True)):
            return f"{number}/{axis}"
    return UNKNOWN


def _family(trace: _Trace) -> Family:
    """The family of a reference by the kinds of its operations; the templates decide whether one fits."""
    contractions = 0
    reductions: list[bool] = []  # of each reduction, whether its result is one number
    for call in trace.calls:
        name = call.name.rstrip("_") if call.name.endswith("_") else call.name
        if name in CONTRACTIONS:
            contractions += 1
        elif name in REDUCTIONS and not (call.pointwise and len(call.results) == 1 and _keeps(call)):
            reductions.append(all(math.prod(shape) == 1 for _, _, shape in call.results[:1]) and call.operand > 1)
        elif name == "empty" and all(math.prod(shape) == 0 for _, _, shape in call.results):
            continue  # has no elements
        elif not (call.pointwise or call.view or name in _MOVED or name in _CONSTANTS or name in _POINTWISE):
            return Family.OTHER
    return Family.of(contractions, reductions)


def _keeps(call: _Call) -> bool:
    """Whether a call of an ambiguous name (`max` of two tensors) works element by element."""
    return math.prod(call.results[0][2]) == call.operand
