"""Advice and a template's switch: a grid that fits the device, looping over the work."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="grid-stride",
    title="A grid that fits the device, looping over the work",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("elementwise", "full_reduction"),
    advice=(
        "Launch as many blocks as the device holds at once (a few per multiprocessor) and let each thread "
        "loop over the work with a stride of the whole grid, instead of launching one thread per element."
    ),
    effect=(
        "Saves block scheduling and lets a thread reuse what it has loaded, such as a broadcast vector. On "
        "large element-wise work a plain grid with unrolling is often just as fast."
    ),
    example="""\
for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) out[i] = f(x[i]);
""",
    parameters=(Parameter("blocks-per-sm", ("8", "4", "16", "32")),),
)
