"""Advice: two half-precision values per register."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="packed-half",
    title="Two half-precision values at a time",
    backends=("cuda",),
    zones=("memory", "middle", "compute"),
    families=("elementwise", "row_reduction", "full_reduction", "normalisation"),
    advice=(
        "Load fp16 or bf16 data as 16-byte vectors (8 values), take them apart as __half2 or __nv_bfloat162, "
        "convert pairs to float2 for sums, exponentials and divisions, and pack results by __float22half2_rn or "
        "__float22bfloat162_rn before one 16-byte store. Simple arithmetic that the tolerance allows in half "
        "precision (scaling, ReLU, adding a bias) can stay in half2: two results per instruction. Accumulate in "
        "float always."
    ),
    effect=(
        "2-byte loads reach about half of the bandwidth; 16-byte ones all of it: up to 2 times for streaming "
        "kernels. No use for float32 tensors."
    ),
    example="""\
__device__ uint4 relu(uint4 eight) {  // eight fp16 values
  __half2* pair = reinterpret_cast<__half2*>(&eight);
#pragma unroll
  for (int i = 0; i < 4; ++i) pair[i] = __hmax2(pair[i], __float2half2_rn(0.0f));
  return eight;
}
""",
    precisions=("fp16", "bf16"),
)
