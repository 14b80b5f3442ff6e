"""Advice: more work per thread, so that fixed costs are shared."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="thread-coarsening",
    title="Several results per thread",
    backends=("cuda",),
    zones=("memory", "middle", "compute", "latency"),
    families=(),
    advice=(
        "Let each thread compute 2 to 8 results. Load all the inputs of its share first, into registers, and only "
        "then compute: independent loads in flight are what hides memory latency. Keep the results of one thread "
        "blockDim.x apart (or adjacent and loaded as one vector), so that each load stays coalesced. Reuse index "
        "arithmetic, broadcast values and shared-memory reads among the results."
    ),
    effect=(
        "10-40 % for light element-wise kernels, where one load per thread leaves the memory system idle; in "
        "matrix-like kernels the reuse per shared-memory read grows with the share. Past about 8 results per "
        "thread registers run short and occupancy falls. Harmful for small problems, which need every thread they "
        "can get."
    ),
    example="""\
template <int ITEMS> __global__ void scaled(const float* x, float* out, int n, float a) {
  int base = blockIdx.x * blockDim.x * ITEMS + threadIdx.x;
  float v[ITEMS];
  for (int k = 0; k < ITEMS; ++k) { int i = base + k * blockDim.x; v[k] = i < n ? x[i] : 0.0f; }
  for (int k = 0; k < ITEMS; ++k) { int i = base + k * blockDim.x; if (i < n) out[i] = a * v[k]; }
}
""",
)
