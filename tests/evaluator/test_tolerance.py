from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from warpsmith.evaluator.judge.numerics import compare, tolerance
from warpsmith.evaluator.judge.numerics.compare import (
    ComparedTensors,
    Errors,
    OutputComparison,
    careful_scan,
    magnitude,
    scan,
)
from warpsmith.evaluator.judge.numerics.poison import PoisonPattern
from warpsmith.evaluator.judge.numerics.tolerance import ErrorLimit, NonfiniteMismatch
from warpsmith.model.task import DTYPE_BYTES, Precision

NAN, INF = float("nan"), float("inf")
FLOATS = {
    "float32": Precision.FP32,
    "float16": Precision.FP16,
    "bfloat16": Precision.BF16,
    "float64": Precision.FP64,
}
seeds = st.integers(0, 2**31)
relaxed = settings(deadline=None, max_examples=50)  # machines are shared: a slow example is no failure
shapes = st.lists(st.integers(1, 7), min_size=0, max_size=3).map(tuple)


def drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def judged(
    result: Tensor,
    reference: Tensor,
    baseline: Tensor | None = None,
    *,
    reduction: int = 1,
    precision: Precision = Precision.FP32,
) -> OutputComparison:
    """As the judge does it: e_base, limit, verdict. The baseline defaults to the rounded reference."""
    base = reference.to(result.dtype) if baseline is None else baseline
    errors = tolerance.measure_errors(base, reference, base)
    assert isinstance(errors, Errors)
    limit = tolerance.error_limit(errors, result, precision, reduction=reduction, factor=3.0)
    return tolerance.compare_float(result, reference, base, limit=limit, name="out")


def sequential_sum(terms: Tensor) -> Tensor:
    """Sums the first axis in float32, one term after the other."""
    return torch.from_numpy(np.add.accumulate(terms.contiguous().numpy(), axis=0)[-1].copy())


