"""`warpsmith evaluate TASK FILE...`: judge kernel files and show the verdicts.

`warpsmith evaluate --calibrate TASK`: show whether a task's checks reject wrong results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from warpsmith.backends.source import read_candidate
from warpsmith.cli import cards, certificate_card, json_documents
from warpsmith.cli.checks import (
    choose_device,
    evaluation_settings,
    exit_status,
    find_task,
    writable_paths,
)
from warpsmith.cli.json_documents import calibrate_document, print_document
from warpsmith.cli.options import (
    Allow,
    Baseline,
    DeviceOfFiles,
    EngineOption,
    Entries,
    Entry,
    Fresh,
    JsonLines,
    PrecisionOption,
    Seeds,
    TaskArgument,
    TimeBudget,
    Timeout,
)
from warpsmith.cli.terminal import Sentence, indented, plain_table
from warpsmith.cli.verify import VerifyProgress, WrittenCertificate, certify
from warpsmith.engine.engine import LOCAL, Engine, open_engine
from warpsmith.evaluator.supervisor.evaluator import Progress as Event
from warpsmith.experiments.published import read_calls
from warpsmith.hardware.device import Device
from warpsmith.model import numbers
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Calibration, Impostor
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Paths, Settings
from warpsmith.model.task import Precision, Task


def evaluate(
    task: TaskArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="Kernels: .cpp for the CPU, .cu for an NVIDIA GPU, .py for Triton or ModelNew."
        ),
    ] = None,
    device: DeviceOfFiles = "auto",
    engine: EngineOption = None,
    entry: Entry = "",
    entries: Entries = "",
    baseline: Baseline = "eager",
    allow: Allow = "",
    precision: PrecisionOption = None,
    seeds: Seeds = None,
    timeout: Timeout = None,
    time_budget: TimeBudget = None,
    fresh: Fresh = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify every valid file afterwards, as `warpsmith verify` does.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Only show whether the task rejects wrong results; takes no FILE.")
    ] = False,
    json: JsonLines = False,
) -> int:
    """Judge kernel files: is each correct, how fast is it against PyTorch, how near to the roofline?

    Exit status: 0 all valid, 1 at least one is not (--calibrate: the task is not), 2 nothing could be judged.
    """
    if calibrate:
        return _calibrate(task, files or (), device, precision, fresh=fresh, as_json=json, engine=engine or LOCAL)
    if not files:
        raise UsageError("evaluate needs at least one kernel FILE after the task, or --calibrate and no FILE.")
    job = _Job(find_task(task), tuple(files), precision, *_read(files, entry, entries))
    target = choose_device(device, job.candidates, engine or LOCAL)
    settings = evaluation_settings(
        baseline=baseline, allow=allow, seeds=seeds, timeout=timeout, time_budget=time_budget
    )
    paths = writable_paths()
    return _evaluate(job, engine or LOCAL, target, settings, paths, fresh=fresh, verify=verify, as_json=json)


@dataclass(frozen=True)
class _Job:
    """The files to judge. Two files with the same program are judged once."""

    task: str
    files: tuple[str, ...]
    precision: Precision | None
    candidates: tuple[Candidate, ...]
    places: tuple[int, ...]  # for each file, the index of its program in `candidates`


def _read(files: Sequence[str], entry: str, entries: str) -> tuple[tuple[Candidate, ...], tuple[int, ...]]:
    paths = [Path(file) for file in files]
    calls = read_calls(Path(entries), tuple(dict.fromkeys(paths)), columns=()) if entries else {}
    read = [read_candidate(path, entry=calls[path].entry or entry if path in calls else entry) for path in paths]
    found = {candidate.id: candidate for candidate in read}
    order = list(found)
    return tuple(found.values()), tuple(order.index(candidate.id) for candidate in read)


def _evaluate(
    job: _Job,
    engine: str,
    device: Device,
    settings: Settings,
    paths: Paths,
    *,
    fresh: bool,
    verify: bool,
    as_json: bool,
) -> int:
    errors = cards.console(stderr=True)
    evaluations: dict[int, Evaluation] = {}
    certificates: dict[int, WrittenCertificate] = {}
    printed = 0
    with (
        _progress_bar(errors, len(job.candidates), Path(job.task).name) as bar,
        open_engine(
            engine,
            device,
            settings,
            paths=paths,
            name=f"evaluate {Path(job.task).name}",
            on_progress=bar.event,
            on_message=bar.message,
        ) as evaluator,
    ):
        for place, evaluation in evaluator.evaluate(job.task, job.candidates, job.precision, fresh=fresh):
            evaluations[place] = evaluation
            if as_json and not verify:  # with --verify a line also has the certificate
                printed = _print_ready(job, device, evaluations, {}, printed)
        if verify:
            certificates = _verify_valid(evaluator, paths, job, evaluations, errors)
    if as_json:
        _print_ready(job, device, evaluations, certificates, printed)
    else:
        _show(job, evaluations, certificates)
    status = exit_status([each.status for each in evaluations.values()])
    return status or int(any(not each.certificate.verified for each in certificates.values()))


def _verify_valid(
    evaluator: Engine, paths: Paths, job: _Job, evaluations: Mapping[int, Evaluation], console: Console
) -> dict[int, WrittenCertificate]:
    """Verify every valid candidate, the fastest first."""

    def speedup(place: int) -> float:
        evaluation = evaluations[place]
        return evaluation.speedup(json_documents.baseline_names(evaluation)[0]) or 0.0

    valid = sorted((place for place, each in evaluations.items() if each.ok), key=speedup, reverse=True)
    progress = VerifyProgress(console)
    found = {}
    for place in valid:
        candidate = job.candidates[place]
        if len(valid) > 1:
            progress.message(f"{candidate.main.name}:")
        found[place] = certify(evaluator, paths, job.task, candidate, job.precision, progress, first=evaluations[place])
    return found


def _print_ready(
    job: _Job,
    device: Device,
    evaluations: Mapping[int, Evaluation],
    certificates: Mapping[int, WrittenCertificate],
    printed: int,
) -> int:
    """Print the JSON lines that are complete, in the order of the files; returns how many are printed now."""
    while printed < len(job.places) and job.places[printed] in evaluations:
        place = job.places[printed]
        document = json_documents.evaluate_document(evaluations[place], file=job.files[printed], device=device.spec)
        if written := certificates.get(place):
            document |= {"verified": written.certificate.verified, "certificate": str(written.path)}
        json_documents.print_document(document)
        printed += 1
    return printed


def _show(job: _Job, evaluations: Mapping[int, Evaluation], certificates: Mapping[int, WrittenCertificate]) -> None:
    pairs = list(zip(job.files, job.places, strict=True))
    judged = [cards.JudgedFile(file, evaluations[place], fresh=True) for file, place in pairs]
    cards.show(cards.console(), cards.card(judged[0]) if len(judged) == 1 else cards.overview(judged))
    verified = [
        (file, certificates[place].certificate, str(certificates[place].path))
        for file, place in pairs
        if place in certificates
    ]
    if len(verified) == 1:
        file, certificate, path = verified[0]
        cards.show(cards.console(), "", certificate_card.card(certificate, file, path))
    elif verified:
        cards.show(cards.console(), "", certificate_card.overview(verified))


_STAGES = {"build": "building", "built": "building", "check": "checking", "replay": "recording", "time": "timing"}


class _ProgressBar:
    """Counts the candidates that are built and judged, and shows the counts on a terminal."""

    def __init__(self, console: Console, bar: Progress | None, total: int, task: str) -> None:
        self._console = console
        self._bar = bar
        self._total = total
        self._built = 0
        self._judged = 0
        self._row = bar.add_task(f"opening {task}", total=None) if bar else None

    def event(self, event: Event) -> None:
        """Count a candidate's next stage; called from several threads."""
        self._built += event.stage == "built"
        self._judged += event.stage == "judged"
        if self._bar is None or self._row is None:
            return
        doing = _STAGES.get(event.stage, "judging") if self._total == 1 else f"built {self._built}, judged"
        self._bar.update(self._row, description=doing, completed=self._judged, total=self._total)

    def message(self, text: str) -> None:
        """Print a line of the evaluator."""
        cards.say(self._console, text, "dim")


