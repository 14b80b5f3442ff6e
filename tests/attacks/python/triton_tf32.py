"""Class 12: a product on the tensor cores in TF32, which is what Triton does unless told otherwise."""

import triton
import triton.language as tl


@triton.jit
def _product(a, b, out, m, n, k, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    deep = tl.arange(0, DEPTH)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, DEPTH):
        inner = start + deep
        in_a = (rows[:, None] < m) & (inner[None, :] < k)
        in_b = (inner[:, None] < k) & (cols[None, :] < n)
        left = tl.load(a + rows[:, None] * k + inner[None, :], mask=in_a, other=0.0)
        right = tl.load(b + inner[:, None] * n + cols[None, :], mask=in_b, other=0.0)
        total += tl.dot(left, right, input_precision="tf32")
    tl.store(out + rows[:, None] * n + cols[None, :], total, mask=(rows[:, None] < m) & (cols[None, :] < n))


def launch(a, b, out, m, n, k):
    _product[(triton.cdiv(m, 64), triton.cdiv(n, 64))](a, b, out, m, n, k, BLOCK=64, DEPTH=32)
