"""Winners on a GPU: an honest kernel gets a certificate, and each tool finds a fault that an evaluation cannot see."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import DEVICE_TOOLS, EVALUATION, Certificate, CheckStatus
from warpsmith.verification.verify import Verifier

pytestmark = pytest.mark.gpu

Kernel = Callable[[str], Candidate]
TaskFile = Callable[[str], Path]
PLANTED = Path(__file__).resolve().parent.parent / "kernels" / "verify"
PYTHON = Path(__file__).resolve().parent.parent / "kernels" / "python"


def outcomes(certificate: Certificate) -> dict[str, CheckStatus]:
    return {check.name: check.outcome for check in certificate.checks}


def told(certificate: Certificate) -> str:
    return "\n".join(f"{c.name} {c.outcome}: {c.detail} {c.figures}" for c in certificate.checks)


@pytest.mark.parametrize(("task", "name"), [("softmax", "softmax.cu"), ("layer_norm", "layer_norm.cu")])
def test_an_honest_kernel_is_verified(
    task: str, name: str, gpu_evaluator: Evaluator, kernel: Kernel, task_file: TaskFile
) -> None:
    certificate = Verifier(gpu_evaluator).verify(task_file(task), kernel(name))
    assert certificate.verified, told(certificate)
    assert all(outcomes(certificate)[tool] is CheckStatus.PASSED for tool in DEVICE_TOOLS)


@pytest.mark.parametrize(
    ("name", "tool", "says"),
    [
        ("reads_one_past.cu", "memcheck", "read"),
        ("waits_instead.cu", "racecheck", "[Rr]ace|hazard"),
        ("reads_unwritten_scratch.cu", "initcheck", "[Uu]ninitialized"),
        ("divergent_barrier.cu", "synccheck", "[Dd]ivergent|[Bb]arrier"),
    ],
)
def test_each_tool_finds_what_an_evaluation_cannot(
    name: str, tool: str, says: str, gpu_evaluator: Evaluator, task_file: TaskFile
) -> None:
    certificate = Verifier(gpu_evaluator).verify(task_file("softmax"), read_candidate(PLANTED / name))
    found = outcomes(certificate)
    assert found[EVALUATION] is CheckStatus.PASSED, told(certificate)
    assert not certificate.verified
    assert found[tool] is CheckStatus.FAILED, told(certificate)
    detail = next(check.detail for check in certificate.checks if check.name == tool)
    assert re.search(says, detail), detail
    assert name in detail, detail  # the line is named
    also = {"initcheck"} if tool == "memcheck" else set()  # what lies outside was never written either
    assert {check.name for check in certificate.failed} - also == {tool}, told(certificate)


def test_a_triton_kernel_is_run_under_the_same_tools(gpu_evaluator: Evaluator, task_file: TaskFile) -> None:
    pytest.importorskip("triton")
    candidate = read_candidate(PYTHON / "triton_softmax.py")
    certificate = Verifier(gpu_evaluator).verify(task_file("softmax"), candidate)
    assert outcomes(certificate)["memcheck"] is CheckStatus.PASSED, told(certificate)
    assert not certificate.failed, told(certificate)
