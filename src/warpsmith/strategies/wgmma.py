"""Advice: Hopper's matrix instruction of a warp group."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="wgmma",
    title="Matrix products by warp groups (WGMMA)",
    backends=("cuda",),
    zones=("compute", "middle"),
    families=("matmul", "attention", "convolution"),
    advice=(
        "Compute with wgmma.mma_async on 128 threads: B (and A, unless it comes from registers) lies in shared "
        "memory in a 128-byte swizzled layout that a 64-bit descriptor names; the sums stay in registers as "
        "float32. Tiles of 128 x 128 or 128 x 256 with k = 64 per stage, filled by TMA. Order: wgmma.fence, all "
        "products of the stage, commit_group, and wait_group 1, so that the next stage's products are queued "
        "before the last one's are awaited. Build for sm_90a."
    ),
    effect=(
        "The only way to H100's full tensor rate: mma.sync reaches about 60-65 % of it, WGMMA with TMA 80-90 %. "
        "Not for strict fp32 tasks, whose tolerance TF32, fp16 and bf16 exceed, and not for products with any "
        "side under 64."
    ),
    example="""\
__device__ void multiply(float (&d)[4], unsigned long long a, unsigned long long b) {  // m64n8k16; a, b: descriptors
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;"
               " wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
""",
    least_arch=90,
    precisions=("tf32", "fp16", "bf16"),
)
