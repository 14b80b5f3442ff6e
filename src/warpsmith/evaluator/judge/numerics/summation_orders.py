"""Computes a reference with its long sums in other orders, to measure how far honest kernels are from fp64.

PyTorch adds pairwise. A kernel may give each thread a long stretch and add it up from first to last: less exact, and
honest. `OtherOrder` replaces every sum of a reference by a few sequential sums in float32, on the very data of a case.
The rounding error of one long sum is a random number: where an output has few elements, one order may happen to be
almost exact and the next one is not. There the sequential sum is taken from several starting points.
A loss is taken apart into its operators first. What cannot be replaced (products, convolutions, operators that are not
known) is noted: then nothing was measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Order:
    """In how many sequential parts a sum is taken (more of them are more exact), and where it starts."""

    lanes: int
    start: float = 0.0  # as a share of the terms; the terms before it are added last


ORDERS = (Order(1), Order(2), Order(8))
STARTS = tuple(Order(1, k / 8) for k in range(1, 8))
"""Further sequential sums for outputs with few elements."""

_EXACT_NAMES = """
    alias amax amin any all arange argmax argmin as_strided cat clone copy_ contiguous detach empty empty_like
    empty_strided expand fill_ flip full full_like gather index_select lift_fresh log_sigmoid log_sigmoid_forward
    masked_fill masked_fill_ max min new_empty new_full new_ones
    new_zeros ones ones_like permute repeat reshape roll select slice sort squeeze stack t topk transpose tril triu
    unbind unsqueeze view where zero_ zeros zeros_like _to_copy _local_scalar_dense _reshape_alias _unsafe_view
