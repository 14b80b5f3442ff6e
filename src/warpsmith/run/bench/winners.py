"""The winner of a cell, looked at once more: measured anew, against torch.compile too, and verified.

A search keeps the highest of many measurements, so that its figure is a lucky one; what a bench reports is measured
after the winner was chosen. What was found is kept by task and candidate: cells that found the same kernel share it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.core.candidate import Candidate
from warpsmith.core.certificate import Certificate
from warpsmith.core.errors import HarnessFault, RunError, TaskError, UsageError
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.inplace import put_in_place
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.verification.certificate import read_certificate, write_certificate
from warpsmith.evaluate.verification.verify import Event, Verifier
from warpsmith.run.bench.plan import WINNERS, slug

EVALUATION = "evaluation.json"
CERTIFICATE = "certificate.json"
_EVALUATION = TypeAdapter(Evaluation)


@dataclass(frozen=True)
class Winner:
    """What is known of a winner besides what its run says."""

    evaluation: Evaluation | None
    certificate: Certificate | None


@dataclass(frozen=True)
class Examination:
    """What is to be found out about every winner."""

    verify: bool
    compile_baseline: bool
    tolerance: float | None = None  # by how much two measurements of verification may differ; None: as usual

    @property
    def needed(self) -> bool:
        """Whether anything is."""
        return self.verify or self.compile_baseline

    def complete(self, known: Winner) -> bool:
        """Whether nothing is left to do."""
        return not self.needed or (known.evaluation is not None and (known.certificate is not None or not self.verify))


def folder_of(root: Path, task: str, candidate: str) -> Path:
    """Where what is known of a winner lies."""
    return root / WINNERS / slug(task) / candidate


def read_winner(folder: Path) -> Winner:
    """What is known. A damaged file counts as not there, as does what says only that we failed to judge."""
    evaluation = _read_evaluation(folder / EVALUATION)
    if evaluation is not None and evaluation.status is Status.NOT_JUDGED:
        return Winner(None, None)  # older releases kept these, and certificates made of them
    return Winner(evaluation, _read_certificate(folder / CERTIFICATE))


def examine(
    evaluator: Evaluator,
    task: str,
    candidate: Candidate,
    precision: Precision | None,
    wanted: Examination,
    folder: Path,
    on_event: Callable[[Event], None] = lambda _: None,
) -> Winner:
    """Find out what is wanted and not known yet, and keep it; the evaluator's settings are as before.

    A HarnessFault where it could not be judged: nothing is kept then, and the next call tries again.
    """
    known = read_winner(folder)
    usual = evaluator.settings
    try:
        first = known.evaluation
        if first is None:
            first = _measured(evaluator, task, candidate, precision, wanted)
            if first.status is Status.NOT_JUDGED:
                raise HarnessFault(first.reason)
            if known.certificate is None:
                (folder / CERTIFICATE).unlink(missing_ok=True)  # one that counts for nothing must not count beside this
            write_evaluation(first, folder / EVALUATION)
        if wanted.verify and known.certificate is None:
            evaluator.renew(replace(usual, baselines=("eager",)))
            verifier = Verifier(evaluator, tolerance=wanted.tolerance, on_event=on_event)
            certificate = verifier.verify(task, candidate, precision, first=first)
            write_certificate(certificate, folder / CERTIFICATE)
    finally:
        if evaluator.settings != usual:
            evaluator.renew(usual)
    return read_winner(folder)


def _measured(
    evaluator: Evaluator, task: str, candidate: Candidate, precision: Precision | None, wanted: Examination
) -> Evaluation:
    """Once more; without torch.compile where that cannot be had."""
    usual = evaluator.settings
    if wanted.compile_baseline:
        evaluator.renew(replace(usual, baselines=("eager", "compile")))
        try:
            found = evaluator.evaluate_one(task, candidate, precision, fresh=True)
            if found.status is not Status.NOT_JUDGED:
                return found
        except (HarnessFault, TaskError):  # the same task was opened before: what is new is torch.compile
            pass
        evaluator.renew(usual)
    return evaluator.evaluate_one(task, candidate, precision, fresh=True)


def write_evaluation(evaluation: Evaluation, path: Path) -> None:
    """Put it in place in one step."""
    try:
        put_in_place(path, _EVALUATION.dump_json(evaluation, indent=1) + b"\n", mode=0o644)
    except OSError as refused:
        raise RunError(f"{path} cannot be written ({refused.strerror}); free some space and resume.") from None


def _read_evaluation(path: Path) -> Evaluation | None:
    try:
        return _EVALUATION.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _read_certificate(path: Path) -> Certificate | None:
    try:
        return read_certificate(path) if path.is_file() else None
    except UsageError:
        return None
