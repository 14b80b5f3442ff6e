"""C++: the loops along a row, used by every stage that reads or writes rows."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.lowering.emitter import Context, Emitter, combined, initial, nest, stored
from warpsmith.lowering.expressions import Expr, loads
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import StageKind, Store, TemplateStage

_OMP = {"sum": "+", "prod": "*", "max": "max", "min": "min"}


def parallel(on: PlanSwitches) -> list[str]:
    """The pragma before a loop over independent items; [] without `parallel-rows`."""
    if "parallel-rows" not in on:
        return []
    chunk = f", {on.macro('CHUNK', 'static-chunks', 'chunk')}" if "static-chunks" in on else ""
    return [f"#pragma omp parallel for schedule(static{chunk})"]


def vectorised(on: PlanSwitches, clause: str = "") -> list[str]:
    """The pragma before a loop along a row."""
    if "simd" in on:
        return [f"#pragma omp simd{clause}"]
    if "unroll" in on:
        return [f"#pragma GCC unroll {on.get('unroll', 'factor')}"]
    return []


class RowLoop:
    """Pointers to the rows of one step of the outer loop, and loads and stores through them."""

    def __init__(self, context: Context, stage: TemplateStage, on: PlanSwitches) -> None:
        self.context = context
        self.stage = stage
        self.on = on
        self.along = stage.along if stage.kind is StageKind.ROWS else stage.inner
        if stage.kind is StageKind.WHOLE:
            self.along = stage.outer[-1]
        self.groups = stage.outer[:-1] if stage.kind is StageKind.WHOLE else stage.outer
        self.bound = frozenset(self.along)
        self.where = [(group, f"o{n}_") for n, group in enumerate(self.groups)]
        self.pointers: dict[Expr, tuple[str, str]] = {}  # loads along the row: pointer and stride

    @property
    def items(self) -> str:
        """The number of steps of the outer loop, in C."""
        return " * ".join(f"({self.context.extent(g)})" for g in self.groups) or "1"

    def open(self, index: str, exprs: Sequence[Expr], first: str = "0") -> list[str]:
        """Lines that compute the outer indices of one step and the pointers to its rows."""
        lines, rest = [], index
        for n in range(len(self.groups) - 1, -1, -1):
            if n == 0:
                lines.append(f"const int64_t o0_ = {rest};")
            else:
                extent = self.context.extent(self.groups[n])
                lines.append(f"const int64_t o{n}_ = {rest} % ({extent});")
                rest = f"({rest} / ({extent}))"
        for load in loads(*exprs):
            if load.free & self.bound:
                stride = self.context.stride(load.axes, self.along)
                name = self.context.fresh("row")
                offset = self.context.offset(load.axes, [*self.where, (self.along, first)])
                kind = self.context.element(load.name)
                lines.append(f"const {kind}* {name} = {self._base(load.name)} + {offset};")
                self.pointers[load] = (name, stride)
        return lines

    def target(self, store: Store, first: str = "0") -> tuple[str, str]:
        """A line that points to the row of a store, and the pointer's name."""
        name = self.context.fresh("to")
        offset = self.context.offset(store.axes, [*self.where, (self.along, first)])
        return f"{self.context.element(store.target)}* {name} = {self._base(store.target)} + {offset};", name

    def at(self, index: str) -> Emitter:
        """An emitter that loads at an index along the row."""

        def load(expr: Expr) -> str:
            if expr in self.pointers:
                name, stride = self.pointers[expr]
                place = index if stride == "1" else f"{index} * ({stride})"
                return self.context.typed(expr, f"{name}[{place}]")
            return self.context.read(expr, [*self.where, (self.along, index)])

        return Emitter(self.context, load)

    def _base(self, name: str) -> str:
        return self.context.names.get(name, name)


