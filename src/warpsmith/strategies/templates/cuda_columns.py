"""CUDA: reductions along an axis that is not the last: lanes take neighbouring columns, warps share the depth."""

from __future__ import annotations

from warpsmith.strategies.templates.code import Context, Emitter, combined, initial, levels, nest, stored
from warpsmith.strategies.templates.cuda_packs import Kernel, arguments, parameters, split, unrolled
from warpsmith.strategies.templates.graph import Expr
from warpsmith.strategies.templates.stages import Stage
from warpsmith.strategies.templates.switches import Switches

_ACROSS = """
// Combines what the warps of a block have found for the same column.
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


def columns_kernel(context: Context, stage: Stage, on: Switches, number: int) -> Kernel:
    """[outer, along, inner]: one block for 32 columns."""
    where = [*((group, f"o{n}_") for n, group in enumerate(stage.outer)), (stage.inner, "i_")]
    bound = frozenset(stage.along)
    unroll = [unrolled(on)] if "unroll" in on else []
    ldg = "read-only-loads" in on

    def load(expr: Expr, k: str = "k_") -> str:
        place = context.offset(expr.axes, [*where, (stage.along, k)])
        name = context.names.get(expr.name, expr.name)
        text = f"__ldg({name} + {place})" if ldg else f"{name}[{place}]"
        return text if context.element(expr.name) == expr.ctype else f"static_cast<{expr.ctype}>({text})"

    scope = Emitter(context, load)

    def picked(expr: Expr, index: str) -> str:
        there = Emitter(context, lambda e: load(e, index))
        there.known = {e: n for e, n in scope.known.items() if not e.free & bound}
        value = there.value(expr)
        scope.lines += there.lines
        return value

    scope.pick = picked
    loop = [*unroll, "for (int64_t k_ = threadIdx.x / 32; k_ < along_; k_ += THREADS / 32) {"]
    for level in levels(stage):
        scope.hoist([r.args[0] for r in level], bound)
        inner = scope.child(load)
        before: list[str] = []
        after: list[str] = []
        for r in level:
            (operand,) = r.args
            name = context.fresh("part")
            value = inner.value(operand)
            if r.name.startswith("arg"):
                kind = r.name.removeprefix("arg")
                sign = ">" if kind == "max" else "<"
                before += [
                    f"{operand.ctype} {name} = {initial(kind, operand.ctype)};",
                    f"int64_t at_{name} = INT64_MAX;",
                ]
                inner.lines.append(f"if ({value} {sign} {name}) {{ {name} = {value}; at_{name} = k_; }}")
                after.append(f"const {operand.ctype} best_{name} = across_warps({name}, {kind}_of());")
                after.append(
                    f"const int64_t all_{name} = across_warps({name} == best_{name} ? at_{name} : INT64_MAX, min_of());"
                )
            else:
                before.append(f"{r.ctype} {name} = {initial(r.name, r.ctype)};")
                inner.lines.append(f"{name} = {combined(r.name, name, value)};")
                after.append(f"const {r.ctype} all_{name} = across_warps({name}, {r.name}_of());")
            scope.known[r] = f"all_{name}"
        guarded = ["if (active_) {", *nest([*loop, *nest(inner.lines), "}"]), "}"]
        scope.lines += [*before, *guarded, *after]
    wide = [s for s in stage.stores if set(s.axes) & bound]
    scope.lines.append("if (!active_) return;")
    if wide:
        scope.hoist([s.expr for s in wide], bound)
        inner = scope.child(load)
        for store in wide:
            value = stored(context, store, inner.value(store.expr))
            place = context.offset(store.axes, [*where, (stage.along, "k_")])
            inner.lines.append(f"{context.names.get(store.target, store.target)}[{place}] = {value};")
        scope.lines += [*loop, *nest(inner.lines), "}"]
    narrow = [s for s in stage.stores if s not in wide]
    if narrow:
        scope.lines.append("if (threadIdx.x >= 32) return;")
    for store in narrow:
        value = stored(context, store, scope.value(store.expr))
        place = context.offset(store.axes, where)
        scope.lines.append(f"{context.names.get(store.target, store.target)}[{place}] = {value};")
    name = f"columns{number}_"
    body = [
        f"const int64_t along_ = {context.extent(stage.along)};",
        f"const int64_t inner_ = {context.extent(stage.inner)};",
        "const int64_t tiles_ = (inner_ + 31) / 32;",
        "const int64_t column_ = blockIdx.x % tiles_ * 32 + threadIdx.x % 32;",
        "const bool active_ = column_ < inner_;",
        "const int64_t i_ = active_ ? column_ : 0;",
        "int64_t o_ = blockIdx.x / tiles_;",
        *split(context, stage.outer),
        *scope.lines,
    ]
    head = f"__global__ void __launch_bounds__(THREADS) {name}({parameters(context)}) {{"
    outer = " * ".join(f"({context.extent(g)})" for g in stage.outer) or "1"
    launch = [
        f"const int64_t blocks_ = {outer} * ((({context.extent(stage.inner)}) + 31) / 32);",
        f"{name}<<<blocks_, THREADS, 0, stream_>>>({arguments(context)});",
    ]
    text = _ACROSS if number == 0 or not any(s.inner for s in context.layout.stages[:number]) else ""
    return Kernel(text + "\n".join([head, *nest(body), "}"]) + "\n", launch)
