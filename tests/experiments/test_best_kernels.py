"""A winner that we failed to judge is looked at again; what is known of others is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.experiments.test_collect import certificate
from tests.searching import invalid, source, valid
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.experiments import best_kernels
from warpsmith.experiments.best_kernels import (
    CERTIFICATE,
    EVALUATION,
    KernelChecks,
    WantedChecks,
    read_checks,
    run_checks,
    write_evaluation,
)
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import Certificate
from warpsmith.model.errors import HarnessFault
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings
from warpsmith.verification.certificate import write_certificate

KERNEL = Candidate((SourceFile("k.cpp", source(1)),), "cpu")
NOBODY = KernelChecks(None, None)
VERIFY = WantedChecks(verify=True, compile_baseline=False)


class Stand:
    """Stands in for an evaluator: fails while it is ill."""

    def __init__(self, *, ill: bool = False) -> None:
        self.settings = Settings()
        self.ill = ill
        self.asked = 0

    def renew(self, settings: Settings) -> None:
        self.settings = settings

    def evaluate_one(self, task: str, candidate: Candidate, precision: object, *, fresh: bool) -> Evaluation:
        self.asked += 1
        return invalid(candidate, Status.NOT_JUDGED, "the judge died 3 times.") if self.ill else valid(candidate, 2.0)


class Verifying:
    """Stands in for a verifier: passes everything, unless it is told to fail."""

    fails = False

    def __init__(self, evaluator: object, **options: object) -> None:
        pass

    def verify(self, task: str, candidate: Candidate, precision: object, *, first: Evaluation) -> Certificate:
        if self.fails:
            raise HarnessFault("no memory is left.")
        return certificate(candidate, first, verified=True)


def look(stand: Stand, folder: Path, wanted: WantedChecks) -> KernelChecks:
    return run_checks(cast(Evaluator, stand), "double.py", KERNEL, None, wanted, folder)


@pytest.fixture
def verifying(monkeypatch: pytest.MonkeyPatch) -> type[Verifying]:
    made: Any = type("Told", (Verifying,), {})
    monkeypatch.setattr(best_kernels, "Verifier", made)
    return cast(type[Verifying], made)


@pytest.mark.parametrize("wanted", [VERIFY, WantedChecks(verify=False, compile_baseline=True)])
def test_a_winner_that_could_not_be_judged_is_judged_the_next_time(
    tmp_path: Path, wanted: WantedChecks, verifying: type[Verifying]
) -> None:
    stand = Stand(ill=True)
    with pytest.raises(HarnessFault, match="died 3 times"):
        look(stand, tmp_path, wanted)
    assert read_checks(tmp_path) == NOBODY
    assert stand.settings == Settings()

    stand.ill = False
    found = look(stand, tmp_path, wanted)

    assert found.evaluation is not None
    assert found.evaluation.ok
    assert wanted.complete(found)
    asked = stand.asked
    assert look(stand, tmp_path, wanted) == found
    assert stand.asked == asked  # what is known is not asked again


def unjudged(folder: Path) -> None:
    """As releases that kept our own failure left it."""
    write_evaluation(invalid(KERNEL, Status.NOT_JUDGED, "the judge died."), folder / EVALUATION)
    refuted = certificate(KERNEL, valid(KERNEL, 2.0), verified=False)
    write_certificate(replace(refuted, measurement=None), folder / CERTIFICATE)


def test_our_own_failure_that_was_kept_counts_as_not_there(tmp_path: Path, verifying: type[Verifying]) -> None:
    unjudged(tmp_path)
    assert read_checks(tmp_path) == NOBODY
    assert not VERIFY.complete(read_checks(tmp_path))

    healed = look(Stand(), tmp_path, VERIFY)

    assert healed.certificate is not None
    assert healed.certificate.verified


def test_a_certificate_of_nothing_is_not_taken_for_one_of_what_is_measured_then(
    tmp_path: Path, verifying: type[Verifying]
) -> None:
    unjudged(tmp_path)
    verifying.fails = True

    with pytest.raises(HarnessFault):
        look(Stand(), tmp_path, VERIFY)

    known = read_checks(tmp_path)
    assert known.evaluation is not None
    assert known.certificate is None