def reduce_loop(
    context: Context,
    row: RowLoop,
    on: PlanSwitches,
    scope: Emitter,
    group: Sequence[Expr],
    keep: tuple[Expr, str] | None,
) -> list[str]:
    """One loop along the row for all reductions of a group; argmax and argmin have loops of their own."""
    places = [r for r in group if r.name.startswith("arg")]
    plain = [r for r in group if r not in places]
    lines = [line for r in places for line in _position_loop(context, row, on, scope, r)]
    if not plain:
        return lines
    ways = int(on.get("multiple-accumulators", "count")) if "multiple-accumulators" in on else 1
    ways = 1 if keep else ways
    stretch = context.fresh("stretch")
    stem = "fused" if keep or len(plain) > 1 else "part"
    accumulators = {r: [context.fresh(stem) for _ in range(ways)] for r in plain}
    for r, names in accumulators.items():
        begin = initial(r.name, r.ctype)
        lines.append(f"{r.ctype} {', '.join(f'{name} = {begin}' for name in names)};")
    body: list[str] = []
    for way in range(ways):
        inner = row.at("k_" if way == 0 else f"(k_ + {way} * {stretch})")
        inner.known, inner.inverse = dict(scope.known), dict(scope.inverse)
        for r in plain:
            value, name = inner.value(r.args[0]), accumulators[r][way]
            inner.lines.append(f"{name} = {combined(r.name, name, value)};")
        if keep:
            inner.lines.append(f"{keep[1]}[k_] = {inner.known[keep[0]]};")
        body += inner.lines
    clause = "".join(f" reduction({_OMP[r.name]} : {', '.join(names)})" for r, names in accumulators.items())
    if ways > 1:
        lines.append(f"const int64_t {stretch} = along_ / {ways};  // each accumulator has its own stretch of the row")
    count = stretch if ways > 1 else "along_"
    lines += [*vectorised(on, clause), f"for (int64_t k_ = 0; k_ < {count}; ++k_) {{", *nest(body), "}"]
    if ways > 1:
        lines += _tail(row, scope, plain, accumulators, f"{ways} * {stretch}")
    for r, names in accumulators.items():
        total = names[0]
        for name in names[1:]:
            lines.append(f"{total} = {combined(r.name, total, name)};")
        scope.known[r] = total
    return lines


def _tail(
    row: RowLoop, scope: Emitter, plain: Sequence[Expr], accumulators: dict[Expr, list[str]], begin: str
) -> list[str]:
    """The loop over the last elements of a row whose length is no multiple of the number of stretches."""
    inner = row.at("k_")
    inner.known, inner.inverse = dict(scope.known), dict(scope.inverse)
    for r in plain:
        value, name = inner.value(r.args[0]), accumulators[r][0]
        inner.lines.append(f"{name} = {combined(r.name, name, value)};")
    return [f"for (int64_t k_ = {begin}; k_ < along_; ++k_) {{", *nest(inner.lines), "}"]


def _position_loop(context: Context, row: RowLoop, on: PlanSwitches, scope: Emitter, found: Expr) -> list[str]:
    """An argmax or argmin: a loop that vectorises finds the value, a second loop its first position."""
    kind = found.name.removeprefix("arg")
    (operand,) = found.args
    best, place = context.fresh("best"), context.fresh("place")
    first, second = row.at("k_"), row.at("k_")
    first.known, second.known = dict(scope.known), dict(scope.known)
    value = first.value(operand)
    again = second.value(operand)
    lines = [
        f"{operand.ctype} {best} = {initial(kind, operand.ctype)};",
        *vectorised(on, f" reduction({kind} : {best})"),
        "for (int64_t k_ = 0; k_ < along_; ++k_) {",
        *nest([*first.lines, f"{best} = {combined(kind, best, value)};"]),
        "}",
        f"int64_t {place} = 0;",
        "for (int64_t k_ = 0; k_ < along_; ++k_) {",
        *nest([*second.lines, f"if ({again} == {best}) {{ {place} = k_; break; }}"]),
        "}",
    ]
    scope.known[found] = place
    return lines


def store_loop(
    context: Context,
    row: RowLoop,
    on: PlanSwitches,
    scope: Emitter,
    stores: Sequence[Store],
    targets: dict[str, str],
    count: str,
    kept: dict[Expr, str],
) -> list[str]:
    """The loop that writes whole rows."""
    inner = row.at("k_")
    inner.known = {**scope.known, **kept}
    inner.inverse = dict(scope.inverse)
    streams = "non-temporal-stores" in on
    written = []
    for store in stores:
        value = stored(context, store, inner.value(store.expr))
        stride = context.stride(store.axes, row.along)
        place = "k_" if stride == "1" else f"k_ * ({stride})"
        if streams:
            written.append(f"out_block{targets[store.target]}[k_ - begin_] = {value};")
        else:
            written.append(f"{targets[store.target]}[{place}] = {value};")
    if not streams:
        body = [*inner.lines, *written]
        return [*vectorised(on), f"for (int64_t k_ = 0; k_ < {count}; ++k_) {{", *nest(body), "}"]
    lines = [f"for (int64_t begin_ = 0; begin_ < {count}; begin_ += 256) {{"]
    body = [f"const int64_t end_ = begin_ + 256 < {count} ? begin_ + 256 : {count};"]
    body += [f"alignas(64) {context.element(s.target)} out_block{targets[s.target]}[256];" for s in stores]
    body += [*vectorised(on), "for (int64_t k_ = begin_; k_ < end_; ++k_) {", *nest([*inner.lines, *written]), "}"]
    body += [f"stream_out({targets[s.target]} + begin_, out_block{targets[s.target]}, end_ - begin_);" for s in stores]
    return [*lines, *nest(body), "}"]
