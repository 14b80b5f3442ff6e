"""Advice: work that the operator itself makes zero is skipped."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="structural-zeros",
    title="Skip what the operator makes zero",
    backends=("cuda", "cpu"),
    zones=("compute", "middle", "memory"),
    families=("structured",),
    advice=(
        "Where the reference itself applies a triangular or diagonal mask, or builds a diagonal matrix from a "
        "vector, skip tiles that the mask makes zero, and bound the k loop of the others: in a product of two "
        "lower triangular matrices tile (i, j) needs only j <= k <= i. Still write the zeros. A product with "
        "diag(v) is a scaling of rows. Rely only on what the reference computes: inputs that merely happen to be "
        "triangular are checked with other values."
    ),
    effect=(
        "Up to 2 times for one triangular side, 3-6 times for two; a diagonal turns a matrix product into a "
        "streaming kernel, 100 times and more. Nothing where zeros are only a property of the data."
    ),
    example="""\
// diag(v) @ b is a scaling of rows: memory-bound instead of 2 m n m operations.
__global__ void diagonal_product(const float* v, const float* b, float* out, int n) {
  const float scale = v[blockIdx.x];
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[(long long)blockIdx.x * n + i] = scale * b[(long long)blockIdx.x * n + i];
}
""",
)
