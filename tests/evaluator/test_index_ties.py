from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from warpsmith.evaluator.judge.numerics import compare
from warpsmith.evaluator.judge.numerics.index_ties import IndexKind, TieRecorder, Ties, compare_indices


def record(operator: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Ties]:
    """The reference's indices and what they were chosen from."""
    with TieRecorder() as recorder:
        output = operator(x.double())
    ties = recorder.ties_for(output)
    assert ties is not None
    return output, ties


TIED = torch.tensor([[1.0, 5.0, 5.0, 0.0], [7.0, 7.0, 2.0, 7.0]])

OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda x: x.argmax(dim=1),
    "argmax keepdim": lambda x: x.argmax(dim=1, keepdim=True),
    "argmax flat": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(dim=0),
    "max.dim": lambda x: x.max(dim=-1).indices,
    "min.dim": lambda x: x.min(dim=0).indices,
    "median": lambda x: x.median(dim=1).indices,
    "kthvalue": lambda x: x.kthvalue(2, dim=1).indices,
    "cummax": lambda x: x.cummax(dim=1).indices,
    "topk": lambda x: x.topk(2, dim=1).indices,
    "topk unsorted": lambda x: x.topk(2, dim=1, sorted=False).indices,
    "sort": lambda x: x.sort(dim=1, descending=True).indices,
    "sort dim 0": lambda x: x.sort(dim=0).indices,
    "argsort": lambda x: x.argsort(dim=1),
    "squeezed and cast": lambda x: x.argmax(dim=1, keepdim=True).squeeze(1).to(torch.int32),
    "max_pool1d": lambda x: F.max_pool1d(x[None], 2, return_indices=True)[1],
    "max_pool2d": lambda x: F.max_pool2d(x[None, None], 2, return_indices=True)[1],
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x[None, None], (1, 2), return_indices=True)[1],
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_recorded_and_its_own_answer_accepted(name: str, inference: bool) -> None:
    with torch.inference_mode(inference):
        reference, ties = record(OPERATORS[name], TIED)
        assert compare_indices(reference.clone(), reference, ties, name="out").ok


@pytest.mark.parametrize("name", [n for n in OPERATORS if n != "cummax"])
def test_out_of_range_is_wrong(name: str) -> None:
    reference, ties = record(OPERATORS[name], TIED)
    for index in (-1, 1000):
        result = reference.clone()
        result.view(-1)[0] = index
        verdict = compare_indices(result, reference, ties, name="out")
        assert not verdict.ok
        assert "out of range" in verdict.reason
        assert f"got {index}" in verdict.reason


def test_argmax_accepts_a_tie_and_refuses_another_value() -> None:
    reference, ties = record(OPERATORS["argmax"], TIED)
    assert compare_indices(torch.tensor([2, 3]), reference, ties, name="out").ok
    verdict = compare_indices(torch.tensor([1, 2]), reference, ties, name="out")
    assert not verdict.ok
    assert verdict.error == 0.5
    assert "first at [1]: got 2 where the value is 2, expected 0 where it is 7" in verdict.reason


def test_argmax_along_a_middle_axis() -> None:
    x = torch.randint(0, 3, (4, 5, 6)).float()
    reference, ties = record(lambda t: t.argmax(dim=1), x)
    last = 4 - x.flip(1).argmax(dim=1)  # ties resolved the other way round
    assert compare_indices(last, reference, ties, name="out").ok
    assert not compare_indices(x.argmin(dim=1), reference, ties, name="out").ok


def test_ties_are_decided_at_the_tasks_precision() -> None:
    x = torch.tensor([[1.0, 1.0 + 2.0**-30]], dtype=torch.float64)
    reference, ties = record(OPERATORS["argmax"], x)
    assert reference.item() == 1
    assert compare_indices(torch.tensor([0]), reference, ties, name="out", dtype="float32").ok
    assert not compare_indices(torch.tensor([0]), reference, ties, name="out", dtype="float64").ok


def test_nan_ties_with_nan() -> None:
    x = torch.tensor([[float("nan"), 1.0, float("nan")]])
    reference, ties = record(OPERATORS["argmax"], x)
    assert compare_indices(2 - reference, reference, ties, name="out").ok
    assert not compare_indices(torch.tensor([1]), reference, ties, name="out").ok


