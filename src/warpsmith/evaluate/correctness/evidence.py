"""Looking at tensors as evidence: in blocks, to where the bad elements lie, and the verdict that follows.

Shared by the rules (`numerics`, `indices`, `poison`). Works on CPU and CUDA tensors in flat blocks, so that
temporary memory stays small whatever the size of an output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 19  # a float64 temporary of this size is 4 MB; on a CPU larger blocks are no faster
CUDA_BLOCKS = 16  # that many of them at once on a GPU, where each operation costs a launch


@dataclass(frozen=True)
class Verdict:
    """Whether one output is right, and how near it came to the limit."""

    ok: bool
    error: float  # of the metric that came nearest to its limit; for exact rules the share of wrong elements
    limit: float
    share: float  # error ÷ limit
    reason: str = ""  # "" when ok

    @staticmethod
    def exact(wrong: int, count: int, reason: str) -> Verdict:
        """Of a rule without tolerance: `wrong` of `count` elements break it."""
        if not wrong:
            return Verdict(True, 0.0, 0.0, 0.0)
        return Verdict(False, wrong / count, 0.0, math.inf, reason)


def blocks(*tensors: Tensor, offset: int = 0) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """Tensors of one shape in flat row-major pieces, each with the flat index of its first element."""
    shape, count = tensors[0].shape, tensors[0].numel()
    size = BLOCK_ELEMENTS * (CUDA_BLOCKS if tensors[0].is_cuda else 1)
    if count <= size:
        if count:
            yield offset, tuple(t.reshape(-1) for t in tensors)
    elif all(t.is_contiguous() for t in tensors):
        flat = [t.view(-1) for t in tensors]
        for start in range(0, count, size):
            yield offset + start, tuple(t[start : start + size] for t in flat)
    elif shape[0] == 1:
        yield from blocks(*(t[0] for t in tensors), offset=offset)
    else:  # slices of the first axis, so that reshape copies a block and never the whole tensor
        row = count // shape[0]
        step = max(1, size // row)
        for start in range(0, shape[0], step):
            yield from blocks(*(t[start : start + step] for t in tensors), offset=offset + start * row)


class Region:
    """Where the bad elements of a tensor lie: how many, the first, and their bounding box."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.count = 0
        self.first = -1  # flat index
        self._low = list(shape)
        self._high = [-1] * len(shape)

    def add(self, offset: int, bad: Tensor) -> None:
        """Takes in one block's mask."""
        self.add_positions(bad.nonzero().flatten() + offset)

    def add_positions(self, found: Tensor) -> None:
        """Takes in flat indices, in rising order."""
        if not found.numel():
            return
        self.count += found.numel()
        if self.first < 0:
            self.first = int(found[0])
        for axis, along in enumerate(torch.unravel_index(found, self.shape) if self.shape else ()):
            self._low[axis] = min(self._low[axis], int(along.min()))
            self._high[axis] = max(self._high[axis], int(along.max()))

    def share_text(self, noun: str = "elements") -> str:
        """E.g. "12.5 % of the elements"; a handful is given as "3 of 4096 elements"."""
        total = math.prod(self.shape)
        if self.count < 10:
            return f"{self.count} of {total} {noun}"
        return f"{100 * self.count / total:.3g} % of the {noun}"

    def at(self, flat: int) -> str:
        """E.g. " at [3, 1023]"; nothing for a 0-d tensor."""
        return f" at {unravel(flat, self.shape)}" if self.shape else ""

    def box_text(self, name: str) -> str:
        """E.g. "; all of them lie in out[:, 1000:1024]" where that is a strict part of the tensor."""
        full = [(0, n - 1) for n in self.shape]
        box = list(zip(self._low, self._high, strict=True))
        if self.count < 2 or box == full:
            return ""
        parts = [
            ":" if b == f else f"{b[0]}:{b[1] + 1}" if b[1] > b[0] else f"{b[0]}"
            for b, f in zip(box, full, strict=True)
        ]
        return f"; all of them lie in {name}[{', '.join(parts)}] of shape {list(self.shape)}"


def dtype_name(tensor: Tensor) -> str:
    """Torch's own name without the prefix: a key of `core.task.DTYPE_BYTES`."""
    return str(tensor.dtype).removeprefix("torch.")


def real(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Detached, complex as pairs of reals; all of one shape."""
    out = tuple((torch.view_as_real(t) if t.is_complex() else t).detach() for t in tensors)
    if any(t.shape != out[0].shape for t in out):
        raise ValueError(f"compared tensors differ in shape: {[list(t.shape) for t in out]}")
    return out


def element(tensor: Tensor, flat: int) -> float | int:
    """One element by its flat index."""
    value: float | int = tensor[tuple(unravel(flat, tuple(tensor.shape)))].item()
    return value


def unravel(flat: int, shape: tuple[int, ...]) -> list[int]:
    """The index of a flat position, without a tensor."""
    index: list[int] = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return index[::-1]
