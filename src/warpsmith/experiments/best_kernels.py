"""Measures the best kernel of a cell again after its search, also against torch.compile, and verifies it.

A search keeps the highest of many measurements, which is too high on average; a bench reports a measurement made after
the kernel was chosen. The results are stored by task and candidate, so cells that found the same kernel share them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.engine.engine import Engine
from warpsmith.experiments.plan import WINNERS, slug
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Certificate
from warpsmith.model.errors import HarnessFault, RunError, TaskError, UsageError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.task import Precision
from warpsmith.system.files import put_in_place, read_file
from warpsmith.verification.certificate import read_certificate, write_certificate
from warpsmith.verification.verify import VerificationEvent, Verifier

EVALUATION = "evaluation.json"
CERTIFICATE = "certificate.json"
_EVALUATION = TypeAdapter(Evaluation)


@dataclass(frozen=True)
class KernelChecks:
    """The checks made on a best kernel after its search; None if not made yet."""

    evaluation: Evaluation | None
    certificate: Certificate | None


@dataclass(frozen=True)
class WantedChecks:
    """The checks to make on every best kernel."""

    verify: bool
    compile_baseline: bool
    accept_uncalibrated: bool = False  # verify although some wrong results pass the task's checks
    tolerance: float | None = None  # by how much two measurements of the verification may differ; None: the default

    @property
    def needed(self) -> bool:
        """True if any check is to be made."""
        return self.verify or self.compile_baseline

    def complete(self, known: KernelChecks) -> bool:
        """True if all these checks were made."""
        return not self.needed or (known.evaluation is not None and (known.certificate is not None or not self.verify))


def checks_folder(root: Path, task: str, candidate: str) -> Path:
    """The folder with the checks of a best kernel."""
    return root / WINNERS / slug(task) / candidate


def read_checks(folder: Path) -> KernelChecks:
    """The stored checks. A damaged file counts as missing, and so does an evaluation that failed (NOT_JUDGED)."""
    evaluation = _read_evaluation(folder / EVALUATION)
    if evaluation is not None and evaluation.status is Status.NOT_JUDGED:
        return KernelChecks(None, None)  # earlier versions stored these, with certificates based on them
    return KernelChecks(evaluation, _read_certificate(folder / CERTIFICATE))


def run_checks(
    evaluator: Engine,
    task: str,
    candidate: Candidate,
    precision: Precision | None,
    wanted: WantedChecks,
    folder: Path,
    on_event: Callable[[VerificationEvent], None] = lambda _: None,
) -> KernelChecks:
    """Make the checks that are wanted and missing, and store them. The evaluator's settings are the same afterwards.

    A HarnessFault if the evaluation failed: nothing is stored then, and the next call tries again.
    """
    known = read_checks(folder)
    usual = evaluator.settings
    try:
        first = known.evaluation
        if first is None:
            first = _measured(evaluator, task, candidate, precision, wanted)
            if first.status is Status.NOT_JUDGED:
                raise HarnessFault(first.reason)
            if known.certificate is None:
                (folder / CERTIFICATE).unlink(missing_ok=True)  # it belongs to an evaluation that does not count
            write_evaluation(first, folder / EVALUATION)
        if wanted.verify and known.certificate is None:
            evaluator.renew(replace(usual, baselines=("eager",)))
            verifier = Verifier(
                evaluator,
                accept_uncalibrated=wanted.accept_uncalibrated,
                tolerance=wanted.tolerance,
                on_event=on_event,
            )
            certificate = verifier.verify(task, candidate, precision, first=first)
            write_certificate(certificate, folder / CERTIFICATE)
    finally:
        if evaluator.settings != usual:
            evaluator.renew(usual)
    return read_checks(folder)


def _measured(
    evaluator: Engine, task: str, candidate: Candidate, precision: Precision | None, wanted: WantedChecks
) -> Evaluation:
    """Evaluate again; without torch.compile if that fails."""
    usual = evaluator.settings
    if wanted.compile_baseline:
        evaluator.renew(replace(usual, baselines=("eager", "compile")))
        try:
            found = evaluator.evaluate_one(task, candidate, precision, fresh=True)
            if found.status is not Status.NOT_JUDGED:
                return found
        except (HarnessFault, TaskError):  # the task was evaluated before: torch.compile is what failed
            pass
        evaluator.renew(usual)
    return evaluator.evaluate_one(task, candidate, precision, fresh=True)


def write_evaluation(evaluation: Evaluation, path: Path) -> None:
    """Write an evaluation atomically."""
    try:
        put_in_place(path, _EVALUATION.dump_json(evaluation, indent=1) + b"\n", mode=0o644)
    except OSError as refused:
        raise RunError(f"{path} cannot be written ({refused.strerror}); free some space and resume.") from None


def _read_evaluation(path: Path) -> Evaluation | None:
    try:
        return _EVALUATION.validate_json(read_file(path))
    except (OSError, ValidationError):
        return None


def _read_certificate(path: Path) -> Certificate | None:
    try:
        return read_certificate(path)
    except UsageError:
        return None
