"""Calibration on a GPU: the tasks of this repository are fit there too, quickly, and the bad ones are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.task import Precision

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
SMALL = sorted(ROOT.glob("tests/kernels/tasks/*.py"))
LARGE = [*sorted(ROOT.glob("tests/kernels/large/*.py")), *sorted(ROOT.glob("examples/tasks/*.py"))]


@pytest.mark.parametrize("path", SMALL + LARGE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_tasks_of_this_repository_are_fit(path: Path, gpu_evaluator: Evaluator) -> None:
    _, found = gpu_evaluator.calibrate(path, fresh=True)
    assert found.passed, found.reason
    assert found.baseline_share is not None
    assert found.baseline_share <= 0.5
    assert all(each.detail != "not tried: not enough memory" for each in found.impostors)


def test_calibrating_takes_a_fraction_of_a_second(gpu_evaluator: Evaluator, task_file: Callable[[str], Path]) -> None:
    # The first operation of each kind loads its kernels, so the second time counts.
    seconds = [gpu_evaluator.calibrate(task_file("softmax"), fresh=True)[1].seconds for _ in range(2)]
    assert min(seconds) < 1.0, seconds


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16])
def test_products_in_a_coarser_arithmetic_are_caught_in_every_class(
    precision: Precision, gpu_evaluator: Evaluator, task_file: Callable[[str], Path]
) -> None:
    _, found = gpu_evaluator.calibrate(task_file("kernelbench_linear"), precision)
    assert found.passed, found.reason
    fates = {each.name: each for each in found.impostors}
    assert fates["lower-precision products"].caught_by
    assert fates["lower precision"].caught_by


def test_a_task_whose_result_is_constant_is_not_fit(gpu_evaluator: Evaluator, tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(
        "import torch\nfrom warpsmith import normal, task\n\n"
        '@task(x=normal("r, c"), workloads=[{"r": 512, "c": 512}])\n'
        "def sums(x):\n    return torch.softmax(x, -1).sum(-1)\n"
    )
    _, found = gpu_evaluator.calibrate(path)
    assert not found.passed
    assert found.reason.startswith("a kernel that writes 1 everywhere in out would pass sums")
