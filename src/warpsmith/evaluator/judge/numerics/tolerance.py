"""Decides whether an output is right: its error against fp64 is limited by the baseline's own error.

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
These floors hold for every honest kernel. Where many terms are summed they are far above the error of most, and a
result guessed from the distribution of the data may pass. From LONG_SUM terms on, the reference is therefore computed
with its sums in other orders (`summation_orders`), one long sequential sum among them. The floor is then at most
HONEST_MARGIN times the largest error of these, or the floor of 4096 terms: for log-sum-exp of 1e6 normal values 6e-6
instead of 1.6e-4.
Where the reference only selects (`selection`), nothing is rounded, and one roundoff of the output's type is the floor.
Not caught: TF32 inputs in a dot product of positive data with K >= 4096, where the errors average out to less
than an honest sum's; the judge therefore needs input sets of mixed sign. A result of one or two elements may
be a cancelled sum whose s says nothing of its terms: there the baseline's own error widens the floor.

Index outputs with ties are compared by `index_ties`; the passes over the data are in `compare`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from warpsmith.evaluator.judge.numerics import gpu_passes
from warpsmith.evaluator.judge.numerics.compare import (
    BLOCK_ELEMENTS,
    CUDA_BLOCKS,
    ROUNDOFF,
    BadElements,
    ComparedTensors,
    Errors,
    OutputComparison,
    blocks,
    careful_scan,
    dtype_name,
    element,
    nonfinite_reason,
    real_views,
    scan,
)
from warpsmith.model.evaluation import Status
from warpsmith.model.task import Precision

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
LONG_SUM = 1 << 14  # terms from which on other orders of summation are measured
HONEST_MARGIN = 3.0  # between the worst order that is measured and the limit
_SHORT_SUM = 4096  # terms whose rounding is always allowed
_FEW_FAR = 1 / 16  # of the elements of an output: so many may have errors above the limit in `find_far_elements`
_COMPARABLE = 32  # results of several calls that differ by no more than this factor have one scale
_LONGEST_SUM = 1 << 20  # a longer sequential float32 sum stagnates: it is wrong, not merely rounded


@dataclass(frozen=True, kw_only=True)
class ErrorLimit(Errors):
    """The largest errors that pass, and the class they follow from."""

    precision: Precision


@dataclass(frozen=True)
class NonfiniteMismatch:
    """NaN or Inf differs from the reference: there is no error to give."""

    reason: str


def measure_errors(result: Tensor, reference: Tensor, baseline: Tensor | None) -> Errors | NonfiniteMismatch:
    """The errors of `result`; NaN and Inf that PyTorch's `baseline` has too are excused. For e_base pass it twice."""
    tensors = ComparedTensors.of(result, reference, baseline)
    found = scan(tensors)
    return NonfiniteMismatch(nonfinite_reason(tensors, "result")) if found.violations else found.errors


def error_limit(
    baseline: Errors,
    like: Tensor,
    precision: Precision,
    *,
    reduction: int,
    factor: float,
    repeated: bool = False,
    conditioning: float = 1.0,
    orders: Errors | None = None,
    selects: bool = False,
) -> ErrorLimit:
    """The largest errors that pass for an output of this type and size, each element a sum of `reduction` terms.

    `repeated`: the inputs hold many equal values, or one that outweighs all others. Adding the same number again and
    again, or small ones to a large one, rounds the same way each time: a plain sum drifts by up to a quarter of its
    length in roundoffs.
    `conditioning`: how much the result changes when its inputs are rounded, in roundoffs (`sensitivity`).
    `orders`: the largest errors of the reference with its sums in other orders, if these were measured.
    `selects`: nothing is computed, elements are only chosen and moved.
    """
    count = like.numel()
    if selects:
        exact = ROUNDOFF[dtype_name(like)]
        maximum, rms = (factor * error + exact for error in (baseline.maximum, baseline.rms))
        return ErrorLimit(maximum=maximum, rms=rms, scale=baseline.scale, precision=precision)
    u_out = max(ROUNDOFF[dtype_name(like)], _ARITHMETIC[precision])
    u_acc = roundoff(precision)
    terms = min(max(reduction, 1), _LONGEST_SUM)
    # A cancelled sum magnifies the baseline's error as it does the candidate's; from four elements on
    # s is reliable. Measured: of honest sequential single sums 6 % fail without this, 0.2 % with it.
    magnified = min(max(baseline.rms / (0.5 * u_out), 1.0), 64.0) if count < 4 else 1.0
    conditioning = min(max(conditioning, magnified), WORST_CONDITION)
    drift = 1 / 4 if repeated else 1 / 800

    def floor_of(terms: int, drift: float) -> float:
        return u_out + u_acc * (1.5 * math.sqrt(terms + 16) + drift * terms) * conditioning

    floor = floor_of(terms, drift)
    extreme = max(2.0 * math.sqrt(2.0 * math.log(count + 1)), 1.0)
    maximum = extreme * floor
    if orders is not None:
        least = floor_of(min(terms, _SHORT_SUM), 1 / 800)
        maximum = min(maximum, max(extreme * least, HONEST_MARGIN * orders.maximum))
        floor = min(floor, max(least, HONEST_MARGIN * orders.rms))
    return ErrorLimit(
        maximum=factor * baseline.maximum + maximum,
        rms=factor * baseline.rms + floor,
        scale=baseline.scale,
        precision=precision,
    )


