"""ATen operators that only move elements, as expressions: slices, joins, gathers, repeats, padding, shuffles.

Each of them reads elements of its operand at other indices than those of its result. The operand's expression is
rewritten: a load along the changed axis becomes an element at the new index.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from warpsmith.lowering.expressions import NO_AXIS, Axes, Expr, ExpressionPool, Unsupported, factors
from warpsmith.lowering.pointwise import Algebra, sigmoid
from warpsmith.lowering.terms import Lowering, OperationCall, Term
from warpsmith.model.task import Dim

_INT = "int64_t"
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
}
_EXACT_STEPS = range(2, 9)  # factors f for which floor(i * float(1 / f)) is i / f for all indices that occur


def apply(call: OperationCall) -> list[Term] | None:
    """The results of an operator that moves elements; None for other operators."""
    handler = _HANDLERS.get(call.name)
    return handler(call) if handler else None


class Moved:
    """Index arithmetic, and a term whose elements are read at other indices."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.pool: ExpressionPool = lowering.pool
        self.axes: Axes = lowering.axes

    def number(self, value: int) -> Expr:
        """A whole number."""
        return self.pool.const(value, _INT)

    def index(self, axis: int) -> Expr:
        """The index along an axis."""
        return self.number(0) if axis == NO_AXIS else self.pool.make("index", _INT, axes=(axis,))

    def extent(self, axis: int) -> Expr:
        """The length of an axis."""
        length = self.axes.extent(axis)
        return self.number(length) if isinstance(length, int) else self.pool.make("extent", _INT, axes=(axis,))

    def do(self, op: str, one: Expr, other: Expr) -> Expr:
        """Arithmetic of whole numbers; of constants at once."""
        if one.op == "const" and other.op == "const":
            return self.number(_ARITHMETIC[op](int(one.number), int(other.number)))
        if op in ("add", "sub") and other.op == "const" and other.number == 0:
            return one
        if op == "add" and one.op == "const" and one.number == 0:
            return other
        if op in ("mul", "div") and other.op == "const" and other.number == 1:
            return one
        return self.pool.make(op, _INT, (one, other))

    def within(self, index: Expr, axis: int) -> Expr:
        """An index limited to those of an axis, so that what is not used may be read."""
        return self.do("min", self.do("max", index, self.number(0)), self.do("sub", self.extent(axis), self.number(1)))

    def replaced(self, term: Term, indices: Mapping[int, Expr]) -> Expr:
        """The expression of a term, with the index of some of its dimensions replaced."""
        classes = [self.axes.find(a) for a in term.axes if a != NO_AXIS]
        wanted = {self.axes.find(term.axes[p]): e for p, e in indices.items() if term.axes[p] != NO_AXIS}
        if any(classes.count(each) > 1 for each in wanted):
            raise Unsupported("a tensor meets its own transpose")

        def index(axis: int) -> Expr:
            return wanted.get(self.axes.find(axis)) or self.index(axis)

        def change(part: Expr) -> Expr | None:
            found = [self.axes.find(a) for a in part.axes if a != NO_AXIS]
            hit = any(each in wanted for each in found)
            if part.op == "load" and hit:
                if any(found.count(each) > 1 for each in wanted):
                    raise Unsupported("a tensor meets its own transpose")
                dims = tuple(self.axes.fresh(self.axes.extent(a)) for a in part.axes)
                return self.pool.make("element", part.ctype, [index(a) for a in part.axes], name=part.name, axes=dims)
            if part.op == "index" and hit:
                total = self.number(0)
                for axis in part.axes:
                    total = self.do("add", self.do("mul", total, self.extent(axis)), index(axis))
                return total
            if part.op in ("reduce", "pick") and hit:
                raise Unsupported("an index along a reduced axis")
            return None

        return self.pool.rewrite(term.expr, change)

    def moved(self, term: Term, place: int, extent: Dim, index: Callable[[Expr], Expr]) -> Term:
        """A term with another extent in one dimension, where an index becomes `index` of it in the operand."""
        axis = self.axes.fresh(extent)
        expr = self.replaced(term, {place: index(self.index(axis))})
        return Term(expr, (*term.axes[:place], axis, *term.axes[place + 1 :]))


