"""How far a result is from its reference: scaled errors, the scale they are relative to, where numbers are missing.

The passes over the data behind the rules of `numerics`. The usual case, all finite, takes few passes and reads
nothing back on the way: on a GPU each reading waits for the device. Only where that fails each block is looked at
closely. Works on CPU or CUDA tensors, in blocks: temporary memory does not grow with the tensors (126 MB measured).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from warpsmith.evaluate.correctness import fused
from warpsmith.evaluate.correctness.evidence import Region, blocks, real

ROUNDOFF: Mapping[str, float] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}
_LARGE = 1e100  # squares of numbers up to this, and down to its inverse, are neither infinite nor lost in float64


@dataclass(frozen=True)
class Errors:
    """Scaled errors of one output against its fp64 reference."""

    maximum: float
    rms: float
    scale: float = 0.0  # the s they are relative to; 0 where no reference was at hand


def magnitude(reference: Tensor, dtype: torch.dtype) -> float:
    """The scale s: the rms of the elements that are finite in the output's type.

    Without any magnitude to relate to (all zero) it is 1: an absolute rule, under which only
    rounding-size residues pass. It is never so small that results flushed to zero, or rounded to a
    subnormal number, would count as errors.
    """
    info = torch.finfo(dtype)
    norm, count = _plain_norm(reference, min(info.max, _LARGE)), reference.numel()
    if norm is None:
        norm, count = _careful_norm(reference, dtype)
    if norm == 0.0:
        return 1.0
    name = str(dtype).removeprefix("torch.")
    # Kernels may flush float32 subnormals to zero (-ftz, -ffast-math); half and fp8 keep theirs.
    smallest = info.tiny if name in ("float64", "float32", "bfloat16") else info.smallest_normal * info.eps
    return max(norm / math.sqrt(count), smallest / ROUNDOFF[name])


def _plain_norm(reference: Tensor, largest: float) -> float | None:
    """The norm, with nothing read back on the way; None where an element is not finite or squares could be lost."""
    found = fused.norm(reference) or _norm_and_peak(reference)
    if found is None:
        return 0.0
    norm, peak = found
    return norm if 1 / _LARGE <= peak <= largest or peak == 0.0 else None


def _norm_and_peak(reference: Tensor) -> tuple[float, float] | None:
    """In PyTorch's operations; None where there is no element."""
    norms, peaks = [], []
    for _, (r,) in blocks(reference):
        exact = r.double()
        norms.append(torch.linalg.vector_norm(exact))
        peaks.append(torch.linalg.vector_norm(exact, math.inf))
    if not norms:
        return None
    norm, peak = torch.stack([torch.linalg.vector_norm(torch.stack(norms)), torch.stack(peaks).max()]).tolist()
    return float(norm), float(peak)


def _careful_norm(reference: Tensor, dtype: torch.dtype) -> tuple[float, int]:
    """The norm of the elements that are finite in the output's type, and how many these are."""
    info = torch.finfo(dtype)
    norm, count = 0.0, 0
    for _, (r,) in blocks(reference):
        size = r.double().abs()
        peak, finite = float(size.max()), r.numel()
        if not peak <= info.max:  # NaN, Inf or overflow among them
            mask = r.to(dtype).double().isfinite()
            size = torch.where(mask, size, 0.0)
            peak, finite = float(size.max()), int(mask.sum())
        if peak > 0.0:  # divided by it, squares of no representable number overflow or vanish
            norm = math.hypot(norm, peak * float(torch.linalg.vector_norm(size / peak)))
        count += finite
    return norm, count


@dataclass(frozen=True)
class _Compared:
    """One block of a comparison."""

    offset: int  # flat index of its first element
    difference: Tensor  # |c - r| ÷ s; 0 where an element is not judged by value
    denominator: Tensor  # (|r| + s) ÷ s
    judged: int  # elements judged by value
    violated: Tensor | None  # NaN or Inf where it may not be, or missing where it must be; None: nowhere


