"""Advice and a template's switch: stage tiles of both operands in shared memory."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="shared-tile",
    title="Stage tiles of both operands in shared memory",
    backends=("cuda",),
    zones=("compute", "middle", "memory"),
    families=("matmul",),
    advice=(
        "Compute a tile of the output per block: in each step load a tile of A and a tile of B into shared "
        "memory, side by side and coalesced whatever way the operands are stored, synchronise, and multiply "
        "from there."
    ),
    effect=(
        "Every element loaded is used as often as the tile is wide: ten times and more over the plain kernel. "
        "Alone it is bound by shared memory; combine it with register tiles."
    ),
    example="""\
for (int k0 = 0; k0 < K; k0 += TK) {
  load_tiles(k0);
  __syncthreads();
  for (int k = 0; k < TK; ++k) sum += As[k][row] * Bs[k][col];
  __syncthreads();
}
""",
    parameters=(Parameter("depth", ("16", "8", "32")),),
)
