"""Finds references that compute nothing: each floating element of their result is an element of an input, or its
opposite, or a constant (sort, top-k, median, maximum, ReLU, max pooling, transposes).

There no order of operations rounds, so that there is nothing to allow for: a kernel whose result differs has dropped
digits or has not looked at all values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_NAMES = """
    abs adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d alias amax amin as_strided cat clamp clamp_max
    clamp_min clone concat constant_pad_nd contiguous copy_ cummax cummin detach embedding empty empty_like
    empty_strided expand fill_ flip full full_like gather hardtanh index index_select kthvalue lift_fresh masked_fill
    masked_fill_ max max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices maximum median min minimum mode msort nanmedian neg new_empty new_full new_ones new_zeros
    ones ones_like permute relu relu_ repeat reshape roll scatter select slice sort squeeze stack t take_along_dim topk
    transpose tril triu unbind unsqueeze view where zero_ zeros zeros_like _reshape_alias _to_copy _unsafe_view
"""
SELECTING = frozenset(_NAMES.split())
"""Operators that choose and move elements."""


class SelectionDetector(TorchDispatchMode):
    """While it is active, notes whether an operator computes floating numbers."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: telling torch.compile to skip this mode would import torch.compile, which costs seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.selects = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and look at what it returns."""
        kwargs, name = kwargs or {}, func._schema.name.removeprefix("aten::")
        known = name in SELECTING or func.is_view
        if not known:
            with self:  # in inference mode operators that consist of others arrive whole
                composed = func.decompose(*args, **kwargs)
            if composed is not NotImplemented:
                return composed
        result = func(*args, **kwargs)
        digits = [_digits(tensor.dtype) for tensor in _floating(result)]
        rounds = name == "_to_copy" and bool(digits) and any(_digits(t.dtype) > digits[0] for t in _floating(args))
        if digits and (not known or rounds):
            self.selects = False
        return result


def _floating(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        if values.is_floating_point() or values.is_complex():
            yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _floating(value)


def _digits(dtype: torch.dtype) -> float:
    return -torch.finfo(dtype).eps
