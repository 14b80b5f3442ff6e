"""Deep verification end to end on the CPU: who gets a certificate, who does not and why, and what it is worth."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.build import DeviceKind
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import (
    ADDRESS,
    DETERMINISM,
    DISTRIBUTIONS,
    EVALUATION,
    GUARDS,
    REMEASUREMENT,
    SEEDS,
    SHAPES,
    Certificate,
    CheckStatus,
    objection,
    required,
)
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Status, WorkloadResult
from warpsmith.model.settings import Settings
from warpsmith.verification.certificate import default_path, document, read_certificate, write_certificate
from warpsmith.verification.verify import VerificationEvent, Verifier, compare_measurements, evaluation_check

Kernel = Callable[[str], Candidate]
TaskFile = Callable[[str], Path]
WithSettings = Callable[[Settings], AbstractContextManager[Evaluator]]
PLANTED = Path(__file__).resolve().parent.parent / "kernels" / "verify"
ANY = 1e6  # what two measurements may differ by: whatever else runs on this machine is none of these tests' business


def told(certificate: Certificate) -> str:
    return "\n".join(f"{c.name} {c.outcome}: {c.detail} {c.figures}" for c in certificate.checks)


def outcomes(certificate: Certificate) -> dict[str, CheckStatus]:
    return {check.name: check.outcome for check in certificate.checks}


# --- an honest kernel ---


@pytest.fixture(scope="module")
def honest(
    evaluator: Evaluator, kernel: Kernel, task_file: TaskFile
) -> tuple[Certificate, Candidate, list[VerificationEvent]]:
    """Right in every run, though not the same bit by bit."""
    events: list[VerificationEvent] = []
    candidate = read_candidate(PLANTED / "wobbles.cpp")
    verifier = Verifier(
        evaluator,
        tolerance=ANY,
        on_event=events.append,
        now=lambda: datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    return verifier.verify(task_file("softmax"), candidate), candidate, events


def test_an_honest_kernel_is_verified(honest: tuple[Certificate, Candidate, list[VerificationEvent]]) -> None:
    certificate, candidate, _ = honest
    assert certificate.verified, told(certificate)
    assert certificate.reason == ""
    assert tuple(check.name for check in certificate.checks) == required(DeviceKind.CPU)
    assert set(outcomes(certificate).values()) == {CheckStatus.PASSED}
    assert (certificate.candidate, certificate.candidate_digest) == (candidate.id, candidate.digest)
    assert (certificate.task, certificate.device, certificate.precision) == ("softmax", "cpu", "fp32")
    assert certificate.date == "2025-01-02T03:04:05+00:00"
    assert certificate.environment.compiler
    assert certificate.measurement is not None
    assert certificate.measurement.speedups[0].baseline == "eager"


def test_every_check_has_its_figures(honest: tuple[Certificate, Candidate, list[VerificationEvent]]) -> None:
    figures = {check.name: dict(check.figures) for check in honest[0].checks}
    assert figures["fresh_seeds"]["input sets"] == 10  # five in each of two workloads
    assert "offset" in str(figures[DISTRIBUTIONS]["distributions"])
    assert "cols=1001" in str(figures[SHAPES]["shapes"])
    assert "imports" in str(figures[GUARDS]["guards"])
    assert figures[GUARDS]["sandbox"] != "none"
    assert {"first speedup over eager", "second speedup over eager"} <= set(figures[REMEASUREMENT])


def test_what_is_right_but_not_reproducible_passes_and_is_said(
    honest: tuple[Certificate, Candidate, list[VerificationEvent]],
) -> None:
    check = next(check for check in honest[0].checks if check.name == DETERMINISM)
    assert check.outcome is CheckStatus.PASSED
    assert "not bitwise reproducible" in check.detail
    figures = dict(check.figures)
    assert int(figures["runs"]) >= 10
    assert 0 < int(figures["runs that differed"]) < int(figures["runs"])
    assert 0 < float(figures["largest difference"]) < 1e-6


def test_each_check_is_told_when_it_ends(honest: tuple[Certificate, Candidate, list[VerificationEvent]]) -> None:
    certificate, _, events = honest
    ended = [event.name for event in events if event.outcome is not None]
    assert ended == [check.name for check in certificate.checks]
    assert events[0] == VerificationEvent(EVALUATION)


# --- planted faults that an evaluation does not see ---


@pytest.mark.parametrize(
    ("task", "name", "check", "says"),
    [
        pytest.param("softmax", "whole_vectors_only.cpp", SHAPES, "held out", marks=pytest.mark.slow),
        pytest.param("softmax", "adds_up.cpp", DETERMINISM, "out differs", marks=pytest.mark.slow),
        pytest.param("relu", "clamps.cpp", DISTRIBUTIONS, "got 2000", marks=pytest.mark.slow),
        ("mean_and_peak", "reads_past_a_result.cpp", ADDRESS, "reads_past_a_result.cpp:15"),
    ],
)
def test_what_only_verification_sees(
    task: str, name: str, check: str, says: str, evaluator: Evaluator, task_file: TaskFile
) -> None:
    certificate = Verifier(evaluator, tolerance=ANY).verify(task_file(task), read_candidate(PLANTED / name))
    assert outcomes(certificate)[EVALUATION] is CheckStatus.PASSED, told(certificate)
    assert not certificate.verified
    assert [failed.name for failed in certificate.failed] == [check], told(certificate)
    assert says in certificate.failed[0].detail
    assert certificate.reason.startswith(f"{check} failed: ")


def test_held_out_inputs_can_be_looked_at_without_sanitizers(evaluator: Evaluator, task_file: TaskFile) -> None:
    found = Verifier(evaluator).examine(
        task_file("mean_and_peak"), read_candidate(PLANTED / "reads_past_a_result.cpp"), sanitizers=False
    )
    assert [check.name for check in found] == [SEEDS, DISTRIBUTIONS, SHAPES, DETERMINISM]
    assert all(check.outcome in (CheckStatus.PASSED, CheckStatus.NOT_APPLICABLE) for check in found)


def test_an_invalid_candidate_gets_no_further_than_its_evaluation(
    evaluator: Evaluator, kernel: Kernel, task_file: TaskFile
) -> None:
    certificate = Verifier(evaluator).verify(task_file("softmax"), kernel("wrong.cpp"))
    assert not certificate.verified
    assert certificate.measurement is None
    assert outcomes(certificate) == {EVALUATION: CheckStatus.FAILED, GUARDS: CheckStatus.PASSED}
    assert certificate.reason.startswith("evaluation failed: wrong: out differs")


def test_nothing_is_verified_with_a_guard_left_out(
    quick_settings: Settings, with_settings: WithSettings, kernel: Kernel, task_file: TaskFile
) -> None:
    with with_settings(replace(quick_settings, without=("floor",))) as careless:
        certificate = Verifier(careless).verify(task_file("softmax"), kernel("does_not_compile.cpp"))
    assert outcomes(certificate)[GUARDS] is CheckStatus.FAILED
    assert "floor" in next(check.detail for check in certificate.checks if check.name == GUARDS)


# --- two measurements ---


def measured(speedup: float, width: float = 0.01) -> Evaluation:
    interval = Interval(speedup * (1 - width), speedup * (1 + width))
    result = WorkloadResult(
        workload="w",
        axes=(),
        latency_ms=1.0,
        timing="single",
        baselines=(Baseline("eager", speedup, speedup, interval, 20),),
        error=0.0,
        error_limit=1.0,
        floor_ms=0.1,
        bytes=1,
        flops=1,
        checks=1,
        reference="fp64",
    )
    return Evaluation("t", "c", Status.OK, "", Environment("d", "cpu", "g++", "2"), "fp32", (result,))


@pytest.mark.parametrize(
    ("tolerance", "first", "second", "outcome"),
    [
        (0.1, measured(2.0), measured(2.01), CheckStatus.PASSED),  # the intervals overlap
        (0.1, measured(2.0), measured(2.15), CheckStatus.PASSED),  # near enough
        (0.1, measured(2.0), measured(1.6), CheckStatus.FAILED),
        (0.25, measured(2.0), measured(1.7), CheckStatus.PASSED),
        (0.25, measured(4.0), measured(1.0), CheckStatus.FAILED),  # fast in its first process only
        (0.25, measured(1.0), measured(4.0), CheckStatus.FAILED),
        (0.25, measured(2.0, 0.9), measured(1.0), CheckStatus.PASSED),  # nobody knows
        (0.25, measured(7.2, 0.9), measured(2.0), CheckStatus.FAILED),  # nor here, but that is no verification
    ],
)
def test_two_measurements_must_agree(
    tolerance: float, first: Evaluation, second: Evaluation, outcome: CheckStatus
) -> None:
    check = compare_measurements(first, second, tolerance)
    assert check.outcome is outcome
    assert dict(check.figures)["second speedup over eager"] == pytest.approx(second.speedup())
    assert dict(check.figures)["difference allowed"] == tolerance
    speedups = [e.speedup() or 0.0 for e in (first, second)]
    assert check.outcome is CheckStatus.FAILED or (max(speedups) / min(speedups) > 1 + tolerance) is (
        "intervals" in dict(check.figures)
    )
    assert ("new process" in check.detail) is (outcome is CheckStatus.FAILED)


def test_a_second_verdict_that_is_not_valid_fails_and_one_of_our_own_faults_does_not() -> None:
    broken = replace(measured(2.0), status=Status.WRONG, reason="out differs.", workloads=())
    assert compare_measurements(measured(2.0), broken, 0.25).outcome is CheckStatus.FAILED
    ours = replace(broken, status=Status.NOT_JUDGED, reason="the disk is full.")
    assert compare_measurements(measured(2.0), ours, 0.25).outcome is CheckStatus.UNAVAILABLE


# --- certificates in files ---


def test_a_certificate_survives_its_file(
    honest: tuple[Certificate, Candidate, list[VerificationEvent]], kernel: Kernel, tmp_path: Path
) -> None:
    certificate, candidate, _ = honest
    path = default_path(tmp_path, certificate)
    assert path == tmp_path / "certificates" / f"{candidate.id}-softmax.json"
    write_certificate(certificate, path)
    assert read_certificate(path) == certificate
    assert read_certificate(path, candidate=candidate, task_digest=certificate.task_digest) == certificate
    with pytest.raises(UsageError, match=f"certificate of candidate {candidate.id}"):
        read_certificate(path, candidate=kernel("right.cpp"))
    with pytest.raises(UsageError, match="another version of task"):
        read_certificate(path, task_digest="other")


def test_a_damaged_or_foreign_file_is_refused_in_one_sentence(
    honest: tuple[Certificate, Candidate, list[VerificationEvent]], tmp_path: Path
) -> None:
    path = tmp_path / "c.json"
    good = json.loads(json.dumps(document(honest[0])))
    files = {
        "not JSON": b"\x00\xffhello",
        "no certificate": b'{"hello": 1}',
        "another version": json.dumps({**good, "format": 99}).encode(),
        "damaged or changed": json.dumps({**good, "verified": True, "reason": "x"}).encode(),
        "is no certificate": b"[" * 100_000,
    }
    for says, data in files.items():
        path.write_bytes(data)
        with pytest.raises(UsageError, match=says) as refusal:
            read_certificate(path)
        assert "\n" not in str(refusal.value)
    with pytest.raises(UsageError, match="cannot be read"):
        read_certificate(tmp_path / "missing.json")


def test_a_certificate_that_is_nested_as_deep_as_can_be_read_is_refused_like_any_other(tmp_path: Path) -> None:
    """At one depth it can just be read, and not be written again for its checksum."""
    path = tmp_path / "c.json"
    for depth in range(700, 1000):
        path.write_text('{"format": 1, "x": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(UsageError, match=r"not JSON|damaged or changed"):
            read_certificate(path)


def test_a_verdict_cannot_be_forged_by_editing_checks_and_checksum(
    honest: tuple[Certificate, Candidate, list[VerificationEvent]], tmp_path: Path
) -> None:
    """The file can be rewritten whole; what it says must still fit together."""
    from warpsmith.verification.certificate import _checksum

    body = document(honest[0])
    del body["checksum"]
    checks = body["checks"]
    assert isinstance(checks, list)
    checks[2] = {**checks[2], "outcome": "failed", "detail": "no."}
    path = tmp_path / "c.json"
    path.write_text(json.dumps({**body, "checksum": _checksum(body)}))
    with pytest.raises(UsageError, match="cannot be right"):
        read_certificate(path)


def test_a_kernel_of_a_task_that_is_not_calibrated_is_verified_only_on_demand() -> None:
    doubtful = replace(measured(2.0), uncalibrated="a kernel that writes 1 would pass; choose other inputs.")
    refused = evaluation_check(doubtful)
    assert refused.outcome is CheckStatus.FAILED
    assert refused.detail == "calibrated: no (a kernel that writes 1 would pass; choose other inputs)."
    accepted = evaluation_check(doubtful, accept_uncalibrated=True)
    assert accepted.outcome is CheckStatus.PASSED
    assert dict(accepted.figures)["calibrated"] == "no"


def test_a_kernel_that_does_not_compile_is_called_by_the_words_of_its_verdict() -> None:
    reason = "no function named launch is defined. Define:\nextern int launch();"
    broken = replace(measured(2.0), status=Status.BUILD_ERROR, reason=reason, workloads=())
    check = evaluation_check(broken)
    assert check.detail == f"build error: {reason}"
    said = objection(DeviceKind.CPU, [check])
    assert said == "evaluation failed: build error: no function named launch is defined."
