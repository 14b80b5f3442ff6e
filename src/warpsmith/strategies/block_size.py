"""Advice and a template's switch: choose the threads per block."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="block-size",
    title="Choose the threads per block",
    backends=("cuda",),
    zones=(),
    families=("elementwise", "row_reduction", "full_reduction"),
    advice=(
        "Make the number of threads per block a constant and choose it by measurement: a multiple of 32 such "
        "that several blocks fit on a multiprocessor, and, for one block per row, not more threads than a row "
        "has vectors. State it in __launch_bounds__ so that the compiler can spend the registers that are "
        "left."
    ),
    effect=(
        "Some per cent either way; more where a row is much shorter than the block, or where registers limit "
        "how many blocks are resident."
    ),
    example="""\
__global__ void __launch_bounds__(THREADS) kernel(...);
kernel<<<blocks, THREADS, 0, stream>>>(...);
""",
    parameters=(Parameter("threads", ("256", "128", "512", "1024")),),
)