def merged(lowering: Lowering, term: Term, dims: Sequence[Dim]) -> Term | None:
    """A view in which some neighbouring dimensions are one; None where the dimensions do not fit."""
    move = Moved(lowering)
    rest, found, indices = [p for p, a in enumerate(term.axes) if a != NO_AXIS], list[int](), dict[int, Expr]()
    for dim in dims:
        group: list[int] = []
        while dim != 1 and rest and not lowering.is_size([term.axes[p] for p in group], dim):
            group.append(rest.pop(0))
        if dim != 1 and not lowering.is_size([term.axes[p] for p in group], dim):
            return None
        if len(group) == 1:
            found.append(term.axes[group[0]])
            continue
        found.append(lowering.axes.fresh(dim))
        inner = move.index(found[-1])
        for number, place in enumerate(reversed(group)):
            last = number == len(group) - 1
            extent = move.extent(term.axes[place])
            indices[place] = inner if last else move.do("mod", inner, extent)
            inner = inner if last else move.do("div", inner, extent)
    return None if rest else Term(move.replaced(term, indices), tuple(found))


# --- parts of a tensor ---


def _place(call: OperationCall, term: Term, argument: int = 1, default: int = 0) -> int:
    given = call.number(argument, "dim", default)
    if not isinstance(given, int) or not term.axes:
        raise Unsupported(call.name)
    return given % len(term.axes)


def _whole(call: OperationCall, argument: int, default: Any = None) -> Any:
    """A number, or the expression of an extent."""
    value = call.args[argument] if argument < len(call.args) else default
    if isinstance(value, dict):
        return call.pool.make("extent", _INT, axes=(call.lowering.axes.fresh(value["$"]),))
    return value


def _slice(call: OperationCall) -> list[Term]:
    term = call.term(0)
    place = _place(call, term)
    move = Moved(call.lowering)
    begin, step = _whole(call, 2, 0), call.number(4, "step", 1)
    start = begin if isinstance(begin, Expr) else move.number(begin or 0)
    if not isinstance(begin, Expr) and (begin or 0) < 0:
        start = move.do("add", move.extent(term.axes[place]), start)
        if isinstance(call.lowering.axes.extent(term.axes[place]), str):
            start = move.do("max", start, move.number(0))
    extent = call.result.dims[place]
    if begin in (0, None) and step == 1 and extent == call.lowering.axes.extent(term.axes[place]):
        return [term]
    return [move.moved(term, place, extent, lambda i: move.do("add", move.do("mul", i, move.number(step)), start))]


def _select(call: OperationCall) -> list[Term]:
    term = call.term(0)
    place = _place(call, term)
    move = Moved(call.lowering)
    given = _whole(call, 2)
    index = given if isinstance(given, Expr) else move.number(given)
    if not isinstance(given, Expr) and given < 0:
        index = move.do("add", move.extent(term.axes[place]), index)
    return [Term(move.replaced(term, {place: index}), (*term.axes[:place], *term.axes[place + 1 :]))]


def _split(call: OperationCall) -> list[Term]:
    term = call.term(0)
    place = _place(call, term, 2)
    move = Moved(call.lowering)
    found, before = list[Term](), move.number(0)
    for result in call.node.results:
        made = move.moved(term, place, result.dims[place], partial(move.do, "add", before))
        found.append(made)
        before = move.do("add", before, move.extent(made.axes[place]))
    return found


def _glu(call: OperationCall) -> list[Term]:
    """One half of a tensor times the logistic function of the other."""
    term = call.term(0)
    place = _place(call, term, 1, -1)
    move, do = Moved(call.lowering), Algebra(call.pool, call.ctype)
    first = move.moved(term, place, call.result.dims[place], lambda i: i)
    half = move.extent(first.axes[place])
    second = move.replaced(term, {place: move.do("add", move.index(first.axes[place]), half)})
    return [Term(do("mul", do.cast(first.expr), sigmoid(do, do.cast(second))), first.axes)]


def _unbind(call: OperationCall) -> list[Term]:
    term = call.term(0)
    place = _place(call, term)
    move = Moved(call.lowering)
    rest = (*term.axes[:place], *term.axes[place + 1 :])
    return [Term(move.replaced(term, {place: move.number(n)}), rest) for n in range(len(call.node.results))]