def roundoff(precision: Precision) -> float:
    """The unit roundoff of the sums at this precision."""
    return 2.0**-53 if precision is Precision.FP64 else 2.0**-24


def sensitivity(moved: Sequence[Errors | NonfiniteMismatch], precision: Precision) -> float:
    """By how many roundoffs the reference changes when each input is rounded once; `moved`: the errors it then has."""
    squares = [e.rms**2 for e in moved if isinstance(e, Errors)]
    return 2 * math.sqrt(sum(squares) / len(squares)) / roundoff(precision) if squares else 1.0


def usable(baseline: Errors | NonfiniteMismatch, precision: Precision) -> bool:
    """Whether limits can follow from this baseline error; if not, the input set is dropped."""
    if isinstance(baseline, NonfiniteMismatch):
        return False
    worst = _WORST_BASELINE[precision]
    return baseline.rms <= worst and baseline.maximum <= 5 * worst


def compare_float(
    result: Tensor, reference: Tensor, baseline: Tensor, *, limit: ErrorLimit, name: str
) -> OutputComparison:
    """Compare a floating-point or complex output with the fp64 reference."""
    tensors = ComparedTensors.of(result, reference, baseline, limit.scale)
    found = scan(tensors)
    if found.violations:
        return OutputComparison(Status.WRONG, math.inf, limit.maximum, math.inf, nonfinite_reason(tensors, name))
    by_maximum = found.errors.maximum / limit.maximum >= found.errors.rms / limit.rms
    error, bound = (found.errors.maximum, limit.maximum) if by_maximum else (found.errors.rms, limit.rms)
    if _largest_share(found.errors, limit) <= 1.0:
        return OutputComparison(Status.OK, error, bound, error / bound)
    found = careful_scan(tensors)  # also finds the worst element
    few = found.errors.maximum > limit.maximum
    off = BadElements(tuple(tensors.result.shape))
    for block in tensors.compare():
        scaled = block.difference / block.denominator
        off.add(block.offset, scaled > limit.maximum if few else block.difference > limit.rms)
    got, want = element(tensors.result, found.worst), element(tensors.reference, found.worst)
    reason = (
        f"{name} differs: {'largest' if by_maximum else 'rms'} scaled error {error:.2g} (limit {bound:.2g}), "
        f"{off.share_text()} are off, worst{off.at(found.worst)}: got {got:.9g}, "
        f"expected {want:.9g}{off.box_text(name)}{_hint(found.errors.rms, off, limit.precision)}."
    )
    return OutputComparison(Status.WRONG, error, bound, error / bound, reason)


def find_far_elements(result: Tensor, reference: Tensor, limit: ErrorLimit) -> tuple[Tensor, float] | None:
    """The flat positions of the elements whose error is above the limit, and the rms error of all others.

    None if more than one element in 16 is above the limit, if an element is not finite, or if the rms error of the
    others is above its limit as well.
    """
    tensors = ComparedTensors.of(result, reference, None, limit.scale)
    found: list[Tensor] = []
    most, count, squares = _FEW_FAR * tensors.result.numel(), 0, 0.0
    for block in tensors.compare():
        far = block.difference > limit.maximum * block.denominator
        found.append(far.nonzero().flatten() + block.offset)
        count += found[-1].numel()
        if count > most or block.violated is not None:
            return None
        squares += float(torch.where(far, 0.0, block.difference).square().sum())
    rms = math.sqrt(squares / max(tensors.result.numel(), 1))
    return (torch.cat(found), rms) if count and rms <= limit.rms else None


def limit_share(
    result: Tensor, reference: Tensor, baseline: Tensor, limit: ErrorLimit, *, enough: float = math.inf
) -> float:
    """The larger of a result's errors, each ÷ its limit: a right result has at most 1.

    Above `enough` it is only a lower bound, found sooner.
    """
    found = scan(ComparedTensors.of(result, reference, baseline, limit.scale), enough * limit.maximum)
    return math.inf if found.violations else _largest_share(found.errors, limit)


def _largest_share(errors: Errors, limit: ErrorLimit) -> float:
    return max(errors.maximum / limit.maximum, errors.rms / limit.rms)


def agrees_with_baseline(
    result: Tensor,
    baseline: Tensor,
    *,
    precision: Precision,
    reduction: int,
    orders: Errors | None = None,
    selects: bool = False,
) -> bool:
    """Whether a timed result is the baseline's to rounding, without a fp64 reference.

    Stricter than `compare_float` by e_base: True means right, False means that only the reference can tell.
    """
    if not (result.is_floating_point() or result.is_complex()):
        return compare_exact(result, baseline, name="").ok
    nothing = Errors(0.0, 0.0)
    floor = error_limit(nothing, result, precision, reduction=reduction, factor=1.0, orders=orders, selects=selects)
    if _plainly_equal(result, baseline, 0.5 * floor.rms):
        return True
    found = scan(ComparedTensors.of(result, baseline, None))
    return not found.violations and found.errors.maximum <= floor.maximum and found.errors.rms <= floor.rms


