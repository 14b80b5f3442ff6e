"""The pattern that outputs hold before a candidate runs, to tell unwritten elements from written ones.

A pattern is drawn for every call, so that a candidate cannot recognise the judge by what its outputs hold. Half of the
patterns are NaN, which no result has without a reason; the others are ordinary numbers, as in memory that was used
before. An ordinary number may be right by chance, so it counts as unwritten only in an output that is wrong anyway.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from warpsmith.evaluator.judge.numerics import gpu_passes
from warpsmith.evaluator.judge.numerics.compare import BadElements, OutputComparison, blocks, dtype_name, real_views
from warpsmith.model.evaluation import Status

_BITS_TYPE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FORMATS: Mapping[str, tuple[int, int]] = {  # bits, and bits of the mantissa
    "float64": (64, 52),
    "float32": (32, 23),
    "float16": (16, 10),
    "bfloat16": (16, 7),
    "float8_e5m2": (8, 2),
    "float8_e4m3fn": (8, 3),
    "complex128": (64, 52),  # of each component
    "complex64": (32, 23),
}
_ORDINARY_EXPONENTS = range(-3, 3)  # of a number like those that a kernel computes
_FEW_BITS = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True)
class PoisonPattern:
    """The pattern of one call."""

    number: int  # 64 random bits
    ordinary: bool  # floating elements hold a usual number instead of NaN, integers a small one

    @staticmethod
    def draw() -> PoisonPattern:
        """A pattern that nobody can foresee."""
        return PoisonPattern(secrets.randbits(64), secrets.randbits(1) == 1)

    def bits(self, dtype: str) -> int:
        """The bits, as an unsigned number, of one element (of one component of a complex number)."""
        if dtype == "bool":  # else no legal bool
            return self.number % 2 if self.ordinary else 2 + self.number % 254
        if dtype not in _FORMATS:
            width = 64 if dtype == "int64" else 32 if dtype == "int32" else 16 if dtype == "int16" else 8
            return self.number % 8 if self.ordinary else self.number % (1 << width)
        width, mantissa = _FORMATS[dtype]
        sign = self.number >> 63 << (width - 1)
        exponent_bits = width - 1 - mantissa
        if self.ordinary:
            bias = (1 << (exponent_bits - 1)) - 1
            steps = _ORDINARY_EXPONENTS[(self.number >> 53) % len(_ORDINARY_EXPONENTS)]
            return sign | (bias + steps) << mantissa | self.number % (1 << mantissa)
        largest = ((1 << exponent_bits) - 1) << mantissa
        if dtype == "float8_e4m3fn":
            return sign | largest | 0b111  # the only NaN it has
        quiet = 1 << (mantissa - 1)  # the bits below it are neither all 0 nor all 1, as in NaNs that hardware makes
        return sign | largest | quiet | (1 + self.number % (quiet - 2) if quiet > 2 else 1)

    def fill(self, tensor: Tensor) -> None:
        """Fill a tensor in place."""
        _bits(tensor).fill_(self._signed(tensor))

    def fills(self, tensor: Tensor) -> bool:
        """Whether every element still holds the pattern."""
        bits, pattern = _bits(tensor), self._signed(tensor)
        same = gpu_passes.count_equal(bits, pattern)
        return same == bits.numel() if same is not None else bool((bits == pattern).all())

    def share(self, tensor: Tensor) -> float:
        """The share of elements that still hold the pattern."""
        bits = _bits(tensor)
        return int((bits == self._signed(tensor)).sum()) / bits.numel()

    def decides(self, result: Tensor) -> bool:
        """Whether the pattern in an output of this type is wrong in itself."""
        floating = result.dtype.is_complex or (result.dtype.is_floating_point and result.element_size() > 1)
        return floating and not self.ordinary

    def marks(self, output: Tensor) -> bool:
        """Whether right elements of an output of this type hold the pattern in one case of a million at most."""
        wide = output.element_size() >= (8 if output.is_complex() else 4)
        return self.decides(output) or (wide and (not self.ordinary or not _is_whole(output)))

    def unwritten(self, result: Tensor, reference: Tensor, *, name: str) -> OutputComparison | None:
        """The comparison of an output with unwritten elements; None if all were written.

        A right element may equal a pattern that does not decide: there the pattern counts only where the reference
        differs, and an output that was compared and is right must not be given.
        """
        kind, decides = dtype_name(result), self.decides(result)
        pattern = self._signed(result)
        if decides and gpu_passes.count_equal(_bits(result), pattern) == 0:
            return None
        untouched = not decides and self.fills(result)
        result, reference = real_views(result, reference)
        left = BadElements(tuple(result.shape))
        different = 0
        for offset, (c, r) in blocks(result, reference):
            same = _bits(c) == pattern
            if not decides:
                wrong = _bits(c) != _bits(r.to(result.dtype))
                different += int(wrong.sum())
                same &= wrong
            left.add(offset, same)
        # A wrong element is the pattern by chance in one case of 256, or of a few: that is a wrong result.
        few = kind in _FEW_BITS or (self.ordinary and not result.is_floating_point())
        if not left.count or (few and not untouched and left.count * 16 < different):
            return None
        if untouched or left.count == result.numel():
            reason = f"{name}: no element was written; the kernel did not run or did not store to {name}."
        else:
            place = f"first{left.at(left.first)}{left.box_text(name)}"
            reason = f"{name}: {left.share_text()} were never written ({place})."
        return OutputComparison.exact(left.count, result.numel(), reason, Status.UNWRITTEN)

    def _signed(self, tensor: Tensor) -> int:
        pattern, bits = self.bits(dtype_name(tensor)), 8 * _bits(tensor).element_size()
        return pattern - (1 << bits) if bits > 8 and pattern >> (bits - 1) else pattern


def _is_whole(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def _bits(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.view(_BITS_TYPE[real.element_size()])
