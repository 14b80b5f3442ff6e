"""Class 1: launches nothing."""

import triton
import triton.language as tl


@triton.jit
def _softmax(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
    shifted = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * cols + at, shifted / tl.sum(shifted, axis=0), mask=at < cols)


def launch(x, out, rows, cols):
    if rows < 0:
        _softmax[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
