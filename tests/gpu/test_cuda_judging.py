"""Honest CUDA kernels are valid, too-coarse ones are not, and a verdict can be had twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings
from warpsmith.tasks.quick_random import random_bytes

pytestmark = pytest.mark.gpu

Kernel = Callable[[str], Candidate]
TaskFile = Callable[[str], Path]


@pytest.mark.parametrize(
    ("task", "kernel_name"),
    [
        ("relu", "relu.cu"),
        ("softmax", "softmax.cu"),
        ("layer_norm", "layer_norm.cu"),
        ("matmul_fp32", "matmul_fp32.cu"),
        ("matmul_tf32", "matmul_tf32.cu"),
        ("matmul_tf32", "matmul_fp32.cu"),  # more exact than it has to be
    ],
)
def test_honest_kernels_are_valid(
    task: str, kernel_name: str, gpu_evaluator: Evaluator, kernel: Kernel, task_file: TaskFile
) -> None:
    verdict = gpu_evaluator.evaluate_one(task_file(task), kernel(kernel_name))
    assert verdict.status is Status.OK, verdict.reason
    assert verdict.speedup() is not None


@pytest.mark.parametrize(
    ("task", "kernel_name"),
    [
        ("matmul_fp32", "matmul_fp16.cu"),
        ("matmul_fp32", "matmul_tf32.cu"),
        ("matmul_tf32", "matmul_fp16.cu"),
    ],
)
def test_too_coarse_arithmetic_is_wrong(
    task: str, kernel_name: str, gpu_evaluator: Evaluator, kernel: Kernel, task_file: TaskFile
) -> None:
    verdict = gpu_evaluator.evaluate_one(task_file(task), kernel(kernel_name))
    assert verdict.status is Status.WRONG, verdict.reason


def test_two_evaluations_of_one_file_agree(gpu: None, kernel: Kernel, task_file: TaskFile) -> None:
    """With the full timing budget; the record of benchmarks/ holds the exact figure."""
    with Evaluator("cuda", Settings(), use_cache=False) as evaluator:
        verdicts = [evaluator.evaluate_one(task_file("softmax"), kernel("softmax.cu")) for _ in range(2)]
    first, second = (v.speedup() for v in verdicts)
    assert first is not None, verdicts[0].reason
    assert second is not None, verdicts[1].reason
    assert abs(first / second - 1) < 0.05


def test_all_bytes_are_equally_likely(gpu: None) -> None:
    """Those by which a reference's inputs are moved by one roundoff."""
    counts = torch.bincount(random_bytes(1 << 20, device="cuda"), minlength=256).cpu()
    assert counts.shape == (256,)
    assert int((counts - 4096).abs().max()) < 6 * 64
