"""CUDA: matrix products on tensor cores, for the precision classes that allow it (tf32, fp16, bf16)."""

from __future__ import annotations

from warpsmith.kernel_templates.cpu_product import ProductOperands
from warpsmith.lowering.cuda_packs import CudaKernel, arguments, parameters
from warpsmith.lowering.emitter import nest
from warpsmith.lowering.plan_switches import PlanSwitches


def header(operands: ProductOperands, name: str, threads: str, extra: str = "", template: str = "") -> list[str]:
    """The first lines of a kernel: its signature and the extents."""
    first = f"__global__ void __launch_bounds__({threads}) {name}({parameters(operands.context)}{extra}) {{"
    return [*([template] if template else []), first, *nest(operands.sizes)]


def tensor_kernel(operands: ProductOperands, on: PlanSwitches) -> CudaKernel:
    """The kernel on tensor cores: 128 by 128 results per block of eight warps, 64 by 32 per warp; sums in float."""
    on.macro("TILE_DEPTH", "shared-tile", "depth")
    context, product = operands.context, operands.product
    constants = ["constexpr int DEPTH = TILE_DEPTH < 16 ? 16 : TILE_DEPTH;"]
    text = [*constants, *header(operands, "product_", "256"), *nest([*_sums(operands), *_end(operands)]), "}"]
    m, n = context.extent(product.m), context.extent(product.n)
    launch = [
        f"const dim3 grid_(((({m}) + 127) / 128) * ((({n}) + 127) / 128), 1, {context.extent(operands.batch)});",
        f"product_<<<grid_, 256, 0, stream_>>>({arguments(context)});",
    ]
    return CudaKernel("\n".join(text) + "\n", launch)


def _sums(operands: ProductOperands) -> list[str]:
    """The loop along the depth that sums the products of a block's tile."""

    context, product = operands.context, operands.product
    element = context.element(product.left.name)
    single = element == "float"
    deep = 8 if single else 16
    kind = "wmma::precision::tf32" if single else element
    rounded = "wmma::__float_to_tf32({})" if single else "{}"
    left = operands.element("left", "across_", "deep_", raw=True)
    right = operands.element("right", "deep_", "across_", raw=True)
    zero = f"static_cast<{element}>(0.0f)"
    return [
        "using namespace nvcuda;",
        "const int64_t tiles_n_ = (n_ + 127) / 128;",
        "const int64_t row0_ = blockIdx.x / tiles_n_ * 128, column0_ = blockIdx.x % tiles_n_ * 128;",
        "const int64_t batch_at_ = blockIdx.z;",
        "const int warp_ = threadIdx.x / 32, warp_m_ = warp_ / 4 * 64, warp_n_ = warp_ % 4 * 32;",
        f"__shared__ __align__(32) {element} left_[128][DEPTH + 8];",
        f"__shared__ __align__(32) {element} right_[DEPTH][128 + 8];",
        "__shared__ __align__(32) float result_[8][16][16];",
        f"wmma::fragment<wmma::accumulator, 16, 16, {deep}, float> sum_[4][2];",
        "#pragma unroll",
        "for (int i_ = 0; i_ < 8; ++i_) wmma::fill_fragment(sum_[i_ / 2][i_ % 2], 0.0f);",
        "for (int64_t step_ = 0; step_ < depth_; step_ += DEPTH) {",
        *nest(_filled("left", operands.stride("left", product.k) == "1", left, rounded, zero)),
        *nest(_filled("right", operands.stride("right", product.k) == "1", right, rounded, zero)),
        "  __syncthreads();",
        "#pragma unroll",
        f"  for (int k_ = 0; k_ < DEPTH; k_ += {deep}) {{",
        f"    wmma::fragment<wmma::matrix_a, 16, 16, {deep}, {kind}, wmma::row_major> a_[4];",
        f"    wmma::fragment<wmma::matrix_b, 16, 16, {deep}, {kind}, wmma::row_major> b_[2];",
        "#pragma unroll",
        "    for (int i_ = 0; i_ < 4; ++i_) wmma::load_matrix_sync(a_[i_], &left_[warp_m_ + i_ * 16][k_], DEPTH + 8);",
        "#pragma unroll",
        "    for (int j_ = 0; j_ < 2; ++j_) wmma::load_matrix_sync(b_[j_], &right_[k_][warp_n_ + j_ * 16], 128 + 8);",
        "#pragma unroll",
        "    for (int i_ = 0; i_ < 4; ++i_)",
        "#pragma unroll",
        "      for (int j_ = 0; j_ < 2; ++j_) wmma::mma_sync(sum_[i_][j_], a_[i_], b_[j_], sum_[i_][j_]);",
        "  }",
        "  __syncthreads();",
        "}",
    ]


def _filled(side: str, by_depth: bool, element: str, rounded: str, zero: str) -> list[str]:
    """The loop that copies a tile from global to shared memory; neighbouring threads copy neighbouring elements."""
    place = "left_[x_][k_]" if side == "left" else "right_[k_][x_]"
    fast, slow = ("k_", "x_") if by_depth else ("x_", "k_")
    width = "DEPTH" if by_depth else "128"
    origin, limit = ("row0_", "m_") if side == "left" else ("column0_", "n_")
    return [
        "#pragma unroll 4",
        "for (int at_ = threadIdx.x; at_ < DEPTH * 128; at_ += 256) {",
        f"  const int {fast} = at_ % {width}, {slow} = at_ / {width};",
        f"  const int64_t deep_ = step_ + k_, across_ = {origin} + x_;",
        f"  {place} = deep_ < depth_ && across_ < {limit} ? {rounded.format(element)} : {zero};",
        "}",
    ]


def _end(operands: ProductOperands) -> list[str]:
    """Lines that apply the element-wise operations to the sums, through a tile per warp in shared memory, and store."""
    return [
        "#pragma unroll",
        "for (int i_ = 0; i_ < 8; ++i_) {",
        "  wmma::store_matrix_sync(&result_[warp_][0][0], sum_[i_ / 2][i_ % 2], 16, wmma::mem_row_major);",
        "  __syncwarp();",
        "  for (int e_ = threadIdx.x % 32; e_ < 256; e_ += 32) {",
        "    const int64_t row_at_ = row0_ + warp_m_ + i_ / 2 * 16 + e_ / 16;",
        "    const int64_t column_ = column0_ + warp_n_ + i_ % 2 * 16 + e_ % 16;",
        "    const float total_ = result_[warp_][e_ / 16][e_ % 16];",
        "    if (row_at_ < m_ && column_ < n_) {",
        *nest(nest(nest(operands.store("total_", "row_at_", "column_")))),
        "    }",
        "  }",
        "  __syncwarp();",
        "}",
    ]
