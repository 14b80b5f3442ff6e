"""Advice: Hopper's copy engine fills shared memory."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="tma-loads",
    title="Bulk copies by the tensor memory accelerator",
    backends=("cuda",),
    zones=("memory", "middle", "compute"),
    families=("matmul", "row_reduction", "attention", "convolution"),
    advice=(
        "Let one thread start a bulk copy from global to shared memory, and let an mbarrier count the bytes; no "
        "other thread spends registers or instructions on addresses. Rows and other contiguous pieces need only "
        "cp.async.bulk, no descriptor: address and size must be multiples of 16 bytes. Tiles of a matrix need a "
        "CUtensorMap made on the host, with a swizzle that matches how the tile is read (128 bytes for WGMMA). "
        "Keep 2 to 4 stages in flight."
    ),
    effect=(
        "5-20 % for matrix products and attention on H100, above all together with WGMMA, and 2-10 % for row "
        "kernels, where it frees registers for deeper pipelines. Not on older GPUs; no use for rows under about 1 "
        "KiB or rows whose size is not a multiple of 16 bytes."
    ),
    example="""\
using barrier = cuda::barrier<cuda::thread_scope_block>;
__global__ void copy_row(const float* x, float* out, int cols) {  // cols % 4 == 0 and cols <= 4096
  __shared__ alignas(16) float row[4096];
  __shared__ barrier ready;
  if (threadIdx.x == 0) init(&ready, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(row, x + (size_t)blockIdx.x * cols, cuda::aligned_size_t<16>(cols * 4), ready);
    (void)cuda::device::barrier_arrive_tx(ready, 1, cols * 4);
  }
  ready.wait_parity(false);  // the first phase; the next use of the barrier waits for true
  for (int i = threadIdx.x; i < cols; i += blockDim.x) out[(size_t)blockIdx.x * cols + i] = row[i]; }
""",
    least_arch=90,
)
