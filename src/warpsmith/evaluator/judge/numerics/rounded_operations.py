"""Runs a reference as if its operations rounded differently, to find out which results hang on a comparison of almost
equal numbers.

Only numbers that are computed change. A comparison of inputs with each other, or with a constant, has one right answer:
no kernel rounds before it. The terms of sums and products change by more than the results of single operations, since
the error of a sum is as large as the rounding of its terms, in any order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.evaluator.judge.numerics.selection import SELECTING
from warpsmith.tasks.quick_random import random_bytes

_TERMS, _RESULTS = 16, 2  # roundoffs


class RoundedOperations(TorchDispatchMode):
    """While it is active, operators that compute floating numbers round at random."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: telling torch.compile to skip this mode would import torch.compile, which costs seconds."""
        return False

    def __init__(self, roundoff: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._roundoff = roundoff

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator with rounded terms, or round what it returns."""
        kwargs = kwargs or {}
        if func.is_view or func._schema.name.removeprefix("aten::") in SELECTING:
            return func(*args, **kwargs)
        with self:  # in inference mode operators that consist of others arrive whole
            composed = func.decompose(*args, **kwargs)
        if composed is not NotImplemented:
            return composed
        if torch.Tag.pointwise in func.tags or func._schema.is_mutable:
            result = func(*args, **kwargs)
            for tensor in _tensors(result):
                if _is_rounded(tensor):
                    tensor.mul_(self._factors(tensor, _RESULTS))
            return result
        return func(*(self._with_rounded_terms(arg) for arg in args), **kwargs)

    def _with_rounded_terms(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value * self._factors(value, _TERMS) if _is_rounded(value) else value
        if isinstance(value, (list, tuple)):
            return type(value)(self._with_rounded_terms(each) for each in value)
        return value

    def _factors(self, like: Tensor, roundoffs: int) -> Tensor:
        """1 plus or minus so many roundoffs, for each element."""
        up = random_bytes(like.numel(), device=like.device).bitwise_and_(1).view(like.shape)
        step = roundoffs * self._roundoff
        return up.to(torch.float64).mul_(2 * step).add_(1 - step)


def _tensors(result: Any) -> list[Tensor]:
    found = result if isinstance(result, (list, tuple)) else (result,)
    return [each for each in found if isinstance(each, Tensor)]


def _is_rounded(tensor: Tensor) -> bool:
    """True for what the widened reference computes in."""
    return tensor.dtype in (torch.float64, torch.complex128)
