"""Telling a written element from an unwritten one: the pattern outputs hold before a candidate runs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from warpsmith.evaluate.correctness import fused
from warpsmith.evaluate.correctness.evidence import Region, Verdict, blocks, dtype_name, real

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
    """The bit pattern (unsigned) an output element holds before the candidate runs."""
    return _POISON[dtype]


def fill_poison(tensor: Tensor) -> None:
    """Fills a tensor with its poison pattern, in place."""
    _bits(tensor).fill_(_signed_poison(tensor))


def is_poison(tensor: Tensor) -> bool:
    """Whether nobody has written to it since it was filled."""
    bits, pattern = _bits(tensor), _signed_poison(tensor)
    same = fused.equal(bits, pattern)
    return same == bits.numel() if same is not None else bool((bits == pattern).all())


def unwritten(result: Tensor, reference: Tensor, *, name: str) -> Verdict | None:
    """A verdict if elements still hold the poison bit by bit; None if all were written.

    A legitimate integer may equal the pattern: it counts only where the reference differs.
    """
    kind = dtype_name(result)
    nan_pattern = result.dtype.is_complex or (result.dtype.is_floating_point and result.element_size() > 1)
    pattern = _signed_poison(result)
    if nan_pattern and fused.equal(_bits(result), pattern) == 0:
        return None
    result, reference = real(result, reference)
    left = Region(tuple(result.shape))
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
    return Verdict.exact(left.count, result.numel(), reason)


def _bits(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.view(_BITS_TYPE[real.element_size()])


def _signed_poison(tensor: Tensor) -> int:
    pattern, bits = poison(dtype_name(tensor)), 8 * _bits(tensor).element_size()
    return pattern - (1 << bits) if bits > 8 and pattern >> (bits - 1) else pattern
