"""The operations of a reference as expressions: views and constants here, others in `reduction` and `pointwise`."""

from __future__ import annotations

import json

from warpsmith.lowering import moves, pointwise, reduction
from warpsmith.lowering.expressions import CTYPES, NO_AXIS, Unsupported
from warpsmith.lowering.terms import Lowered, Lowering, OperationCall, Term
from warpsmith.model.task import Dim, Outline, Task

_SAME = frozenset(("clone", "contiguous", "detach", "lift_fresh", "alias", "positive", "lift_fresh_copy"))
_VIEWS = frozenset(("view", "_unsafe_view", "reshape", "_reshape_copy", "unsqueeze", "squeeze", "flatten", "view_copy"))
_FILLS = {"zeros": 0.0, "zeros_like": 0.0, "ones": 1.0, "ones_like": 1.0, "new_zeros": 0.0, "new_ones": 1.0}


def lower(task: Task, outline: Outline) -> Lowered:
    """The expressions of a task's outputs; `Unsupported` where an operation is not known.

    Views and constants are read here, what moves elements in `moves`, reductions in `reduction`, element-wise operators
    in `pointwise`.
    """
    lowering = Lowering(task, outline)
    for node in outline.nodes:
        name = node.op.removeprefix("aten.").rpartition(".")[0]
        name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        call = OperationCall(lowering, node, name, json.loads(node.arguments), json.loads(node.keywords))
        made = _structural(call) or moves.apply(call) or reduction.apply(call) or pointwise.apply(call)
        if made is None:
            raise Unsupported(node.op)
        lowering.define(node, made)
    return lowering.finish()


def _view(lowering: Lowering, term: Term, dims: tuple[Dim, ...]) -> Term:
    try:
        return lowering.view(term, dims)
    except Unsupported:
        made = moves.merged(lowering, term, dims)
        if made is None:
            raise
        return made


def _structural(call: OperationCall) -> list[Term] | None:
    """The result of a view, a copy or a constant; None for other operators."""
    lowering = call.lowering
    name, dims = call.name, call.result.dims
    if name in _SAME:
        return [call.term(0)]
    if name == "_to_copy" or name == "copy":
        source = call.term(0 if name == "_to_copy" else 1)
        return [Term(lowering.cast(source.expr, CTYPES.get(call.result.dtype)), source.axes)]
    if name in _VIEWS:
        if call.overload == "dtype":
            raise Unsupported("the bits of a number as another type")
        return [_view(lowering, call.term(0), dims)]
    if name in ("t", "numpy_T"):
        return [Term(call.term(0).expr, call.term(0).axes[::-1])]
    if name == "transpose":
        axes = list(call.term(0).axes)
        first, second = call.number(1), call.number(2)
        axes[first], axes[second] = axes[second], axes[first]
        return [Term(call.term(0).expr, tuple(axes))]
    if name == "permute":
        axes = list(call.term(0).axes)
        return [Term(call.term(0).expr, tuple(axes[d] for d in call.args[1]))]
    if name in ("expand", "expand_copy"):
        term = call.term(0)
        padded = (NO_AXIS,) * (len(dims) - len(term.axes)) + term.axes
        fresh = tuple(lowering.axes.fresh(d) if a == NO_AXIS else a for a, d in zip(padded, dims, strict=True))
        return [Term(term.expr, fresh)]
    if name == "empty" and 0 in dims:  # a batch norm creates such a tensor for its backward pass
        return [Term(lowering.pool.const(0, "int64_t"), (NO_AXIS,) * len(dims))]
    if name in _FILLS or name in ("full", "full_like", "scalar_tensor"):
        number = _FILLS.get(name, call.args[0 if name == "scalar_tensor" else 1] if name not in _FILLS else 0.0)
        if not isinstance(number, int | float) or call.result.dtype not in CTYPES:
            raise Unsupported("a constant that depends on the sizes")
        value = lowering.pool.const(number, CTYPES[call.result.dtype])
        return [Term(value, tuple(lowering.axes.fresh(d) for d in dims))]
    return None
