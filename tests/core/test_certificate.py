"""A certificate cannot say more than its checks do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from warpsmith.core.certificate import (
    EVALUATION,
    REMEASUREMENT,
    SHAPES,
    Certificate,
    CheckOutcome,
    Measurement,
    Outcome,
    Speedup,
    objection,
    required,
)
from warpsmith.core.evaluation import Environment

ENVIRONMENT = Environment("a processor", "cpu", "g++ 12.2.0", "2.13.0")
MEASURED = Measurement(0.5, (Speedup("eager", 2.0, 1.9, 2.1),), 1e-7, 1e-6)


def passed(device: str) -> tuple[CheckOutcome, ...]:
    return tuple(CheckOutcome(name, Outcome.PASSED) for name in required(device))


def with_outcome(checks: tuple[CheckOutcome, ...], name: str, outcome: Outcome) -> tuple[CheckOutcome, ...]:
    return tuple(replace(c, outcome=outcome, detail="it says why.") if c.name == name else c for c in checks)


def certificate(checks: tuple[CheckOutcome, ...], verified: bool, reason: str = "", device: str = "cpu") -> Certificate:
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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_all_checks_passed_is_verified(device: str) -> None:
    assert objection(device, passed(device)) == ""
    assert certificate(passed(device), True, device=device).failed == ()


@pytest.mark.parametrize("name", [n for kind in ("cpu", "cuda") for n in required(kind)])
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNAVAILABLE])
def test_one_check_that_failed_or_could_not_be_made_is_enough(name: str, outcome: Outcome) -> None:
    device = "cpu" if name in required("cpu") else "cuda"
    checks = with_outcome(passed(device), name, outcome)
    said = objection(device, checks)
    assert name in said
    assert "it says why." in said
    with pytest.raises(ValueError, match=name):
        certificate(checks, True, device=device)


@pytest.mark.parametrize("name", required("cpu"))
def test_a_check_that_is_silently_missing_is_enough(name: str) -> None:
    checks = tuple(c for c in passed("cpu") if c.name != name)
    with pytest.raises(ValueError, match=f"{name} was not made"):
        certificate(checks, True)


def test_a_cpu_certificate_is_none_for_a_gpu() -> None:
    assert "memcheck" in objection("cuda", passed("cpu"))


def test_what_has_nothing_to_check_may_be_left_out_and_what_always_has_may_not() -> None:
    assert objection("cpu", with_outcome(passed("cpu"), SHAPES, Outcome.NOT_APPLICABLE)) == ""
    for name in (EVALUATION, REMEASUREMENT):
        assert name in objection("cpu", with_outcome(passed("cpu"), name, Outcome.NOT_APPLICABLE))


def test_the_worst_is_said_first() -> None:
    checks = with_outcome(passed("cpu"), EVALUATION, Outcome.UNAVAILABLE)
    assert REMEASUREMENT in objection("cpu", with_outcome(checks, REMEASUREMENT, Outcome.FAILED))


def test_a_check_cannot_be_named_twice() -> None:
    assert "twice" in objection("cpu", (*passed("cpu"), passed("cpu")[0]))


def test_verified_and_its_reason_agree() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        certificate(passed("cpu"), False)
    with pytest.raises(ValueError, match="no reason against"):
        certificate(passed("cpu"), True, "but")
    with pytest.raises(ValueError, match="measurement"):
        replace(certificate(passed("cpu"), True), measurement=None)


def test_a_check_says_why_it_did_not_pass_and_has_finite_figures() -> None:
    for outcome in (Outcome.FAILED, Outcome.UNAVAILABLE, Outcome.NOT_APPLICABLE):
        with pytest.raises(ValueError, match="must say why"):
            CheckOutcome("shapes", outcome)
    with pytest.raises(ValueError, match="finite"):
        CheckOutcome("shapes", Outcome.PASSED, figures=(("error", math.inf),))
    with pytest.raises(ValueError, match="name"):
        CheckOutcome("", Outcome.PASSED)


def test_what_stands_against_it_is_one_sentence_however_much_was_said() -> None:
    long = "CUDA out of memory in x.cu. Tried to allocate 20.00 GiB. GPU 0 has 3 GiB free.\nSee the documentation."
    checks = tuple(replace(c, outcome=Outcome.UNAVAILABLE, detail=long) for c in passed("cpu")[:2])
    assert objection("cpu", checks[:1]) == "evaluation could not be made: CUDA out of memory in x.cu."
    assert objection("cpu", checks) == "evaluation and 1 other could not be made: CUDA out of memory in x.cu."
