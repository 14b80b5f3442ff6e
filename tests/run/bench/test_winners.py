"""A winner that we failed to judge is looked at again; what is known of others is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.run.bench.test_folding import certificate
from tests.searching import invalid, source, valid
from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.certificate import Certificate
from warpsmith.core.config import Settings
from warpsmith.core.errors import HarnessFault
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.verification.certificate import write_certificate
from warpsmith.run.bench import winners
from warpsmith.run.bench.winners import (
    CERTIFICATE,
    EVALUATION,
    Examination,
    Winner,
    examine,
    read_winner,
    write_evaluation,
)

KERNEL = Candidate((SourceFile("k.cpp", source(1)),), "cpu")
NOBODY = Winner(None, None)
VERIFY = Examination(verify=True, compile_baseline=False)


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


def look(stand: Stand, folder: Path, wanted: Examination) -> Winner:
    return examine(cast(Evaluator, stand), "double.py", KERNEL, None, wanted, folder)


@pytest.fixture
def verifying(monkeypatch: pytest.MonkeyPatch) -> type[Verifying]:
    made: Any = type("Told", (Verifying,), {})
    monkeypatch.setattr(winners, "Verifier", made)
    return cast(type[Verifying], made)


@pytest.mark.parametrize("wanted", [VERIFY, Examination(verify=False, compile_baseline=True)])
def test_a_winner_that_could_not_be_judged_is_judged_the_next_time(
    tmp_path: Path, wanted: Examination, verifying: type[Verifying]
) -> None:
    stand = Stand(ill=True)
    with pytest.raises(HarnessFault, match="died 3 times"):
        look(stand, tmp_path, wanted)
    assert read_winner(tmp_path) == NOBODY
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
    assert read_winner(tmp_path) == NOBODY
    assert not VERIFY.complete(read_winner(tmp_path))

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

    known = read_winner(tmp_path)
    assert known.evaluation is not None
    assert known.certificate is None
