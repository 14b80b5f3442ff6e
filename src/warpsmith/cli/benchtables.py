"""Tables of a bench in a terminal of any width: nothing is cut off.

An interval goes below its figure. Where a table is too wide, columns move closer, then tables of tasks lose their
intervals (Markdown and CSV have them), and what is still too wide is broken into several, each with the first column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.table import Table as RichTable
from rich.text import Text

from warpsmith.run.bench import formats
from warpsmith.run.bench.tables import Column, Kind, Table, Value

_NAME = 22  # of a task or a method, before it is broken


def terminal_tables(table: Table, width: int, most: int) -> Iterator[RichTable]:
    """The first `most` rows of a table, in as many pieces as it takes."""
    places = range(len(table.columns))
    rows = table.rows[:most]
    for gap, intervals in ((2, True), (1, True), (2, table.key != "tasks"), (1, table.key != "tasks")):
        if _total(table, rows, places, gap, intervals) <= width:
            yield _made(table, rows, places, gap, width, intervals=intervals)
            return
    for piece in _pieces(table, rows, width):
        yield _made(table, rows, piece, 2, width, intervals=True)


def _pieces(table: Table, rows: Sequence[Sequence[Value]], width: int) -> Iterator[tuple[int, ...]]:
    """Columns that fit beside the first."""
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
    bold = formats.standing_out(table)
    made = RichTable(box=None, padding=(0, gap, 0, 0), header_style="dim", pad_edge=False)
    whole = sum(max(len(table.columns[place].name), _widest(table, rows, place, intervals)) for place in places)
    roomy = whole + gap * (len(places) - 1) <= width
    for place in places:
        column = table.columns[place]
        name = column.name if roomy or column.kind is Kind.TEXT else "\n".join(_words(column))
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
    """What columns take at least, headings broken into words."""
    least = (
        min(_NAME, widest) if table.columns[place].kind is Kind.TEXT else widest
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
    """A heading in the pieces it may be broken into: between words, and behind hyphens."""
    return re.findall(r"[^\s-]+-?", column.name) or [column.name]
