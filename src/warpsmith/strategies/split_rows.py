"""Advice and a template's switch: several blocks for each of a few long rows."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="split-rows",
    title="Several blocks for each of a few long rows",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("row_reduction",),
    advice=(
        "Where there are fewer rows than the device has places for blocks, let several blocks share a row. Each "
        "writes its part of the sum or maximum to the workspace; the next kernel adds the parts up, in a fixed "
        "order, before it goes on."
    ),
    effect=(
        "Many times faster for some dozens of rows with a million elements each, where one block per row leaves "
        "most of the device idle. A loss for many rows: every reduction ends a kernel, and the next one reads the "
        "row again."
    ),
    example="""\
const int64_t row = blockIdx.x / parts, part = blockIdx.x % parts, end = cols * (part + 1) / parts;
for (int64_t k = cols * part / parts + threadIdx.x; k < end; k += THREADS) sum += x[row * cols + k];
""",
    parameters=(Parameter("blocks", ("2048", "1024", "4096")),),
    excludes=("block-per-row", "warp-per-row", "row-in-registers", "row-in-shared", "online-softmax"),
)
