"""Advice and a template's switch: multiply on tensor cores."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="tensor-cores",
    title="Multiply on tensor cores",
    backends=("cuda",),
    zones=("compute", "middle"),
    families=("matmul",),
    advice=(
        "Where the precision class allows it (tf32, fp16, bf16), multiply with wmma or mma instructions: "
        "tiles of 16 by 16 per warp, operands through shared memory, sums in float32."
    ),
    effect=("Up to an order of magnitude over ordinary arithmetic. In strict fp32 it is too coarse and is refused."),
    example="""\
wmma::load_matrix_sync(a, As, lda);
wmma::mma_sync(sum, a, b, sum);
""",
    needs=("shared-tile",),
    excludes=("register-tile", "double-buffer", "async-copy", "padded-shared", "split-k"),
)
