"""`warpsmith bench show FOLDER` and `bench compare A B`: results in the terminal, and as Markdown, CSV, JSON, LaTeX."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from warpsmith.cli import render
from warpsmith.cli.benchtables import terminal_tables
from warpsmith.cli.lines import Sentence
from warpsmith.core.errors import UsageError
from warpsmith.run.bench import formats
from warpsmith.run.bench.comparing import compare as compared
from warpsmith.run.bench.folding import results_of
from warpsmith.run.bench.results import Bench, CellStatus, Speedup, dump_results
from warpsmith.run.bench.statistics import Estimate, duels, summaries, unverified_cells
from warpsmith.run.bench.tables import PARTS, Table, part, tables

FORMATS = ("table", "markdown", "csv", "json", "latex")
_FOR_PEOPLE = 12  # rows of cells that do not count, in a terminal


@dataclass(frozen=True)
class ShowRequest:
    """What `bench show` is to show."""

    bench: str
    format: str = "table"
    part: str = ""  # one table; "" for all, of a CSV for the cells
    unverified: bool = False  # count winners that nobody has looked at


@dataclass(frozen=True)
class CompareRequest:
    """What `bench compare` is to compare."""

    a: str
    b: str
    format: str = "table"
    unverified: bool = False


def show(request: ShowRequest) -> int:
    """Print the results of a bench."""
    _check_format(request.format)
    if request.part and request.part not in PARTS:
        raise UsageError(f"there is no part {request.part!r}; the parts are {', '.join(PARTS)}.")
    bench = results_of(request.bench)
    if request.format == "json":
        sys.stdout.write(document(bench, unverified=request.unverified) + "\n")
        return 0
    if request.part or request.format == "csv":
        chosen: Sequence[Table] = (part(bench, request.part or "cells", unverified=request.unverified),)
    else:
        chosen = tables(bench, unverified=request.unverified)
    if request.format == "table":
        console = render.console()
        if not request.part:
            print_head(console, bench)
        print_tables(console, chosen, whole=bool(request.part))
        if not request.part:
            print_notes(console, bench, unverified=request.unverified, folder=request.bench)
        return 0
    sys.stdout.write(_written(chosen, request.format))
    return 0


def compare(request: CompareRequest) -> int:
    """Print two result sets side by side."""
    _check_format(request.format)
    a, b = results_of(request.a), results_of(request.b)
    found = compared(a, b, unverified=request.unverified)
    if not any(table.rows for table in found.tables):
        raise UsageError(
            f"{request.a} and {request.b} have no finished task in common, so there is nothing to compare."
        )
    if request.format == "json":
        methods, tasks = found.tables
        body = {
            "a": request.a,
            "b": request.b,
            "differences": found.differences,
            **{table.key: _records(table) for table in (methods, tasks)},
        }
        sys.stdout.write(json.dumps(body, ensure_ascii=False, allow_nan=False) + "\n")
        return 0
    if request.format == "csv":
        sys.stdout.write(formats.as_csv(found.tables[1]))
        return 0
    if request.format != "table":
        sys.stdout.write(_written(found.tables, request.format))
        return 0
    console = render.console()
    for letter, name, bench in (("A", request.a, a), ("B", request.b, b)):
        render.say(console, Text.assemble((letter, "bold"), f"  {name}  {bench.name}, {bench.date[:10]}"))
    for sentence in found.differences:
        render.say(console, f"   {sentence}", "yellow")
    print_tables(console, found.tables, whole=True)
    return 0


def document(bench: Bench, *, unverified: bool = False) -> str:
    """All figures as one JSON object: the results, and what the statistics make of them."""
    body = {
        "bench": json.loads(dump_results(bench)),
        "summaries": [asdict(each) for each in summaries(bench, unverified=unverified)],
        "duels": [asdict(each) for each in duels(bench, unverified=unverified)],
        "unverified": [asdict(cell) for cell in unverified_cells(bench)],
    }
    return json.dumps(body, ensure_ascii=False, allow_nan=False)


def print_head(console: Console, bench: Bench) -> None:
    """Which bench, where and with what."""
    done, total = bench.count(CellStatus.DONE), len(bench.cells)
    render.say(console, Text.assemble((bench.name, "bold"), f"  {bench.date[:10]}  {bench.id}"))
    matrix = (
        f"{_count(len(bench.methods), 'method')} × {_count(len(bench.proposers), 'proposer')} × "
        f"{_count(len(bench.tasks), 'task')} × {_count(bench.repeats, 'repeat')}, "
        f"{_count(bench.budget.trials, 'trial')} each: {done} of {total} cells done"
    )
    render.say(console, matrix)
    versions = [f"warpsmith {bench.versions.warpsmith}"]
    versions += [f"torch {bench.versions.torch}"] if bench.versions.torch else []
    render.say(console, ", ".join([*bench.devices, *versions]), "dim")


def print_notes(console: Console, bench: Bench, *, unverified: bool, folder: str = "") -> None:
    """What a reader must not overlook."""
    apart = [cell for cell in unverified_cells(bench) if cell.best is not None and cell.best.verified is None]
    if unverified and apart:
        render.say(console, f"\n{_count(len(apart), 'winner')} counted though nobody verified them.", "bold yellow")
    elif apart:
        said = f"\n{_count(len(apart), 'winner')} not verified and so not counted; --unverified counts them."
        render.say(console, said, "yellow")
    refuted = sum(cell.best is not None and cell.best.verified is False for cell in unverified_cells(bench))
    if refuted:
        render.say(console, f"\n{_count(refuted, 'winner')} failed verification: --part unverified says why.", "yellow")
    open_cells = bench.count(CellStatus.UNFINISHED)
    if open_cells and folder and Path(folder).is_dir():  # what was published cannot be gone on with
        said = f"\n{_count(open_cells, 'cell')} not finished; go on with: warpsmith bench resume {folder}"
        render.say(console, said, "yellow", whole=True)


def print_tables(console: Console, chosen: Sequence[Table], *, whole: bool = False) -> None:
    """Tables for a terminal of any width."""
    for table in chosen:
        console.print()
        console.print(Text(table.title, "bold"))
        cut = not whole and table.key in ("unverified", "empty", "failed") and len(table.rows) > _FOR_PEOPLE
        for made in terminal_tables(table, console.width, _FOR_PEOPLE if cut else len(table.rows)):
            console.print(made)
        if cut:
            render.say(console, f"and {len(table.rows) - _FOR_PEOPLE} more: --part {table.key} shows all", "dim")
        if table.note:
            render.show(console, Sentence(Text(table.note, "dim")))  # in a file, too, no wider than its table


def _written(chosen: Sequence[Table], form: str) -> str:
    if form == "csv":
        return formats.as_csv(chosen[0])
    return formats.markdown(chosen) if form == "markdown" else formats.latex(chosen)


def _records(table: Table) -> list[dict[str, object]]:
    """Rows of a table with names, figures in full."""
    return [
        {
            column.name: asdict(value) if isinstance(value, Estimate | Speedup) else value
            for column, value in zip(table.columns, row, strict=True)
        }
        for row in table.rows
    ]


def _check_format(name: str) -> None:
    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r}; use one of {', '.join(FORMATS)}.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def open_path(folder: Path) -> str:
    """A folder as a user would write it."""
    try:
        return str(folder.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(folder)
