"""CUDA C++: whole files, element-wise kernels and reductions over all elements.

Reductions along axes are in `cuda_rows` and `cuda_columns`, matrix products in `cuda_product`.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.kernel_templates import cuda_columns, cuda_long_rows, cuda_product, cuda_rows
from warpsmith.kernel_templates.cuda_library import library
from warpsmith.lowering.cuda_packs import CudaKernel, Packs, arguments, parameters
from warpsmith.lowering.emitter import Context, Emitter, combined, initial, nest, slot_offsets, stored
from warpsmith.lowering.expressions import Expr, Unsupported
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import KernelLayout, StageKind, TemplateStage
from warpsmith.model.brief import Problem

MOST_PARTS = 8192  # blocks of a reduction over all elements; each leaves a partial result in the workspace


def translate(problem: Problem, layout: KernelLayout, on: PlanSwitches) -> str:
    """The source of a whole CUDA file."""
    context = Context(problem, layout, device=True, fast="fast-intrinsics" in on)
    slots, total = slot_offsets(layout, context)
    total = total if slots else "0"
    body = ["cudaStream_t stream_ = static_cast<cudaStream_t>(stream);"]
    for name, offset in slots:
        kind = context.element(name)
        body.append(f"{kind}* {name} = reinterpret_cast<{kind}*>(static_cast<char*>(workspace) + ({offset}));")
    kernels: list[str] = []
    head = ""
    if any(s.kind is not StageKind.PRODUCT for s in layout.stages):
        if "block-size" in on:
            on.macro("THREADS", "block-size", "threads")
        else:
            head = "constexpr int THREADS = 256;\n"
    for number, stage in enumerate(layout.stages):
        kernel = _kernel(context, stage, on, number, total)
        kernels.append(kernel.text)
        total = kernel.workspace or total
        body += ["{", *nest(kernel.launch), "}"]
    counts = any("multiprocessors()" in line for line in body)
    sizes = ", ".join(f"{a.ctype} {a.name}" for a in problem.contract.size_arguments)
    workspace = f'extern "C" int64_t workspace_bytes({sizes}) {{ return {total}; }}\n' if total != "0" else ""
    return "\n".join(
        p
        for p in (
            on.tune_lines,
            "#include <cooperative_groups.h>\n" if any("across_cluster<" in k for k in kernels) else "",
            "#include <cuda_pipeline.h>\n" if any("__pipeline_" in k for k in kernels) else "",
            "#include <mma.h>\n" if any("wmma::" in k for k in kernels) else "",
            head,
            "constexpr int UNROLL_BY = UNROLL;\n" if any("UNROLL_BY" in k for k in kernels) else "",
            library(on, "".join(kernels), counts=counts),
            context.prelude(),
            *kernels,
            workspace,
            f'extern "C" int launch({context.parameters}) {{\n'
            + "\n".join(nest([*body, "return static_cast<int>(cudaGetLastError());"]))
            + "\n}\n",
        )
        if p
    )


def _kernel(context: Context, stage: TemplateStage, on: PlanSwitches, number: int, used: str) -> CudaKernel:
    if stage.kind is StageKind.PRODUCT:
        return cuda_product.product_kernel(context, stage, on, used)
    if stage.kind is StageKind.ROWS:
        if "split-rows" in on and cuda_long_rows.long_rows(context.problem, context.layout, stage)[0]:
            return cuda_long_rows.split_kernel(context, stage, on, number, used)
        if "cluster-shared-memory" in on and cuda_long_rows.clustered(context.problem, context.layout, stage)[0]:
            return cuda_long_rows.cluster_kernel(context, stage, on, number)
        write = cuda_columns.columns_kernel if stage.inner else cuda_rows.rows_kernel
        return write(context, stage, on, number)
    if stage.kind is StageKind.WHOLE:
        return _whole_kernel(context, stage, on, number, used)
    return _map_kernel(context, stage, on, number)


def _unrolled(on: PlanSwitches) -> tuple[str, str]:
    """The number of packs that a thread loads before it uses them: as a macro and as a number."""
    if "unroll" in on:
        return on.macro("UNROLL", "unroll", "factor"), on.get("unroll", "factor")
    return "1", "1"


def _walk(packs: Packs, on: PlanSwitches, first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The loop over the packs of all elements: `first` loads several packs, `second` computes with each of them."""
    unroll, _ = _unrolled(on)
    stride = f"int64_t(gridDim.x) * THREADS * {unroll}"
    guard = "if (p_ < total_) {"
    index = "const int64_t p_ = base_ + int64_t(u_) * THREADS;"
    lines = [
        f"const int64_t total_ = ({packs.items}) * ({packs.length}) / W;",
        f"const int64_t begin_ = int64_t(blockIdx.x) * THREADS * {unroll} + threadIdx.x;",
        f"for (int64_t base_ = begin_; base_ < total_; base_ += {stride}) {{",
    ]
    body = [*packs.declared(unroll)]
    loop = ["#pragma unroll", f"for (int u_ = 0; u_ < {unroll}; ++u_) {{"]
    if first:
        body += [*loop, f"  {index}", f"  {guard}", *nest(nest([*packs.indices(), *first])), "  }", "}"]
    body += [*loop, f"  {index}", f"  {guard}", *nest(nest([*packs.indices(), *second])), "  }", "}"]
    return [*lines, *nest(body), "}"]


