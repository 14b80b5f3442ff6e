"""Decides whether an output tensor is right: error against fp64, limited by the baseline's own error.

Two scaled errors are measured, with s = rms of the finite reference elements:
    maximum = max |c - r| / (|r| + s)         a few wrong elements
    rms     = sqrt(mean((c - r)^2)) / s       a little wrong everywhere, e.g. lower precision
and each must be at most factor * e_base + rounding floor. The floor of rms is
    u_out + u_acc * (1.5 * sqrt(K + 16) + K / 800),  K = terms summed per element, at most 2^20
because rounding errors of a sequential sum of K terms are a random walk (sqrt K) plus, for skewed positive
terms, a drift (K); 16 allows for a short chain of operations (2-ulp functions) where nothing is summed.
The largest of N such errors is about sqrt(2 ln N) times their rms; the floor of maximum has twice that, for
outputs whose rows differ in scale. Measured rms errors in float32, with u_acc = u_out = 2^-24:
    honest                              K        error    floor  | lower precision     error   caught at
    sequential sum, normal              4096     1.2e-6   6.1e-6 | TF32 inputs, normal 2.9e-4  K <= 1e6
    sequential sum, normal              1000000  1.9e-5   1.6e-4 | fp16 output         2.0e-4  K <= 1e6
    sequential fma dot, uniform [0, 1)  1000000  1.5e-4   1.6e-4 | fp16 accumulation   2.3e-3  K = 256
    softmax, 2-ulp exp, sequential      32768    2.6e-6   1.9e-5 | exp off by 1e-4     1.0e-4  K = 32768
    layer norm E[x^2]-E[x]^2, uniform   65536    1.9e-5   2.8e-5 | exp off by 1e-4     5.8e-5  K = 1
Not caught: TF32 inputs in a dot product of positive data with K >= 4096, where the errors average out to less
than an honest sum's; the judge therefore needs input sets of mixed sign. A result of one or two elements may
be a cancelled sum whose s says nothing of its terms: there the baseline's own error widens the floor.

Not for index outputs with ties (`indices`), and not for choosing inputs. Runs in the judging process, on CPU
or CUDA tensors, in blocks: temporary memory does not grow with the tensors (126 MB measured).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warpsmith.core.task import Precision
from warpsmith.evaluate.correctness.evidence import Region, Verdict, blocks, dtype_name, element, real

_ROUNDOFF: Mapping[str, float] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}
_ARITHMETIC: Mapping[Precision, float] = {
    Precision.FP64: 2.0**-53,
    Precision.FP32: 2.0**-24,
    Precision.TF32: 2.0**-11,
    Precision.FP16: 2.0**-11,
    Precision.BF16: 2.0**-8,
}
_WORST_BASELINE: Mapping[Precision, float] = {  # above this rms error, `factor` times it would pass anything
    Precision.FP64: 1e-8,
    Precision.FP32: 1e-2,
    Precision.TF32: 3e-2,
    Precision.FP16: 3e-2,
    Precision.BF16: 1e-1,
}
WORST_CONDITION = 1e3  # beyond it a result is an accident of rounding
_LONGEST_SUM = 1 << 20  # a longer sequential float32 sum stagnates: it is wrong, not merely rounded


@dataclass(frozen=True)
class Errors:
    """Scaled errors of one output against its fp64 reference."""

    maximum: float
    rms: float


@dataclass(frozen=True)
class Limit(Errors):
    """The largest errors that pass, and the class they follow from."""

    precision: Precision


@dataclass(frozen=True)
class Mismatch:
    """NaN or Inf where the reference has none, or none where it has: no error can be given."""

    reason: str


def measure(result: Tensor, reference: Tensor, baseline: Tensor | None) -> Errors | Mismatch:
    """Errors of `result`; `baseline` excuses what PyTorch itself gets wrong. For e_base pass it twice."""
    sides = _Sides.of(result, reference, baseline)
    scan = _scan(sides)
    return Mismatch(_nonfinite_reason(sides, "result")) if scan.violations else scan.errors


def limit(
    baseline: Errors,
    like: Tensor,
    precision: Precision,
    *,
    reduction: int,
    factor: float,
    repeated: bool = False,
    conditioning: float = 1.0,
) -> Limit:
    """What an output of this type and size, each element a sum of about `reduction` terms, may be off by.

    `repeated`: the inputs hold many equal values. Adding the same number again and again rounds the same way
    each time, so that a plain sum drifts by up to a quarter of its length in roundoffs.
    `conditioning`: how strongly the result answers to rounding its inputs, in roundoffs (`sensitivity`).
    """
    count = like.numel()
    u_out = max(_ROUNDOFF[dtype_name(like)], _ARITHMETIC[precision])
    u_acc = roundoff(precision)
    terms = min(max(reduction, 1), _LONGEST_SUM)
    # A cancelled sum magnifies the baseline's error as it does the candidate's; from four elements on
    # s is reliable. Measured: of honest sequential single sums 6 % fail without this, 0.2 % with it.
    magnified = min(max(baseline.rms / (0.5 * u_out), 1.0), 64.0) if count < 4 else 1.0
    conditioning = min(max(conditioning, magnified), WORST_CONDITION)
    drift = 1 / 4 if repeated else 1 / 800
    floor = u_out + u_acc * (1.5 * math.sqrt(terms + 16) + drift * terms) * conditioning
    extreme = 2.0 * math.sqrt(2.0 * math.log(count + 1))
    return Limit(factor * baseline.maximum + max(extreme, 1.0) * floor, factor * baseline.rms + floor, precision)


def roundoff(precision: Precision) -> float:
    """The unit roundoff of the sums a class computes with."""
    return 2.0**-53 if precision is Precision.FP64 else 2.0**-24


def sensitivity(nudged: Sequence[Tensor], reference: Tensor, precision: Precision) -> float:
    """How many roundoffs the reference moves when each input is rounded once; `nudged` are its results then."""
    moved = [measure(result, reference, None) for result in nudged]
    squares = [e.rms**2 for e in moved if isinstance(e, Errors)]
    return 2 * math.sqrt(sum(squares) / len(squares)) / roundoff(precision) if squares else 1.0


def usable(baseline: Errors | Mismatch, precision: Precision) -> bool:
    """Whether a multiple of this baseline error can judge anything; if not, drop the input set."""
    if isinstance(baseline, Mismatch):
        return False
    worst = _WORST_BASELINE[precision]
    return baseline.rms <= worst and baseline.maximum <= 5 * worst


def judge_float(result: Tensor, reference: Tensor, baseline: Tensor, *, limit: Limit, name: str) -> Verdict:
    """The rule for floating-point and complex outputs, against the fp64 reference."""
    sides = _Sides.of(result, reference, baseline)
    scan = _scan(sides)
    if scan.violations:
        return Verdict(False, math.inf, limit.maximum, math.inf, _nonfinite_reason(sides, name))
    by_maximum = scan.errors.maximum / limit.maximum >= scan.errors.rms / limit.rms
    error, bound = (scan.errors.maximum, limit.maximum) if by_maximum else (scan.errors.rms, limit.rms)
    if _strain(scan.errors, limit) <= 1.0:
        return Verdict(True, error, bound, error / bound)
    few = scan.errors.maximum > limit.maximum
    off = Region(tuple(sides.result.shape))
    for block in sides.compare():
        scaled = block.difference / block.denominator
        off.add(block.offset, scaled > limit.maximum if few else block.difference > limit.rms)
    got, want = element(sides.result, scan.worst), element(sides.reference, scan.worst)
    reason = (
        f"{name} differs: {'largest' if by_maximum else 'rms'} scaled error {error:.2g} (limit {bound:.2g}), "
        f"{off.share_text()} are off, worst{off.at(scan.worst)}: got {got:.9g}, "
        f"expected {want:.9g}{off.box_text(name)}{_hint(scan.errors.rms, off, limit.precision)}."
    )
    return Verdict(False, error, bound, error / bound, reason)


def strain(result: Tensor, reference: Tensor, baseline: Tensor, limit: Limit, *, enough: float = math.inf) -> float:
    """The larger of a result's errors, each ÷ its limit: what passes has at most 1.

    Beyond `enough` it is only a lower bound, for those who need not know by how much a result fails.
    """
    scan = _scan(_Sides.of(result, reference, baseline), enough * limit.maximum)
    return math.inf if scan.violations else _strain(scan.errors, limit)


def _strain(errors: Errors, limit: Limit) -> float:
    return max(errors.maximum / limit.maximum, errors.rms / limit.rms)


def agree(result: Tensor, baseline: Tensor, *, precision: Precision, reduction: int) -> bool:
    """Whether a timed result matches the baseline's to rounding, with no fp64 reference at hand.

    Stricter than `judge_float` by e_base: True is as good as a verdict, False is a doubt that only the
    reference can settle.
    """
    if not (result.is_floating_point() or result.is_complex()):
        return judge_exact(result, baseline, name="").ok
    floor = limit(Errors(0.0, 0.0), result, precision, reduction=reduction, factor=1.0)
    if _plainly_equal(result, baseline, 0.5 * floor.rms):
        return True
    scan = _scan(_Sides.of(result, baseline, None))
    return not scan.violations and scan.errors.maximum <= floor.maximum and scan.errors.rms <= floor.rms


def _plainly_equal(result: Tensor, baseline: Tensor, tolerance: float) -> bool:
    """Whether |c - r| <= tolerance * (|r| + s) everywhere, in float32: enough for most, at a tenth of the cost.

    It implies maximum <= tolerance and rms <= 2 * tolerance. A NaN anywhere compares false.
    """
    ours, theirs = real(result, baseline)
    if not ours.numel():
        return True
    exact = torch.promote_types(ours.dtype, torch.float32)
    scale = torch.linalg.vector_norm(theirs, dtype=exact) / math.sqrt(theirs.numel())
    beyond = [
        (c.to(exact) - r).abs_().sub_(r.to(exact).abs().mul_(tolerance)).max() for _, (c, r) in blocks(ours, theirs)
    ]
    return bool(torch.stack(beyond).max() <= tolerance * scale)


def judge_exact(result: Tensor, reference: Tensor, *, name: str) -> Verdict:
    """The rule for integers and bools, and for float results that must be exact: equal, NaN included."""
    if result.dtype is torch.bool:  # as bytes: a bool other than 0 and 1 is not a bool
        result, reference = result.view(torch.uint8), reference.to(torch.bool).view(torch.uint8)
    result, reference = real(result, reference)
    wrong = Region(tuple(result.shape))
    for offset, (c, r) in blocks(result, reference):
        wrong.add(offset, (c != r) & ~((c != c) & (r != r)))
    if not wrong.count:
        return Verdict.exact(0, 1, "")
    at = wrong.first
    got, want = element(result, at), element(reference, at)
    return Verdict.exact(
        wrong.count,
        result.numel(),
        f"{name} must be exact: {wrong.share_text()} differ, first{wrong.at(at)}: "
        f"got {got}, expected {want}{wrong.box_text(name)}.",
    )


def magnitude(reference: Tensor, dtype: torch.dtype) -> float:
    """The scale s: the rms of the elements that are finite in the output's type.

    Without any magnitude to relate to (all zero) it is 1: an absolute rule, under which only
    rounding-size residues pass. It is never so small that results flushed to zero, or rounded to a
    subnormal number, would count as errors.
    """
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
    if norm == 0.0:
        return 1.0
    name = str(dtype).removeprefix("torch.")
    # Kernels may flush float32 subnormals to zero (-ftz, -ffast-math); half and fp8 keep theirs.
    smallest = info.tiny if name in ("float64", "float32", "bfloat16") else info.smallest_normal * info.eps
    return max(norm / math.sqrt(count), smallest / _ROUNDOFF[name])


@dataclass(frozen=True)
class _Compared:
    """One block of a comparison."""

    offset: int  # flat index of its first element
    difference: Tensor  # |c - r| ÷ s; 0 where an element is not judged by value
    denominator: Tensor  # (|r| + s) ÷ s
    judged: int  # elements judged by value
    violated: Tensor | None  # NaN or Inf where it may not be, or missing where it must be; None: nowhere


@dataclass(frozen=True)
class _Sides:
    """One comparison: real tensors of one shape, and the scale of the reference."""

    result: Tensor
    reference: Tensor
    baseline: Tensor  # the result itself where there is none
    has_baseline: bool
    scale: float

    @staticmethod
    def of(result: Tensor, reference: Tensor, baseline: Tensor | None) -> _Sides:
        c, r, b = real(result, reference, result if baseline is None else baseline)
        return _Sides(c, r, b, baseline is not None, magnitude(r, c.dtype))

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
class _Scan:
    """One pass over a comparison."""

    errors: Errors
    worst: int  # flat index of the largest scaled error
    violations: int


def _scan(sides: _Sides, enough: float = math.inf) -> _Scan:
    """The whole comparison, or as much of it as shows a larger scaled error than `enough`."""
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
    return _Scan(Errors(maximum, math.sqrt(squares / count) if count else 0.0), worst, violations)


def _hint(rms: float, off: Region, precision: Precision) -> str:
    if 2 * off.count < math.prod(off.shape) or rms > 1e-1:
        return ""
    if precision is Precision.FP64:
        return "; looks like float32 arithmetic: this task's class is fp64"
    if precision is not Precision.FP32:
        return f"; looks like accumulation below float32: this task's class is {precision}, sum in float32"
    if rms > 1e-2:
        return ""
    if rms > 1e-5:
        return "; looks like TF32 or half precision, or a fast approximation: this task's class is fp32"
    return "; looks like accumulated rounding: sum in several partial sums, or use more exact functions"


def _nonfinite_reason(sides: _Sides, name: str) -> str:
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
