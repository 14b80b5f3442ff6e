"""C++17 with OpenMP: whole files, element-wise stages and reductions over all elements.

Reductions along axes are in `cpu_rows`, matrix products in `cpu_product`.
"""

from __future__ import annotations

from warpsmith.kernel_templates import cpu_product, cpu_rows
from warpsmith.kernel_templates.cpu_loops import RowLoop, parallel, reduce_loop, store_loop
from warpsmith.lowering.emitter import WIDE_VECTORS, Context, combined, initial, nest, slot_offsets, stored
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import KernelLayout, StageKind, TemplateStage
from warpsmith.model.brief import Problem

_STREAM = """
#if defined(__SSE2__)
#include <immintrin.h>
#endif
// Writes a block without loading it into the caches: the data are not read again soon.
template <typename T>
static inline void stream_out(T* to, const T* from, int64_t count) {
  int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  char* target = reinterpret_cast<char*>(to);
  const char* source = reinterpret_cast<const char*>(from);
  while (bytes > 0 && reinterpret_cast<uintptr_t>(target) % 16 != 0) {
    const int64_t step = std::min<int64_t>(bytes, sizeof(T));
    std::memcpy(target, source, step);
    target += step, source += step, bytes -= step;
  }
#if defined(__SSE2__)
  for (; bytes >= 16; target += 16, source += 16, bytes -= 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(target), _mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
#endif
  if (bytes > 0) std::memcpy(target, source, bytes);
}
"""


def translate(problem: Problem, layout: KernelLayout, on: PlanSwitches) -> str:
    """The source of a whole C++ file."""
    context = Context(problem, layout, device=False, vector="vector-exp" in on)
    body: list[str] = []
    slots, total = slot_offsets(layout, context)
    for name, offset in slots:
        kind = context.element(name)
        body.append(f"{kind}* {name} = reinterpret_cast<{kind}*>(static_cast<char*>(workspace) + ({offset}));")
    scratch = ""
    for stage in layout.stages:
        if stage.kind is StageKind.PRODUCT:
            lines, scratch = cpu_product.product_stage(context, stage, on, total if slots else "0")
        elif stage.kind is StageKind.ROWS and stage.inner:
            lines = cpu_rows.columns_stage(context, stage, on)
        elif stage.kind is StageKind.WHOLE:
            lines = _whole_stage(context, stage, on)
        elif stage.kind is StageKind.ROWS:
            lines = cpu_rows.rows_stage(context, stage, on)
        else:
            lines = _map_stage(context, stage, on)
        body += ["{", *nest(lines), "}"]
    sizes = ", ".join(f"{a.ctype} {a.name}" for a in problem.contract.size_arguments)
    workspace = scratch or (total if slots else "")
    head = WIDE_VECTORS if "simd" in on and on.get("simd", "width") == "512" else ""
    pieces = [
        on.tune_lines,
        head,
        _STREAM if "non-temporal-stores" in on and _streams(layout) else "",
        context.prelude(),
        f'extern "C" int64_t workspace_bytes({sizes}) {{ return {workspace}; }}\n' if workspace else "",
        f'extern "C" int launch({context.parameters}) {{\n' + "\n".join(nest([*body, "return 0;"])) + "\n}\n",
    ]
    return "\n".join(p for p in pieces if p)


def _streams(layout: KernelLayout) -> bool:
    return any(
        s.kind in (StageKind.MAP, StageKind.ROWS) and not (s.kind is StageKind.ROWS and s.inner) for s in layout.stages
    )


def _map_stage(context: Context, stage: TemplateStage, on: PlanSwitches) -> list[str]:
    """The loop of an element-wise stage, in blocks along the fastest axis that are divided among the threads."""
    row = RowLoop(context, stage, on)
    block = on.tune("BLOCK", "4096", ("4096", "1024", "16384", "65536"))
    lines = [
        f"const int64_t along_ = {context.extent(row.along)};",
        f"const int64_t blocks_ = (along_ + {block} - 1) / {block};",
        f"const int64_t items_ = {row.items} * blocks_;",
        *parallel(on),
        "for (int64_t item_ = 0; item_ < items_; ++item_) {",
    ]
    exprs = [s.expr for s in stage.stores]
    body = [
        f"const int64_t from_ = item_ % blocks_ * {block};",
        f"const int64_t count_ = along_ - from_ < {block} ? along_ - from_ : {block};",
        *(["const int64_t o_ = item_ / blocks_;"] if row.groups else []),
        *row.open("o_", exprs, "from_"),
    ]
    targets: dict[str, str] = {}
    for store in stage.stores:
        line, targets[store.target] = row.target(store, "from_")
        body.append(line)
    scope = row.at("0")
    scope.hoist(exprs, row.bound)
    body += scope.lines
    body += store_loop(context, row, on, scope, stage.stores, targets, "count_", {})
    return [*lines, *nest(body), "}"]


