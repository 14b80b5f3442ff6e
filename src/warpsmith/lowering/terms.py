"""The state of lowering an outline to expressions: the axis behind each dimension, and the effect of views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.lowering.expressions import (
    CTYPES,
    NO_AXIS,
    Axes,
    Expr,
    ExpressionPool,
    Unsupported,
    factors,
    loads,
    size_of,
    subexpressions,
)
from warpsmith.model.task import Dim, Operation, Outline, OutlineValue, Task


@dataclass(frozen=True)
class Term:
    """A tensor of the outline: its expression and the axis behind each of its dimensions."""

    expr: Expr
    axes: tuple[int, ...]


@dataclass(frozen=True)
class LoweredOutput:
    """One output of the task."""

    name: str
    dtype: str
    expr: Expr
    axes: tuple[int, ...]  # of its dimensions, in order


@dataclass
class Lowered:
    """All outputs of a reference as expressions."""

    pool: ExpressionPool
    axes: Axes
    results: list[LoweredOutput]
    dtypes: dict[str, str]  # element types of the inputs


class Lowering:
    """Lowers an outline operation by operation."""

    def __init__(self, task: Task, outline: Outline) -> None:
        self.pool = ExpressionPool()
        self.axes = Axes()
        self._task = task
        self._outline = outline
        self._values: dict[str, OutlineValue] = {v.name: v for v in outline.inputs}
        self._terms: dict[str, Term] = {}
        self._dtypes = {v.name: v.dtype for v in outline.inputs}

    def define(self, node: Operation, terms: Sequence[Term]) -> None:
        """Record the results of an operation."""
        for value, term in zip(node.results, terms, strict=False):
            self._values[value.name] = value
            self._terms[value.name] = term

    def knows(self, name: str) -> bool:
        """Whether a name belongs to a tensor."""
        return name in self._values

    def term(self, name: str) -> Term:
        """The term of a tensor; an input becomes a load at its first use."""
        if name not in self._terms:
            if name not in self._values or name.startswith("%"):
                raise Unsupported(f"value {name} is not known")
            self._terms[name] = self.load(name, self._values[name].dims)
        return self._terms[name]

    def load(self, name: str, dims: Sequence[Dim]) -> Term:
        """The load of a row-major tensor over new axes."""
        dtype = self._dtypes[name]
        if dtype not in CTYPES:
            raise Unsupported(f"element type {dtype}")
        axes = tuple(self.axes.fresh(d) for d in dims)
        return Term(self.pool.make("load", CTYPES[dtype], name=name, axes=axes), axes)

    def is_size(self, axes: Sequence[int], dim: Dim) -> bool:
        """Whether axes together have an extent: by their names, or by their lengths in all workloads of the task."""
        extents = [self.axes.extent(a) for a in axes]
        if factors(extents) == factors([dim]):
            return True
        sizes = [w.sizes for w in self._task.workloads]
        return dim != "?" and all(math.prod(size_of(e, s) for e in extents) == size_of(dim, s) for s in sizes)

    def view(self, term: Term, dims: Sequence[Dim]) -> Term:
        """A tensor with the same elements in the same order and other dimensions."""
        old = [a for a in term.axes if a != NO_AXIS]
        new = [d for d in dims if d != 1]
        if [self.axes.extent(a) for a in old] == new:
            left = iter(old)
            return Term(term.expr, tuple(NO_AXIS if d == 1 else next(left) for d in dims))
        if (divided := self._divided(old, new)) is not None:
            expr = self.pool.divided(term.expr, divided)
            left = iter([part for a in old for part in divided.get(a, (a,))])
            return Term(expr, tuple(NO_AXIS if d == 1 else next(left) for d in dims))
        fresh = tuple(self.axes.fresh(d) for d in dims)
        if any(e.op in ("reduce", "pick") for e in subexpressions(term.expr)):
            raise Unsupported("a reduced tensor is reshaped")
        if any(e.op in ("index", "element") for e in subexpressions(term.expr)):
            raise Unsupported("a tensor that was cut or joined is reshaped")
        found = [self.axes.find(a) for a in old]
        for load in loads(term.expr):
            if load.free and [self.axes.find(a) for a in load.axes if a != NO_AXIS] != found:
                raise Unsupported("a broadcast or transposed tensor is reshaped")
        again = self.pool.rewrite(
            term.expr,
            lambda e: self.pool.make("load", e.ctype, name=e.name, axes=fresh) if e.op == "load" and e.free else None,
        )
        return Term(again, fresh)

    def _divided(self, old: Sequence[int], new: Sequence[Dim]) -> dict[int, tuple[int, ...]] | None:
        """The new axes that replace each divided axis; None where the new extents do not divide the old in order."""
        found: dict[int, tuple[int, ...]] = {}
        rest = list(new)
        for axis in old:
            whole, taken = factors([self.axes.extent(axis)]), list[Dim]()
            while rest and factors(taken) != whole:
                taken.append(rest.pop(0))
            if factors(taken) != whole:
                return None
            if len(taken) > 1:
                parts_of = tuple(self.axes.fresh(d) for d in taken)
                alike = {a for a in range(self.axes.count) if self.axes.find(a) == self.axes.find(axis)}
                found |= dict.fromkeys(alike, parts_of)
        return None if rest else found

    def copy(self, term: Term) -> Term:
        """A tensor over new axes, for an operation that uses one tensor twice in different ways."""
        every = {a for e in subexpressions(term.expr) for a in e.axes} | set(term.axes)
        fresh = {a: a if a == NO_AXIS else self.axes.fresh(self.axes.extent(a)) for a in every}
        by_class: dict[int, int] = {}
        for old, new in fresh.items():
            if old != NO_AXIS:
                known = by_class.setdefault(self.axes.find(old), new)
                self.axes.join(known, new)
        return Term(self.pool.renamed(term.expr, fresh), tuple(fresh[a] for a in term.axes))

    def finish(self) -> Lowered:
        """All outputs, with joined axes replaced by their representative."""
        results = []
        for spec, name in zip(self._task.outputs, self._outline.outputs, strict=True):
            term = self.term(name)
            every = {a for e in subexpressions(term.expr) for a in e.axes} | set(term.axes)
            final = {a: self.axes.find(a) for a in every}
            expr = self.pool.renamed(term.expr, final)
            axes = tuple(final[a] for a in term.axes)
            if not expr.free <= set(axes):
                raise Unsupported("an axis that is divided in one place and whole in another")
            for sequence in (axes, *(e.axes for e in loads(expr))):
                used = [a for a in sequence if a != NO_AXIS]
                if len(set(used)) != len(used):
                    raise Unsupported("a tensor meets its own transpose")
            results.append(LoweredOutput(spec.name, spec.dtype, expr, axes))
        return Lowered(self.pool, self.axes, results, self._dtypes)

    def cast(self, expr: Expr, ctype: str | None) -> Expr:
        """The expression in another C type."""
        if ctype is None:
            raise Unsupported("an element type the templates do not compute in")
        return expr if expr.ctype == ctype else self.pool.make("cast", ctype, (expr,))


class OperationCall:
    """One operation of an outline with its decoded arguments."""

    def __init__(self, lowering: Lowering, node: Operation, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.lowering = lowering
        self.pool = lowering.pool
        self.node = node
        self.name = name
        self.overload = node.op.rpartition(".")[2]
        self.args = args
        self.kwargs = kwargs
        self.result = node.results[0]

    @property
    def ctype(self) -> str:
        """The C type of the operation's first result."""
        if self.result.dtype not in CTYPES:
            raise Unsupported(f"element type {self.result.dtype}")
        return CTYPES[self.result.dtype]

    def is_tensor(self, place: int) -> bool:
        """Whether an argument is a tensor."""
        given = self.args[place] if place < len(self.args) else None
        return isinstance(given, dict) and self.lowering.knows(given["$"])

    def term(self, place: int) -> Term:
        """A tensor argument."""
        if not self.is_tensor(place):
            raise Unsupported(f"{self.name} without a tensor")
        return self.lowering.term(self.args[place]["$"])

    def number(self, place: int, key: str = "", default: Any = None) -> Any:
        """A number, list or string argument, by position or by name."""
        value = self.args[place] if 0 <= place < len(self.args) else self.kwargs.get(key, default)
        if isinstance(value, dict):
            raise Unsupported(f"{self.name} with a number that depends on the sizes")
        return value

    def broadcast(self, terms: Sequence[Term]) -> tuple[int, ...]:
        """The axes of an element-wise result; joins the operands' axes dimension by dimension."""
        rank = max((len(t.axes) for t in terms), default=0)
        found = [NO_AXIS] * rank
        for term in terms:
            for place, axis in enumerate(term.axes, rank - len(term.axes)):
                found[place] = self.lowering.axes.join(found[place], axis)
        return tuple(found)
