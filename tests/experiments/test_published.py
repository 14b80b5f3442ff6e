"""Whose kernel is for which task, and which claims hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.making import speedup
from tests.searching import valid
from warpsmith.cli.json_documents import share_of_floor
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.experiments.best_kernels import KernelChecks, WantedChecks, read_checks
from warpsmith.experiments.published import (
    ClaimStatus,
    PublishedKernel,
    assessed,
    check_claims,
    claim_status,
    kernel_files,
    matched,
    read_claims,
)
from warpsmith.experiments.selection import select
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import CheckStatus
from warpsmith.model.errors import UsageError

TASK = """
import torch
from warpsmith import normal, task

@task(x=normal("n"), workloads=[{"n": 512}])
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
"""
KERNEL = "int launch(const float* x, float* out, int64_t n, void*, void*) {"
RIGHT = KERNEL + " for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i]; return 0; }\n"
WRONG = RIGHT.replace("2 * x", "3 * x")


def test_files_are_matched_by_name_and_by_number(tmp_path: Path) -> None:
    names = ("softmax.cu", "19_ReLU.py", "Log-Softmax.cpp", "notes.txt", "mystery.cu", "__init__.py")
    for name in names:
        (tmp_path / name).write_text("x")
    tasks = select(["warpsmith-100@small"])

    found, strangers = matched(kernel_files([str(tmp_path)]), tasks)

    assert {each.path.name: each.task.name for each in found} == {
        "softmax.cu": "softmax@small",
        "19_ReLU.py": "relu@small",
        "Log-Softmax.cpp": "log_softmax@small",
    }
    assert [path.name for path in strangers] == ["mystery.cu"]
    with pytest.raises(UsageError, match="no file or folder"):
        kernel_files([str(tmp_path / "absent")])


def test_the_share_of_a_file_is_that_of_its_verdict(tmp_path: Path) -> None:
    kernel = Candidate((SourceFile("softmax.cpp", RIGHT),), "cpu")
    (slow,), (fast,) = (valid(kernel, 2.0, share=share).workloads for share in (0.4, 0.9))
    verdict = replace(valid(kernel, 2.0), workloads=(replace(slow, workload="small"), fast))
    (task, *_) = select(["warpsmith-100@small"])

    found = assessed(PublishedKernel(tmp_path / "softmax.cpp", task), KernelChecks(verdict, None), None, "eager")

    assert found.share_of_floor == pytest.approx(0.6) == share_of_floor(verdict)


def test_claims_are_read_from_csv(tmp_path: Path) -> None:
    tasks, path = select(["warpsmith-100"]), tmp_path / "claims.csv"
    path.write_text("system,task,speedup\nx,softmax,1.5\nx,19_ReLU,2.0x\n")

    assert read_claims(path, tasks) == {"softmax": 1.5, "relu": 2.0}
    for text, said in (
        ("task,ratio\nsoftmax,1\n", "headings with task and speedup"),
        ("task,speedup\nnothing,1\n", "claims.csv:2: 'nothing' is no task"),
        ("task,speedup\nsoftmax,1\nrelu,fast\n", "claims.csv:3: 'fast' is no speedup"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=said):
            read_claims(path, tasks)
    with pytest.raises(UsageError, match=r"cannot be read \(No such file or directory\); name a CSV file"):
        read_claims(tmp_path / "absent.csv", tasks)


@pytest.mark.parametrize(
    ("claim", "measured", "valid", "said"),
    [
        (1.9, speedup(2.0, 0.1), True, ClaimStatus.HOLDS),
        (2.2, speedup(2.0, 0.1), True, ClaimStatus.HOLDS),
        (0.5, speedup(2.0, 0.1), True, ClaimStatus.HOLDS),
        (2.3, speedup(2.0, 0.1), True, ClaimStatus.TOO_HIGH),
        (1.0, speedup(2.0, 0.1), False, ClaimStatus.INVALID),
        (1.0, None, True, ClaimStatus.UNKNOWN),
        (None, speedup(2.0, 0.1), True, ClaimStatus.UNKNOWN),
    ],
)
def test_a_claim_holds_within_or_below_the_interval(
    claim: float | None, measured: object, valid: bool, said: ClaimStatus
) -> None:
    assert claim_status(claim, measured, valid=valid) is said  # type: ignore[arg-type]


def test_kernels_are_judged_verified_and_kept(tmp_path: Path, evaluator: Evaluator) -> None:
    """With a real evaluator: what a bench does with its winners, too."""
    (tmp_path / "twice.py").write_text(TASK)
    (task,) = select([str(tmp_path / "twice.py")])
    for folder, text in (("ours", RIGHT), ("theirs", WRONG)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twice.cpp").write_text(text)
    files = kernel_files([str(tmp_path / "ours"), str(tmp_path / "theirs")])
    found, _ = matched(files, [task])
    # However busy the machine is: what it measures is not what is tested here.
    wanted, usual = WantedChecks(verify=True, compile_baseline=False, tolerance=1e9), evaluator.settings
    checks: list[str] = []

    right, wrong = check_claims(
        evaluator,
        found,
        {"twice": 1e6},
        wanted,
        tmp_path / "store",
        on_event=lambda _, event: checks.append(event.name) if event is not None else None,
    )

    assert (right.status, right.verified, right.why_not) == ("ok", True, "")
    assert (right.holding, wrong.holding) == (ClaimStatus.TOO_HIGH, ClaimStatus.INVALID)
    assert right.eager is not None
    assert (wrong.status, wrong.eager, wrong.verified) == ("wrong", None, None)
    assert {"fresh_seeds", "address_sanitizer", "remeasurement"} <= set(checks)
    assert evaluator.settings == usual
    (kept,) = [
        known
        for path in (tmp_path / "store" / "twice").iterdir()
        if (known := read_checks(path)).certificate and known.certificate.verified
    ]
    assert kept.certificate is not None
    assert all(check.outcome is not CheckStatus.FAILED for check in kept.certificate.checks)
    # Nothing is found out twice: the evaluator is not even asked.
    again = check_claims(_nobody(), found, {}, wanted, tmp_path / "store")
    assert next(replace(each, claim=1e6, holding=ClaimStatus.TOO_HIGH) for each in again) == right


def _nobody() -> Evaluator:
    """One that cannot judge."""

    class Nobody:
        settings = None

    return Nobody()  # type: ignore[return-value]
