"""The pattern that outputs hold before a candidate runs, to tell unwritten elements from written ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from warpsmith.evaluator.judge.numerics import gpu_passes
from warpsmith.evaluator.judge.numerics.compare import BadElements, OutputComparison, blocks, dtype_name, real_views
from warpsmith.model.evaluation import Status

_POISON: Mapping[str, int] = {  # quiet NaNs with a payload no hardware generates; elsewhere A5 bytes
    "float64": 0x7FFDA5A5A5A5A5A5,
    "float32": 0x7FE5A5A5,
    "float16": 0x7EA5,
    "bfloat16": 0x7FE5,
    "float8_e4m3fn": 0x7F,  # the only NaN it has
    "float8_e5m2": 0x7D,
    "complex128": 0x7FFDA5A5A5A5A5A5,  # of each component
    "complex64": 0x7FE5A5A5,
    "int64": 0xA5A5A5A5A5A5A5A5,
    "int32": 0xA5A5A5A5,
    "int16": 0xA5A5,
    "int8": 0xA5,
    "uint8": 0xA5,
    "bool": 0xA5,  # not a legal bool
}
_BITS_TYPE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def poison(dtype: str) -> int:
    """The bits, as an unsigned number, that an output element holds before the candidate runs."""
    return _POISON[dtype]


def fill_poison(tensor: Tensor) -> None:
    """Fill a tensor with its poison pattern, in place."""
    _bits(tensor).fill_(_signed_poison(tensor))


def is_poison(tensor: Tensor) -> bool:
    """Whether every element still holds the poison pattern."""
    bits, pattern = _bits(tensor), _signed_poison(tensor)
    same = gpu_passes.count_equal(bits, pattern)
    return same == bits.numel() if same is not None else bool((bits == pattern).all())


def unwritten(result: Tensor, reference: Tensor, *, name: str) -> OutputComparison | None:
    """The comparison of an output with unwritten elements; None if all were written.

    A right integer may equal the poison pattern: the pattern counts only where the reference differs.
    """
    kind = dtype_name(result)
    nan_pattern = result.dtype.is_complex or (result.dtype.is_floating_point and result.element_size() > 1)
    pattern = _signed_poison(result)
    if nan_pattern and gpu_passes.count_equal(_bits(result), pattern) == 0:
        return None
    result, reference = real_views(result, reference)
    left = BadElements(tuple(result.shape))
    different = 0
    for offset, (c, r) in blocks(result, reference):
        same = _bits(c) == pattern
        if not nan_pattern:
            wrong = _bits(c) != _bits(r.to(result.dtype))
            different += int(wrong.sum())
            same &= wrong
        left.add(offset, same)
    # One wrong byte in 256 is the pattern by chance: that is a wrong result, not an unwritten one.
    by_chance = kind in ("int8", "uint8", "float8_e4m3fn", "float8_e5m2") and left.count * 16 < different
    if not left.count or by_chance:
        return None
    if left.count == result.numel():
        reason = f"{name}: no element was written; the kernel did not run or did not store to {name}."
    else:
        reason = f"{name}: {left.share_text()} were never written (first{left.at(left.first)}{left.box_text(name)})."
    return OutputComparison.exact(left.count, result.numel(), reason, Status.UNWRITTEN)


def _bits(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.view(_BITS_TYPE[real.element_size()])


def _signed_poison(tensor: Tensor) -> int:
    pattern, bits = poison(dtype_name(tensor)), 8 * _bits(tensor).element_size()
    return pattern - (1 << bits) if bits > 8 and pattern >> (bits - 1) else pattern
