"""Advice and a template's switch: work on tiles that fit a cache."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="cache-blocking",
    title="Work on tiles that fit a cache",
    backends=("cpu",),
    zones=(),
    families=("row_reduction", "matmul"),
    advice=(
        "Cut the loop over columns (or over the depth and width of a product) into tiles small enough that "
        "what is reused stays in the first or second cache, and finish a tile before starting the next."
    ),
    effect=("Large where the plain order walks memory with long strides: column reductions, matrix products."),
    example="""\
for (int64_t first = 0; first < cols; first += TILE)
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t j = first; j < first + TILE; ++j) sum[j - first] += x[k * cols + j];
""",
    parameters=(Parameter("tile", ("128", "64", "256", "512")),),
)