@contextlib.contextmanager
def _progress_bar(console: Console, total: int, task: str) -> Iterator[_ProgressBar]:
    """A progress bar on a terminal; elsewhere only messages."""
    if not console.is_terminal:
        yield _ProgressBar(console, None, total, task)
        return
    counts = [] if total == 1 else [BarColumn(bar_width=24), TextColumn("{task.completed}/" + str(total))]
    columns = [SpinnerColumn(), TextColumn("{task.description}"), *counts, TimeElapsedColumn()]
    # Standard output is left alone: lines of JSON go there while the bar is shown.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        yield _ProgressBar(console, bar, total, task)


def _calibrate(
    task: str,
    files: Sequence[str],
    device: str,
    precision: Precision | None,
    *,
    fresh: bool,
    as_json: bool,
    engine: str = LOCAL,
) -> int:
    """Calibrate a task and show the outcome. Exit status: 0 passed, 1 not calibrated."""
    if files:
        raise UsageError(
            f"--calibrate takes a task and no kernel: leave out {files[0]}, or leave out --calibrate, because "
            "every evaluation calibrates its task anyway."
        )
    file = find_task(task)
    paths = writable_paths()
    errors = cards.console(stderr=True)
    waiting = errors.status(f"calibrating {Path(file).name}") if errors.is_terminal else nullcontext()
    opened = open_engine(engine, device, paths=paths, on_message=lambda text: cards.say(errors, text, "dim"))
    with waiting, opened as evaluator:
        target = evaluator.device
        described, found = evaluator.calibrate(file, precision, fresh=fresh)
    if as_json:
        print_document(calibrate_document(described, found, file=file, device=target.spec))
    else:
        cards.show(cards.console(), calibration_card(described, found, file=file, device=target))
    return 0 if found.passed else 1


