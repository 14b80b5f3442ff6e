"""C++: reductions along the last axes, with element-wise operations before, between and after."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.kernel_templates.cpu_loops import RowLoop, parallel, reduce_loop, store_loop
from warpsmith.kernel_templates.emitter import COSTLY, Context, Emitter, combined, levels, nest, softmax_pair, stored
from warpsmith.kernel_templates.expressions import Expr, subexpressions, without
from warpsmith.kernel_templates.plan_switches import PlanSwitches
from warpsmith.kernel_templates.stages import Store, TemplateStage


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