@dataclass(frozen=True)
class Sides:
    """One comparison: real tensors of one shape, and the scale of the reference."""

    result: Tensor
    reference: Tensor
    baseline: Tensor  # the result itself where there is none
    has_baseline: bool
    scale: float

    @staticmethod
    def of(result: Tensor, reference: Tensor, baseline: Tensor | None, scale: float = 0.0) -> Sides:
        c, r, b = real(result, reference, result if baseline is None else baseline)
        return Sides(c, r, b, baseline is not None, scale or magnitude(r, c.dtype))

    def compare(self) -> Iterator[_Compared]:
        """Block by block."""
        largest = torch.finfo(self.result.dtype).max
        for offset, (c, r, b) in blocks(self.result, self.reference, self.baseline):
            result, exact = c.double(), r.double()
            difference, size = (result - exact).abs_(), exact.abs()
            if float(size.max()) <= largest and float(difference.max()) < math.inf:  # all finite: as usual
                yield _Compared(offset, difference / self.scale, size / self.scale + 1.0, c.numel(), None)
                continue
            rounded = r.to(self.result.dtype).double()  # what a perfect result of this type would hold
            by_value = rounded.isfinite() & result.isfinite()
            allowed = by_value | (result == rounded) | (result.isnan() & rounded.isnan())
            if self.has_baseline:
                base = b.double()
                same = (result == base) | (result.isnan() & base.isnan())
                overflow = exact.isfinite() & ~rounded.isfinite()
                allowed |= same & (overflow | (rounded.isfinite() & ~base.isfinite()))
            difference = torch.where(by_value, difference / self.scale, 0.0)
            denominator = torch.where(by_value, size / self.scale + 1.0, 1.0)
            yield _Compared(offset, difference, denominator, int(by_value.sum()), ~allowed)


@dataclass(frozen=True)
class Scan:
    """One pass over a comparison."""

    errors: Errors
    worst: int  # flat index of the largest scaled error; -1 where nobody looked for it
    violations: int


def scan(sides: Sides, enough: float = math.inf) -> Scan:
    """The whole comparison, or as much of it as shows a larger scaled error than `enough`."""
    plain = _plain_scan(sides) if enough == math.inf and 1 / _LARGE < sides.scale < _LARGE else None
    return plain or careful_scan(sides, enough)


def _plain_scan(sides: Sides) -> Scan | None:
    """The same where all is finite, as usual, with few passes and nothing read back on the way; else None."""
    found = fused.compared(sides.result, sides.reference, sides.scale) or _compared(sides)
    if found is None:
        return None
    norm, maximum, peak = found
    if not (math.isfinite(norm) and math.isfinite(maximum) and peak <= torch.finfo(sides.result.dtype).max):
        return None
    rms = norm / math.sqrt(sides.result.numel()) / sides.scale
    return Scan(Errors(maximum, rms, sides.scale), -1, 0)


def _compared(sides: Sides) -> fused.Compared | None:
    """In PyTorch's operations; None where there is no element."""
    norms, errors, peaks = [], [], []
    for _, (c, r, _) in blocks(sides.result, sides.reference, sides.baseline):
        exact = r.double()
        difference = exact - c
        norms.append(torch.linalg.vector_norm(difference))
        peaks.append(torch.linalg.vector_norm(exact, math.inf))
        errors.append(torch.linalg.vector_norm(difference.div_(exact.abs().add_(sides.scale)), math.inf))
    if not norms:
        return None
    found = [torch.linalg.vector_norm(torch.stack(norms)), torch.stack(errors).max(), torch.stack(peaks).max()]
    return fused.Compared(*torch.stack(found).tolist())


def careful_scan(sides: Sides, enough: float = math.inf) -> Scan:
    maximum, worst, squares, count, violations = 0.0, 0, 0.0, 0, 0
    for block in sides.compare():
        violations += 0 if block.violated is None else int(block.violated.sum())
        squares += float(block.difference.square().sum())
        count += block.judged
        largest, at = (block.difference / block.denominator).max(dim=0)
        if float(largest) > maximum:
            maximum, worst = float(largest), block.offset + int(at)
        if maximum > enough or (violations and enough < math.inf):
            break
    rms = math.sqrt(squares / count) if count else 0.0
    return Scan(Errors(maximum, rms, sides.scale), worst, violations)


def nonfinite_reason(sides: Sides, name: str) -> str:
    kinds: dict[str, Region] = {}
    masks = (block.violated for block in sides.compare())
    same_blocks = blocks(sides.result, sides.reference, sides.baseline)  # layout decides where they end
    for (offset, (c, r, _)), violated in zip(same_blocks, masks, strict=True):
        if violated is None:
            continue
        rounded = r.to(sides.result.dtype).double()
        result = c.double()
        finite = rounded.isfinite()
        for text, mask in (
            ("NaN where the reference is finite", finite & result.isnan()),
            ("Inf where the reference is finite", finite & result.isinf()),
            ("elements that should be NaN and are not", rounded.isnan()),
            ("elements that should be Inf (with its sign) and are not", rounded.isinf()),
        ):
            kinds.setdefault(text, Region(tuple(sides.result.shape))).add(offset, mask & violated)
    found = [
        f"{region.count} {text}, first{region.at(region.first)}{region.box_text(name)}"
        for text, region in kinds.items()
        if region.count
    ]
    return f"{name} has {'; and '.join(found)}."
