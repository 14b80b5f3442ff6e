"""`warpsmith verify TASK FILE`: test a kernel as hard as this machine can, and write a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.text import Text

from warpsmith.backends.source import read_candidate
from warpsmith.cli import cards, certificate_card
from warpsmith.cli.checks import choose_device, evaluation_settings, find_task, writable_paths
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import (
    AcceptUncalibrated,
    Allow,
    AsJson,
    Baseline,
    DeviceOfFiles,
    EngineOption,
    Entry,
    FileArgument,
    PrecisionOption,
    Seeds,
    TaskArgument,
    TimeBudget,
    Timeout,
)
from warpsmith.engine.engine import LOCAL, Engine, open_engine
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import EVALUATION, Certificate, CheckStatus
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Paths
from warpsmith.model.task import Precision
from warpsmith.verification.certificate import default_path, document, write_certificate
from warpsmith.verification.verify import VerificationEvent, Verifier


def verify(
    task: TaskArgument,
    file: FileArgument,
    device: DeviceOfFiles = "auto",
    engine: EngineOption = None,
    entry: Entry = "",
    baseline: Baseline = "eager",
    allow: Allow = "",
    precision: PrecisionOption = None,
    seeds: Seeds = None,
    timeout: Timeout = None,
    time_budget: TimeBudget = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="As for evaluate; a verification judges the kernel anew in any case.")
    ] = True,
    accept_uncalibrated: AcceptUncalibrated = False,
    certificate: Annotated[
        str, typer.Option(metavar="FILE", help="Where to write the certificate.  [default: in the cache folder]")
    ] = "",
    json: AsJson = False,
) -> int:
    """Test a kernel with other seeds, distributions and shapes, repeated runs, sanitizers and a second measurement.

    The outcome of every check is written to a certificate. Exit status: 0 verified, 1 not verified, 2 nothing could be
    judged.
    """
    task, spec = find_task(task), engine or LOCAL
    candidate = read_candidate(Path(file), entry=entry)
    target = choose_device(device, (candidate,), spec)
    settings = evaluation_settings(
        baseline=baseline, allow=allow, seeds=seeds, timeout=timeout, time_budget=time_budget
    )
    paths = writable_paths()
    with (
        verify_progress(cards.console(stderr=True)) as progress,
        open_engine(
            spec, target, settings, paths=paths, name=f"verify {candidate.main.name}", on_message=progress.message
        ) as evaluator,
    ):
        written = certify(
            evaluator,
            paths,
            task,
            candidate,
            precision,
            progress,
            target=certificate,
            accept_uncalibrated=accept_uncalibrated,
        )
    found = written.certificate
    if json:
        words = {"correct": found.correct, "speed_repeated": found.speed_repeated}
        print_document({"file": file, **words, **document(found), "certificate": str(written.path)})
    else:
        cards.show(cards.console(), certificate_card.card(found, file, str(written.path)))
    if (
        found.checks[0].outcome is CheckStatus.UNAVAILABLE
    ):  # the evaluation itself failed, through no fault of the kernel
        return 2
    return 0 if found.verified else 1


@dataclass(frozen=True)
class WrittenCertificate:
    """A certificate and its file."""

    certificate: Certificate
    path: Path


def certify(
    evaluator: Engine,
    paths: Paths,
    task: str,
    candidate: Candidate,
    precision: Precision | None,
    progress: VerifyProgress,
    *,
    first: Evaluation | None = None,
    target: str = "",
    accept_uncalibrated: bool = False,
) -> WrittenCertificate:
    """Verify one candidate and write its certificate."""
    verifier = Verifier(evaluator, paths=paths, accept_uncalibrated=accept_uncalibrated, on_event=progress.event)
    certificate = verifier.verify(task, candidate, precision, first=first)
    path = Path(target) if target else default_path(paths.cache, certificate)
    write_certificate(certificate, path)
    return WrittenCertificate(certificate, path)


class VerifyProgress:
    """Prints a line for each check that has ended; on a terminal also the check that is running."""

    def __init__(self, console: Console, spinner: Status | None = None) -> None:
        self._console = console
        self._spinner = spinner
        self._reasons: set[str] = set()  # printed already for this file: a reason is not repeated

    def event(self, event: VerificationEvent) -> None:
        """Show that a check has begun or ended."""
        name = certificate_card.check_name(event.name)
        if event.outcome is None:
            if event.name == EVALUATION:
                self._reasons.clear()  # the first check of the next file
            if self._spinner is not None:
                self._spinner.update(f"verifying: {name}")
            return
        line = Text.assemble(certificate_card.check_mark(event.outcome), " ", f"{name:<18}")
        if event.outcome.detail:
            line.append(certificate_card.check_text_once(event.outcome, self._reasons), "dim")
        self._reasons.add(event.outcome.detail)
        cards.say(self._console, line)

    def message(self, text: str) -> None:
        """Print a line of the evaluator."""
        cards.say(self._console, text, "dim")


@contextmanager
def verify_progress(console: Console) -> Iterator[VerifyProgress]:
    """Shows the checks of a verification while it runs."""
    if not console.is_terminal:
        yield VerifyProgress(console)
        return
    with console.status("verifying") as spinner:
        yield VerifyProgress(console, spinner)