def test_sort_accepts_swapped_ties_but_no_index_twice() -> None:
    reference, ties = record(OPERATORS["sort"], TIED)
    swapped = torch.tensor([[2, 1, 0, 3], [3, 1, 0, 2]])
    assert compare_indices(swapped, reference, ties, name="out").ok
    twice = torch.tensor([[2, 2, 0, 3], [3, 1, 0, 2]])
    verdict = compare_indices(twice, reference, ties, name="out")
    assert not verdict.ok
    assert "occurs twice" in verdict.reason
    assert not compare_indices(swapped.flip(1), reference, ties, name="out").ok


def test_sort_along_the_first_axis() -> None:
    x = torch.randint(0, 3, (7, 5)).float()
    reference, ties = record(OPERATORS["sort dim 0"], x)
    other = 6 - x.flip(0).sort(dim=0, stable=True).indices
    assert compare_indices(other, reference, ties, name="out").ok
    assert not compare_indices(reference.roll(1, dims=0), reference, ties, name="out").ok


def test_unsorted_topk_is_a_set() -> None:
    x = torch.tensor([[4.0, 9.0, 1.0, 4.0]])
    reference, ties = record(OPERATORS["topk unsorted"], x)
    assert ties.kind is IndexKind.SET
    for right in ([0, 1], [1, 0], [1, 3], [3, 1]):
        assert compare_indices(torch.tensor([right]), reference, ties, name="out").ok
    for wrong in ([1, 1], [1, 2], [0, 3]):
        assert not compare_indices(torch.tensor([wrong]), reference, ties, name="out").ok


def test_cummax_may_not_look_ahead() -> None:
    reference, ties = record(OPERATORS["cummax"], torch.tensor([[5.0, 1.0, 5.0]]))
    assert compare_indices(torch.tensor([[0, 0, 2]]), reference, ties, name="out").ok
    assert compare_indices(torch.tensor([[0, 0, 0]]), reference, ties, name="out").ok
    verdict = compare_indices(torch.tensor([[2, 0, 0]]), reference, ties, name="out")
    assert "allowed are 0 to 0" in verdict.reason


def test_max_pool_takes_any_equal_value() -> None:
    x = torch.tensor([[3.0, 3.0, 0.0, 1.0], [0.0, 3.0, 2.0, 2.0]])
    reference, ties = record(OPERATORS["max_pool2d"], x)
    assert compare_indices(torch.tensor([[[[5, 7]]]]), reference, ties, name="out").ok
    assert not compare_indices(torch.tensor([[[[4, 7]]]]), reference, ties, name="out").ok


def test_other_integers_have_no_ties() -> None:
    with TieRecorder() as recorder:
        x = TIED.double()
        stable = x.sort(dim=1, stable=True).indices
        shifted = x.argmax(dim=1) + 1
        in_place = x.argmax(dim=1).add_(1)
        sliced = x.topk(2, dim=1).indices[:, 0]
        transposed = x.topk(2, dim=1).indices.t()
        plain = x.long()
    for output in (stable, shifted, in_place, sliced, transposed, plain):
        assert recorder.ties_for(output) is None


def test_blocks_do_not_change_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(0, 4, (6, 9, 5)).float()
    reference, ties = record(lambda t: t.topk(3, dim=1).indices, x)
    tied = 8 - x.flip(1).topk(3, dim=1).indices
    wrong = tied.clone()
    wrong[4, 2, 3] = x[4, :, 3].argmin()
    whole = [compare_indices(r, reference, ties, name="out") for r in (tied, wrong)]
    monkeypatch.setattr(compare, "BLOCK_ELEMENTS", 7)
    assert [compare_indices(r, reference, ties, name="out") for r in (tied, wrong)] == whole
    assert [v.ok for v in whole] == [True, False]


def test_recording_does_not_import_the_compiler() -> None:
    script = (
        "import sys, torch\n"
        "from warpsmith.evaluator.judge.numerics.index_ties import TieRecorder\n"
        "with TieRecorder():\n"
        "    torch.ones(3, 3).argmax(dim=1)\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode == 0
