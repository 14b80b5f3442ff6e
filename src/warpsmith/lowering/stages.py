"""Divides a lowered reference into stages, each of which one template writes as one loop nest or kernel.

    map      every result element from one element of each operand
    rows     reductions along one axis, [outer, along, inner], with element-wise operations before, between and after
    whole    reductions over all elements, to single numbers
    product  one matrix product, followed by element-wise operations

Values that a later stage needs are kept in the workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from warpsmith.lowering.expressions import (
    NO_AXIS,
    Axes,
    Expr,
    ExpressionPool,
    Unsupported,
    loads,
    places,
    reduces,
    subexpressions,
)
from warpsmith.lowering.terms import Lowered, LoweredOutput
from warpsmith.model.task import Dim

MOST_ROUNDS = 8  # the templates do not write references with more rounds of stages


class StageKind(StrEnum):
    """The form of a stage."""

    MAP = "map"
    ROWS = "rows"
    WHOLE = "whole"
    PRODUCT = "product"


@dataclass(frozen=True)
class Store:
    """A tensor that a stage writes."""

    target: str  # an output of the task, or a slot of the workspace: "ws0"
    dtype: str
    expr: Expr
    axes: tuple[int, ...]


@dataclass(frozen=True)
class TemplateStage:
    """A stage: one loop nest or kernel."""

    kind: StageKind
    stores: tuple[Store, ...]
    outer: tuple[tuple[int, ...], ...]  # groups of axes that one index covers, slowest first
    along: tuple[int, ...] = ()  # the reduced axes, as one group
    inner: tuple[int, ...] = ()  # the axes after the reduced ones, as one group; for a map the fastest group
    reduces: tuple[Expr, ...] = ()  # the reductions, inner ones first


@dataclass
class KernelLayout:
    """All stages of a kernel, before they are written as code."""

    pool: ExpressionPool
    axes: Axes
    dtypes: dict[str, str]  # of every loaded or stored tensor
    slots: dict[str, tuple[Dim, ...]] = field(default_factory=dict)  # workspace tensors by name
    stages: list[TemplateStage] = field(default_factory=list)


def plan_stages(lowered: Lowered) -> KernelLayout:
    """The stages of a lowered reference, in order; raises `Unsupported` where the templates cannot divide it."""
    layout = KernelLayout(lowered.pool, lowered.axes, dict(lowered.dtypes))
    layout.dtypes |= {r.name: r.dtype for r in lowered.results}
    results = list(lowered.results)
    for _ in range(MOST_ROUNDS):
        results = _round(layout, results)
        if not results:
            return layout
    raise Unsupported("too many stages")


def _round(layout: KernelLayout, results: list[LoweredOutput]) -> list[LoweredOutput]:
    """Add one or more stages and return the results, with values of these stages replaced by loads; [] when done."""
    found = reduces(*(r.expr for r in results))
    if not found:
        for axes in dict.fromkeys(_real(r.axes) for r in results):
            layout.stages.append(_map_stage(layout, [r for r in results if _real(r.axes) == axes]))
        return []
    if len(found) == 1 and (matmul := product_of(found[0])):
        layout.stages.append(_product_stage(layout, results, found[0], matmul))
        return []
    sets = {frozenset(r.axes) for r in found}
    if len(sets) > 1:
        return _nested(layout, results, found)
    (along,) = sets
    free = frozenset[int]().union(*(r.free for r in found))
    if not free:
        return _whole_stage(layout, results, found)
    wide = [r for r in results if not set(_real(r.axes)) <= free | along]
    if wide:
        raise Unsupported("a reduction is broadcast over further axes")
    layout.stages.append(_rows_stage(layout, results, found, tuple(along), free))
    return []


def _real(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(a for a in axes if a != NO_AXIS)


def _stored(results: Sequence[LoweredOutput]) -> tuple[Store, ...]:
    return tuple(Store(r.name, r.dtype, r.expr, _real(r.axes)) for r in results)


def _slot(layout: KernelLayout, expr: Expr, axes: Sequence[int]) -> tuple[Store, Expr]:
    """A new workspace tensor for an expression: its store and its load."""
    name = f"ws{len(layout.slots)}"
    dtype = {"float": "float32", "double": "float64", "int64_t": "int64", "bool": "int64"}[expr.ctype]
    layout.slots[name] = tuple(layout.axes.extent(a) for a in axes)
    layout.dtypes[name] = dtype
    kind = "int64_t" if expr.ctype == "bool" else expr.ctype
    read = layout.pool.make("load", kind, name=name, axes=tuple(axes))
    return Store(name, dtype, expr, tuple(axes)), read


def _replace(layout: KernelLayout, results: Sequence[LoweredOutput], what: dict[Expr, Expr]) -> list[LoweredOutput]:
    return [LoweredOutput(r.name, r.dtype, layout.pool.rewrite(r.expr, what.get), r.axes) for r in results]


def _whole_stage(layout: KernelLayout, results: list[LoweredOutput], found: list[Expr]) -> list[LoweredOutput]:
    """Add a stage of the reductions that need no other; returns the results, [] if the stage stores them."""
    first = [r for r in found if not reduces(*r.args)]
    orders = {_order_of(layout, loads(*r.args), set(r.axes)) for r in first}
    order = max(orders, key=len)
    groups = collapse_axes(layout, order, [], places(*(r.args[0] for r in first)))
    if len(first) == len(found) and all(not _real(r.axes) for r in results):
        layout.stages.append(TemplateStage(StageKind.WHOLE, _stored(results), groups, reduces=tuple(first)))
        return []
    stores, reads = zip(*(_slot(layout, r, ()) for r in first), strict=True)
    layout.stages.append(TemplateStage(StageKind.WHOLE, stores, groups, reduces=tuple(first)))
    return _replace(layout, results, dict(zip(first, reads, strict=True)))


def _nested(layout: KernelLayout, results: list[LoweredOutput], found: list[Expr]) -> list[LoweredOutput]:
    """Reductions along different axes: add a stage that stores the values of the inner ones in the workspace."""
    inner = [r for r in found if not reduces(*r.args)]
    along = frozenset(inner[0].axes)
    if any(frozenset(r.axes) != along for r in inner):
        loose = [r for r in inner if any(r in subexpressions(o) and o is not r for o in found)]
        if not loose:
            raise Unsupported("reductions along different axes side by side")
        along = frozenset(loose[0].axes)
    outer = [
        r for r in found if frozenset(r.axes) != along and any(frozenset(i.axes) == along for i in reduces(*r.args))
    ]
    if not outer:
        raise Unsupported("reductions along different axes side by side")
    target = outer[0]
    (operand,) = target.args
    if operand.free & along:
        if target.name not in ("sum", "max", "min", "prod") or not along < frozenset(target.axes):
            raise Unsupported("an index over what was reduced")
        # A reduction over all axes equals one along each row, followed by one over the rows.
        rows = layout.pool.make("reduce", target.ctype, (operand,), name=target.name, axes=tuple(sorted(along)))
        rest = tuple(a for a in target.axes if a not in along)
        split = layout.pool.make("reduce", target.ctype, (rows,), name=target.name, axes=rest)
        return _replace(layout, results, {target: split})
    if any(frozenset(r.axes) != along for r in reduces(operand)):
        raise Unsupported("reductions nested more than twice")
    order = _walked(loads(operand), operand.free)
    operands = [operand, *_beside(operand, [r.args[0] for r in outer[1:]], along, order)]
    stores, reads = zip(*(_slot(layout, each, order) for each in operands), strict=True)
    values = [LoweredOutput(store.target, store.dtype, store.expr, order) for store in stores]
    rows_of = reduces(*operands)
    free = frozenset[int]().union(*(r.free for r in rows_of))
    if not set(order) <= free:
        raise Unsupported("a row value over further axes")
    layout.stages.append(_rows_stage(layout, values, rows_of, tuple(along), free))
    return _replace(layout, results, dict(zip(operands, reads, strict=True)))


def _beside(operand: Expr, others: Sequence[Expr], along: frozenset[int], order: tuple[int, ...]) -> list[Expr]:
    """Other values of the same rows that need a reduction which the first value needs: both are stored in one stage."""
    shared = set(reduces(operand))
    return [
        each
        for each in dict.fromkeys(others)
        if each is not operand
        and shared.intersection(found := reduces(each))
        and not each.free & along
        and all(frozenset(r.axes) == along for r in found)
        and _walked(loads(each), each.free) == order
    ]


def _map_stage(layout: KernelLayout, results: list[LoweredOutput]) -> TemplateStage:
    stores = _stored(results)
    order = stores[0].axes
    if any(s.axes != order for s in stores):
        raise Unsupported("outputs in different orders")
    groups = collapse_axes(layout, order, [s.axes for s in stores], places(*(s.expr for s in stores)))
    return TemplateStage(StageKind.MAP, stores, groups[:-1], inner=groups[-1] if groups else ())


def _rows_stage(
    layout: KernelLayout, results: list[LoweredOutput], found: list[Expr], along: tuple[int, ...], free: frozenset[int]
) -> TemplateStage:
    stores = _stored(results)
    every = set(free) | set(along)
    reads = places(*(s.expr for s in stores))
    order = _order_of(layout, loads(*(s.expr for s in stores)), every, [s.axes for s in stores])
    positions = [order.index(a) for a in along]
    low, high = min(positions), max(positions)
    if high - low + 1 != len(along):
        raise Unsupported("a reduction along axes that are not neighbours")
    written = [s.axes for s in stores]
    middle = collapse_axes(layout, order[low : high + 1], written, reads)
    after = collapse_axes(layout, order[high + 1 :], written, reads)
    before = collapse_axes(layout, order[:low], written, reads)
    if len(middle) != 1 or len(after) > 1:
        raise Unsupported("a reduction over a tensor that is not laid out for it")
    return TemplateStage(StageKind.ROWS, stores, before, middle[0], after[0] if after else (), tuple(found))


def _order_of(
    layout: KernelLayout, reads: Sequence[Expr], every: set[int], stores: Sequence[tuple[int, ...]] = ()
) -> tuple[int, ...]:
    """All axes in the order of a tensor that has all of them, which is the order of memory accesses."""
    sequences = [_real(e.axes) for e in reads] + list(stores)
    for sequence in sequences:
        if set(sequence) == every:
            return sequence
    longest = max(sequences, key=lambda s: len(set(s) & every), default=())
    missing = tuple(sorted(every - set(longest)))
    if not set(longest) <= every or len(missing) > 1:
        raise Unsupported("no tensor has all axes")
    loaded = {axis for read in reads for axis in read.axes}
    return (*missing, *longest) if loaded.issuperset(missing) else (*longest, *missing)


def _walked(reads: Sequence[Expr], wanted: frozenset[int]) -> tuple[int, ...]:
    """The wanted axes in the memory order of the loaded tensors."""
    order: list[int] = []
    for load in sorted(reads, key=lambda e: -len(e.free & wanted)):
        order += [a for a in _real(load.axes) if a in wanted and a not in order]
    return tuple(order)


def collapse_axes(
    layout: KernelLayout, order: Sequence[int], stores: Sequence[tuple[int, ...]], reads: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Groups of neighbouring axes along which every tensor has one stride."""
    groups: list[tuple[int, ...]] = []
    for axis in order:
        if groups and all(_adjacent(_real(t), groups[-1][-1], axis) for t in (*stores, *reads)):
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
    return tuple(groups)


