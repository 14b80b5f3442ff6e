"""`warpsmith tune TASK FILE`: find good values for a kernel's tunables, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from warpsmith.backends.source import read_candidate
from warpsmith.cli import cards
from warpsmith.cli.checks import choose_device, exit_status, find_task, settings_with_timing, writable_paths
from warpsmith.cli.json_documents import print_document, tune_document
from warpsmith.cli.options import AsJson, DeviceOfFiles, EngineOption, PrecisionOption, TaskArgument, TimeBudget
from warpsmith.engine.engine import LOCAL, Engine, open_engine
from warpsmith.model import numbers
from warpsmith.model.errors import UsageError
from warpsmith.model.settings import Settings
from warpsmith.search.tuning import (
    MeasuredPoint,
    TuningResult,
    TuningRound,
    TuningSpace,
    source_with_values,
    tuning_evaluator,
)
from warpsmith.search.tuning import tune as search_values

_SHOWN = 8  # points in the table
_STAGES = {
    TuningRound.SCREEN: "screening",
    TuningRound.FULL: "measuring the best",
    TuningRound.FINAL: "measuring once more",
}


def tune(
    task: TaskArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A kernel with lines such as `// tune: BLOCK = 128, 256, 512`.")
    ],
    budget: Annotated[int, typer.Option(min=1, metavar="N", help="Points to try at most.")] = 64,
    device: DeviceOfFiles = "auto",
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    time_budget: TimeBudget = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random choice of points.")] = 0,
    out: Annotated[str, typer.Option(metavar="FILE", help="Write the source with the best values first.")] = "",
    json: AsJson = False,
) -> int:
    """Search the values of a kernel's tunables, without a model; bad points are discarded early.

    Exit status: 0 a valid point was found, 1 none was, 2 nothing could be judged.
    """
    spec = find_task(task)
    candidate = read_candidate(Path(file))
    points = min(budget, TuningSpace.of(candidate).total)
    target = choose_device(device, (candidate,), engine or LOCAL)
    paths = writable_paths()
    console = cards.console(stderr=True)
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
        row = bar.add_task(_STAGES[TuningRound.SCREEN], total=points)

        def on_result(measured: MeasuredPoint) -> None:
            bar.update(row, completed=min(measured.number, points), description=_STAGES[measured.round])

        def opened(settings: Settings) -> Engine:
            return open_engine(engine or LOCAL, target, settings, paths=paths, name=f"tune {candidate.main.name}")

        with tuning_evaluator(opened, spec, precision) as judge:
            tuned = search_values(judge, candidate, budget, seed, on_result, settings_with_timing(time_budget))
    written = _write(out, tuned)
    if json:
        print_document(tune_document(spec, file, written, tuned))
    else:
        _show(tuned, written, f"warpsmith tune {task} {file} --out tuned{Path(file).suffix}")
    return status_of(tuned)


def status_of(tuned: TuningResult) -> int:
    """The exit status: 0 a point is valid, 1 none is, 2 none is and at least one could not be judged."""
    return 0 if tuned.best is not None else exit_status([each.evaluation.status for each in tuned.measured]) or 1


def _write(out: str, tuned: TuningResult) -> str:
    """Write the source with the best values first; returns the file, or "" if nothing was written."""
    if not out or tuned.best is None:
        return ""
    try:
        Path(out).write_text(source_with_values(tuned.best), encoding="utf-8")
    except OSError as refused:
        raise UsageError(f"{out} cannot be written ({refused.strerror}); give another --out.") from None
    return out


def _show(tuned: TuningResult, written: str, command: str) -> None:
    console = cards.console()
    counts = f"{tuned.tried} of {tuned.total} points tried, {tuned.discarded} discarded early"
    if tuned.best is None or tuned.evaluation is None:
        first = next((m.evaluation for m in tuned.measured if not m.evaluation.ok), None)
        console.print(Text(f"No point is valid ({counts}).", "bold red"))
        if first is not None:
            cards.say(console, f"The first one: {first.status.value.replace('_', ' ')}: {first.reason}")
        return
    values = ", ".join(f"{name}={value}" for name, value in tuned.best.defines) or "the values of the file"
    cards.say(console, f"Best: {values}  ({counts})", "bold")
    console.print(_table(tuned))
    if tuned.evaluation is tuned.before:
        cards.say(console, "No point is faster than the file as it is.")
    elif tuned.gain is not None:
        sure = "" if tuned.improved else "; the intervals overlap, so the difference may be noise"
        cards.say(console, f"{numbers.ratio(tuned.gain)}x the speed of the file as it is{sure}.")
    if written:
        cards.say(console, f"Written to {written}, the best values first.")
    elif tuned.evaluation is not tuned.before:
        cards.say(console, f"Write it: {command}", whole=True)


def _table(tuned: TuningResult) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("values", "speedup", "interval", "measured"):
        table.add_column(name)
    latest = {m.candidate.id: m for m in tuned.measured}
    valid = [m for m in latest.values() if m.evaluation.ok]
    rank = {TuningRound.FINAL: 0, TuningRound.FULL: 1, TuningRound.SCREEN: 2}
    valid.sort(key=lambda m: (rank[m.round], -(m.evaluation.speedup() or 0.0)))
    words = {TuningRound.FINAL: "three times", TuningRound.FULL: "twice", TuningRound.SCREEN: "screened"}
    for each in valid[:_SHOWN]:
        speedup, interval = each.evaluation.speedup(), each.evaluation.interval()
        if speedup is None or interval is None:
            continue
        table.add_row(
            ", ".join(f"{name}={value}" for name, value in each.candidate.defines) or "as in the file",
            f"{numbers.ratio(speedup)}x",
            f"[{numbers.ratio(interval.low)}, {numbers.ratio(interval.high)}]",
            words[each.round],
        )
    return table