def _grid(packs: Packs, on: PlanSwitches, most: str = "") -> str:
    """The number of blocks to launch, in C, with WIDTH for the elements of a pack."""
    unroll, _ = _unrolled(on)
    whole = f"(({packs.items}) * ({packs.length}) / WIDTH + THREADS * {unroll} - 1) / (THREADS * {unroll})"
    if "grid-stride" in on:
        per_sm = on.macro("BLOCKS_PER_SM", "grid-stride", "blocks-per-sm")
        whole = f"std::min<int64_t>({whole}, int64_t({per_sm}) * multiprocessors())"
    if most:
        whole = f"std::min<int64_t>({whole}, {most})"
    return f"std::max<int64_t>(1, {whole})"


def launched(packs: Packs, on: PlanSwitches, name: str, grid: str, extra: str = "") -> list[str]:
    """The launch: with packs if the row length is a multiple of the pack width, else with single elements."""
    call = f"<<<blocks_, THREADS, 0, stream_>>>({arguments(packs.context)}{extra});"
    narrow = [f"const int64_t blocks_ = {grid.replace('WIDTH', '1')};", f"{name}<1>{call}"]
    if "vector-loads" not in on:
        return ["{", *nest(narrow), "}"]
    width = on.macro("VECTOR", "vector-loads", "width")
    wide = [f"const int64_t blocks_ = {grid.replace('WIDTH', width)};", f"{name}<{width}>{call}"]
    return [f"if (({packs.length}) % {width} == 0) {{", *nest(wide), "} else {", *nest(narrow), "}"]


def _map_kernel(context: Context, stage: TemplateStage, on: PlanSwitches, number: int) -> CudaKernel:
    packs = Packs(context, stage.outer, stage.inner)
    exprs = [s.expr for s in stage.stores]
    first = packs.loading(exprs, "u_" if "unroll" in on else "")
    scope = packs.fixed(exprs)
    inner = packs.each(scope)
    body: list[str] = [*scope.lines]
    for n, store in enumerate(stage.stores):
        body.append(f"Pack<{context.element(store.target)}, W> out{n}_;")
    for n, store in enumerate(stage.stores):
        inner.lines.append(f"out{n}_.at[j_] = {stored(context, store, inner.value(store.expr))};")
    body += ["#pragma unroll", "for (int j_ = 0; j_ < W; ++j_) {", *nest(inner.lines), "}"]
    for n, store in enumerate(stage.stores):
        body.append(f"store_pack<W>({packs.pointer(store.target, store.axes)}, out{n}_);")
    name = f"map{number}_"
    text = [
        "template <int W>",
        f"__global__ void __launch_bounds__(THREADS) {name}({parameters(context)}) {{",
        *nest(_walk(packs, on, first, body)),
        "}",
    ]
    return CudaKernel("\n".join(text) + "\n", launched(packs, on, name, _grid(packs, on)))


def _whole_kernel(context: Context, stage: TemplateStage, on: PlanSwitches, number: int, used: str) -> CudaKernel:
    if any(r.name.startswith("arg") for r in stage.reduces):
        raise Unsupported("a position in everything")
    packs = Packs(context, stage.outer[:-1], stage.outer[-1])
    operands = [r.args[0] for r in stage.reduces]
    first = packs.loading(operands, "u_" if "unroll" in on else "")
    scope = packs.fixed(operands)
    inner = packs.each(scope)
    names = {r: context.fresh("part") for r in stage.reduces}
    for r in stage.reduces:
        value = inner.value(r.args[0])
        inner.lines.append(f"{names[r]} = {combined(r.name, names[r], value)};")
    body = [*scope.lines, "#pragma unroll", "for (int j_ = 0; j_ < W; ++j_) {", *nest(inner.lines), "}"]
    wide = {r: "double" if r.ctype == "float" and r.name in ("sum", "prod") else r.ctype for r in stage.reduces}
    lines = [f"{r.ctype} {names[r]} = {initial(r.name, r.ctype)};" for r in stage.reduces]
    lines += _walk(packs, on, first, body)
    for r in stage.reduces:
        lines.append(
            f"const {wide[r]} block_{names[r]} = across_block(static_cast<{wide[r]}>({names[r]}), {r.name}_of());"
        )
    final = Emitter(context, lambda e: f"{context.names.get(e.name, e.name)}[0]")
    staged = "two-stage-reduction" in on or "atomic-reduction" in on
    for r in stage.reduces:
        total = f"all_{names[r]}" if staged else f"block_{names[r]}"
        final.known[r] = f"static_cast<{r.ctype}>({total})" if wide[r] != r.ctype else total
    for store in stage.stores:
        value = stored(context, store, final.value(store.expr))
        final.lines.append(f"{context.names.get(store.target, store.target)}[0] = {value};")
    finish = ["if (threadIdx.x == 0) {", *nest(final.lines), "}"]
    return _finished(context, stage, on, number, used, packs, lines, names, wide, finish)


