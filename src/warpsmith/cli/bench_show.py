"""`warpsmith bench show BENCH` and `warpsmith bench compare A B`: tables in the terminal, Markdown, CSV, JSON, LaTeX.

A terminal of any width shows a whole table. If the table is too wide, columns move closer, then tables of tasks lose
their intervals (Markdown and CSV have them), then the table is split into several, each with the first column.
"""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.terminal import Sentence, write
from warpsmith.experiments import formats
from warpsmith.experiments.collect import results_of
from warpsmith.experiments.compare import compare
from warpsmith.experiments.results import BenchResults, CellStatus, MeasuredSpeedup, dump_results
from warpsmith.experiments.statistics import Estimate, compare_methods, summaries, unverified_cells
from warpsmith.experiments.tables import Column, ColumnKind, Table, Value, tables
from warpsmith.experiments.tables import table_named as table_part
from warpsmith.model.errors import UsageError

_NAME = 22  # width up to which the name of a task or a method is not broken
_MOST_ROWS = 12  # of a table of cells that do not count, in a terminal


class TableFormat(StrEnum):
    """How tables are written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    LATEX = "latex"


class TablePart(StrEnum):
    """Which table."""

    SPEED = "speed"
    BASELINES = "baselines"
    SEARCH = "search"
    RULES = "rules"
    TOKENS = "tokens"
    FAST = "fast"
    FAMILIES = "families"
    EPOCHS = "epochs"
    TASKS = "tasks"
    PRODUCTS = "products"
    PAIRS = "pairs"
    REFUSED = "refused"
    UNVERIFIED = "unverified"
    EMPTY = "empty"
    FAILED = "failed"
    DIFFERENCES = "differences"
    CELLS = "cells"


BenchArgument = Annotated[str, typer.Argument(metavar="BENCH", help="A bench's folder, or a results.json.")]
FormatOption = Annotated[TableFormat, typer.Option("--format", help="How to write it.")]
Unverified = Annotated[bool, typer.Option("--unverified", help="Count best kernels that were not verified, too.")]


def bench_show(
    bench: BenchArgument,
    format: FormatOption = TableFormat.TABLE,
    part: Annotated[
        TablePart | None, typer.Option(help="Only this table; CSV has one table, cells unless another is named.")
    ] = None,
    unverified: Unverified = False,
) -> int:
    """Show how fast the best kernels of each method are, how they were found, and which method wins on which task."""
    results = results_of(bench)
    if format is TableFormat.JSON:
        print_document(document(results, unverified=unverified))
        return 0
    if part or format is TableFormat.CSV:
        chosen: Sequence[Table] = (table_part(results, part or TablePart.CELLS, unverified=unverified),)
    else:
        chosen = tables(results, unverified=unverified)
    if format is not TableFormat.TABLE:
        write(_written(chosen, format))
        return 0
    console = cards.console()
    if not part:
        print_head(console, results)
    print_tables(console, chosen, whole=bool(part))
    if not part:
        print_notes(console, results, unverified=unverified, folder=bench)
    return 0


def bench_compare(
    a: BenchArgument, b: BenchArgument, format: FormatOption = TableFormat.TABLE, unverified: Unverified = False
) -> int:
    """Compare B with A: the methods that both have, on the tasks that both have done."""
    benches = {a: results_of(a), b: results_of(b)}
    found = compare(benches[a], benches[b], unverified=unverified)
    methods, tasks = found.tables
    if not methods.rows and not tasks.rows:
        raise UsageError(f"{a} and {b} have no finished task in common, so there is nothing to compare.")
    if format is TableFormat.JSON:
        records = {table.key: _records(table) for table in (methods, tasks)}
        print_document({"a": a, "b": b, "differences": found.differences, **records})
    elif format is TableFormat.CSV:
        write(formats.as_csv(tasks))
    elif format is not TableFormat.TABLE:
        write(_written(found.tables, format))
    else:
        console = cards.console()
        for letter, name in (("A", a), ("B", b)):
            bench = benches[name]
            cards.say(console, Text.assemble((letter, "bold"), f"  {name}  {bench.name}, {bench.date[:10]}"))
        for sentence in found.differences:
            cards.say(console, f"   {sentence}", "yellow")
        print_tables(console, found.tables, whole=True)
    return 0


def terminal_tables(table: Table, width: int, most: int) -> Iterator[RichTable]:
    """The first `most` rows of a table, split by columns into tables that fit the width."""
    places = range(len(table.columns))
    rows = table.rows[:most]
    for gap, intervals in ((2, True), (1, True), (2, table.key != "tasks"), (1, table.key != "tasks")):
        if _total(table, rows, places, gap, intervals) <= width:
            yield _made(table, rows, places, gap, width, intervals=intervals)
            return
    for piece in _pieces(table, rows, width):
        yield _made(table, rows, piece, 2, width, intervals=True)


def _pieces(table: Table, rows: Sequence[Sequence[Value]], width: int) -> Iterator[tuple[int, ...]]:
    """The columns of each piece: the first column, and as many others as fit."""
    piece: tuple[int, ...] = (0,)
    for place in range(1, len(table.columns)):
        if len(piece) > 1 and _total(table, rows, (*piece, place), 2, True) > width:
            yield piece
            piece = (0,)
        piece = (*piece, place)
    yield piece


def _made(
    table: Table, rows: Sequence[Sequence[Value]], places: Sequence[int], gap: int, width: int, *, intervals: bool
) -> RichTable:
    bold = formats.highlighted(table)
    made = RichTable(box=None, padding=(0, gap, 0, 0), header_style="dim", pad_edge=False)
    whole = sum(max(len(table.columns[place].name), _widest(table, rows, place, intervals)) for place in places)
    roomy = whole + gap * (len(places) - 1) <= width
    for place in places:
        column = table.columns[place]
        name = column.name if roomy or column.kind is ColumnKind.TEXT else "\n".join(_words(column))
        right = formats.is_number(column)
        least = min(_NAME, _widest(table, rows, place, intervals))
        made.add_column(name, justify="right" if right else "left", overflow="fold", min_width=least)
    for row, values in enumerate(rows):
        cells = []
        for place in places:
            value, kind = values[place], table.columns[place].kind
            text = Text(formats.figure(value, kind), "bold" if (row, place) in bold else "")
            below = formats.bounds(value, kind) if intervals else ""
            cells.append(Text.assemble(text, (f"\n{below}", "dim")) if below else text)
        made.add_row(*cells)
    return made


def _total(table: Table, rows: Sequence[Sequence[Value]], places: Sequence[int], gap: int, intervals: bool) -> int:
    """The least width of these columns, with headings broken into words."""
    least = (
        min(_NAME, widest) if table.columns[place].kind is ColumnKind.TEXT else widest
        for place in places
        if (widest := max(_widest(table, rows, place, intervals), *map(len, _words(table.columns[place]))))
    )
    return sum(least) + gap * (len(places) - 1)


def _widest(table: Table, rows: Sequence[Sequence[Value]], place: int, intervals: bool) -> int:
    kind = table.columns[place].kind
    texts = [formats.figure(row[place], kind) for row in rows]
    texts += [formats.bounds(row[place], kind) for row in rows] if intervals else []
    return max((len(text) for text in texts), default=0)


def _words(column: Column) -> list[str]:
    """The pieces of a heading: it may be broken between words and after hyphens."""
    return re.findall(r"[^\s-]+-?", column.name) or [column.name]


def document(bench: BenchResults, *, unverified: bool = False) -> dict[str, object]:
    """`bench run --json` and `bench show --format json`: the results and their statistics."""
    return {
        "bench": json_module.loads(dump_results(bench)),
        "summaries": [asdict(each) for each in summaries(bench, unverified=unverified)],
        "duels": [asdict(each) for each in compare_methods(bench, unverified=unverified)],
        "unverified": [asdict(cell) for cell in unverified_cells(bench)],
    }


def print_head(console: Console, bench: BenchResults) -> None:
    """Print which bench it is, on which devices and with which versions."""
    done, total = bench.count(CellStatus.DONE), len(bench.cells)
    cards.say(console, Text.assemble((bench.name, "bold"), f"  {bench.date[:10]}  {bench.id}"))
    matrix = (
        f"{_count(len(bench.methods), 'method')} × {_count(len(bench.proposers), 'proposer')} × "
        f"{_count(len(bench.tasks), 'task')} × {_count(bench.repeats, 'repeat')}, "
        f"{_count(bench.budget.trials, 'trial')} each: {done} of {total} cells done"
    )
    cards.say(console, matrix)
    versions = [f"warpsmith {bench.versions.warpsmith}"]
    versions += [f"torch {bench.versions.torch}"] if bench.versions.torch else []
    cards.say(console, ", ".join([*bench.devices, *versions]), "dim")


def print_notes(console: Console, bench: BenchResults, *, unverified: bool, folder: str = "") -> None:
    """Print what a reader must not overlook: best kernels that do not count, cells that are not finished."""
    apart = [cell for cell in unverified_cells(bench) if cell.best is not None and cell.best.verified is None]
    if unverified and apart:
        cards.say(console, f"\n{_count(len(apart), 'best kernel')} counted that were not verified.", "bold yellow")
    elif apart:
        said = f"\n{_count(len(apart), 'best kernel')} not verified and so not counted; --unverified counts them."
        cards.say(console, said, "yellow")
    refuted = sum(cell.best is not None and cell.best.verified is False for cell in unverified_cells(bench))
    if refuted:
        cards.say(
            console, f"\n{_count(refuted, 'best kernel')} failed verification: --part unverified says why.", "yellow"
        )
    open_cells = bench.count(CellStatus.UNFINISHED)
    if open_cells and folder and Path(folder).is_dir():  # published results cannot be resumed
        said = f"\n{_count(open_cells, 'cell')} not finished; continue with: warpsmith bench resume {folder}"
        cards.say(console, said, "yellow", whole=True)


def print_tables(console: Console, chosen: Sequence[Table], *, whole: bool = False) -> None:
    """Print tables at the width of the terminal."""
    for table in chosen:
        console.print()
        console.print(Text(table.title, "bold"))
        cut = not whole and table.key in ("unverified", "empty", "failed") and len(table.rows) > _MOST_ROWS
        for made in terminal_tables(table, console.width, _MOST_ROWS if cut else len(table.rows)):
            console.print(made)
        if cut:
            cards.say(console, f"and {len(table.rows) - _MOST_ROWS} more: --part {table.key} shows all", "dim")
        if table.note:
            cards.show(console, Sentence(Text(table.note, "dim")))


def _written(chosen: Sequence[Table], form: TableFormat) -> str:
    if form is TableFormat.CSV:
        return formats.as_csv(chosen[0])
    return formats.markdown(chosen) if form is TableFormat.MARKDOWN else formats.latex(chosen)


def _records(table: Table) -> list[dict[str, object]]:
    """The rows of a table as objects, with all digits."""
    return [
        {
            column.name: asdict(value) if isinstance(value, Estimate | MeasuredSpeedup) else value
            for column, value in zip(table.columns, row, strict=True)
        }
        for row in table.rows
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def relative_path(folder: Path) -> str:
    """A folder relative to the current one, if it is below it."""
    try:
        return str(folder.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(folder)
