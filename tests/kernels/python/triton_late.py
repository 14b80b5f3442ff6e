# mypy: ignore-errors
"""Compiles another variant from the third call on: nothing can be compiled any more by then."""

import torch
import triton
import triton.language as tl

CALLS = 0


@triton.jit
def softmax_kernel(x, out, cols, BLOCK: tl.constexpr, VARIANT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
    shifted = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * cols + at, shifted / tl.sum(shifted, axis=0), mask=at < cols)


def launch(x: torch.Tensor, out: torch.Tensor, rows: int, cols: int) -> None:
    global CALLS
    CALLS += 1
    softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols), VARIANT=int(CALLS > 2))