def _adjacent(axes: tuple[int, ...], first: int, second: int) -> bool:
    """Whether a tensor has the second axis directly after the first, or has neither."""
    if first not in axes and second not in axes:
        return True
    return first in axes and axes.index(first) + 1 < len(axes) and axes[axes.index(first) + 1] == second


@dataclass(frozen=True)
class MatrixProduct:
    """The operands and axes of a matrix product."""

    left: Expr  # the load of A, with axis m
    right: Expr  # the load of B, with axis n
    batch: tuple[int, ...]
    m: tuple[int, ...]  # the rows of A, perhaps over several consecutive axes
    n: tuple[int, ...]  # the columns of B
    k: int


def product_of(found: Expr) -> MatrixProduct | None:
    """The matrix product that a sum computes; None for other sums and for matrix times vector."""
    (operand,) = found.args
    if found.name != "sum" or operand.op != "mul" or len(found.axes) != 1:
        return None
    sides = [a.args[0] if a.op == "cast" else a for a in operand.args]
    if any(s.op != "load" for s in sides):
        return None
    left, right = sides
    batch = tuple(a for a in _real(left.axes) if a in right.free and a != found.axes[0])
    rows = tuple(a for a in _real(left.axes) if a not in right.free)
    columns = tuple(a for a in _real(right.axes) if a not in left.free)
    if not rows or not columns or any(found.axes[0] not in s.free for s in sides):
        return None
    return MatrixProduct(left, right, batch, rows, columns, found.axes[0])