def agree_with_baseline(
    results: Sequence[Tensor],
    baselines: Sequence[Tensor],
    *,
    precision: Precision,
    reduction: int,
    orders: Errors | None = None,
    selects: bool = False,
) -> list[bool]:
    """`agrees_with_baseline` for each of several results of one shape; small ones are compared in one operation."""
    single = partial(agrees_with_baseline, precision=precision, reduction=reduction, orders=orders, selects=selects)
    like, found = results[0], list[bool]()
    tolerance = 0.0
    if like.is_floating_point() or like.is_complex():
        nothing = Errors(0.0, 0.0)
        floor = error_limit(nothing, like, precision, reduction=reduction, factor=1.0, orders=orders, selects=selects)
        tolerance = 0.5 * floor.rms
    step = max(1, BLOCK_ELEMENTS * (CUDA_BLOCKS if like.is_cuda else 1) // max(like.numel(), 1))
    for start in range(0, len(results), step):
        ours, theirs = results[start : start + step], baselines[start : start + step]
        equal = [False] * len(ours)
        if len(ours) > 1 and like.numel():
            together = torch.stack(tuple(ours)), torch.stack(tuple(theirs))
            if tolerance:
                equal = _each_plainly_equal(*together, tolerance)
            else:
                equal = [compare_exact(*together, name="").ok] * len(ours)
        found += [same or single(a, b) for same, a, b in zip(equal, ours, theirs, strict=True)]
    return found


def _each_plainly_equal(results: Tensor, baselines: Tensor, tolerance: float) -> list[bool]:
    """`_plainly_equal` for each of the results along the first axis.

    The scale of a result is its own: next to a call whose results are a million times as large, a result of zeros would
    be right. The common one is used where the two are comparable, since a single sum may cancel.
    """
    ours, theirs = (view.reshape(len(results), -1) for view in real_views(results, baselines))
    exact = torch.promote_types(ours.dtype, torch.float32)
    sizes = torch.linalg.vector_norm(theirs, dim=1, dtype=exact) / math.sqrt(theirs.shape[1])
    common = sizes.square().mean().sqrt()
    scale = torch.where(sizes * _COMPARABLE < common, sizes, torch.maximum(sizes, common))
    beyond = (ours.to(exact) - theirs).abs_().sub_(theirs.to(exact).abs().mul_(tolerance)).amax(dim=1)
    equal: list[bool] = ((beyond <= tolerance * scale) & scale.isfinite()).tolist()
    return equal


def _plainly_equal(result: Tensor, baseline: Tensor, tolerance: float) -> bool:
    """Whether |c - r| <= tolerance * (|r| + s) everywhere, computed in float32: a tenth of the cost of a scan.

    It implies maximum <= tolerance and rms <= 2 * tolerance. A NaN anywhere compares false, and so does a scale that is
    too large for float32.
    """
    ours, theirs = real_views(result, baseline)
    if not ours.numel():
        return True
    whole = gpu_passes.norm_and_peak(theirs)
    if whole is not None:
        found = gpu_passes.difference_norms(ours, theirs, whole[0] / math.sqrt(theirs.numel()))
        return found is not None and found.maximum <= tolerance
    exact = torch.promote_types(ours.dtype, torch.float32)
    scale = torch.linalg.vector_norm(theirs, dtype=exact) / math.sqrt(theirs.numel())
    beyond = [
        (c.to(exact) - r).abs_().sub_(r.to(exact).abs().mul_(tolerance)).max() for _, (c, r) in blocks(ours, theirs)
    ]
    return bool(torch.stack(beyond).max() <= tolerance * scale) and bool(scale.isfinite())


def compare_exact(result: Tensor, reference: Tensor, *, name: str) -> OutputComparison:
    """Compare an output that must be exact: equal, NaN included."""
    if result.dtype is torch.bool:  # as bytes: other bytes than 0 and 1 are wrong
        result, reference = result.view(torch.uint8), reference.to(torch.bool).view(torch.uint8)
    result, reference = real_views(result, reference)
    wrong = BadElements(tuple(result.shape))
    for offset, (c, r) in blocks(result, reference):
        wrong.add(offset, (c != r) & ~((c != c) & (r != r)))
    if not wrong.count:
        return OutputComparison.exact(0, 1, "")
    at = wrong.first
    got, want = element(result, at), element(reference, at)
    return OutputComparison.exact(
        wrong.count,
        result.numel(),
        f"{name} must be exact: {wrong.share_text()} differ, first{wrong.at(at)}: "
        f"got {got}, expected {want}{wrong.box_text(name)}.",
    )


def _hint(rms: float, off: BadElements, precision: Precision) -> str:
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
