"""Infinite values and those that are not numbers go through templates as they go through PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.kernel_templates.bundle import KernelProcess, build, case_of, load_case
from warpsmith.model.strategy import Plan, StrategyChoice

TASKS = """
import torch
import torch.nn.functional as F

from warpsmith import custom, task


def special(shape, generator, device):
    x = torch.randn(shape, generator=generator, device=device)
    x[0, 0], x[1], x[2, 3], x[3, :2] = float("inf"), float("-inf"), float("nan"), float("inf")
    return x


@task(x=custom("rows, cols", special), workloads=[{"rows": 5, "cols": 20}])
def log_sum_exp(x):
    return torch.logsumexp(x, 1)


@task(x=custom("rows, cols", special), workloads=[{"rows": 5, "cols": 20}])
def relu(x):
    return F.relu(x)


@task(x=custom("rows, cols", special), workloads=[{"rows": 5, "cols": 20}])
def clamped(x):
    return F.hardswish(x.clamp(-1.0, 2.0))


@task(x=custom("rows, cols", special), workloads=[{"rows": 5, "cols": 20}])
def exponentials(x):
    return x.exp() + x.expm1().abs() + x.sigmoid()


@task(x=custom("rows, cols", special), workloads=[{"rows": 5, "cols": 20}])
def saturating(x):
    return x.tanh() + x.erf() * 2


@task(x=custom("rows, cols", special), workloads=[{"rows": 5, "cols": 20}])
def logarithms(x):
    return x.log() + x.log1p() * 2


@task(x=custom("rows, cols", special), workloads=[{"rows": 5, "cols": 20}])
def logarithm_of_zero(x):
    return (x.clamp(min=0.0) * 1e-39).log()
"""
NAMES = ("log_sum_exp", "relu", "clamped", "exponentials", "saturating", "logarithms", "logarithm_of_zero")


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_special_values(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "special.py"
    file.write_text(TASKS)
    loaded = [load_case(file, name, backend) for name in NAMES]
    functions = Plan((StrategyChoice("vector-exp"),)) if backend == "cpu" else Plan()
    cases = [case_of(*each, functions) for each in loaded]

    with KernelProcess(build(cases, tmp_path)) as process:
        wrong = [
            case.problem.task.name
            for number, case in enumerate(cases)
            if process.error(number, case, case.problem.task.workloads[0], _differs)
        ]

    assert wrong == []


def _differs(found: Tensor, wanted: Tensor) -> float:
    return float(not torch.allclose(found.double(), wanted, rtol=1e-5, atol=1e-5, equal_nan=True))
