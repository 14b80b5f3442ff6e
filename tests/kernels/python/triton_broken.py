# mypy: ignore-errors
"""A kernel that Triton cannot compile."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.no_such_function(tl.load(x + at)))


def launch(x: torch.Tensor, out: torch.Tensor, rows: int, cols: int) -> None:
    softmax_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