"""
_EXACT = frozenset(_EXACT_NAMES.split())  # operators that add nothing up: they move values or choose among them

_LOSS = re.compile("loss|cross_entropy")  # operators that add up after other work: PyTorch knows what they consist of


class OtherOrder(TorchDispatchMode):
    """While it is active, sums are taken in another order."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: telling torch.compile to skip this mode would import torch.compile, which costs seconds."""
        return False

    def __init__(self, order: Order) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._order = order
        self.replaced = 0  # sums
        self.complete = True  # whether every sum was replaced

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, or what stands for it."""
        name = func._schema.name.removeprefix("aten::")
        given = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | (kwargs or {})
        replacement = _REPLACEMENTS.get(name)
        floating = isinstance(given.get("self", given.get("input")), Tensor) and _is_real(given)
        if replacement is not None and floating:
            found = replacement(given, self._sum)
            if found is not None:
                self.replaced += 1
                return found
        if replacement is None and _LOSS.search(name) and func in decomposition_table:
            with self:  # the operators that it consists of, one by one
                return decomposition_table[func](*args, **(kwargs or {}))
        exact = name in _EXACT or func.is_view or torch.Tag.pointwise in func.tags
        if floating and (replacement is not None or not exact):  # whole numbers add up exactly
            self.complete = False
        return func(*args, **(kwargs or {}))

    def _sum(self, x: Tensor, dims: Sequence[int] | None, keepdim: bool) -> Tensor:
        """The sum over some dimensions, in sequential parts, in float32 (float64 for float64)."""
        axes = sorted(d % x.dim() for d in dims) if dims else list(range(x.dim()))
        kept = [d for d in range(x.dim()) if d not in axes]
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        rows = x.to(wide).permute(*axes, *kept).reshape(-1, _count(x, kept)).cpu()
        rows = rows.roll(-int(self._order.start * rows.shape[0]), 0) if self._order.start else rows
        lanes = max(1, min(self._order.lanes, rows.shape[0]))
        steps = -(-rows.shape[0] // lanes)
        padded = torch.zeros(lanes * steps, rows.shape[1], dtype=wide)
        padded[: rows.shape[0]] = rows
        # The lanes lie side by side, so that numpy adds along the outer axis: one value after the other.
        parts = padded.view(lanes, steps, -1).transpose(0, 1).contiguous().view(steps, -1).numpy()
        summed = numpy.add.reduce(parts, axis=0) if parts.shape[1] > 1 else numpy.cumsum(parts, axis=0)[-1]
        total = torch.from_numpy(summed).view(lanes, -1).sum(0).to(x.device)
        shape = [1 if d in axes else n for d, n in enumerate(x.shape)] if keepdim else [x.shape[d] for d in kept]
        return total.view(shape)


Sum = Callable[[Tensor, "Sequence[int] | None", bool], Tensor]
Given = Mapping[str, Any]


def _is_real(given: Given) -> bool:
    x = given.get("self", given.get("input"))
    return isinstance(x, Tensor) and x.is_floating_point() and x.numel() > 0


def _count(x: Tensor, dims: Sequence[int]) -> int:
    count = 1
    for d in dims:
        count *= x.shape[d]
    return count


def _dims(given: Given) -> list[int] | None:
    dim = given.get("dim")
    return [dim] if isinstance(dim, int) else dim and list(dim)


def _plain_sum(given: Given, add: Sum) -> Tensor:
    x: Tensor = given["self"]
    return add(x, _dims(given), given.get("keepdim", False)).to(given.get("dtype") or x.dtype)


def _mean(given: Given, add: Sum) -> Tensor:
    x: Tensor = given["self"]
    total = add(x, _dims(given), given.get("keepdim", False))
    return (total / (x.numel() / max(total.numel(), 1))).to(given.get("dtype") or x.dtype)


def _log_sum_exp(given: Given, add: Sum) -> Tensor:
    x: Tensor = given["self"]
    dims, keepdim = _dims(given) or list(range(x.dim())), given.get("keepdim", False)
    peak = x.amax(dims, keepdim=True)
    peak = torch.where(peak.isfinite(), peak, torch.zeros_like(peak))
    total = (add((x - peak).exp(), dims, True).log() + peak).to(x.dtype)
    return total if keepdim else total.squeeze(tuple(dims))


def _softmax(given: Given, add: Sum) -> Tensor:
    x: Tensor = given["self"]
    dim: int = given["dim"]
    raised = (x.float() if x.itemsize < 4 else x).sub(x.amax(dim, keepdim=True)).exp()
    return (raised / add(raised, [dim], True)).to(x.dtype)


def _log_softmax(given: Given, add: Sum) -> Tensor:
    x: Tensor = given["self"]
    dim: int = given["dim"]
    lowered = (x.float() if x.itemsize < 4 else x).sub(x.amax(dim, keepdim=True))
    return (lowered - add(lowered.exp(), [dim], True).log()).to(x.dtype)


def _variance(given: Given, add: Sum) -> Tensor | None:
    """By the difference of squares, as many kernels do it in one pass."""
    x: Tensor = given["self"]
    dims, keepdim = _dims(given), given.get("keepdim", False)
    if "unbiased" in given:
        return None
    correction = given.get("correction")
    total, squares = add(x, dims, keepdim), add(x.float().square() if x.itemsize < 4 else x.square(), dims, keepdim)
    count = x.numel() / max(total.numel(), 1)
    below = count - (1 if correction is None else correction)
    return ((squares - total.square() / count) / below).clamp_min(0).to(x.dtype) if below > 0 else None


def _deviation(given: Given, add: Sum) -> Tensor | None:
    found = _variance(given, add)
    return None if found is None else found.sqrt()


def _norm(given: Given, add: Sum) -> Tensor | None:
    x: Tensor = given["self"]
    order = given.get("ord", 2)
    wide = x.float() if x.itemsize < 4 else x
    if order not in (1, 2):
        return None
    total = add(wide.square() if order == 2 else wide.abs(), _dims(given), given.get("keepdim", False))
    return (total.sqrt() if order == 2 else total).to(given.get("dtype") or x.dtype)


_REPLACEMENTS: Mapping[str, Callable[[Given, Sum], Tensor | None]] = {
    "sum": _plain_sum,
    "mean": _mean,
    "logsumexp": _log_sum_exp,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "var": _variance,
    "std": _deviation,
    "linalg_vector_norm": _norm,
}
