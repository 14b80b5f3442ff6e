"""CUDA: reductions along the last axes. A thread, a warp or a block has a row; every pass reads the row again, or the
row is kept in registers or shared memory. The launch chooses the instance of the kernel by the length of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warpsmith.lowering.cuda_packs import CudaKernel, Early, arguments, parameters, split, unrolled, walk_early
from warpsmith.lowering.emitter import (
    COSTLY,
    Context,
    Emitter,
    combined,
    initial,
    lengths,
    levels,
    nest,
    softmax_pair,
    stored,
)
from warpsmith.lowering.expressions import Expr, loads, needed_loads, subexpressions, without
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import TemplateStage

MEMORY, REGISTERS, SHARED = "memory", "registers", "shared"
MOST_KEPT = 32768  # elements of a row in the registers of a block
MOST_SHARED_BYTES = 208 << 10  # of one block on current devices, less the bytes that reductions need


class RowLaunch:
    """The launches of a kernel over rows."""

    context: Context
    stage: TemplateStage
    on: PlanSwitches
    name: str
    lanes: str  # threads of a row: "1", "32" or "THREADS"
    modes: list[str]  # where a row may be kept between passes
    row_loads: list[Expr]  # the loads of a row that are worth keeping
    kept_length = "along_"  # the elements of a row that a block keeps in shared memory

    def _outer(self) -> str:
        return " * ".join(f"({self.context.extent(g)})" for g in self.stage.outer) or "1"

    def _blocks(self) -> str:
        per_block = {"32": "(THREADS / 32)", "THREADS": "1", "1": "THREADS"}[self.lanes]
        return f"(outer_ + {per_block} - 1) / {per_block}"

    def _launch(self) -> list[str]:
        lines = [
            f"const int64_t outer_ = {self._outer()};",
            f"const int64_t along_ = {self.context.extent(self.stage.along)};",
            f"const int64_t blocks_ = {self._blocks()};",
        ]
        given = arguments(self.context)
        width = self.on.macro("VECTOR", "vector-loads", "width") if "vector-loads" in self.on else ""
        widths = [(width, f"along_ % {width} == 0"), ("1", "")] if width else [("1", "")]
        calls: list[tuple[str, list[str]]] = []
        if REGISTERS in self.modes:
            for length in lengths(self.context, self.stage.along)[:4]:
                for w, test in widths:
                    fits = f"keep_for({length}, {w}) > 0 && along_ <= {length}" + (f" && {test}" if test else "")
                    kernel = f"{self.name}<{w}, keep_for({length}, {w})>"
                    calls.append((fits, [f"{kernel}<<<blocks_, THREADS, 0, stream_>>>({given});"]))
        if SHARED in self.modes:
            rows = "(THREADS / 32)" if self.lanes == "32" else "1"
            lines.append(f"const int64_t shared_ = ({self._shared_bytes()}) * {rows};")
            for w, test in widths:
                fits = f"shared_ <= {MOST_SHARED_BYTES}" + (f" && {test}" if test else "")
                calls.append((fits, self._shared_call(w)))
        for w, test in widths:
            chosen = f"<{w}, 0>" if len(self.modes) > 1 else f"<{w}>"
            calls.append((test, [f"{self.name}{chosen}<<<blocks_, THREADS, 0, stream_>>>({given});"]))
        for number, (test, call) in enumerate(calls):
            word = "if" if number == 0 else "} else if"
            lines += [f"{word} ({test}) {{" if test else "} else {" if number else "{", *nest(call)]
        return [*self._keep_for(), *lines, "}"]

    def _keep_for(self) -> list[str]:
        """`keep_for(length, width)` in C: the packs of a row that a thread keeps; 0 if too many for its registers."""
        if REGISTERS not in self.modes:
            return []
        most = f"{64 // max(1, len(self.row_loads))}"
        return [
            "struct Keep {",
            "  static constexpr int count(int64_t length, int width) {",
            f"    const int64_t packs = (length / width + {self.lanes} - 1) / {self.lanes};",
            f"    return packs * width <= {most} && packs * width * THREADS <= {MOST_KEPT} ? int(packs) : 0;",
            "  }",
            "};",
            "#define keep_for(length, width) Keep::count(length, width)",
        ]

    def _shared_call(self, width: str) -> list[str]:
        kernel = f"{self.name}<{width}, -1>"
        allow = "cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_)"
        return [
            f"const cudaError_t allowed_ = cudaFuncSetAttribute({kernel}, {allow});",
            "if (allowed_ != cudaSuccess) return static_cast<int>(allowed_);",
            f"{kernel}<<<blocks_, THREADS, shared_, stream_>>>({arguments(self.context)});",
        ]

    def _shared_bytes(self) -> str:
        """The bytes of shared memory that a block needs to keep its part of a row, in C."""
        return " + ".join(f"({self.kept_length} * {self._bytes(e)} + 15) / 16 * 16" for e in self.row_loads)

    def _bytes(self, load: Expr) -> str:
        return f"int64_t(sizeof({self.context.element(load.name)}))"


_THREAD_ROW = 4096  # elements; with a longer row per thread, the threads of a warp read from 32 pages of memory


@dataclass
class RowBody:
    """The state that the passes over a row share, for one mode."""

    mode: str
    scope: Emitter
    kept: dict[Expr, str]  # loads kept in registers or shared memory
    filling: dict[Expr, str] = field(default_factory=dict)  # the kept loads that the first pass stores, pack by pack
    kept_value: tuple[Expr, str] | None = None  # a computed subexpression that replaced a kept load
    early: list[Early] = field(default_factory=list)  # loads that the next loop makes for several packs at once


def rows_kernel(context: Context, stage: TemplateStage, on: PlanSwitches, number: int) -> CudaKernel:
    """The kernel of a reduction along the rows of [outer, along]."""
    return RowKernel(context, stage, on, number).kernel()


class RowKernel(RowLaunch):
    """Writes the kernel of one stage that reduces rows."""

    bounds = "__launch_bounds__(THREADS)"
    first = "lane_ == 0"  # the thread that stores single values of a row
    begin, end = "lane_", "packs_"  # the first pack of a lane, and the end of the packs of its block
    pack_at = "p_"  # the index of a pack in shared memory
    early = ""  # packs that a pass which fills shared memory loads before it uses the first; "": nvcc's choice

    def __init__(self, context: Context, stage: TemplateStage, on: PlanSwitches, number: int) -> None:
        self.context = context
        self.stage = stage
        self.on = on
        self.name = f"rows{number}_"
        self.bound = frozenset(stage.along)
        self.where = [(group, f"o{n}_") for n, group in enumerate(stage.outer)]
        keeps = "row-in-registers" in on or "row-in-shared" in on  # one thread cannot keep a row
        long = lengths(context, stage.along)[0] > _THREAD_ROW
        whole = "block-per-row" in on or keeps or "warp-shuffle-reduction" in on or long
        self.lanes = "32" if "warp-per-row" in on else "THREADS" if whole else "1"
        self.across = {"32": "across_warp", "THREADS": "across_block", "1": ""}[self.lanes]
        self.wide = [s for s in stage.stores if set(s.axes) & self.bound]
        self.narrow = [s for s in stage.stores if not set(s.axes) & self.bound]
        rows = {a for group in stage.outer for a in group}
        exprs = [s.expr for s in stage.stores]
        # Only data of this row are worth keeping: a vector that all rows share stays in a cache.
        self.row_loads = [e for e in loads(*exprs) if e.free & self.bound and e.free & rows and self._contiguous(e)]
        self.modes = [MEMORY]
        if self.lanes != "1" and self.row_loads and self._reads() > 1:
            self.modes += [REGISTERS] if "row-in-registers" in on else [SHARED] if "row-in-shared" in on else []

    def _contiguous(self, load: Expr) -> bool:
        return self.context.stride(load.axes, self.stage.along) == "1"

    def _reads(self) -> int:
        return len(levels(self.stage)) + bool(self.wide)

    def _places(self) -> list[str]:
        """Lines that compute the row of a thread and its lane in the row."""
        if self.lanes == "THREADS":
            return ["const int64_t row_ = blockIdx.x;", "const int lane_ = threadIdx.x;"]
        end = f"if (row_ >= {self._outer()}) return;"
        if self.lanes == "32":
            row = "const int64_t row_ = int64_t(blockIdx.x) * ROWS_PER_BLOCK + threadIdx.x / 32;"
            return ["constexpr int ROWS_PER_BLOCK = THREADS / 32;", "const int lane_ = threadIdx.x % 32;", row, end]
        row = "const int64_t row_ = int64_t(blockIdx.x) * THREADS + threadIdx.x;"
        return [row, "constexpr int lane_ = 0;", end]

    def kernel(self) -> CudaKernel:
        context = self.context
        body = [
            f"const int64_t along_ = {context.extent(self.stage.along)};",
            "const int64_t packs_ = along_ / W;",
            *self._places(),
            "int64_t o_ = row_;",
            *split(context, self.stage.outer),
        ]
        for mode in reversed(self.modes):
            test = {REGISTERS: "if constexpr (KEEP > 0) {", SHARED: "if constexpr (KEEP < 0) {"}.get(mode)
            lines = self._passes(mode)
            if test:
                body += [test, *nest(lines), "} else {"]
            else:
                body += nest(lines) if len(self.modes) > 1 else lines
        body += ["}"] * (len(self.modes) - 1)
        head = "template <int W, int KEEP>" if len(self.modes) > 1 else "template <int W>"
        text = [
            head,
            f"__global__ void {self.bounds} {self.name}({parameters(context)}) {{",
            *nest(body),
            "}",
        ]
        return CudaKernel("\n".join(text) + "\n", self._launch())

    def _passes(self, mode: str) -> list[str]:
        """All passes over one row: reductions first, stores last."""
        body = self._body(mode)
        lines = self._fill(body)
        pair = softmax_pair(self.stage) if "online-softmax" in self.on and mode != REGISTERS else None
        rounds = levels(self.stage)
        for number, level in enumerate(rounds):
            if pair and pair[0] in level:
                lines += self._online(body, *pair)
            group = [r for r in level if r not in body.scope.known]
            if not group:
                continue
            keep = self._worth_keeping(body, group) if number == len(rounds) - 1 else None
            lines += self._reduce(body, group, keep)
            if keep:
                body.kept_value = keep
        lines += self._store(body)
        return lines

    def _body(self, mode: str) -> RowBody:
        body = RowBody(mode, Emitter(self.context, self._fixed), {})
        body.scope.pick = lambda expr, index: self._picked(body, expr, index)
        return body

    def _fixed(self, expr: Expr) -> str:
        return self.context.read(expr, self.where)

    def _picked(self, body: RowBody, expr: Expr, index: str) -> str:
        there = Emitter(self.context, lambda e: self.context.read(e, [*self.where, (self.stage.along, index)]))
        there.known = {e: n for e, n in body.scope.known.items() if not e.free & self.bound}
        value = there.value(expr)
        body.scope.lines += there.lines
        return value

    def _pointer(self, name: str, axes: Sequence[int]) -> str:
        offset = self.context.offset(axes, [*self.where, (self.stage.along, "p_ * W")])
        return f"{self.context.names.get(name, name)} + {offset}"

    def _fill(self, body: RowBody) -> list[str]:
        """Declare the storage of a kept row; load it into registers now, into shared memory during the first pass."""
        lines: list[str] = []
        if body.mode == MEMORY:
            return lines
        inside: list[str] = []
        if body.mode == SHARED:
            lines.append("extern __shared__ __align__(16) unsigned char shared_bytes_[];")
            rows = "threadIdx.x / 32" if self.lanes == "32" else "0"
            before = f"int64_t({rows}) * ({self._shared_bytes()})"
        for load in self.row_loads:
            kind = self.context.element(load.name)
            if body.mode == REGISTERS:
                name = self.context.fresh("kept")
                lines.append(f"Pack<{kind}, W> {name}[KEEP];")
                inside.append(f"{name}[c_] = load_pack<W>({self._pointer(load.name, load.axes)});")
                body.kept[load] = f"{name}[c_].at[j_]"
            else:
                name = self.context.fresh("shared")
                lines.append(f"{kind}* {name} = reinterpret_cast<{kind}*>(shared_bytes_ + {before});")
                before += f" + ({self.kept_length} * {self._bytes(load)} + 15) / 16 * 16"
                body.filling[load] = f"reinterpret_cast<Pack<{kind}, W>*>({name})[{self.pack_at}]"
                body.kept[load] = f"{body.filling[load]}.at[j_]"
        return [*lines, *(self._walk(body, inside) if inside else [])]

    def _walk(self, body: RowBody, inside: Sequence[str]) -> list[str]:
        """The loop of a lane over its packs of the row."""
        if body.mode == REGISTERS:
            return [
                "#pragma unroll",
                "for (int c_ = 0; c_ < KEEP; ++c_) {",
                f"  const int64_t p_ = lane_ + int64_t(c_) * {self.lanes};",
                "  if (p_ < packs_) {",
                *nest(nest(inside)),
                "  }",
                "}",
            ]
        if body.early:
            early, body.early = body.early, []
            return walk_early((self.begin, self.end, self.lanes), self.early, early, inside)
        unroll = [unrolled(self.on)] if "unroll" in self.on else []
        return [*unroll, f"for (int64_t p_ = {self.begin}; p_ < {self.end}; p_ += {self.lanes}) {{", *nest(inside), "}"]

    def _inner(self, body: RowBody, exprs: Sequence[Expr]) -> tuple[list[str], Emitter]:
        """Lines that load the packs that expressions need, and an emitter for element j_ of these packs."""
        filling, body.filling = body.filling, {}
        names = {load: text for load, text in body.kept.items() if load not in filling}
        lines: list[str] = []
        known = dict(body.scope.known)
        if body.kept_value:
            known[body.kept_value[0]] = body.kept_value[1]
        wanted = needed_loads(exprs, known)
        for load in [*wanted, *(load for load in filling if load not in wanted)]:
            if load in names or not load.free & self.bound or not self._contiguous(load):
                continue
            name = self.context.fresh("pack")
            kind = f"Pack<{self.context.element(load.name)}, W>"
            value = f"load_pack<W>({self._pointer(load.name, load.axes)})"
            if self.early and filling:
                body.early.append(Early(kind, f"early_{name}", value))
                value = f"early_{name}[u_]"
            lines.append(f"const {kind} {name} = {value};")
            if load in filling:
                lines.append(f"{filling[load]} = {name};")
            names[load] = f"{name}.at[j_]"

        def text(expr: Expr) -> str:
            if expr in names:
                return self.context.typed(expr, names[expr])
            return self.context.read(expr, [*self.where, (self.stage.along, "(p_ * W + j_)")])

        inner = body.scope.child(text)
        inner.known = known
        return lines, inner

    def _worth_keeping(self, body: RowBody, group: Sequence[Expr]) -> tuple[Expr, str] | None:
        """A costly part that the outputs need again, and the storage of the kept row, which the part can overwrite."""
        if not self.wide or len(self.row_loads) != 1 or self.row_loads[0] not in body.kept:
            return None
        (load,) = self.row_loads
        for part in reversed(list(subexpressions(*(r.args[0] for r in group)))):
            if part.op in COSTLY and part.ctype == self.context.element(load.name) and part.free & self.bound:
                rest = without(self.context.layout.pool, [s.expr for s in self.wide], part)
                if not any(e is load for e in needed_loads(rest, body.scope.known)):
                    return part, body.kept[load]
        return None

    def _all(self, value: str, kind: str) -> str:
        return f"{self.across}({value}, {kind}_of())" if self.across else value

    def _reduce(self, body: RowBody, group: Sequence[Expr], keep: tuple[Expr, str] | None) -> list[str]:
        context, scope = self.context, body.scope
        scope.lines = []
        scope.hoist([r.args[0] for r in group], self.bound)
        lines, after = [*scope.lines], list[str]()
        scope.lines = []
        fetch, inner = self._inner(body, [r.args[0] for r in group])
        found: dict[Expr, str] = {}
        for r in group:
            (operand,) = r.args
            name = context.fresh("part")
            value = inner.value(operand)
            if r.name.startswith("arg"):
                kind = r.name.removeprefix("arg")
                sign = ">" if kind == "max" else "<"
                lines += [
                    f"{operand.ctype} {name} = {initial(kind, operand.ctype)};",
                    f"int64_t at_{name} = INT64_MAX;",
                ]
                inner.lines.append(f"if ({value} {sign} {name}) {{ {name} = {value}; at_{name} = p_ * W + j_; }}")
                best = f"best_{name}"
                after.append(f"const {operand.ctype} {best} = {self._all(name, kind)};")
                place = f"({name} == {best} ? at_{name} : INT64_MAX)"
                after.append(f"const int64_t all_{name} = {self._all(place, 'min')};")
            else:
                lines.append(f"{r.ctype} {name} = {initial(r.name, r.ctype)};")
                inner.lines.append(f"{name} = {combined(r.name, name, value)};")
                after.append(f"const {r.ctype} all_{name} = {self._all(name, r.name)};")
            found[r] = f"all_{name}"
        if keep:
            inner.lines.append(f"{keep[1]} = {inner.known[keep[0]]};")
        scope.known |= found
        each = ["#pragma unroll", "for (int j_ = 0; j_ < W; ++j_) {", *nest(inner.lines), "}"]
        return [*lines, *self._walk(body, [*fetch, *each]), *after]

    def _online(self, body: RowBody, largest: Expr, total: Expr) -> list[str]:
        """Online softmax: running maximum and sum of each lane, then all sums relative to the largest maximum."""
        pool, kind = self.context.layout.pool, largest.ctype
        scope = body.scope
        scope.lines = []
        scope.hoist([largest.args[0]], self.bound)
        lines = scope.lines
        fetch, inner = self._inner(body, [largest.args[0]])
        value = inner.value(largest.args[0])
        first = [
            f"{kind} value_[W];",
            f"{kind} next_ = online_most_;",
            "#pragma unroll",
            "for (int j_ = 0; j_ < W; ++j_) {",
        ]
        first += [
            *nest([*inner.lines, f"value_[j_] = {value};", "next_ = next_ < value_[j_] ? value_[j_] : next_;"]),
            "}",
        ]
        old, new = pool.const(0, kind), pool.const(1, kind)
        shifted = pool.make("exp", kind, (pool.make("sub", kind, (old, new)),))

        def exponential(one: str, other: str) -> tuple[list[str], str]:
            emitter = Emitter(self.context, self._fixed, {old: one, new: other})
            name = emitter.value(shifted)
            return emitter.lines, name

        scale_lines, scale = exponential("online_most_", "next_")
        term_lines, term = exponential("value_[j_]", "next_")
        end_lines, end = exponential("online_most_", "most_")
        step = [*scale_lines, f"online_sum_ *= {scale};", "#pragma unroll", "for (int j_ = 0; j_ < W; ++j_) {"]
        step += [*nest([*term_lines, f"online_sum_ += {term};"]), "}", "online_most_ = next_;"]
        most, sum_ = self.context.fresh("most"), self.context.fresh("sum")
        scope.known |= {largest: most, total: sum_}
        lowest = "-3.0e38f" if kind == "float" else "-1.0e308"
        return [
            *lines,
            f"{kind} online_most_ = {lowest}, online_sum_ = 0;  // finite, so that no difference of infinities arises",
            *self._walk(body, [*fetch, *first, *step]),
            f"const {kind} {most} = {self._all('online_most_', 'max')};",
            *(line.replace("most_;", f"{most};") if "online" in line else line for line in end_lines),
            f"const {kind} {sum_} = {self._all(f'online_sum_ * {end}', 'sum')};",
        ]

    def _store(self, body: RowBody) -> list[str]:
        scope, context = body.scope, self.context
        lines: list[str] = []
        if self.wide:
            scope.lines = []
            scope.hoist([s.expr for s in self.wide], self.bound)
            lines += scope.lines
            fetch, inner = self._inner(body, [s.expr for s in self.wide])
            inside = [*fetch]
            for n, store in enumerate(self.wide):
                inside.append(f"Pack<{context.element(store.target)}, W> out{n}_;")
                inner.lines.append(f"out{n}_.at[j_] = {stored(context, store, inner.value(store.expr))};")
            inside += ["#pragma unroll", "for (int j_ = 0; j_ < W; ++j_) {", *nest(inner.lines), "}"]
            for n, store in enumerate(self.wide):
                inside.append(f"store_pack<W>({self._pointer(store.target, store.axes)}, out{n}_);")
            lines += self._walk(body, inside)
        scope.lines = []
        for store in self.narrow:
            value = stored(context, store, scope.value(store.expr))
            place = context.offset(store.axes, self.where)
            scope.lines.append(f"if ({self.first}) {context.names.get(store.target, store.target)}[{place}] = {value};")
        return [*lines, *scope.lines]