def _whole_stage(context: Context, stage: TemplateStage, on: PlanSwitches) -> list[str]:
    """A reduction over all elements: blocks in the task's precision, float sums and products of blocks in double."""
    row = RowLoop(context, stage, on)
    operands = [r.args[0] for r in stage.reduces]
    block = on.macro("REDUCE_BLOCK", "two-stage-reduction", "block") if "two-stage-reduction" in on else "4096"
    wide = {r: "double" if r.ctype == "float" and r.name in ("sum", "prod") else r.ctype for r in stage.reduces}
    names = {r: context.fresh("total") for r in stage.reduces}
    scope = row.at("k_")
    body = [
        f"const int64_t from_ = item_ % blocks_ * {block};",
        f"const int64_t along_ = extent_ - from_ < {block} ? extent_ - from_ : {block};",
        *(["const int64_t o_ = item_ / blocks_;"] if row.groups else []),
        *row.open("o_", operands, "from_"),
    ]
    scope.hoist(operands, row.bound)
    body += scope.lines
    arg = [r for r in stage.reduces if r.name.startswith("arg")]
    body += reduce_loop(context, row, on, scope, stage.reduces, None)
    staged = "two-stage-reduction" in on and not arg
    goal = {r: f"{names[r]}[thread_]" if staged else names[r] for r in stage.reduces}
    for r in stage.reduces:
        body.append(f"{goal[r]} = {combined(r.name, goal[r], scope.known[r])};")
    lines = [
        f"const int64_t extent_ = {context.extent(row.along)};",
        f"const int64_t blocks_ = (extent_ + {block} - 1) / {block};",
        f"const int64_t items_ = {row.items} * blocks_;",
    ]
    if arg:
        lines[1] = "const int64_t blocks_ = 1;"
        body[0], body[1] = "const int64_t from_ = 0;", "const int64_t along_ = extent_;"
        body[-len(stage.reduces) :] = [f"{names[r]} = {scope.known[r]};" for r in stage.reduces]
        staged = False
    if staged:
        lines.append("constexpr int threads_ = 256;")
        lines += [f"{wide[r]} {names[r]}[threads_];" for r in stage.reduces]
        begin = [f"{names[r]}[t_] = {initial(r.name, wide[r])};" for r in stage.reduces]
        lines.append(f"for (int t_ = 0; t_ < threads_; ++t_) {{ {' '.join(begin)} }}")
        lines += ["#pragma omp parallel num_threads(std::min(omp_get_max_threads(), threads_))", "{"]
        loop = ["const int thread_ = omp_get_thread_num();", "#pragma omp for schedule(static)"]
        loop += ["for (int64_t item_ = 0; item_ < items_; ++item_) {", *nest(body), "}"]
        lines += [*nest(loop), "}"]
        merge = [f"{names[r]}[0] = {combined(r.name, f'{names[r]}[0]', f'{names[r]}[t_]')};" for r in stage.reduces]
        lines.append(f"for (int t_ = 1; t_ < threads_; ++t_) {{ {' '.join(merge)} }}")
    else:
        lines += [f"{wide[r]} {names[r]} = {initial(r.name, wide[r])};" for r in stage.reduces]
        lines += ["for (int64_t item_ = 0; item_ < items_; ++item_) {", *nest(body), "}"]
    final = row.at("0")
    for r in stage.reduces:
        total = f"{names[r]}[0]" if staged else names[r]
        final.known[r] = f"static_cast<{r.ctype}>({total})" if wide[r] != r.ctype else total
    for store in stage.stores:
        value = final.value(store.expr)
        final.lines.append(f"{context.names.get(store.target, store.target)}[0] = {stored(context, store, value)};")
    return [*lines, *final.lines]