def calibration_card(task: Task, found: Calibration, *, file: str, device: Device) -> RenderableType:
    """The outcome for a person."""
    verdict = Text("✓ calibrated", "bold green") if found.passed else Text("✗ not calibrated", "bold red")
    title = Text.assemble(verdict, "  ", (file, "bold"), "  ", (f"{task.name}, {task.precision}", "dim"))
    parts: list[RenderableType] = [Sentence(title), Text()]
    if found.reason:
        parts += [indented(Text(f"{found.reason[:1].upper()}{found.reason[1:]}")), Text()]
    if found.impostors:
        parts += [indented(_impostor_table(found, outputs=len(task.outputs) > 1)), Text()]
    return Group(*parts, indented(_calibration_grid(found, device)))


def _impostor_table(found: Calibration, *, outputs: bool) -> Table:
    """A row per impostor, with a column of outputs if the task has several."""
    table = plain_table()
    table.add_column("", no_wrap=True)
    table.add_column("impostor", no_wrap=True)
    if outputs:
        table.add_column("in", overflow="fold")
    table.add_column("caught on", overflow="fold")
    table.add_column("error ÷ limit", justify="right", no_wrap=True)
    for impostor in found.impostors:
        named = (impostor.name, impostor.output) if outputs else (impostor.name,)
        table.add_row(*_impostor_row(impostor, named))
    return table


def _impostor_row(impostor: Impostor, named: tuple[str, ...]) -> list[RenderableType]:
    if impostor.passes:
        cells: list[RenderableType] = [Text("✗", "bold red"), *named, Text("nothing: it passes", "bold red"), ""]
    elif impostor.applies:
        share = "exact" if impostor.share is None else numbers.number(impostor.share, 2)
        cells = [Text("✓", "green"), *named, impostor.caught_by, share]
    else:
        cells = [Text("–", "dim"), *named, Text(impostor.detail, "dim"), ""]
    return cells


def _calibration_grid(found: Calibration, device: Device) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    if found.baseline_share is not None:
        share = (
            "exact" if found.baseline_share == 0 else f"within {numbers.percent(found.baseline_share)} of its limits"
        )
        grid.add_row("PyTorch itself", share)
    if found.reserve:
        grid.add_row("also checked on", f"{', '.join(found.reserve)} inputs, which this task needs")
    grid.add_row("device", device.label)
    grid.add_row("time", f"{numbers.number(found.seconds)} s" + (", from the cache" if found.cached else ""))
    return grid
