"""Honest CUDA kernels of thirty different operators must not be refused; `benchmarks/false_rejects.py` repeats it."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Status

pytestmark = pytest.mark.gpu

HONEST = Path(__file__).resolve().parent.parent / "honest"
NAMES = sorted(p.stem for p in HONEST.glob("*.cu"))


@pytest.mark.parametrize("name", NAMES)
def test_kernel_is_not_refused(name: str, gpu_evaluator: Evaluator) -> None:
    verdict = gpu_evaluator.evaluate_one(HONEST / f"{name}.py", read_candidate(HONEST / f"{name}.cu"))
    assert verdict.status is Status.OK, verdict.reason
    assert len(verdict.workloads) == 2
