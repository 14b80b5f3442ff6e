"""`warpsmith verify TASK FILE`: try a kernel as hard as this machine can, and write down what came of it.

Verifying itself is `evaluate.verify`'s part; this module asks for it and shows it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.text import Text

from warpsmith.backends.source import read_candidate
from warpsmith.cli import certcard, render
from warpsmith.cli.evaluate import check_cache, check_task_file, choose_device, parse_baselines
from warpsmith.core.candidate import Candidate
from warpsmith.core.certificate import EVALUATION, Certificate, Outcome
from warpsmith.core.config import Paths, Settings
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.verification.certificate import default_path, document, write_certificate
from warpsmith.evaluate.verification.verify import Event, Verifier


@dataclass(frozen=True)
class Request:
    """What the command line asked for, as written."""

    task: str
    file: str
    device: str = "auto"
    entry: str = ""
    baselines: str = "eager"
    precision: Precision | None = None
    certificate: str = ""  # where to put it; "" for the cache folder
    as_json: bool = False


@dataclass(frozen=True)
class Certified:
    """A certificate and where it is kept."""

    certificate: Certificate
    path: Path


def run(request: Request) -> int:
    """Verify, show, and give the exit status: 0 verified, 1 not."""
    check_task_file(request.task)
    candidate = read_candidate(Path(request.file), entry=request.entry)
    device = choose_device(request.device, (candidate,))
    settings = Settings(baselines=parse_baselines(request.baselines))
    paths = Paths.from_environment()
    check_cache(paths.cache)
    errors = render.console(stderr=True)
    with progress(errors) as show:
        with Evaluator(device, settings, paths=paths, on_message=show.message) as evaluator:
            certified = certify(
                evaluator, paths, request.task, candidate, request.precision, show, target=request.certificate
            )
    certificate, path = certified.certificate, certified.path
    if request.as_json:
        kept = {"file": request.file, **document(certificate), "certificate": str(path)}
        sys.stdout.write(json.dumps(kept, allow_nan=False) + "\n")
    else:
        render.show(render.console(), certcard.card(certificate, request.file, str(path)))
    if certificate.checks[0].outcome is Outcome.UNAVAILABLE:  # it could not even be evaluated, by our own fault
        return 2
    return 0 if certificate.verified else 1


def certify(
    evaluator: Evaluator,
    paths: Paths,
    task: str,
    candidate: Candidate,
    precision: Precision | None,
    show: Show,
    *,
    first: Evaluation | None = None,
    target: str = "",
) -> Certified:
    """Verify one candidate and keep its certificate."""
    verifier = Verifier(evaluator, paths=paths, on_event=show.event)
    certificate = verifier.verify(task, candidate, precision, first=first)
    path = Path(target) if target else default_path(paths.cache, certificate)
    write_certificate(certificate, path)
    return Certified(certificate, path)


class Show:
    """A line for each check that has ended; on a terminal, what is being done."""

    def __init__(self, console: Console, spinner: Status | None = None) -> None:
        self._console = console
        self._spinner = spinner
        self._reasons: set[str] = set()  # those said already: nobody reads the same one eight times

    def event(self, event: Event) -> None:
        """A check has begun or ended."""
        if event.name == EVALUATION and event.outcome is None:
            self._reasons.clear()  # another file begins
        if event.outcome is None:
            if self._spinner is not None:
                self._spinner.update(f"verifying: {certcard.word(event.name)}")
            return
        line = Text.assemble(certcard.mark(event.outcome), " ", f"{certcard.word(event.name):<18}")
        line.append(certcard.told(event.outcome, self._reasons) if event.outcome.detail else "", "dim")
        self._reasons.add(event.outcome.detail)
        render.say(self._console, line)

    def message(self, text: str) -> None:
        """Something worth a line."""
        render.say(self._console, text, "dim")


@contextmanager
def progress(console: Console) -> Iterator[Show]:
    """Where checks are shown as they end."""
    if not console.is_terminal:
        yield Show(console)
        return
    with console.status("verifying") as spinner:
        yield Show(console, spinner)