# --- tensors joined ---


def _terms(call: OperationCall) -> list[Term]:
    given = call.args[0] if call.args else None
    if not isinstance(given, list) or not all(isinstance(e, dict) and call.lowering.knows(e["$"]) for e in given):
        raise Unsupported(call.name)
    return [call.lowering.term(e["$"]) for e in given]


def _cat(call: OperationCall) -> list[Term]:
    terms = _terms(call)
    place = _place(call, terms[0])
    if any(len(t.axes) != len(terms[0].axes) for t in terms):
        raise Unsupported("tensors of different ranks joined")
    move = Moved(call.lowering)
    axis = call.lowering.axes.fresh(call.result.dims[place])
    others = call.broadcast([Term(t.expr, (*t.axes[:place], NO_AXIS, *t.axes[place + 1 :])) for t in terms])
    parts, before = list[tuple[Expr, Expr]](), move.number(0)  # where each part ends, and its value
    for term in terms:
        inside = move.within(move.do("sub", move.index(axis), before), term.axes[place])
        before = move.do("add", before, move.extent(term.axes[place]))
        parts.append((before, _typed(call, move.replaced(term, {place: inside}))))
    made = parts[-1][1]
    for end, value in reversed(parts[:-1]):
        first = call.pool.make("lt", "bool", (move.index(axis), end))
        made = call.pool.make("select", value.ctype, (first, value, made))
    return [Term(made, (*others[:place], axis, *others[place + 1 :]))]


def _stack(call: OperationCall) -> list[Term]:
    terms = _terms(call)
    place = call.number(1, "dim", 0) % (len(terms[0].axes) + 1)
    move = Moved(call.lowering)
    axis = call.lowering.axes.fresh(len(terms))
    others = call.broadcast(terms)
    values = [_typed(call, t.expr) for t in terms]
    made = values[-1]
    for number, value in reversed(list(enumerate(values[:-1]))):
        here = call.pool.make("eq", "bool", (move.index(axis), move.number(number)))
        made = call.pool.make("select", value.ctype, (here, value, made))
    return [Term(made, (*others[:place], axis, *others[place:]))]


def _typed(call: OperationCall, expr: Expr) -> Expr:
    return expr if expr.ctype == call.ctype else call.pool.make("cast", call.ctype, (expr,))


# --- elements at given places ---


def _embedding(call: OperationCall) -> list[Term]:
    table, rows = call.term(0), call.term(1)
    expr = Moved(call.lowering).replaced(table, {0: rows.expr})
    return [Term(expr, (*rows.axes, *table.axes[1:]))]


def _index_select(call: OperationCall) -> list[Term]:
    term, rows = call.term(0), call.term(2)
    place = _place(call, term)
    expr = Moved(call.lowering).replaced(term, {place: rows.expr})
    return [Term(expr, (*term.axes[:place], *rows.axes, *term.axes[place + 1 :]))]


def _index(call: OperationCall) -> list[Term]:
    """`x[..., rows, ...]` with one tensor of whole numbers, which may count from the end."""
    term, given = call.term(0), call.args[1]
    named = [(p, e) for p, e in enumerate(given) if e is not None]
    if len(named) != 1:
        raise Unsupported("an index of several tensors")
    place, rows = named[0][0], call.lowering.term(named[0][1]["$"])
    if rows.expr.ctype != _INT:
        raise Unsupported("an index by a mask")
    move = Moved(call.lowering)
    from_end = move.do("add", rows.expr, move.extent(term.axes[place]))
    negative = call.pool.make("lt", "bool", (rows.expr, move.number(0)))
    index = call.pool.make("select", _INT, (negative, from_end, rows.expr))
    return [Term(move.replaced(term, {place: index}), (*term.axes[:place], *rows.axes, *term.axes[place + 1 :]))]


def _gather(call: OperationCall) -> list[Term]:
    term, rows = call.term(0), call.term(2)
    place = _place(call, term)
    axes = call.lowering.axes
    move = Moved(call.lowering)
    indices = {place: rows.expr}
    for other, (mine, theirs) in enumerate(zip(term.axes, rows.axes, strict=True)):
        if other == place:
            continue
        if axes.extent(mine) == axes.extent(theirs):
            axes.join(mine, theirs)
        else:
            indices[other] = move.index(theirs)
    return [Term(move.replaced(term, indices), rows.axes)]


