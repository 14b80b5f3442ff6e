"""C++: reductions along axes, with element-wise operations before, between and after.

Along the last axes a thread has rows; along an axis that is not the last, tiles of neighbouring columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.kernel_templates.cpu_loops import RowLoop, parallel, reduce_loop, store_loop
from warpsmith.lowering.emitter import (
    COSTLY,
    Context,
    Emitter,
    combined,
    initial,
    levels,
    nest,
    softmax_pair,
    stored,
)
from warpsmith.lowering.expressions import Expr, subexpressions, without
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import Store, TemplateStage


def rows_stage(context: Context, stage: TemplateStage, on: PlanSwitches) -> list[str]:
    """The loop over rows of a stage that reduces along the last axes."""
    row = RowLoop(context, stage, on)
    exprs = [s.expr for s in stage.stores]
    lines = [
        f"const int64_t outer_ = {row.items};",
        f"const int64_t along_ = {context.extent(row.along)};",
        *parallel(on),
        "for (int64_t o_ = 0; o_ < outer_; ++o_) {",
    ]
    body = row.open("o_", exprs)
    scope = row.at("0")
    scope.pick = lambda expr, index: _picked(row, scope, expr, index)
    targets: dict[str, str] = {}
    for store in stage.stores:
        if set(store.axes) & row.bound:
            line, targets[store.target] = row.target(store)
            body.append(line)
    body += _passes(context, row, stage, on, scope, targets)
    single = [s for s in stage.stores if not set(s.axes) & row.bound]
    scope.lines = []
    for store in single:
        value = scope.value(store.expr)
        offset = context.offset(store.axes, row.where)
        scope.lines.append(
            f"{context.names.get(store.target, store.target)}[{offset}] = {stored(context, store, value)};"
        )
    return [*lines, *nest([*body, *scope.lines]), "}"]


def _picked(row: RowLoop, scope: Emitter, expr: Expr, index: str) -> str:
    """The value of an expression at one index of the row."""
    there = row.at(index)
    there.known = {e: n for e, n in scope.known.items() if not e.free & row.bound}
    value = there.value(expr)
    scope.lines += there.lines
    return value


def _passes(
    context: Context, row: RowLoop, stage: TemplateStage, on: PlanSwitches, scope: Emitter, targets: dict[str, str]
) -> list[str]:
    """All loops along one row: reductions first, stores last."""
    lines: list[str] = []
    kept: dict[Expr, str] = {}  # expressions that an earlier loop left in an output row
    pair = softmax_pair(stage) if "online-softmax" in on else None
    rounds = levels(stage) if "fused-passes" in on else [[r] for r in stage.reduces]
    wide = [s for s in stage.stores if s.target in targets]
    for number, group in enumerate(rounds):
        if pair and pair[0] in group:
            lines += _online(context, row, scope, *pair)
        group = [r for r in group if r not in scope.known]
        if not group:
            continue
        keep: tuple[Expr, str] | None = None
        if "fused-passes" in on and number == len(rounds) - 1:
            keep = _worth_keeping(context, row, group, wide, targets)
        scope.lines = []
        scope.hoist([r.args[0] for r in group], row.bound)
        lines += scope.lines
        lines += reduce_loop(context, row, on, scope, group, keep)
        if keep:
            kept[keep[0]] = f"{keep[1]}[k_]"
    if wide:
        scope.lines = []
        scope.hoist([s.expr for s in wide], row.bound)
        lines += scope.lines
        lines += store_loop(context, row, on, scope, wide, targets, "along_", kept)
    return lines


def _worth_keeping(
    context: Context, row: RowLoop, group: Sequence[Expr], wide: Sequence[Store], targets: dict[str, str]
) -> tuple[Expr, str] | None:
    """A costly part of the last reduction that the only output needs again, and the output row to keep it in."""
    if len(wide) != 1 or context.element(wide[0].target) not in ("float", "double"):
        return None
    (store,) = wide
    for part in reversed(list(subexpressions(*(r.args[0] for r in group)))):
        if part.op in COSTLY and part.ctype == context.element(store.target) and part.free & row.bound:
            (rest,) = without(context.layout.pool, [store.expr], part)
            if rest is not store.expr and not any(e.op in COSTLY and e.free & row.bound for e in subexpressions(rest)):
                return part, targets[store.target]
    return None


def _online(context: Context, row: RowLoop, scope: Emitter, largest: Expr, total: Expr) -> list[str]:
    """The maximum and the shifted sum in one pass over memory: each block is read twice while it is in the cache."""
    kind = largest.ctype
    row.on.tune("ONLINE_BLOCK", "2048", ("2048", "512", "8192"))
    most, sum_, mine, part = (context.fresh(stem) for stem in ("most", "sum", "mine", "part"))
    first, second = row.at("k_"), row.at("k_")
    first.known = dict(scope.known)
    second.known = {**scope.known, largest: most}
    value, term = first.value(largest.args[0]), second.value(total.args[0])
    rescale = Emitter(context, lambda e: "")
    old, new = context.layout.pool.const(0, kind), context.layout.pool.const(1, kind)
    rescale.known = {old: most, new: mine}
    shift = context.layout.pool.make("exp", kind, (context.layout.pool.make("sub", kind, (old, new)),))
    factor = rescale.value(shift)
    simd = "simd" in row.on
    scope.known |= {largest: most, total: sum_}
    return [
        f"{kind} {most} = -INFINITY, {sum_} = 0;",
        "for (int64_t begin_ = 0; begin_ < along_; begin_ += ONLINE_BLOCK) {",
        *nest(
            [
                "const int64_t end_ = begin_ + ONLINE_BLOCK < along_ ? begin_ + ONLINE_BLOCK : along_;",
                f"{kind} {mine} = {most};",
                *([f"#pragma omp simd reduction(max : {mine})"] if simd else []),
                "for (int64_t k_ = begin_; k_ < end_; ++k_) {",
                *nest([*first.lines, f"{mine} = {combined('max', mine, value)};"]),
                "}",
                f"if ({mine} > {most}) {{",
                *nest([*rescale.lines, f"{sum_} *= {most} == -INFINITY ? 0 : {factor};", f"{most} = {mine};"]),
                "}",
                f"{kind} {part} = 0;",
                *([f"#pragma omp simd reduction(+ : {part})"] if simd else []),
                "for (int64_t k_ = begin_; k_ < end_; ++k_) {",
                *nest([*second.lines, f"{part} += {term};"]),
                "}",
                f"{sum_} += {part};",
            ]
        ),
        "}",
    ]


def columns_stage(context: Context, stage: TemplateStage, on: PlanSwitches) -> list[str]:
    """The loops of a reduction along the middle of [outer, along, inner], with an array of sums per tile of columns."""
    tile = on.macro("TILE", "cache-blocking", "tile") if "cache-blocking" in on else "1"
    groups = stage.outer
    where = [(group, f"o{n}_") for n, group in enumerate(groups)]
    outer = " * ".join(f"({context.extent(g)})" for g in groups) or "1"
    lines = [
        f"const int64_t along_ = {context.extent(stage.along)};",
        f"const int64_t inner_ = {context.extent(stage.inner)};",
        f"const int64_t tiles_ = (inner_ + {tile} - 1) / {tile};",
        f"const int64_t items_ = {outer} * tiles_;",
    ]
    if "parallel-rows" in on:
        chunk = f", {on.macro('CHUNK', 'static-chunks', 'chunk')}" if "static-chunks" in on else ""
        lines.append(f"#pragma omp parallel for schedule(static{chunk})")
    lines.append("for (int64_t item_ = 0; item_ < items_; ++item_) {")
    body = [
        f"const int64_t first_ = item_ % tiles_ * {tile};",
        f"const int64_t width_ = inner_ - first_ < {tile} ? inner_ - first_ : {tile};",
    ]
    rest = "item_ / tiles_"
    for n in range(len(groups) - 1, -1, -1):
        extent = context.extent(groups[n])
        body.append(f"const int64_t o{n}_ = {rest if n == 0 else f'({rest}) % ({extent})'};")
        rest = f"({rest}) / ({extent})"
    body += _Tile(context, stage, on, tile, where).passes()
    return [*lines, *(line if line.startswith("#") else f"  {line}" for line in body), "}"]


class _Tile:
    """Writes the loops over one tile of columns."""

    def __init__(
        self,
        context: Context,
        stage: TemplateStage,
        on: PlanSwitches,
        tile: str,
        where: Sequence[tuple[tuple[int, ...], str]],
    ) -> None:
        self._context = context
        self._stage = stage
        self._on = on
        self._tile = tile
        self._where = where
        self._arrays: dict[Expr, str] = {}  # reduced and hoisted values, one per column of the tile
        self._inverse: dict[Expr, str] = {}

    def passes(self) -> list[str]:
        lines: list[str] = []
        for found in self._stage.reduces:
            lines += self._hoisted([found.args[0]])
            lines += self._reduced(found)
        wide = [s for s in self._stage.stores if set(s.axes) & set(self._stage.along)]
        narrow = [s for s in self._stage.stores if s not in wide]
        if wide:
            lines += self._hoisted([s.expr for s in wide])
        for stores, looped in ((wide, True), (narrow, False)):
            if not stores:
                continue
            inner = self._emitter()
            for store in stores:
                value = inner.value(store.expr)
                kind = self._context.element(store.target)
                value = value if kind == store.expr.ctype else f"static_cast<{kind}>({value})"
                name = self._context.names.get(store.target, store.target)
                inner.lines.append(f"{name}[{self._place(store.axes)}] = {value};")
            loop = self._columns(inner.lines)
            lines += self._along(loop) if looped else loop
        return lines

    def _emitter(self) -> Emitter:
        inner = Emitter(self._context, self._load)
        inner.known = {e: f"{name}[i_]" for e, name in self._arrays.items()}
        inner.inverse = {e: f"{name}[i_]" for e, name in self._inverse.items()}
        inner.pick = self._picked
        self._current = inner
        return inner

    def _picked(self, expr: Expr, index: str) -> str:
        outer = self._current
        there = Emitter(self._context, lambda e: self._load(e, index))
        bound = set(self._stage.along)
        there.known = {e: n for e, n in outer.known.items() if not e.free & bound}
        value = there.value(expr)
        outer.lines += there.lines
        return value

    def _load(self, expr: Expr, k: str = "k_") -> str:
        return self._context.read(expr, self._at(k))

    def _at(self, k: str) -> list[tuple[Sequence[int], str]]:
        return [*self._where, (self._stage.along, k), (self._stage.inner, "(first_ + i_)")]

    def _place(self, axes: tuple[int, ...], k: str = "k_") -> str:
        return self._context.offset(axes, self._at(k))

    def _columns(self, body: Sequence[str]) -> list[str]:
        pragma = ["#pragma omp simd"] if "simd" in self._on else []
        return [*pragma, "for (int64_t i_ = 0; i_ < width_; ++i_) {", *(f"  {line}" for line in body), "}"]

    def _along(self, body: Sequence[str]) -> list[str]:
        indented = [line if line.startswith("#") else f"  {line}" for line in body]
        unroll = [f"#pragma GCC unroll {self._on.get('unroll', 'factor')}"] if "unroll" in self._on else []
        return [*unroll, "for (int64_t k_ = 0; k_ < along_; ++k_) {", *indented, "}"]

    def _hoisted(self, exprs: Sequence[Expr]) -> list[str]:
        """Compute once per column the values that depend on reductions but not on the index along the column."""
        bound = set(self._stage.along)
        wanted: list[tuple[Expr, bool]] = []
        seen: set[Expr] = set()
        stack = list(exprs)
        while stack:
            expr = stack.pop()
            if expr in seen or expr in self._arrays:
                continue
            seen.add(expr)
            if expr.free & bound and expr.op != "reduce":
                stack.extend(expr.args)
                below = expr.args[1] if expr.op == "div" else None
                if below is not None and not below.free & bound and below.op not in ("const", "extent"):
                    wanted.append((below, True))
            elif expr.op not in ("const", "extent", "load") and any(e.op == "reduce" for e in subexpressions(expr)):
                wanted.append((expr, False))
        lines: list[str] = []
        for expr, divides in wanted:
            if divides and expr in self._inverse:
                continue
            inner = self._emitter()
            value = inner.value(expr)
            name = self._context.fresh("column")
            one = "1.0f" if expr.ctype == "float" else "1.0"
            lines.append(f"{expr.ctype} {name}[{self._tile}];")
            lines += self._columns([*inner.lines, f"{name}[i_] = {f'{one} / {value}' if divides else value};"])
            (self._inverse if divides else self._arrays)[expr] = name
        return lines

    def _reduced(self, found: Expr) -> list[str]:
        name = self._context.fresh("column")
        (operand,) = found.args
        inner = self._emitter()
        value = inner.value(operand)
        if found.name.startswith("arg"):
            kind = found.name.removeprefix("arg")
            best = self._context.fresh("best")
            sign = ">" if kind == "max" else "<"
            begin = [f"{best}[i_] = {initial(kind, operand.ctype)};", f"{name}[i_] = 0;"]
            step = [
                f"const bool better_ = {value} {sign} {best}[i_];",
                f"{best}[i_] = better_ ? {value} : {best}[i_];",
                f"{name}[i_] = better_ ? k_ : {name}[i_];",
            ]
            declared = [f"{operand.ctype} {best}[{self._tile}];", f"int64_t {name}[{self._tile}];"]
        else:
            begin = [f"{name}[i_] = {initial(found.name, found.ctype)};"]
            step = [f"{name}[i_] = {combined(found.name, f'{name}[i_]', value)};"]
            declared = [f"{found.ctype} {name}[{self._tile}];"]
        self._arrays[found] = name
        return [*declared, *self._columns(begin), *self._along(self._columns([*inner.lines, *step]))]
