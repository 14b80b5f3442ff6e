"""Advice and a template's switch: share the depth of a product between blocks."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="split-k",
    title="Share the depth of a product between blocks",
    backends=("cuda",),
    zones=("compute", "middle", "memory", "latency"),
    families=("matmul",),
    advice=(
        "Where the output has fewer tiles than the device has multiprocessors, let several blocks work on one "
        "tile, each on a part of the depth, write partial sums to the workspace and add them in a second "
        "kernel."
    ),
    effect=(
        "Many times faster for small outputs with a long depth, with about as many parts as give every multiprocessor "
        "two blocks; a loss where there are enough tiles already."
    ),
    example="""\
const int64_t first = depth * blockIdx.z / SPLIT, last = depth * (blockIdx.z + 1) / SPLIT;
""",
    parameters=(Parameter("parts", ("4", "2", "8", "16", "32", "64", "128")),),
)
