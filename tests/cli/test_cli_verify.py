"""`warpsmith verify` and `evaluate --verify` as a user runs them, and certificates as people and programs see them."""

from __future__ import annotations

import inspect
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from tests.cli.here import run_here
from typer.models import OptionInfo

from warpsmith.backends.source import read_candidate
from warpsmith.cli import certificate_card
from warpsmith.cli.checks import evaluation_settings
from warpsmith.cli.evaluate import evaluate
from warpsmith.cli.verify import VerifyProgress, verify
from warpsmith.model.build import DeviceKind
from warpsmith.model.certificate import (
    ADDRESS,
    EVALUATION,
    REMEASUREMENT,
    SHAPES,
    BaselineSpeedup,
    Certificate,
    CheckOutcome,
    CheckStatus,
    Measurement,
    objection,
    required,
)
from warpsmith.model.evaluation import Environment
from warpsmith.model.settings import Limits
from warpsmith.verification.certificate import read_certificate
from warpsmith.verification.verify import VerificationEvent

TASK = '''
import torch
from warpsmith import normal, task

@task(x=normal("n"), workloads=[{"n": 2048}, {"n": 5000}])
def double(x: torch.Tensor) -> torch.Tensor:
    """Twice as much."""
    return x * 2
'''
SIGNATURE = "int launch(const float* x, float* out, int64_t n, void*, void*)"
# Right for every declared workload, and not for 5001 elements.
EVEN_ONLY = SIGNATURE + " { for (int64_t i = 0; i < n / 2 * 2; ++i) out[i] = 2 * x[i]; return 0; }\n"
BROKEN = SIGNATURE + " { return oops; }\n"


def test_verify_takes_every_option_of_evaluate() -> None:
    def options(function: Callable[..., int]) -> set[str]:
        parameters = inspect.signature(function, eval_str=True).parameters
        return {name for name, each in parameters.items() if isinstance(_metadata(each), OptionInfo)}

    chooses_the_command = {"verify", "calibrate", "entries"}  # not for a verdict alone, or on one file
    assert options(evaluate) - chooses_the_command <= options(verify)
    assert {"allow", "seeds", "timeout", "time_budget"} <= options(verify)


def _metadata(parameter: inspect.Parameter) -> object:
    return next(iter(getattr(parameter.annotation, "__metadata__", ())), None)


def test_the_options_of_both_commands_give_the_same_settings() -> None:
    given = evaluation_settings(baseline="eager", allow="torch", seeds=3, timeout=20.0, time_budget=0.5)
    assert (given.allow, given.seeds, given.timing_budget_s) == (("torch",), 3, 0.5)
    assert (given.limits.launch_s, given.limits.total_s) == (20.0, 2 * Limits().total_s)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    for name, text in {"double.py": TASK, "even.cpp": EVEN_ONLY, "broken.cpp": BROKEN}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warpsmith", *words],
        cwd=folder,
        env=os.environ | {"COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow  # two certificates
def test_evaluate_says_what_it_verified_and_nothing_of_the_others(desk: Path) -> None:
    done = run(desk, "evaluate", "--verify", "--json", "double.py", "even.cpp", "broken.cpp")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    even, broken = (json.loads(line) for line in done.stdout.splitlines())
    assert (even["status"], even["verified"]) == ("ok", False)
    assert (broken["status"], broken["verified"], broken["certificate"]) == ("build_error", None, None)
    certificate = read_certificate(Path(even["certificate"]), candidate=read_candidate(desk / "even.cpp"))
    assert SHAPES in [check.name for check in certificate.failed]
    assert not certificate.verified
    assert certificate.reason.startswith(("shapes failed", "remeasurement failed"))
    assert "✗ shapes" in done.stderr  # a line for each check, as it ends


def test_an_invalid_file_is_not_verified_and_its_certificate_says_so(desk: Path) -> None:
    done = run(desk, "verify", "double.py", "broken.cpp", "--certificate", "here/c.json")
    assert done.returncode == 1, done.stderr
    assert "✗ NOT VERIFIED  broken.cpp" in done.stdout
    assert "oops" in done.stdout
    assert read_certificate(desk / "here" / "c.json").verified is False


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("verify", "missing.py", "even.cpp"), "no task file missing.py"),
        (("verify", "double.py", "missing.cpp"), "missing.cpp does not exist"),
        (("verify", "double.py", "even.cpp", "--device", "tpu"), "tpu"),
        (("verify", "double.py", "even.cpp", "--baseline", "magic"), "unknown baseline 'magic'"),
    ],
)
def test_mistakes_are_one_line(desk: Path, words: tuple[str, ...], says: str) -> None:
    status, out, err = run_here(desk, os.environ | {"COLUMNS": "100"}, *words)
    assert status == 2
    assert out == ""
    assert says in err
    assert len(err.strip().splitlines()) == 1


# --- the card ---