def rounded_to(x: Tensor, bits: int) -> Tensor:
    """The nearest values with a significand of `bits` bits (11: TF32)."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent)


# --- properties of the rule ------------------------------------------------------------------------


@relaxed
@given(shapes, seeds, st.sampled_from(sorted(FLOATS)), st.integers(-8, 8))
def test_the_rounded_exact_result_passes(shape: tuple[int, ...], seed: int, dtype: str, exponent: int) -> None:
    reference = drawn(shape, seed) * 2.0**exponent
    verdict = judged(reference.to(getattr(torch, dtype)), reference, precision=FLOATS[dtype])
    assert verdict.ok
    assert verdict.share <= 1.0
    assert verdict.reason == ""


@relaxed
@given(shapes, seeds, st.floats(5, 1e6))  # 5: the limit there also holds three times the baseline's own error
def test_noise_above_the_limit_fails(shape: tuple[int, ...], seed: int, excess: float) -> None:
    reference = drawn(shape, seed)
    exact = reference.float()
    limit = tolerance.error_limit(Errors(0.0, 0.0), exact, Precision.FP32, reduction=1, factor=3.0)
    scale = magnitude(reference, torch.float32)
    noise = excess * limit.rms * scale * torch.where(drawn(shape, seed + 1) > 0, 1.0, -1.0)
    assert not judged((reference + noise).float(), reference).ok


@relaxed
@given(seeds, st.integers(-30, 30), st.sampled_from([0.0, 1e-7, 3e-7, 1e-6, 1e-3]))
def test_scaling_everything_by_a_power_of_two_changes_nothing(seed: int, exponent: int, noise: float) -> None:
    reference = drawn((5, 8), seed)
    result = (reference * (1 + noise * drawn((5, 8), seed + 1))).float()
    factor = 2.0**exponent
    plain = judged(result, reference)
    scaled = judged(result * factor, reference * factor)
    assert (plain.ok, plain.error, plain.limit) == (scaled.ok, scaled.error, scaled.limit)


@relaxed
@given(seeds, st.sampled_from([0.0, 1e-7, 3e-7, 1e-6, 1e-3]))
def test_order_of_the_elements_does_not_matter(seed: int, noise: float) -> None:
    reference = drawn((40,), seed)
    result = (reference + noise * drawn((40,), seed + 1)).float()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
    plain, permuted = judged(result, reference), judged(result[order], reference[order])
    assert plain.ok == permuted.ok
    assert math.isclose(plain.share, permuted.share, rel_tol=1e-9)


@relaxed
@given(shapes, seeds, st.sampled_from([NAN, INF, -INF]), st.sampled_from(sorted(FLOATS)))
def test_any_injected_nan_or_inf_fails(shape: tuple[int, ...], seed: int, value: float, dtype: str) -> None:
    reference = drawn(shape, seed)
    result = reference.to(getattr(torch, dtype)).clone()
    result.view(-1)[seed % result.numel()] = value
    verdict = judged(result, reference, precision=FLOATS[dtype])
    assert not verdict.ok
    assert verdict.share == INF
    assert "where the reference is finite" in verdict.reason


@relaxed
@given(seeds, st.integers(1, 30), st.sampled_from([0.0, 1e-6, 1e-2]), st.booleans())
def test_blocks_change_nothing(seed: int, block: int, noise: float, transposed: bool) -> None:
    reference = drawn((3, 4, 5), seed)
    result = (reference + noise * drawn((3, 4, 5), seed + 1)).float()
    result[1, 2, 3] += noise
    if transposed:
        reference, result = reference.transpose(0, 2), result.transpose(0, 2)
    whole = judged(result, reference)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "BLOCK_ELEMENTS", block)
        parts = judged(result, reference)
    assert (parts.ok, parts.reason) == (whole.ok, whole.reason)
    assert math.isclose(parts.error, whole.error, rel_tol=1e-12)


# --- honest kernels pass, lower precision fails ----------------------------------------------------


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(("terms", "count"), [(1, 1000), (16, 1000), (1000, 200), (30_000, 16), (1_000_000, 4)])
def test_sequential_float32_sums_and_products_pass(terms: int, count: int, positive: bool) -> None:
    generator = torch.Generator().manual_seed(terms)
    draw = torch.rand if positive else torch.randn
    x = draw((terms, count), generator=generator)
    baseline = x.t().contiguous().sum(1)
    assert judged(sequential_sum(x), x.double().sum(0), baseline, reduction=terms).ok
    y = draw((terms, count), generator=generator)
    products = x * y
    assert judged(sequential_sum(products), (x.double() * y.double()).sum(0), products.sum(0), reduction=terms).ok


@pytest.mark.parametrize(("terms", "count"), [(16, 1000), (256, 500), (4096, 100), (65_536, 32), (1_000_000, 8)])
def test_tf32_inputs_fail_the_fp32_class_and_pass_tf32(terms: int, count: int) -> None:
    generator = torch.Generator().manual_seed(terms)
    x, y = (torch.randn((terms, count), generator=generator) for _ in range(2))
    exact = (x.double() * y.double()).sum(0)
    honest = (x * y).sum(0)
    result = (rounded_to(x, 11).double() * rounded_to(y, 11).double()).sum(0).float()
    verdict = judged(result, exact, honest, reduction=terms)
    assert not verdict.ok
    assert judged(result, exact, honest, reduction=terms, precision=Precision.TF32).ok
    if terms <= 4096:
        assert "this task's class is fp32" in verdict.reason
    bfloat16 = (rounded_to(x, 8).double() * rounded_to(y, 8).double()).sum(0).float()
    assert not judged(bfloat16, exact, honest, reduction=terms, precision=Precision.TF32).ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("terms", [1, 1000, 1_000_000])
def test_half_precision_outputs_and_sums_fail_the_fp32_class(terms: int, dtype: torch.dtype) -> None:
    reference = drawn((512,), 5)
    assert not judged(reference.to(dtype).float(), reference, reduction=terms).ok
    if 1 < terms <= 1000:
        x = torch.randn((terms, 64), generator=torch.Generator().manual_seed(1))
        total = torch.zeros(64, dtype=dtype)
        for term in x:
            total += term.to(dtype)
        assert not judged(total.float(), x.double().sum(0), reduction=terms).ok
        # ... and in the half class itself, which allows half inputs but not half accumulation.
        halves = x.to(dtype)
        half = Precision.FP16 if dtype is torch.float16 else Precision.BF16
        exact, honest = halves.double().sum(0), halves.float().sum(0).to(dtype)
        assert judged(sequential_sum(halves.float()).to(dtype), exact, honest, reduction=terms, precision=half).ok
        assert not judged(total, exact, honest, reduction=terms, precision=half).ok


@pytest.mark.parametrize("columns", [1, 64, 2048])
def test_softmax_with_a_2_ulp_exp_passes_and_a_1e_4_one_fails(columns: int) -> None:
    x = drawn((64, columns), 3).float() * 3
    reference, baseline = x.double().softmax(1), x.softmax(1)
    if columns == 1:  # an element-wise function
        reference, baseline = x.double().exp(), x.exp()
    for accuracy, right in ((4 * 2.0**-24, True), (1e-4, False)):
        error = torch.rand(x.shape, generator=torch.Generator().manual_seed(4)) * 2 - 1
        shifted = x if columns == 1 else x - x.max(dim=1, keepdim=True).values
        exp = shifted.exp() * (1 + accuracy * error)
        result = exp if columns == 1 else exp / sequential_sum(exp.t())[:, None]
        assert judged(result, reference, baseline, reduction=columns).ok is right


@pytest.mark.parametrize("columns", [64, 1024, 16_384])
def test_layer_norm_by_the_mean_of_squares_passes(columns: int) -> None:
    x = drawn((32, columns), 6).float()
    mean = sequential_sum(x.t()) / columns
    variance = sequential_sum(x.t() ** 2) / columns - mean**2
    result = (x - mean[:, None]) * torch.rsqrt(variance[:, None] + 1e-5)
    reference = torch.nn.functional.layer_norm(x.double(), (columns,))
    baseline = torch.nn.functional.layer_norm(x, (columns,))
    assert judged(result, reference, baseline, reduction=columns).ok


def test_rows_of_different_scale_pass_when_summed_sequentially() -> None:
    x = drawn((4096, 2000), 7).float()
    x[:, ::100] *= 1000
    assert judged(sequential_sum(x), x.double().sum(0), x.sum(0), reduction=4096).ok


def test_a_cancelled_single_sum_passes() -> None:
    failures = 0
    for seed in range(200):
        x = drawn((4096,), seed).float()
        result = sequential_sum(x[:, None])[0]  # what a naive kernel does with one output
        failures += not judged(result, x.double().sum(), x.sum(), reduction=4096).ok
    assert failures <= 2


@pytest.mark.parametrize("cheat", ["zero", "constant", "shifted", "half"])
def test_cheap_answers_fail(cheat: str) -> None:
    reference = drawn((64, 64), 8)
    result = {
        "zero": torch.zeros(64, 64),
        "constant": torch.full((64, 64), float(reference.mean())),
        "shifted": reference.float().roll(1, 0),
        "half": torch.cat([reference[:32].float(), torch.zeros(32, 64)]),
    }[cheat]
    for precision in Precision:
        assert not judged(result, reference, reduction=1 << 20, precision=precision).ok


# --- special values --------------------------------------------------------------------------------


def test_nan_and_inf_must_be_where_the_reference_has_them() -> None:
    reference = torch.tensor([NAN, INF, -INF, 1.0, 2.0], dtype=torch.float64)
    exact = reference.float()
    assert judged(exact, reference).ok
    for position, value in ((0, 1.0), (0, INF), (1, -INF), (1, NAN), (1, 3.4e38), (2, INF)):
        result = exact.clone()
        result[position] = value
        verdict = judged(result, reference)
        assert not verdict.ok
        assert f"and are not, first at [{position}]" in verdict.reason


def test_overflow_by_rounding_is_inf_unless_the_baseline_saturates() -> None:
    reference = torch.tensor([1e6, 1.0], dtype=torch.float64)
    inf, saturated = (torch.tensor([v, 1.0], dtype=torch.float16) for v in (INF, 65504.0))
    assert judged(inf, reference, precision=Precision.FP16).ok
    assert not judged(saturated, reference, precision=Precision.FP16).ok
    limit = ErrorLimit(1e-3, 1e-3, precision=Precision.FP16)
    assert tolerance.compare_float(saturated, reference, saturated, limit=limit, name="out").ok


def test_where_only_the_baseline_is_not_finite_either_answer_passes() -> None:
    reference = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    baseline = torch.tensor([1.0, NAN, 3.0])
    for value, right in ((NAN, True), (2.0, True), (INF, False), (7.0, False)):
        result = torch.tensor([1.0, value, 3.0])
        assert judged(result, reference, baseline).ok is right


def test_reason_counts_nans_and_names_the_first() -> None:
    reference = drawn((4, 32), 9)
    result = reference.float()
    result[0, 17] = result[1, 3] = result[2, 30] = NAN
    reason = judged(result, reference).reason
    assert reason.startswith("out has 3 NaN where the reference is finite, first at [0, 17]")


def test_a_nan_is_found_whatever_the_layout_of_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "BLOCK_ELEMENTS", 7)
    reference = drawn((6, 5), 13)
    baseline = reference.float().t().contiguous().t()
    result = reference.float()
    result[4, 2] = NAN
    assert "1 NaN where the reference is finite, first at [4, 2]" in judged(result, reference, baseline).reason


def test_zero_reference_is_judged_absolutely() -> None:
    reference = torch.zeros(10, dtype=torch.float64)
    assert judged(torch.zeros(10), reference).ok
    assert judged(torch.full((10,), 1e-8), reference).ok
    assert not judged(torch.full((10,), 1e-5), reference).ok


def test_flushed_subnormals_pass() -> None:
    reference = torch.full((10,), 1e-40, dtype=torch.float64)
    assert judged(torch.zeros(10), reference).ok


def test_empty_scalar_and_complex_outputs() -> None:
    assert judged(torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64)).ok
    assert judged(torch.tensor(1.5), torch.tensor(1.5, dtype=torch.float64)).ok
    wrong = judged(torch.tensor(1.6), torch.tensor(1.5, dtype=torch.float64))
    assert "worst: got 1.60000002, expected 1.5" in wrong.reason
    exact = torch.complex(drawn((8,), 1), drawn((8,), 2))
    assert judged(exact.to(torch.complex64), exact).ok
    assert not judged(exact.conj().resolve_conj().to(torch.complex64), exact).ok


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        tolerance.measure_errors(torch.zeros(3), torch.zeros(4, dtype=torch.float64), None)


# --- reasons ---------------------------------------------------------------------------------------


def test_reason_locates_the_bad_elements() -> None:
    reference = drawn((8, 1024), 10) + 3
    result = reference.float()
    result[:, 1000:] = 0.0
    verdict = judged(result, reference)
    assert "2.34 % of the elements are off" in verdict.reason
    assert "got 0, expected" in verdict.reason
    assert "all of them lie in out[:, 1000:1024] of shape [8, 1024]" in verdict.reason
    assert verdict.error > verdict.limit
    assert "looks like" not in verdict.reason


def test_reason_for_a_single_bad_element_names_it() -> None:
    reference = drawn((8, 16), 11)
    result = reference.float()
    result[3, 5] += 1
    reason = judged(result, reference).reason
    assert "1 of 128 elements are off, worst at [3, 5]" in reason
    assert "lie in" not in reason


# --- e_base ----------------------------------------------------------------------------------------


def test_errors_are_the_documented_ones() -> None:
    reference = torch.tensor([3.0, 4.0, 0.0, 0.0], dtype=torch.float64)  # rms 2.5
    errors = tolerance.measure_errors(torch.tensor([3.0, 5.0, 0.0, 0.0]), reference, None)
    assert errors == Errors(maximum=1 / 6.5, rms=0.5 / 2.5, scale=2.5)


def test_an_inaccurate_or_broken_baseline_is_unusable() -> None:
    assert tolerance.usable(Errors(1e-3, 1e-4), Precision.FP32)
    assert not tolerance.usable(Errors(0.02, 0.011), Precision.FP32)
    assert not tolerance.usable(Errors(0.2, 1e-3), Precision.FP32)
    assert tolerance.usable(Errors(0.2, 0.02), Precision.BF16)
    broken = tolerance.measure_errors(torch.tensor([NAN]), torch.tensor([1.0], dtype=torch.float64), None)
    assert isinstance(broken, NonfiniteMismatch)
    assert not tolerance.usable(broken, Precision.FP32)


def test_limit_grows_with_the_baselines_error() -> None:
    like = torch.empty(1000)
    small, large = (
        tolerance.error_limit(Errors(10 * e, e), like, Precision.FP32, reduction=10, factor=3.0) for e in (0.0, 1e-5)
    )
    assert math.isclose(large.rms - small.rms, 3e-5)
    assert math.isclose(large.maximum - small.maximum, 3e-4)


def test_agree_needs_no_reference() -> None:
    x = drawn((256, 300), 12).float()
    baseline = x.sum(0)
    assert tolerance.agrees_with_baseline(sequential_sum(x), baseline, precision=Precision.FP32, reduction=256)
    assert not tolerance.agrees_with_baseline(
        baseline.half().float(), baseline, precision=Precision.FP32, reduction=256
    )
    assert not tolerance.agrees_with_baseline(baseline * NAN, baseline, precision=Precision.FP32, reduction=256)
    ints = torch.arange(5)
    assert tolerance.agrees_with_baseline(ints, ints.clone(), precision=Precision.FP32, reduction=1)
    assert not tolerance.agrees_with_baseline(ints, ints + 1, precision=Precision.FP32, reduction=1)


def _agree(results: list[Tensor], baselines: list[Tensor]) -> list[bool]:
    return tolerance.agree_with_baseline(results, baselines, precision=Precision.FP32, reduction=256)


@pytest.mark.parametrize("shape", [(), (7,), (3, 40)])
def test_each_of_several_results_has_a_scale_of_its_own(shape: tuple[int, ...]) -> None:
    large, small = (drawn(shape or (1,), 3).float().view(shape) * size for size in (1e20, 1e-3))
    assert _agree([large, small], [large.clone(), small.clone()]) == [True, True]
    assert _agree([large, torch.zeros(shape)], [large, small]) == [True, False]
    assert _agree([large * (1 + 1e-3), small], [large, small]) == [False, True]
    assert _agree([small, small * NAN, small.half().float()], [small] * 3) == [True, False, False]


def test_of_several_sums_one_may_cancel() -> None:
    baselines = [torch.tensor(value) for value in (3.0, -2.0, 0.1, 1.0)]
    assert _agree([each + 1e-6 for each in baselines], baselines) == [True] * 4


@pytest.mark.parametrize("count", [1, 3])
def test_squares_that_float32_cannot_hold_are_no_excuse(count: int) -> None:
    huge = [1e25 * drawn((50,), number).float() for number in range(count)]
    assert _agree([each.clone() for each in huge], huge) == [True] * count
    assert _agree([torch.zeros(50)] * count, huge) == [False] * count


def test_several_results_of_whole_numbers_are_exact() -> None:
    numbers = [torch.arange(5) + number for number in range(3)]
    assert _agree([each.clone() for each in numbers], numbers) == [True] * 3
    assert _agree([numbers[0], numbers[0], numbers[2]], numbers) == [True, False, True]


# --- exact outputs ---------------------------------------------------------------------------------


def test_integers_are_exact() -> None:
    reference = torch.arange(12).reshape(3, 4)
    assert tolerance.compare_exact(reference.clone(), reference, name="out").ok
    result = reference.clone()
    result[2, 1:3] = -1
    verdict = tolerance.compare_exact(result, reference, name="out")
    assert not verdict.ok
    assert "2 of 12 elements differ, first at [2, 1]: got -1, expected 9" in verdict.reason
    assert "out[2, 1:3]" in verdict.reason


def test_bools_are_compared_as_bytes() -> None:
    reference = torch.tensor([True, False])
    assert tolerance.compare_exact(reference.clone(), reference, name="out").ok
    illegal = torch.tensor([255, 0], dtype=torch.uint8).view(torch.bool)
    assert "got 255, expected 1" in tolerance.compare_exact(illegal, reference, name="out").reason


def test_exact_floats_catch_one_ulp() -> None:
    reference = torch.tensor([2.0**24, NAN], dtype=torch.float64)
    assert tolerance.compare_exact(reference.float(), reference, name="out").ok
    assert not tolerance.compare_exact(torch.tensor([2.0**24 - 1, NAN]), reference, name="out").ok


# --- poison ----------------------------------------------------------------------------------------


NAN_PATTERN, ORDINARY = PoisonPattern(0xA5A5A5A5A5A5A5A5, False), PoisonPattern(0xA5A5A5A5A5A5A5A5, True)
PATTERNS = pytest.mark.parametrize("pattern", [NAN_PATTERN, ORDINARY], ids=["nan", "ordinary"])


def poisoned(shape: tuple[int, ...], dtype: str, pattern: PoisonPattern) -> Tensor:
    tensor = torch.zeros(shape, dtype=getattr(torch, dtype))
    pattern.fill(tensor)
    return tensor


@PATTERNS
@pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
def test_untouched_and_half_written_outputs_are_seen(dtype: str, pattern: PoisonPattern) -> None:
    reference = torch.zeros((4, 8), dtype=getattr(torch, dtype))
    untouched = poisoned((4, 8), dtype, pattern)
    assert pattern.fills(untouched)
    verdict = pattern.unwritten(untouched, reference, name="out")
    assert verdict is not None
    assert not verdict.ok
    assert "no element was written" in verdict.reason
    half = poisoned((4, 8), dtype, pattern)
    half[:2] = reference[:2]
    verdict = pattern.unwritten(half, reference, name="out")
    assert verdict is not None
    assert verdict.error == 0.5
    assert "50 % of the elements were never written (first at [2, 0" in verdict.reason
    assert "out[2:4, :" in verdict.reason
    assert pattern.unwritten(reference.clone(), reference, name="out") is None


@pytest.mark.parametrize("dtype", sorted(DTYPE_BYTES))
def test_a_pattern_is_nan_or_an_ordinary_number_and_differs_from_call_to_call(dtype: str) -> None:
    patterns = [PoisonPattern.draw() for _ in range(64)]
    assert {pattern.ordinary for pattern in patterns} == {False, True}
    assert len({(pattern.ordinary, pattern.bits(dtype)) for pattern in patterns}) > 3
    for pattern in patterns:
        tensor = poisoned((3,), dtype, pattern)
        if tensor.is_floating_point():
            values = tensor.double().abs()
            assert bool(((values >= 1 / 8) & (values < 8)).all() if pattern.ordinary else values.isnan().all())
            made = torch.full((1,), NAN, dtype=tensor.dtype)
            assert pattern.ordinary or tensor.itemsize == 1 or not pattern.fills(made)


def test_a_written_nan_is_not_poison() -> None:
    result = torch.full((4,), NAN)
    assert NAN_PATTERN.unwritten(result, torch.zeros(4, dtype=torch.float64), name="out") is None


@PATTERNS
def test_a_byte_that_rightly_equals_the_pattern_was_written(pattern: PoisonPattern) -> None:
    reference = torch.arange(256, dtype=torch.uint8)
    assert pattern.unwritten(reference.clone(), reference, name="out") is None
    wrong = reference.roll(1)  # wrong everywhere, and the pattern at one place by chance
    assert pattern.unwritten(wrong, reference, name="out") is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 1e-4, 3e3])
def test_the_quick_scan_finds_what_the_careful_one_does(dtype: torch.dtype, size: float) -> None:
    reference = drawn((1100, 1000), 3) * size
    result = reference.to(dtype)
    result[700, 3] += size
    for mine, other in ((result, reference), (result.t(), reference.t())):
        sides = ComparedTensors.of(mine, other, None)
        quick, careful = scan(sides), careful_scan(sides)
        assert quick.worst < 0 <= careful.worst, "another path each"
        assert quick.errors.maximum == pytest.approx(careful.errors.maximum, rel=1e-9)
        assert quick.errors.rms == pytest.approx(careful.errors.rms, rel=1e-9)


@pytest.mark.parametrize("odd", [NAN, INF, -INF])
def test_the_quick_scan_leaves_what_is_not_finite_to_the_careful_one(odd: float) -> None:
    reference = drawn((64, 64), 4)
    broken = reference.float()
    broken[3, 5] = odd
    assert scan(ComparedTensors.of(broken, reference, None)).violations == 1
    reference[3, 5] = odd
    assert scan(ComparedTensors.of(broken, reference, None)).violations == 0
    assert magnitude(reference, torch.float32) == pytest.approx(magnitude(drawn((64, 64), 4), torch.float32), rel=0.01)
