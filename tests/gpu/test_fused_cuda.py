"""Our own passes over large tensors say what PyTorch's operations say."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import pytest
import torch

from warpsmith.evaluator.judge.arena import SecretChecksum
from warpsmith.evaluator.judge.numerics import compare, gpu_passes, tolerance
from warpsmith.evaluator.judge.numerics.compare import ComparedTensors
from warpsmith.evaluator.judge.numerics.poison import PoisonPattern
from warpsmith.model.task import Precision

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
COUNT = gpu_passes.LEAST_ELEMENTS + 12345
KINDS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on only PyTorch's operations."""
    monkeypatch.setattr(gpu_passes, "LEAST_ELEMENTS", math.inf)


def drawn(dtype: torch.dtype = torch.float64, count: int = COUNT) -> torch.Tensor:
    torch.manual_seed(7)
    return torch.randn(count, device="cuda", dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(("result", "reference"), list(itertools.product(KINDS, KINDS)))
def test_comparisons(result: torch.dtype, reference: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = drawn(reference)
    close = (exact.double() * (1 + 1e-3 * drawn())).to(result)
    assert gpu_passes.difference_norms(close, exact, 0.3) is not None
    ours = compare.scan(ComparedTensors.of(close, exact, None))
    without(monkeypatch)
    theirs = compare.scan(ComparedTensors.of(close, exact, None))
    assert ours.errors.maximum == pytest.approx(theirs.errors.maximum, rel=1e-12)
    assert ours.errors.rms == pytest.approx(theirs.errors.rms, rel=1e-9)
    assert ours.errors.scale == pytest.approx(theirs.errors.scale, rel=1e-9)
    assert not ours.violations


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, COUNT // 2, COUNT - 1])
@pytest.mark.parametrize("side", ["result", "reference", "both"])
def test_what_is_not_finite_is_left_to_the_careful(value: float, place: int, side: str) -> None:
    exact = drawn(torch.float32)
    close = exact.clone()
    for tensor, name in ((close, "result"), (exact, "reference")):
        if side in (name, "both"):
            tensor[place] = value
    assert gpu_passes.difference_norms(close, exact.double(), 1.0) is None
    assert (gpu_passes.norm_and_peak(exact) is None) == (side != "result")
    assert compare.scan(ComparedTensors.of(close, exact.double(), None)).violations == (side != "both")


@pytest.mark.parametrize("place", [0, 1, COUNT // 2, COUNT - 1])
def test_one_wrong_element_is_seen(place: int) -> None:
    exact = drawn(torch.float32)
    wrong = exact.clone()
    wrong[place] += 1.0
    found = gpu_passes.difference_norms(wrong, exact.double(), 1.0)
    assert found is not None
    apart = float(wrong[place].double() - exact[place].double())
    assert found.maximum == abs(apart) / (abs(float(exact[place])) + 1.0)
    assert found.norm == pytest.approx(abs(apart), rel=1e-12)
    assert not tolerance.agrees_with_baseline(wrong, exact, precision=Precision.FP32, reduction=1)
    assert tolerance.agrees_with_baseline(exact.clone(), exact, precision=Precision.FP32, reduction=1)


@pytest.mark.parametrize("dtype", [*KINDS, torch.int64, torch.int32, torch.int16])
def test_unwritten_elements_are_counted(dtype: torch.dtype) -> None:
    tensor, pattern = torch.zeros(COUNT, device="cuda", dtype=dtype), PoisonPattern(0xA5A5A5A5A5A5A5A5, False)
    pattern.fill(tensor)
    assert pattern.fills(tensor)
    tensor[COUNT - 1] = 1
    assert not pattern.fills(tensor)
    tensor[:] = 1
    assert pattern.unwritten(tensor, tensor.double(), name="out") is None
    pattern.fill(tensor[COUNT // 2 : COUNT // 2 + 1])
    left = pattern.unwritten(tensor, torch.ones_like(tensor).double(), name="out")
    assert left is not None
    assert f"first at [{COUNT // 2}]" in left.reason, left.reason


def test_a_seal_is_the_same_sum_in_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = SecretChecksum(torch.device("cuda"))
    tensors = [drawn(torch.float32), drawn(torch.float32, 1000), drawn(torch.float16, 3 * COUNT)[:-1]]
    assert gpu_passes._weigh(torch.cuda.current_device()) is not None
    ours = seal.of(tensors)
    changed = tensors[2].clone()
    changed[-1] += 1
    assert seal.of([*tensors[:2], changed]) != ours
    without(monkeypatch)
    assert seal.of(tensors) == ours


@pytest.mark.parametrize("place", [0, 4095, 4096, COUNT // 2, COUNT - 1])
def test_every_word_counts(place: int) -> None:
    seal, tensor = SecretChecksum(torch.device("cuda")), drawn(torch.float32)
    before = seal.of([tensor])
    tensor[place] = -tensor[place]
    assert seal.of([tensor]) != before


def test_what_it_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bar: the figures are for whoever reads the log."""
    exact = drawn(torch.float64, 1 << 28)
    close = exact.float()
    seal = SecretChecksum(torch.device("cuda"))

    def seconds(call: Callable[[], object]) -> float:
        call()
        begun = time.perf_counter()
        for _ in range(3):
            call()
        return (time.perf_counter() - begun) / 3

    calls: dict[str, Callable[[], object]] = {
        "seal": lambda: seal.of([close]),
        "scan": lambda: compare.scan(ComparedTensors.of(close, exact, None, 1.0)),
        "norm": lambda: compare.magnitude(exact, torch.float32),
        "unwritten": lambda: PoisonPattern(1, False).unwritten(close, exact, name="x"),
        "agree": lambda: tolerance.agrees_with_baseline(close, close, precision=Precision.FP32, reduction=1),
    }
    ours = {name: seconds(call) for name, call in calls.items()}
    without(monkeypatch)
    for name, call in calls.items():
        print(f"{name}: {1e3 * ours[name]:.2f} ms, in PyTorch's operations {1e3 * seconds(call):.2f} ms")
