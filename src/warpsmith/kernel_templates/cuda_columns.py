"""CUDA: reductions along an axis that is not the last: one column per lane; the warps of a block divide its length."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.lowering.cuda_packs import CudaKernel, arguments, parameters, split, unrolled
from warpsmith.lowering.emitter import Context, Emitter, combined, initial, levels, nest, stored
from warpsmith.lowering.expressions import Expr
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import TemplateStage

_ACROSS = """
// Combines the partial results of the warps of a block for the same column.
template <typename T, typename Op>
__device__ __forceinline__ T across_warps(T value, Op op) {
  __shared__ T cells[THREADS];
  cells[threadIdx.x] = value;
  __syncthreads();
  value = cells[threadIdx.x % 32];
  for (int warp = 1; warp < THREADS / 32; ++warp) value = op(value, cells[warp * 32 + threadIdx.x % 32]);
  __syncthreads();
  return value;
}
"""


def columns_kernel(context: Context, stage: TemplateStage, on: PlanSwitches, number: int) -> CudaKernel:
    """The kernel of a reduction along the middle of [outer, along, inner]: one block for 32 columns."""
    return _Columns(context, stage, on, number).kernel()


class _Columns:
    def __init__(self, context: Context, stage: TemplateStage, on: PlanSwitches, number: int) -> None:
        self.context = context
        self.stage = stage
        self.number = number
        self.where = [*((group, f"o{n}_") for n, group in enumerate(stage.outer)), (stage.inner, "i_")]
        self.bound = frozenset(stage.along)
        self.read_only = "read-only-loads" in on
        unroll = [unrolled(on)] if "unroll" in on else []
        self.loop = [*unroll, "for (int64_t k_ = threadIdx.x / 32; k_ < along_; k_ += THREADS / 32) {"]
        self.scope = Emitter(context, self._load)
        self.scope.pick = self._picked

    def kernel(self) -> CudaKernel:
        context, stage = self.context, self.stage
        for level in levels(stage):
            self._reduce(level)
        self._store()
        name = f"columns{self.number}_"
        body = [
            f"const int64_t along_ = {context.extent(stage.along)};",
            f"const int64_t inner_ = {context.extent(stage.inner)};",
            "const int64_t tiles_ = (inner_ + 31) / 32;",
            "const int64_t column_ = blockIdx.x % tiles_ * 32 + threadIdx.x % 32;",
            "const bool active_ = column_ < inner_;",
            "const int64_t i_ = active_ ? column_ : 0;",
            "int64_t o_ = blockIdx.x / tiles_;",
            *split(context, stage.outer),
            *self.scope.lines,
        ]
        head = f"__global__ void __launch_bounds__(THREADS) {name}({parameters(context)}) {{"
        outer = " * ".join(f"({context.extent(g)})" for g in stage.outer) or "1"
        launch = [
            f"const int64_t blocks_ = {outer} * ((({context.extent(stage.inner)}) + 31) / 32);",
            f"{name}<<<blocks_, THREADS, 0, stream_>>>({arguments(context)});",
        ]
        is_first = not any(s.inner and s.along for s in context.layout.stages[: self.number])
        return CudaKernel((_ACROSS if is_first else "") + "\n".join([head, *nest(body), "}"]) + "\n", launch)

    def _load(self, expr: Expr, k: str = "k_") -> str:
        where = [*self.where, (self.stage.along, k)]
        if expr.op == "load" and self.read_only and self.context.element(expr.name) != "bool":
            name = self.context.names.get(expr.name, expr.name)
            return self.context.typed(expr, f"__ldg({name} + {self.context.offset(expr.axes, where)})")
        return self.context.read(expr, where)

    def _picked(self, expr: Expr, index: str) -> str:
        there = Emitter(self.context, lambda e: self._load(e, index))
        there.known = {e: n for e, n in self.scope.known.items() if not e.free & self.bound}
        value = there.value(expr)
        self.scope.lines += there.lines
        return value

    def _reduce(self, level: Sequence[Expr]) -> None:
        """One loop down the columns for reductions that do not depend on each other."""
        scope = self.scope
        scope.hoist([r.args[0] for r in level], self.bound)
        inner = scope.child(self._load)
        before: list[str] = []
        after: list[str] = []
        for r in level:
            (operand,) = r.args
            name = self.context.fresh("part")
            value = inner.value(operand)
            scope.known[r] = f"all_{name}"
            if not r.name.startswith("arg"):
                before.append(f"{r.ctype} {name} = {initial(r.name, r.ctype)};")
                inner.lines.append(f"{name} = {combined(r.name, name, value)};")
                after.append(f"const {r.ctype} all_{name} = across_warps({name}, {r.name}_of());")
                continue
            kind = r.name.removeprefix("arg")
            sign = ">" if kind == "max" else "<"
            before += [f"{operand.ctype} {name} = {initial(kind, operand.ctype)};", f"int64_t at_{name} = INT64_MAX;"]
            inner.lines.append(f"if ({value} {sign} {name}) {{ {name} = {value}; at_{name} = k_; }}")
            place = f"{name} == best_{name} ? at_{name} : INT64_MAX"
            after.append(f"const {operand.ctype} best_{name} = across_warps({name}, {kind}_of());")
            after.append(f"const int64_t all_{name} = across_warps({place}, min_of());")
        guarded = ["if (active_) {", *nest([*self.loop, *nest(inner.lines), "}"]), "}"]
        scope.lines += [*before, *guarded, *after]

    def _store(self) -> None:
        """Store whole columns with all warps and single values of a column with the first warp."""
        scope, context = self.scope, self.context
        wide = [s for s in self.stage.stores if set(s.axes) & self.bound]
        scope.lines.append("if (!active_) return;")
        if wide:
            scope.hoist([s.expr for s in wide], self.bound)
            inner = scope.child(self._load)
            for store in wide:
                value = stored(context, store, inner.value(store.expr))
                place = context.offset(store.axes, [*self.where, (self.stage.along, "k_")])
                inner.lines.append(f"{context.names.get(store.target, store.target)}[{place}] = {value};")
            scope.lines += [*self.loop, *nest(inner.lines), "}"]
        narrow = [s for s in self.stage.stores if s not in wide]
        if narrow:
            scope.lines.append("if (threadIdx.x >= 32) return;")
        for store in narrow:
            value = stored(context, store, scope.value(store.expr))
            place = context.offset(store.axes, self.where)
            scope.lines.append(f"{context.names.get(store.target, store.target)}[{place}] = {value};")
