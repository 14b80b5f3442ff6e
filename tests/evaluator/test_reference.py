"""The expected result of a case: computed whole, in slices, and when PyTorch's own result is unusable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from warpsmith.evaluator.judge.numerics import reference, tolerance
from warpsmith.evaluator.judge.numerics.compare import Errors
from warpsmith.evaluator.judge.numerics.reference import (
    BASELINE,
    FULL,
    SLICED,
    Case,
    Reference,
    ReferenceResult,
    compare_output,
)
from warpsmith.evaluator.judge.numerics.tolerance import error_limit
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.errors import TaskError
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

CPU = torch.device("cpu")
TASK = """
import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), w=normal("cols, outs"), workloads=[{"rows": 64, "cols": 32, "outs": 16}])
def f(x, w):
    return EXPRESSION
"""


@pytest.fixture
def reference_of(tmp_path: Path) -> Callable[[str], Reference]:
    def make(expression: str) -> Reference:
        path = tmp_path / "given.py"
        path.write_text(TASK.replace("EXPRESSION", expression))
        program = load_task(path)
        return Reference(program, CPU, {w.name: 32 for w in program.task.workloads}, 3.0)

    return make


def the_case(made: Reference) -> Case:
    return Case(made.task.workloads[0], "own", 7)


def enough_for_a_slice(made: Reference) -> int:
    """Memory in which an eighth of the rows fits in fp64, and the whole does not."""
    sizes = made.task.workloads[0].sizes
    whole = sum(t.numel(sizes) * 8 for t in made.task.tensors)
    outputs = sum(t.numel(sizes) * 8 for t in made.task.outputs)
    return int(2 * (whole / 8 + outputs) / 0.8)


def test_slices_give_the_same_result(reference_of: Callable[[str], Reference], monkeypatch: pytest.MonkeyPatch) -> None:
    full = reference_of("torch.softmax(x @ w, dim=-1)")
    whole = full.result_for(the_case(full))
    assert whole is not None
    assert whole.how == FULL
    narrow = reference_of("torch.softmax(x @ w, dim=-1)")
    monkeypatch.setattr(reference, "has_room", lambda _, needed: needed <= enough_for_a_slice(narrow))
    sliced = narrow.result_for(the_case(narrow))
    assert sliced is not None
    assert sliced.how == SLICED
    assert sliced.outputs[0].dtype is torch.float64
    torch.testing.assert_close(sliced.outputs[0], whole.outputs[0], rtol=1e-12, atol=1e-14)


def test_an_operator_that_mixes_rows_is_not_sliced(
    reference_of: Callable[[str], Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    mixing = reference_of("torch.softmax(x @ w, dim=0)")
    monkeypatch.setattr(reference, "has_room", lambda _, needed: needed <= enough_for_a_slice(mixing))
    expected = mixing.result_for(the_case(mixing))
    assert expected is not None
    assert expected.how == BASELINE


def test_a_case_that_pytorch_gets_wrong_is_not_usable(reference_of: Callable[[str], Reference]) -> None:
    chaotic = reference_of("torch.sin(1e9 * (x @ w))")
    assert chaotic.result_for(the_case(chaotic)) is None
    assert chaotic.dropped == ["own"]


def test_a_task_without_any_truth_is_refused(evaluator: Evaluator, tmp_path: Path) -> None:
    path = tmp_path / "chaotic.py"
    path.write_text(TASK.replace("EXPRESSION", "torch.sin(1e9 * (x @ w))"))
    with pytest.raises(TaskError, match="too far from its fp64 result"):
        evaluator.describe(path)


def test_cancelled_sums_get_the_tolerance_they_need(reference_of: Callable[[str], Reference]) -> None:
    """A single sum that cancels may be off by more than one that does not, in proportion."""
    cancelled = reference_of("(x - x.mean()).sum() + 1e-3 * w.sum().abs()")
    plain = reference_of("x.abs().sum() + w.abs().sum()")
    limits = []
    for made in (cancelled, plain):
        expected = made.result_for(the_case(made))
        assert expected is not None
        assert expected.limits[0] is not None
        limits.append(expected.limits[0].rms)
    assert limits[0] > 10 * limits[1]


def _close_scores(made: Reference) -> tuple[ReferenceResult, Callable[[float], Tensor]]:
    """Large scores that lie close together: their last bits decide how they share a row. The expected result, and one
    for other weights, which are off by a share of themselves."""
    x, w = 1 + 1e-7 * torch.arange(64.0 * 32).reshape(64, 32), torch.ones(32, 16)
    found = made.result_for_inputs(made.task.workloads[0], {"x": x, "w": w})
    assert found is not None

    def off_by(relative: float) -> Tensor:
        moved = w.double() * (1 + relative * torch.linspace(-1, 1, 16, dtype=torch.float64))
        return torch.softmax(1e3 * (x.double() @ moved), dim=-1).float()

    return found, off_by


def test_where_pytorch_was_lucky_a_result_that_failed_is_judged_by_what_one_roundoff_does(
    reference_of: Callable[[str], Reference],
) -> None:
    made = reference_of("torch.softmax(1e3 * (x @ w), dim=-1)")
    found, off_by = _close_scores(made)
    strict = error_limit(Errors(0.0, 0.0), found.baseline[0], made.task.precision, reduction=32, factor=3.0)
    lucky = replace(found, baseline=(found.outputs[0].float(),), limits=(strict,))

    def passes(expected: ReferenceResult, result: Tensor) -> bool:
        return compare_output(made.task, expected, 0, result).ok

    fair = made.with_wider_limits(lucky)
    assert passes(lucky, off_by(0.0))
    assert not passes(lucky, off_by(2.0**-24))
    assert passes(fair, off_by(2.0**-24))
    assert not passes(fair, off_by(2.0**-11))  # that is another precision
    assert made.with_wider_limits(fair) is fair


def test_where_few_draws_were_lucky_a_result_that_failed_is_judged_by_more(
    reference_of: Callable[[str], Reference],
) -> None:
    made = reference_of("torch.softmax(1e3 * (x @ w), dim=-1)")
    found, off_by = _close_scores(made)
    strict = error_limit(Errors(0.0, 0.0), found.baseline[0], made.task.precision, reduction=32, factor=3.0)
    lucky = replace(found, baseline=(off_by(2.0**-26),), limits=(strict,))  # and PyTorch was not

    fair = made.with_wider_limits(lucky)

    assert not compare_output(made.task, lucky, 0, off_by(2.0**-24)).ok
    assert compare_output(made.task, fair, 0, off_by(2.0**-24)).ok
    assert not compare_output(made.task, fair, 0, off_by(2.0**-11)).ok


_ATTEND = "torch.softmax(1e9 * (x @ w), dim=-1) @ w.mT"


def _with_a_near_tie(made: Reference) -> tuple[ReferenceResult, Tensor]:
    """Expected results where the two best scores of row 0 differ in their last digits, and a right result in which the
    other one wins."""
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(shape, generator=generator) for shape in ((64, 32), (32, 16)))
    first, second = (x[0] @ w).topk(2).indices.tolist()
    toward = (w[:, first] - w[:, second]).double()
    gap = x[0].double() @ toward
    x[0] -= ((1 - 1e-7) * gap * toward / toward.square().sum()).float()
    found = made.result_for_inputs(made.task.workloads[0], {"x": x, "w": w})
    assert found is not None
    scores = (x.double() @ w.double()).float()
    other = scores.double()
    other[0, [first, second]] = other[0, [second, first]]
    return found, (torch.softmax(1e9 * other, dim=-1) @ w.double().mT).float()


def test_either_of_two_almost_equal_scores_may_win(reference_of: Callable[[str], Reference]) -> None:
    made = reference_of(_ATTEND)
    found, other = _with_a_near_tie(made)
    assert compare_output(made.task, found, 0, found.baseline[0]).ok
    refused = compare_output(made.task, found, 0, other)
    assert refused.share > 1000.0
    between = 0.25 * other + 0.75 * found.baseline[0]
    for right in (other, between):
        accepted = made.compare_with_other_rounding(found, 0, right)
        assert accepted is not None
        assert accepted.ok
        assert accepted.share <= 1.0


def test_another_value_where_scores_are_almost_equal_is_wrong(reference_of: Callable[[str], Reference]) -> None:
    made = reference_of(_ATTEND)
    found, other = _with_a_near_tie(made)
    limit = found.limits[0]
    assert limit is not None
    neither, elsewhere = other.clone(), other.clone()
    neither[0, 3] = torch.stack([other[0, 3], found.outputs[0][0, 3].float()]).max() + 0.01
    elsewhere[1, 3] += 2.0 * limit.maximum * (elsewhere[1, 3].abs() + limit.scale)
    coarse = other * (1 + 2.0**-11 * torch.linspace(-1, 1, other.shape[-1]))
    assert made.compare_with_other_rounding(found, 0, neither) is None, "more than either score gives"
    assert made.compare_with_other_rounding(found, 0, elsewhere) is None, "a row whose scores are not almost equal"
    assert made.compare_with_other_rounding(found, 0, coarse) is None, "another precision"


_COMPARED = {
    "torch.where((x == x[:, :1]) & (x.roll(1, 1) == x), torch.exp(x), torch.sin(x)) + 0 * (x @ w)[:, :1]": 0.0,
    "torch.where(x >= 2, torch.exp(x), torch.sin(x)) + 0 * (x @ w)[:, :1]": 2.0,
    "torch.exp(x) * (x == x.amax(dim=1, keepdim=True)) + 0 * (x @ w)[:, :1]": 3.0,
}


@pytest.mark.parametrize("expression", _COMPARED)
def test_a_comparison_of_inputs_has_one_right_answer(reference_of: Callable[[str], Reference], expression: str) -> None:
    """Inputs of few levels, which are often equal, and a kernel for which numbers that are equal are not."""
    made = reference_of(expression)
    generator = torch.Generator().manual_seed(4)
    x = torch.randn((64, 32), generator=generator).mul(0.8).round()
    found = made.result_for_inputs(made.task.workloads[0], {"x": x, "w": torch.randn((32, 16), generator=generator)})
    assert found is not None
    result = found.baseline[0].clone()
    wrong = torch.zeros(x.numel(), dtype=torch.bool)
    wrong[(x.flatten() == _COMPARED[expression]).nonzero().flatten()[:20]] = True
    wrong &= (found.baseline[0] - torch.sin(x)).abs().flatten() > 0.1
    assert wrong.any()
    result.view(-1)[wrong] = torch.sin(x).flatten()[wrong]
    assert compare_output(made.task, found, 0, found.baseline[0]).ok
    assert not compare_output(made.task, found, 0, result).ok
    assert made.compare_with_other_rounding(found, 0, result) is None


def test_where_nothing_hangs_on_the_last_bits_a_result_that_failed_gains_nothing(
    reference_of: Callable[[str], Reference],
) -> None:
    made = reference_of("x @ w")
    expected = made.result_for(the_case(made))
    assert expected is not None
    fair = made.with_wider_limits(expected)
    assert made.result_for(the_case(made)) is fair, "nobody asks twice"
    for before, after in zip(expected.limits, fair.limits, strict=True):
        assert before is not None
        assert after is not None
        assert before.maximum <= after.maximum < 2 * before.maximum
        assert before.rms <= after.rms < 2 * before.rms


def test_what_is_too_large_to_keep_is_computed_again_with_the_same_limits(
    reference_of: Callable[[str], Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "_KEEP_SHARE", 1e-12)
    monkeypatch.setattr(reference, "_LAST_SHARE", 1e-12)
    made, measured = reference_of("torch.softmax(x @ w, dim=-1)"), []
    real = tolerance.measure_errors

    def measure(*tensors: Tensor) -> object:
        measured.append(tensors)
        return real(*tensors)

    monkeypatch.setattr(tolerance, "measure_errors", measure)
    first = made.result_for(the_case(made))
    assert measured
    measured.clear()
    again = made.result_for(the_case(made))
    assert not measured
    assert first is not None
    assert again is not None
    assert again is not first
    assert again.limits == first.limits
    assert torch.equal(again.outputs[0], first.outputs[0])
    assert torch.equal(again.baseline[0], first.baseline[0])
    made.with_wider_limits(again)  # which is for one result only
    assert made.result_for(the_case(made)).limits == first.limits  # type: ignore[union-attr]
    other = made.compute(replace(the_case(made), seed=8))
    assert measured
    assert other is not None
    assert other.limits != first.limits


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float64, [False, True]), (torch.float32, [True])])
def test_fp64_runs_without_cudnn_unless_memory_is_lacking(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, expected: list[bool]
) -> None:
    enabled: list[bool] = []

    class OnlyWithCudnn:
        def run(self, inputs: object) -> tuple[Tensor, ...]:
            enabled.append(torch.backends.cudnn.enabled)
            if not torch.backends.cudnn.enabled:
                raise torch.OutOfMemoryError
            return (torch.ones(1),)

    on_gpu = SimpleNamespace(is_cuda=True, dtype=dtype)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    (result,) = reference.run_reference(cast(Program, OnlyWithCudnn()), cast(dict[str, Tensor], {"x": on_gpu}))

    assert enabled == expected
    assert float(result) == 1.0


@pytest.mark.parametrize(
    ("expression", "selects"),
    [
        ("x.sort(dim=-1).values", True),
        ("x.topk(3).values", True),
        ("x.median(dim=-1).values", True),
        ("torch.relu(x).amax(0)", True),
        ("torch.nn.functional.max_pool1d(-x, 2)", True),
        ("torch.where(x > 0, x, x.abs()).mT.contiguous()", True),
        ("x.sort(dim=-1).values * 2", False),
        ("x.half().float()", False),
        ("x.cumsum(0)", False),
        ("torch.nn.functional.avg_pool1d(x, 2)", False),
        ("x @ w", False),
    ],
)
def test_a_reference_that_only_selects_leaves_no_room_for_rounding(
    reference_of: Callable[[str], Reference], expression: str, selects: bool
) -> None:
    made = reference_of(expression)
    found = made.result_for(the_case(made))
    assert found is not None
    assert made.selects == selects
    output = found.baseline[0]
    assert compare_output(made.task, found, 0, output).ok
    rounded = (output.view(torch.int32) & ~0xF).view(torch.float32)
    if selects:
        assert not compare_output(made.task, found, 0, rounded).ok
        assert made.with_wider_limits(found) is found
