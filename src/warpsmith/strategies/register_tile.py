"""Advice and a template's switch: compute a small tile of outputs per thread."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="register-tile",
    title="Compute a small tile of outputs per thread",
    backends=("cuda", "cpu"),
    zones=("compute", "middle"),
    families=("matmul",),
    advice=(
        "Let each thread (each innermost kernel on a CPU) keep a tile of 8 by 8 or 16 by 8 sums (8 rows by two "
        "vectors) in registers: load one column of A and one row of B, then do all products between them."
    ),
    effect=(
        "Turns 2 loads per product into 16 loads per 64 products: the step that makes a matrix product bound "
        "by arithmetic. Needs about a hundred registers; 16 by 8 sums need two hundred, and are 5 % faster where there "
        "are tiles of 256 by 128 for every multiprocessor."
    ),
    example="""\
for (int i = 0; i < TM; ++i)
  for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
""",
    parameters=(Parameter("rows", ("8", "4", "12", "16")),),
)