# --- other orders ---


def _repeat(call: OperationCall) -> list[Term]:
    term, dims = call.term(0), call.result.dims
    move = Moved(call.lowering)
    axes = (*((NO_AXIS,) * (len(dims) - len(term.axes))), *term.axes)
    found, indices, padded = list[int](), dict[int, Expr](), Term(term.expr, axes)
    for place, (axis, dim) in enumerate(zip(axes, dims, strict=True)):
        if axis != NO_AXIS and call.lowering.axes.extent(axis) == dim:
            found.append(axis)
            continue
        found.append(call.lowering.axes.fresh(dim))
        if axis != NO_AXIS:
            indices[place] = move.do("mod", move.index(found[-1]), move.extent(axis))
    return [Term(move.replaced(padded, indices), tuple(found))]


def _roll(call: OperationCall) -> list[Term]:
    term, shifts = call.term(0), call.args[1]
    dims = call.number(2, "dims", [])
    if not dims or not isinstance(shifts, list) or not all(isinstance(s, int) for s in shifts):
        raise Unsupported("a roll of all elements")
    move = Moved(call.lowering)
    for dim, shift in zip(dims, shifts, strict=True):
        place = dim % len(term.axes)
        extent = move.extent(term.axes[place])

        def back(i: Expr, shift: int = shift, extent: Expr = extent) -> Expr:
            by = move.do("mod", move.do("add", move.do("mod", move.number(shift), extent), extent), extent)
            return move.do("mod", move.do("sub", move.do("add", i, extent), by), extent)

        term = move.moved(term, place, call.result.dims[place], back)
    return [term]


def _flip(call: OperationCall) -> list[Term]:
    term = call.term(0)
    move = Moved(call.lowering)
    for dim in call.number(1, "dims"):
        place = dim % len(term.axes)
        last = move.do("sub", move.extent(term.axes[place]), move.number(1))
        term = move.moved(term, place, call.result.dims[place], partial(move.do, "sub", last))
    return [term]