def _product_stage(
    layout: KernelLayout, results: list[LoweredOutput], found: Expr, product: MatrixProduct
) -> TemplateStage:
    stores = _stored(results)
    order = (*product.batch, *product.m, *product.n)
    for load in (product.left, product.right):
        if _real(load.axes)[: len(product.batch)] != product.batch:
            raise Unsupported("a batch axis that is not the first")
    if any(s.axes != order for s in stores):
        raise Unsupported("a product stored in another order")
    if any(found.axes[0] in e.free for s in stores for e in _outside(s.expr, found)):
        raise Unsupported("the summed axis is used again")
    batch = collapse_axes(layout, product.batch, [s.axes for s in stores], places(*(s.expr for s in stores)))
    written, reads = [s.axes for s in stores], places(*(s.expr for s in stores))
    sides = [collapse_axes(layout, side, written, reads) for side in (product.m, product.n)]
    if len(batch) > 1 or any(len(side) != 1 for side in sides):
        raise Unsupported("rows, columns or a batch over axes that are not consecutive")
    return TemplateStage(StageKind.PRODUCT, stores, (*batch, product.m, product.n), (product.k,), reduces=(found,))


def _outside(expr: Expr, found: Expr) -> list[Expr]:
    """The loads of an expression that are not inside a reduction."""
    if expr is found:
        return []
    if expr.op == "load":
        return [expr]
    return [e for a in expr.args for e in _outside(a, found)]