def _finished(
    context: Context,
    stage: TemplateStage,
    on: PlanSwitches,
    number: int,
    used: str,
    packs: Packs,
    lines: list[str],
    names: dict[Expr, str],
    wide: dict[Expr, str],
    finish: list[str],
) -> CudaKernel:
    """The kernel of a full reduction: one block, or many whose results a second kernel or the last block combines."""
    name, count = f"whole{number}_", len(stage.reduces)
    head = ["template <int W>", f"__global__ void __launch_bounds__(THREADS) {name}({parameters(context)}"]
    if "two-stage-reduction" not in on and "atomic-reduction" not in on:
        text = [head[0], head[1] + ") {", *nest([*lines, *finish]), "}"]
        return CudaKernel("\n".join(text) + "\n", launched(packs, on, name, "1"))
    slots = {r: f"(reinterpret_cast<{wide[r]}*>(parts_) + {n} * {MOST_PARTS})" for n, r in enumerate(stage.reduces)}
    leave = [f"{slots[r]}[blockIdx.x] = block_{names[r]};" for r in stage.reduces]
    gather = _gathered(stage, on, slots, names, wide)
    workspace = f"{used} + {MOST_PARTS * 8 * count + 256}"
    begin = [f"char* parts_ = static_cast<char*>(workspace) + ({used});"]
    grid = _grid(packs, on, str(MOST_PARTS))
    extra = ", parts_"
    if "two-stage-reduction" in on:
        tail = ["if (threadIdx.x == 0) {", *nest(leave), "}"]
        second = f"finish{number}_"
        text = [head[0], head[1] + ", char* parts_) {", *nest([*lines, *tail]), "}"]
        text += [
            f"__global__ void __launch_bounds__(THREADS) {second}({parameters(context)}, char* parts_, int blocks_) {{"
        ]
        text += [*nest([*gather, *finish]), "}"]
        calls = launched(packs, on, name, grid, extra)
        after = f"{second}<<<1, THREADS, 0, stream_>>>({arguments(context)}, parts_, int(blocks_));"
        calls = [line if not line.lstrip().startswith(name) else line + f"\n    {after}" for line in calls]
        return CudaKernel("\n".join(text) + "\n", [*begin, *calls], workspace)
    ticket = [
        "__shared__ bool last_;",
        "if (threadIdx.x == 0) {",
        *nest([*leave, "__threadfence();", "last_ = atomicAdd(ticket_, 1u) == gridDim.x - 1;"]),
        "}",
        "__syncthreads();",
        "if (!last_) return;",
        "const int blocks_ = gridDim.x;",
    ]
    begin.append(f"unsigned int* ticket_ = reinterpret_cast<unsigned int*>(parts_ + {MOST_PARTS * 8 * count});")
    begin.append("const cudaError_t cleared_ = cudaMemsetAsync(ticket_, 0, sizeof(unsigned int), stream_);")
    begin.append("if (cleared_ != cudaSuccess) return static_cast<int>(cleared_);")
    text = [
        head[0],
        head[1] + ", char* parts_, unsigned int* ticket_) {",
        *nest([*lines, *ticket, *gather, *finish]),
        "}",
    ]
    return CudaKernel(
        "\n".join(text) + "\n", [*begin, *launched(packs, on, name, grid, ", parts_, ticket_")], workspace
    )


def _gathered(
    stage: TemplateStage, on: PlanSwitches, slots: dict[Expr, str], names: dict[Expr, str], wide: dict[Expr, str]
) -> list[str]:
    """Lines in which one block combines the results of all blocks, always in the same order."""
    gather: list[str] = []
    for r in stage.reduces:
        gather.append(f"{wide[r]} all_{names[r]} = {initial(r.name, wide[r])};")
        each = f"{slots[r]}[b_]" if "two-stage-reduction" in on else f"__ldcg({slots[r]} + b_)"
        gather.append("for (int b_ = threadIdx.x; b_ < blocks_; b_ += THREADS) {")
        gather.append(f"  const {wide[r]} part_ = {each};")
        gather.append(f"  all_{names[r]} = {combined(r.name, f'all_{names[r]}', 'part_')};")
        gather.append("}")
        gather.append(f"all_{names[r]} = across_block(all_{names[r]}, {r.name}_of());")
    return gather
