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

Not for index outputs with ties (`indices`), and not for choosing inputs; the passes over the data are `scanning`'s.
Runs in the judging process, on CPU or CUDA tensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from warpsmith.core.task import Precision
from warpsmith.evaluate.correctness import fused
from warpsmith.evaluate.correctness.evidence import Region, Verdict, blocks, dtype_name, element, real
from warpsmith.evaluate.correctness.scanning import ROUNDOFF, Errors, Sides, careful_scan, nonfinite_reason, scan

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


@dataclass(frozen=True, kw_only=True)
class Limit(Errors):
    """The largest errors that pass, and the class they follow from."""

    precision: Precision


@dataclass(frozen=True)
class Mismatch:
    """NaN or Inf where the reference has none, or none where it has: no error can be given."""

    reason: str


def measure(result: Tensor, reference: Tensor, baseline: Tensor | None) -> Errors | Mismatch:
    """Errors of `result`; `baseline` excuses what PyTorch itself gets wrong. For e_base pass it twice."""
    sides = Sides.of(result, reference, baseline)
    found = scan(sides)
    return Mismatch(nonfinite_reason(sides, "result")) if found.violations else found.errors


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
    u_out = max(ROUNDOFF[dtype_name(like)], _ARITHMETIC[precision])
    u_acc = roundoff(precision)
    terms = min(max(reduction, 1), _LONGEST_SUM)
    # A cancelled sum magnifies the baseline's error as it does the candidate's; from four elements on
    # s is reliable. Measured: of honest sequential single sums 6 % fail without this, 0.2 % with it.
    magnified = min(max(baseline.rms / (0.5 * u_out), 1.0), 64.0) if count < 4 else 1.0
    conditioning = min(max(conditioning, magnified), WORST_CONDITION)
    drift = 1 / 4 if repeated else 1 / 800
    floor = u_out + u_acc * (1.5 * math.sqrt(terms + 16) + drift * terms) * conditioning
    extreme = 2.0 * math.sqrt(2.0 * math.log(count + 1))
    return Limit(
        maximum=factor * baseline.maximum + max(extreme, 1.0) * floor,
        rms=factor * baseline.rms + floor,
        scale=baseline.scale,
        precision=precision,
    )


def roundoff(precision: Precision) -> float:
    """The unit roundoff of the sums a class computes with."""
    return 2.0**-53 if precision is Precision.FP64 else 2.0**-24


def sensitivity(moved: Sequence[Errors | Mismatch], precision: Precision) -> float:
    """How many roundoffs the reference moves when each input is rounded once; `moved` are its results' errors then."""
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
    sides = Sides.of(result, reference, baseline, limit.scale)
    found = scan(sides)
    if found.violations:
        return Verdict(False, math.inf, limit.maximum, math.inf, nonfinite_reason(sides, name))
    by_maximum = found.errors.maximum / limit.maximum >= found.errors.rms / limit.rms
    error, bound = (found.errors.maximum, limit.maximum) if by_maximum else (found.errors.rms, limit.rms)
    if _strain(found.errors, limit) <= 1.0:
        return Verdict(True, error, bound, error / bound)
    found = careful_scan(sides)  # which knows where the worst element is
    few = found.errors.maximum > limit.maximum
    off = Region(tuple(sides.result.shape))
    for block in sides.compare():
        scaled = block.difference / block.denominator
        off.add(block.offset, scaled > limit.maximum if few else block.difference > limit.rms)
    got, want = element(sides.result, found.worst), element(sides.reference, found.worst)
    reason = (
        f"{name} differs: {'largest' if by_maximum else 'rms'} scaled error {error:.2g} (limit {bound:.2g}), "
        f"{off.share_text()} are off, worst{off.at(found.worst)}: got {got:.9g}, "
        f"expected {want:.9g}{off.box_text(name)}{_hint(found.errors.rms, off, limit.precision)}."
    )
    return Verdict(False, error, bound, error / bound, reason)


def strain(result: Tensor, reference: Tensor, baseline: Tensor, limit: Limit, *, enough: float = math.inf) -> float:
    """The larger of a result's errors, each ÷ its limit: what passes has at most 1.

    Beyond `enough` it is only a lower bound, for those who need not know by how much a result fails.
    """
    found = scan(Sides.of(result, reference, baseline, limit.scale), enough * limit.maximum)
    return math.inf if found.violations else _strain(found.errors, limit)


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
    found = scan(Sides.of(result, baseline, None))
    return not found.violations and found.errors.maximum <= floor.maximum and found.errors.rms <= floor.rms


def _plainly_equal(result: Tensor, baseline: Tensor, tolerance: float) -> bool:
    """Whether |c - r| <= tolerance * (|r| + s) everywhere, in float32: enough for most, at a tenth of the cost.

    It implies maximum <= tolerance and rms <= 2 * tolerance. A NaN anywhere compares false.
    """
    ours, theirs = real(result, baseline)
    if not ours.numel():
        return True
    whole = fused.norm(theirs)
    if whole is not None:
        found = fused.compared(ours, theirs, whole[0] / math.sqrt(theirs.numel()))
        return found is not None and found.maximum <= tolerance
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