def certificate(*, failed: str = "", device: DeviceKind = DeviceKind.CUDA) -> Certificate:
    checks = [CheckOutcome(name, CheckStatus.PASSED, seconds=1.5) for name in required(device)]
    if failed:
        at = [check.name for check in checks].index(failed)
        checks[at] = CheckOutcome(
            failed, CheckStatus.FAILED, "Invalid __global__ read of size 4 bytes in softmax.cu:23."
        )
    return Certificate(
        task="softmax",
        task_digest="t",
        candidate="0123456789ab",
        candidate_digest="c",
        device=device,
        precision="fp32",
        verified=not failed,
        reason=f"{failed} failed: Invalid __global__ read of size 4 bytes in softmax.cu:23." if failed else "",
        checks=tuple(checks),
        measurement=Measurement(0.01, (BaselineSpeedup("eager", 1.84, 1.81, 1.87),), 1e-7, 1e-6),
        environment=Environment("NVIDIA H200 (cuda:0)", "cuda", "nvcc 13.0.88", "2.11.0", driver="580.65"),
        date="2025-01-01T00:00:00+00:00",
        seconds=41.0,
    )


def shown(body: RenderableType, width: int) -> str:
    written = io.StringIO()
    Console(file=written, width=width, highlight=False, markup=False, emoji=False, color_system=None).print(body)
    return written.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_card_names_every_check_and_fits(width: int) -> None:
    text = shown(certificate_card.card(certificate(), "softmax.cu", "c.json"), width)
    assert text.startswith("✓ VERIFIED  softmax.cu")
    assert "1.84x faster than PyTorch eager" in text
    for name in required(DeviceKind.CUDA):
        assert f"✓  {certificate_card.check_name(name)}" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width


def test_without_a_certificate_that_says_so_the_word_does_not_stand_alone() -> None:
    for name in required(DeviceKind.CUDA):
        if name == REMEASUREMENT:
            continue
        text = shown(certificate_card.card(certificate(failed=name), "softmax.cu", "c.json"), 80)
        assert "✗ NOT VERIFIED" in text
        assert "VERIFIED" not in text.replace("NOT VERIFIED", "")
        assert "softmax.cu:23" in text


def test_a_kernel_that_is_right_and_whose_speed_varies_is_called_correct() -> None:
    found = certificate(failed=REMEASUREMENT)
    text = shown(certificate_card.card(found, "softmax.cu", "c.json"), 80)

    assert (found.verified, found.correct, found.speed_repeated) == (False, True, False)
    assert text.startswith("✓ CORRECT, SPEED NOT REPEATED  softmax.cu")
    assert "Correct, but the speed was not repeated: remeasurement failed" in text
    assert "VERIFIED" not in text
    assert "✓ CORRECT" in shown(certificate_card.overview([("a.cu", found, "a.json")]), 120)
    wrong = certificate(failed=SHAPES)
    assert (wrong.correct, wrong.speed_repeated) == (False, True)


def test_figures_become_words() -> None:
    check = CheckOutcome(
        SHAPES,
        CheckStatus.PASSED,
        figures=(("input sets", 20), ("shapes", "rows=1; rows=63"), ("error", 1e-7), ("error limit", 4e-7)),
    )
    assert certificate_card.check_text(check) == "20 input sets; rows=1; rows=63; error 25.0 % of its limit"
    assert (
        certificate_card.check_text(CheckOutcome(ADDRESS, CheckStatus.UNAVAILABLE, "libasan is missing."))
        == "libasan is missing"
    )


def test_several_certificates_are_a_table() -> None:
    rows = [("a.cu", certificate(), "a.json"), ("b.cu", certificate(failed="memcheck"), "b.json")]
    text = shown(certificate_card.overview(rows), 80)
    assert "✓ VERIFIED" in text
    assert "✗ NOT VERIFIED" in text
    assert "memcheck failed" in text


def test_a_reason_that_checks_share_is_said_once() -> None:
    why = "our own fault: the device has too little memory. Nothing else is known."
    whole = certificate(failed="memcheck")
    shared = tuple(replace(c, outcome=CheckStatus.UNAVAILABLE, detail=why) for c in whole.checks)
    against = objection(DeviceKind.CUDA, shared)
    text = shown(certificate_card.card(replace(whole, checks=shared, reason=against), "softmax.cu", "c.json"), 120)
    assert text.count("too little memory") == 2  # the first row, and the closing sentence
    assert text.count("same reason as above") == len(shared) - 1
    assert "Not verified: evaluation and 10 others could not be made: our own fault" in text
    assert "Nothing else" not in text[text.index("Not verified") :]


def test_the_lines_that_come_as_checks_end_do_not_repeat_a_reason_either() -> None:
    written = io.StringIO()
    show = VerifyProgress(Console(file=written, width=120, color_system=None))
    for _ in range(2):  # two files, each with two checks that fail alike
        show.event(VerificationEvent(EVALUATION))
        for name in (SHAPES, ADDRESS):
            show.event(VerificationEvent(name, CheckOutcome(name, CheckStatus.UNAVAILABLE, "libasan is missing.")))
    assert written.getvalue().count("libasan is missing") == 2
    assert written.getvalue().count("same reason as above") == 2
