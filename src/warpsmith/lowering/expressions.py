"""Expressions over loop axes: the values that a kernel computes, independent of its loops.

An expression is a tree of scalar functions over loads, each of which names the axis behind every dimension of its
tensor; a reduction binds the axes it reduces. What a slice, a gather or a join reads is an "element", whose place in
each dimension is an expression of its own, made of indices along axes. Equal expressions are the same object. ATen
operators are read in `lower`, C++ is written in `emitter`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from warpsmith.model.task import Dim

NO_AXIS = -1
"""The axis of a dimension of extent one."""

CTYPES: Mapping[str, str] = {
    "float64": "double",
    "float32": "float",
    "float16": "float",
    "bfloat16": "float",
    "int64": "int64_t",
    "int32": "int64_t",
    "int16": "int64_t",
    "int8": "int64_t",
    "uint8": "int64_t",
    "bool": "bool",
}
"""The C type in which values of an element type are computed."""

_RANK = {"bool": 0, "int64_t": 1, "float": 2, "double": 3}


class Unsupported(Exception):
    """The templates do not cover an operation or a layout; callers report that no template fits."""


def wider(first: str, second: str) -> str:
    """The C type to which two operands are converted."""
    return first if _RANK[first] >= _RANK[second] else second


@dataclass(frozen=True, eq=False)
class Expr:
    """One value per point of the loop axes; made by an `ExpressionPool` only."""

    op: str  # "load", "element", "index", "const", "extent", "reduce", "pick", or a scalar function of `emitter`
    ctype: str
    args: tuple[Expr, ...] = ()
    name: str = ""  # of a load: the tensor or workspace slot; of a reduction: "sum", "max", "argmin", …
    # Of a load: per dimension; of an index: those it counts along; of a reduction: those it binds; of a pick: the one
    # it sets; of an element: one per dimension of its tensor, for the extents.
    axes: tuple[int, ...] = ()
    number: float | int | bool = 0  # of a const
    free: frozenset[int] = frozenset()  # the axes that the value depends on


class ExpressionPool:
    """Makes expressions; equal arguments give the same object."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Expr] = {}

    def make(
        self,
        op: str,
        ctype: str,
        args: Iterable[Expr] = (),
        *,
        name: str = "",
        axes: tuple[int, ...] = (),
        number: float | int | bool = 0,
    ) -> Expr:
        """An expression, the same object for the same arguments."""
        args = tuple(args)
        key = (op, ctype, tuple(id(a) for a in args), name, axes, type(number), repr(number))
        if key not in self._known:
            free = frozenset[int]().union(*(a.free for a in args))
            if op in ("load", "index"):
                free = frozenset(axes) - {NO_AXIS}
            elif op in ("reduce", "pick"):
                free = (args[0].free - frozenset(axes)).union(*(a.free for a in args[1:]))
            self._known[key] = Expr(op, ctype, args, name, axes, number, free)
        return self._known[key]

    def const(self, number: float | int | bool, ctype: str) -> Expr:
        """A constant."""
        return self.make("const", ctype, number=number)

    def rewrite(self, expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
        """The expression with every part replaced for which `change` returns another one, outermost parts first."""
        done: dict[Expr, Expr] = {}

        def visit(part: Expr) -> Expr:
            if part not in done:
                other = change(part)
                if other is None:
                    args = [visit(a) for a in part.args]
                    same = all(a is b for a, b in zip(args, part.args, strict=True))
                    other = part if same else self.make(
                        part.op, part.ctype, args, name=part.name, axes=part.axes, number=part.number
                    )  # fmt: skip
                done[part] = other
            return done[part]

        return visit(expr)

    def renamed(self, expr: Expr, axes: Mapping[int, int]) -> Expr:
        """The expression with axes replaced, the bound ones included."""
        done: dict[Expr, Expr] = {}

        def visit(part: Expr) -> Expr:
            if part not in done:
                fresh = tuple(axes.get(a, a) for a in part.axes)
                args = [visit(a) for a in part.args]
                done[part] = self.make(part.op, part.ctype, args, name=part.name, axes=fresh, number=part.number)
            return done[part]

        return visit(expr)

    def divided(self, expr: Expr, axes: Mapping[int, tuple[int, ...]]) -> Expr:
        """The expression with axes replaced by several axes each, over the same elements in the same order."""
        done: dict[Expr, Expr] = {}

        def visit(part: Expr) -> Expr:
            if part not in done:
                fresh = tuple(new for a in part.axes for new in axes.get(a, (a,)))
                args = [visit(a) for a in part.args]
                done[part] = self.make(part.op, part.ctype, args, name=part.name, axes=fresh, number=part.number)
            return done[part]

        return visit(expr)


_PART = re.compile(r"\(?(\w+)(?:\+(\d+)\))?//(\d+)")


def factors(dims: Iterable[Dim]) -> tuple[int, list[str]]:
    """A product of extents as a number and sorted names, which can be compared."""
    number, names = 1, list[str]()
    for word in (word for dim in dims for word in str(dim).split("*")):
        if word.isdigit():
            number *= int(word)
        else:
            names.append(word)
    return number, sorted(names)


def part_of(word: str) -> tuple[str, int, int] | None:
    """The axis, the number added and the divisor of a word such as "(cols+1)//2"; None for other words."""
    found = _PART.fullmatch(word)
    return (found[1], int(found[2] or 0), int(found[3])) if found else None


def size_of(dim: Dim, sizes: Mapping[str, int]) -> int:
    """An extent in numbers."""
    total = 1
    for word in str(dim).split("*"):
        part = part_of(word)
        total *= (sizes[part[0]] + part[1]) // part[2] if part else int(word) if word.isdigit() else sizes[word]
    return total


def subexpressions(*exprs: Expr) -> Iterator[Expr]:
    """Every subexpression once, operands before the expressions that use them."""
    seen: set[Expr] = set()
    for root in exprs:
        stack = [(root, False)]
        while stack:
            expr, ready = stack.pop()
            if ready:
                yield expr
            elif expr not in seen:
                seen.add(expr)
                stack.append((expr, True))
                stack.extend((a, False) for a in reversed(expr.args))


def loads(*exprs: Expr) -> list[Expr]:
    """Every load, once."""
    return [e for e in subexpressions(*exprs) if e.op == "load"]


def places(*exprs: Expr) -> list[tuple[int, ...]]:
    """The axes of all loads and indices: whoever walks several axes with one index must respect them."""
    return [e.axes for e in subexpressions(*exprs) if e.op in ("load", "index")]


def reduces(*exprs: Expr) -> list[Expr]:
    """Every reduction, once, inner ones first."""
    return [e for e in subexpressions(*exprs) if e.op == "reduce"]


def needed_loads(exprs: Iterable[Expr], known: Mapping[Expr, str]) -> list[Expr]:
    """The loads of expressions, except those inside known subexpressions."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = list(exprs)
    while stack:
        expr = stack.pop()
        if expr in seen or expr in known:
            continue
        seen.add(expr)
        if expr.op == "load":
            found[expr] = None
        stack.extend(expr.args)
    return list(found)


def without(pool: ExpressionPool, exprs: Iterable[Expr], part: Expr) -> list[Expr]:
    """Expressions with one part replaced by a constant, which shows what else they need."""

    def change(expr: Expr) -> Expr | None:
        return pool.const(0, expr.ctype) if expr is part else None

    return [pool.rewrite(expr, change) for expr in exprs]


class Axes:
    """Axes and their extents; axes that must be the same are joined."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._extents: list[Dim] = []

    def fresh(self, extent: Dim) -> int:
        """A new axis; NO_AXIS for an extent of one."""
        if extent == 1:
            return NO_AXIS
        if extent == "?":
            raise Unsupported("an extent is not known")
        self._parent.append(len(self._parent))
        self._extents.append(extent)
        return len(self._parent) - 1

    @property
    def count(self) -> int:
        """The number of axes, joined ones counted separately."""
        return len(self._parent)

    def find(self, axis: int) -> int:
        """The axis that represents all axes joined with this one."""
        while axis != NO_AXIS and self._parent[axis] != axis:
            axis = self._parent[axis]
        return axis

    def join(self, first: int, second: int) -> int:
        """Join two axes and return the representative; NO_AXIS joins with any axis."""
        first, second = self.find(first), self.find(second)
        if NO_AXIS in (first, second):
            return max(first, second)
        if self._extents[first] != self._extents[second]:
            raise Unsupported("extents that differ meet")
        self._parent[max(first, second)] = min(first, second)
        return min(first, second)

    def extent(self, axis: int) -> Dim:
        """The length of an axis."""
        return 1 if axis == NO_AXIS else self._extents[self.find(axis)]