def _pad(call: OperationCall) -> list[Term]:
    term, widths = call.term(0), call.args[1]
    value = call.number(2, "value", 0)
    if not isinstance(widths, list) or not all(isinstance(w, int) for w in widths):
        raise Unsupported("padding that depends on the sizes")
    for number in range(len(widths) // 2):
        before, after = widths[2 * number : 2 * number + 2]
        if before or after:
            term = _padded(call, term, len(term.axes) - 1 - number, before, value or 0)
    return [term]


def _padded(call: OperationCall, term: Term, place: int, before: int, value: float) -> Term:
    """A term with a constant before and after its elements in one dimension."""
    move, pool = Moved(call.lowering), call.pool
    old, kind = term.axes[place], term.expr.ctype

    def inner(index: Expr) -> Expr:
        return move.do("sub", index, move.number(before))

    made = move.moved(term, place, call.result.dims[place], lambda i: move.within(inner(i), old))
    index = inner(move.index(made.axes[place]))
    above = pool.make("ge", "bool", (index, move.number(0)))
    inside = pool.make("and", "bool", (above, pool.make("lt", "bool", (index, move.extent(old)))))
    return Term(pool.make("select", kind, (inside, made.expr, pool.const(value, kind))), made.axes)


def _shuffle(call: OperationCall) -> list[Term]:
    """`pixel_shuffle`: blocks of channels become blocks of pixels."""
    term, factor = call.term(0), call.number(1)
    move = Moved(call.lowering)
    channels, rows, columns = (call.lowering.axes.fresh(d) for d in call.result.dims[-3:])
    by = move.number(factor)
    c, h, w = (move.index(a) for a in (channels, rows, columns))
    inner = move.do("add", move.do("mul", move.do("mod", h, by), by), move.do("mod", w, by))
    channel = move.do("add", move.do("mul", c, move.number(factor * factor)), inner)
    place = len(term.axes) - 3
    indices = {place: channel, place + 1: move.do("div", h, by), place + 2: move.do("div", w, by)}
    return [Term(move.replaced(term, indices), (*term.axes[:-3], channels, rows, columns))]


def _unshuffle(call: OperationCall) -> list[Term]:
    """`pixel_unshuffle`: blocks of pixels become channels."""
    term, factor = call.term(0), call.number(1)
    move = Moved(call.lowering)
    channels, rows, columns = (call.lowering.axes.fresh(d) for d in call.result.dims[-3:])
    by, area = move.number(factor), move.number(factor * factor)
    c, h, w = (move.index(a) for a in (channels, rows, columns))
    row = move.do("add", move.do("mul", h, by), move.do("div", move.do("mod", c, area), by))
    column = move.do("add", move.do("mul", w, by), move.do("mod", c, by))
    place = len(term.axes) - 3
    indices = {place: move.do("div", c, area), place + 1: row, place + 2: column}
    return [Term(move.replaced(term, indices), (*term.axes[:-3], channels, rows, columns))]


def _divided(move: Moved, by: int, index: Expr) -> Expr:
    return move.do("div", index, move.number(by))


def _nearest(call: OperationCall) -> list[Term]:
    """Upsampling by whole factors: every element several times."""
    term = call.term(0)
    move = Moved(call.lowering)
    scales = call.args[2] if call.overload == "vec" else call.args[2:]
    for place in range(2, len(term.axes)):
        factor = _factor(call, place, scales[place - 2] if scales and len(scales) > place - 2 else None)
        if factor > 1:
            term = move.moved(term, place, call.result.dims[place], partial(_divided, move, factor))
    return [term]


def _factor(call: OperationCall, place: int, scale: object) -> int:
    before = factors([call.lowering.axes.extent(call.term(0).axes[place])])
    after = factors([call.result.dims[place]])
    found = scale if isinstance(scale, float) else after[0] / max(before[0], 1) if before[1] == after[1] else 0.0
    if found != 1 and found not in _EXACT_STEPS:
        raise Unsupported("upsampling by a factor that is not whole, or above 8")
    return int(found)


def _triangle(call: OperationCall) -> list[Term]:
    """`triu`, `tril`: zeros to one side of a diagonal."""
    term, diagonal = call.term(0), call.number(1, "diagonal", 0)
    move = Moved(call.lowering)
    rows, columns = term.axes[-2:]
    if NO_AXIS not in (rows, columns) and move.axes.find(rows) == move.axes.find(columns):
        raise Unsupported("a tensor meets its own transpose")
    far = move.do("sub", move.index(columns), move.index(rows))
    op = "ge" if call.name == "triu" else "le"
    kept = call.pool.make(op, "bool", (far, move.number(diagonal)))
    zero = call.pool.const(0, term.expr.ctype)
    return [Term(call.pool.make("select", term.expr.ctype, (kept, term.expr, zero)), term.axes)]


def _arange(call: OperationCall) -> list[Term]:
    """Whole numbers from a start in equal steps."""
    numbers = [_whole(call, place) for place in range(len(call.args))]
    if any(not isinstance(n, int | Expr) for n in numbers) or not numbers:
        raise Unsupported("a range of fractions")
    move = Moved(call.lowering)
    start, step = (numbers[0], (numbers[2:] or [1])[0]) if len(numbers) > 1 else (0, 1)
    first, by = (n if isinstance(n, Expr) else move.number(n) for n in (start, step))
    axis = call.lowering.axes.fresh(call.result.dims[0])
    made = move.do("add", move.do("mul", move.index(axis), by), first)
    return [Term(made if call.ctype == _INT else call.pool.make("cast", call.ctype, (made,)), (axis,))]


_HANDLERS: Mapping[str, Callable[[OperationCall], list[Term]]] = {
    "slice": _slice,
    "select": _select,
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _split),
    "unbind": _unbind,
    "cat": _cat,
    "stack": _stack,
    "embedding": _embedding,
    "index_select": _index_select,
    "index": _index,
    "gather": _gather,
    "repeat": _repeat,
    "roll": _roll,
    "flip": _flip,
    "constant_pad_nd": _pad,
    "pixel_shuffle": _shuffle,
    "pixel_unshuffle": _unshuffle,
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"), _nearest),
    **dict.fromkeys(("triu", "tril"), _triangle),
    "arange": _arange,
    "glu": _glu,
}
HANDLED = frozenset(_HANDLERS)
"""The operators that `apply` knows, by their names in ATen."""
