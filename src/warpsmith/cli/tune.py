"""`warpsmith tune TASK FILE`: find good values for what a kernel declares tunable, with no model."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from warpsmith.backends.source import read_candidate
from warpsmith.cli import render, searchjson
from warpsmith.cli.evaluate import check_cache, check_task_file, choose_device, exit_status, timed_for
from warpsmith.core.config import Paths
from warpsmith.core.errors import UsageError
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.run.tuning import Measured, Round, Space, Tuned, evaluating, settled, tune

_SHOWN = 8  # points in the table


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    task: str
    file: str
    budget: int = 64
    device: str = "auto"
    precision: Precision | None = None
    timing_budget_s: float | None = None
    seed: int = 0
    out: str = ""
    as_json: bool = False


def run(request: Request) -> int:
    """Tune, show, and give the exit status."""
    check_task_file(request.task)
    candidate = read_candidate(Path(request.file))
    space = Space.of(candidate)
    device = choose_device(request.device, (candidate,))
    paths = Paths.from_environment()
    check_cache(paths.cache)
    console = render.console(stderr=True)
    points = min(request.budget, space.total)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
    ) as bar:
        row = bar.add_task("screening", total=points)

        def on_result(measured: Measured) -> None:
            words = {Round.SCREEN: "screening", Round.FULL: "measuring the best", Round.FINAL: "measuring once more"}
            bar.update(row, completed=min(measured.number, points), description=words[measured.round])

        with evaluating(
            lambda settings: Evaluator(device, settings, paths=paths), request.task, request.precision
        ) as judge:
            tuned = tune(judge, candidate, request.budget, request.seed, on_result, timed_for(request.timing_budget_s))
    written = _write(request, tuned)
    if request.as_json:
        sys.stdout.write(searchjson.dumps(searchjson.tune_document(request.task, request.file, written, tuned)) + "\n")
    else:
        _show(request, tuned, written)
    return status_of(tuned)


def status_of(tuned: Tuned) -> int:
    """The exit status: 0 a point is valid, 1 none is, 2 none is and not all could be judged."""
    return 0 if tuned.best is not None else exit_status([each.evaluation.status for each in tuned.measured]) or 1


def _write(request: Request, tuned: Tuned) -> str:
    """The source with the best values first, where asked; "" where it was not, or there is none."""
    if not request.out or tuned.best is None:
        return ""
    try:
        Path(request.out).write_text(settled(tuned.best), encoding="utf-8")
    except OSError as refused:
        raise UsageError(f"{request.out} cannot be written ({refused.strerror}); give another --out.") from None
    return request.out


def _show(request: Request, tuned: Tuned, written: str) -> None:
    console = render.console()
    counts = f"{tuned.tried} of {tuned.total} points tried, {tuned.discarded} discarded early"
    if tuned.best is None or tuned.evaluation is None:
        first = next((m.evaluation for m in tuned.measured if not m.evaluation.ok), None)
        console.print(Text(f"No point is valid ({counts}).", "bold red"))
        if first is not None:
            render.say(console, f"The first one: {first.status.value.replace('_', ' ')}: {first.reason}")
        return
    values = ", ".join(f"{name}={value}" for name, value in tuned.best.defines) or "the values it came with"
    render.say(console, f"Best: {values}  ({counts})", "bold")
    console.print(_table(tuned))
    if tuned.evaluation is tuned.before:
        render.say(console, "The kernel as it came is the best of what was tried.")
    elif tuned.gain is not None:
        sure = "" if tuned.improved else "; the intervals overlap, so that is not certain"
        render.say(console, f"{render.ratio(tuned.gain)}x the kernel as it came{sure}.")
    if written:
        render.say(console, f"Written to {written}, the best values first.")
    elif tuned.evaluation is not tuned.before:
        ending = Path(request.file).suffix
        render.say(console, f"Write it: warpsmith tune {request.task} {request.file} --out tuned{ending}", whole=True)


def _table(tuned: Tuned) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("values", "speedup", "interval", "measured"):
        table.add_column(name)
    latest = {m.candidate.id: m for m in tuned.measured}
    valid = [m for m in latest.values() if m.evaluation.ok]
    rank = {Round.FINAL: 0, Round.FULL: 1, Round.SCREEN: 2}
    valid.sort(key=lambda m: (rank[m.round], -(m.evaluation.speedup() or 0.0)))
    words = {Round.FINAL: "three times", Round.FULL: "twice", Round.SCREEN: "screened"}
    for each in valid[:_SHOWN]:
        speedup, interval = each.evaluation.speedup(), each.evaluation.interval()
        if speedup is None or interval is None:
            continue
        table.add_row(
            ", ".join(f"{name}={value}" for name, value in each.candidate.defines) or "as it came",
            f"{render.ratio(speedup)}x",
            f"[{render.ratio(interval.low)}, {render.ratio(interval.high)}]",
            words[each.round],
        )
    return table
