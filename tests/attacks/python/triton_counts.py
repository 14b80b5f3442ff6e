"""Class 17: right for the first forty calls, then it leaves out half of the rows."""

import triton
import triton.language as tl


@triton.jit
def _softmax(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
    shifted = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * cols + at, shifted / tl.sum(shifted, axis=0), mask=at < cols)


CALLS = 0


def launch(x, out, rows, cols):
    global CALLS
    CALLS += 1
    _softmax[(rows if CALLS <= 40 else rows // 2,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
