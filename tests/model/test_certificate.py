"""A certificate cannot say more than its checks do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from warpsmith.model.build import DeviceKind
from warpsmith.model.certificate import (
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

ENVIRONMENT = Environment("a processor", "cpu", "g++ 12.2.0", "2.13.0")
MEASURED = Measurement(0.5, (BaselineSpeedup("eager", 2.0, 1.9, 2.1),), 1e-7, 1e-6)


def passed(device: DeviceKind) -> tuple[CheckOutcome, ...]:
    return tuple(CheckOutcome(name, CheckStatus.PASSED) for name in required(device))


def with_outcome(checks: tuple[CheckOutcome, ...], name: str, outcome: CheckStatus) -> tuple[CheckOutcome, ...]:
    return tuple(replace(c, outcome=outcome, detail="it says why.") if c.name == name else c for c in checks)


def certificate(
    checks: tuple[CheckOutcome, ...], verified: bool, reason: str = "", device: DeviceKind = DeviceKind.CPU
) -> Certificate:
    return Certificate(
        task="softmax",
        task_digest="t",
        candidate="c",
        candidate_digest="cc",
        device=device,
        precision="fp32",
        verified=verified,
        reason=reason,
        checks=checks,
        measurement=MEASURED,
        environment=ENVIRONMENT,
        date="2025-01-01T00:00:00+00:00",
    )


@pytest.mark.parametrize("device", list(DeviceKind))
def test_all_checks_passed_is_verified(device: DeviceKind) -> None:
    assert objection(device, passed(device)) == ""
    assert certificate(passed(device), True, device=device).failed == ()


@pytest.mark.parametrize("name", [n for kind in (DeviceKind.CPU, DeviceKind.CUDA) for n in required(kind)])
@pytest.mark.parametrize("outcome", [CheckStatus.FAILED, CheckStatus.UNAVAILABLE])
def test_one_check_that_failed_or_could_not_be_made_is_enough(name: str, outcome: CheckStatus) -> None:
    device = DeviceKind.CPU if name in required(DeviceKind.CPU) else DeviceKind.CUDA
    checks = with_outcome(passed(device), name, outcome)
    said = objection(device, checks)
    assert name in said
    assert "it says why." in said
    with pytest.raises(ValueError, match=name):
        certificate(checks, True, device=device)


@pytest.mark.parametrize("name", required(DeviceKind.CPU))
def test_a_check_that_is_silently_missing_is_enough(name: str) -> None:
    checks = tuple(c for c in passed(DeviceKind.CPU) if c.name != name)
    with pytest.raises(ValueError, match=f"{name} was not made"):
        certificate(checks, True)


def test_a_cpu_certificate_is_none_for_a_gpu() -> None:
    assert "memcheck" in objection(DeviceKind.CUDA, passed(DeviceKind.CPU))


def test_what_has_nothing_to_check_may_be_left_out_and_what_always_has_may_not() -> None:
    assert objection(DeviceKind.CPU, with_outcome(passed(DeviceKind.CPU), SHAPES, CheckStatus.NOT_APPLICABLE)) == ""
    for name in (EVALUATION, REMEASUREMENT):
        assert name in objection(DeviceKind.CPU, with_outcome(passed(DeviceKind.CPU), name, CheckStatus.NOT_APPLICABLE))


def test_the_worst_is_said_first() -> None:
    checks = with_outcome(passed(DeviceKind.CPU), EVALUATION, CheckStatus.UNAVAILABLE)
    assert REMEASUREMENT in objection(DeviceKind.CPU, with_outcome(checks, REMEASUREMENT, CheckStatus.FAILED))


def test_a_check_cannot_be_named_twice() -> None:
    assert "twice" in objection(DeviceKind.CPU, (*passed(DeviceKind.CPU), passed(DeviceKind.CPU)[0]))


def test_verified_and_its_reason_agree() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        certificate(passed(DeviceKind.CPU), False)
    with pytest.raises(ValueError, match="no reason against"):
        certificate(passed(DeviceKind.CPU), True, "but")
    with pytest.raises(ValueError, match="measurement"):
        replace(certificate(passed(DeviceKind.CPU), True), measurement=None)


def test_a_check_says_why_it_did_not_pass_and_has_finite_figures() -> None:
    for outcome in (CheckStatus.FAILED, CheckStatus.UNAVAILABLE, CheckStatus.NOT_APPLICABLE):
        with pytest.raises(ValueError, match="must say why"):
            CheckOutcome("shapes", outcome)
    with pytest.raises(ValueError, match="finite"):
        CheckOutcome("shapes", CheckStatus.PASSED, figures=(("error", math.inf),))
    with pytest.raises(ValueError, match="name"):
        CheckOutcome("", CheckStatus.PASSED)


def test_what_stands_against_it_is_one_sentence_however_much_was_said() -> None:
    long = "CUDA out of memory in x.cu. Tried to allocate 20.00 GiB. GPU 0 has 3 GiB free.\nSee the documentation."
    checks = tuple(replace(c, outcome=CheckStatus.UNAVAILABLE, detail=long) for c in passed(DeviceKind.CPU)[:2])
    assert objection(DeviceKind.CPU, checks[:1]) == "evaluation could not be made: CUDA out of memory in x.cu."
    assert objection(DeviceKind.CPU, checks) == "evaluation and 1 other could not be made: CUDA out of memory in x.cu."
