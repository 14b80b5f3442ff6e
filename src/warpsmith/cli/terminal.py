"""Printing for people: sentences that wrap between words, tables that fit the terminal, compiler messages.

On a terminal a sentence is broken between words; in a file it is one line. A path, a name or a command in backquotes
is never broken: the terminal shows it over several rows, and copying gives it back whole.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from warpsmith.model.text import printable

_WORD = re.compile(r"`[^`]*`\S*|\S+")


class Sentence:
    """A text that wraps between words; usable inside a group of other renderables."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line; a line of one long word may be wider than the terminal."""
        for line in self._text.split("\n", allow_blank=True):
            for part in line.divide(breaks(line.plain, options.max_width)):
                part.rstrip()
                part.no_wrap, part.overflow = True, "ignore"
                yield part


def breaks(line: str, width: int) -> list[int]:
    """Where new lines begin: at each word that would end beyond the width and is not the first of its line."""
    found: list[int] = []
    start, first = 0, True  # of the current line; whether it has no word yet
    for word in _WORD.finditer(line):
        if not first and cell_len(line[start : word.end()]) > width:
            start = word.start()
            found.append(start)
        first = False
    return found


def say(console: Console, line: Text | str, style: str = "", *, whole: bool = False) -> None:
    """Print a sentence; `whole` keeps it in one line on a terminal too, because it ends in a command to copy."""
    text = Text(line, style) if isinstance(line, str) else line
    if whole or not console.is_terminal:
        console.print(text, soft_wrap=True)
    else:
        show(console, Sentence(text))


def show(console: Console, *parts: RenderableType) -> None:
    """Print cards and other renderables below each other."""
    console.print(*parts, sep="\n", crop=False)


class PrintableConsole(Console):
    """A console that shows a sign for each character that would steer the terminal, whoever wrote the text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable; control sequences of rich itself stay."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment if text is segment.text else Segment(text, segment.style)


def console(*, stderr: bool = False) -> Console:
    """Standard output or standard error for people: as wide as the terminal, 80 columns without one."""
    return PrintableConsole(stderr=stderr, highlight=False, markup=False, emoji=False)


def write(text: str, *, exact: bool = False) -> None:
    """Write text to standard output, made printable; an `exact` text, such as a program, only on a terminal."""
    sys.stdout.write(text if exact and not sys.stdout.isatty() else printable(text))


def print_error(line: str) -> None:
    """Print an error on standard error."""
    say(console(stderr=True), line)


def indented(body: RenderableType) -> Padding:
    """The same, two columns to the right."""
    return Padding(body, (0, 0, 0, 2), expand=False)


def plain_table() -> Table:
    """A table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


_GAP = 2  # between columns


def print_columns(
    console: Console,
    rows: Sequence[Mapping[str, str]],
    *,
    optional: Sequence[str] = (),
    folding: str = "",
    right: Sequence[str] = (),
    shorter: Sequence[tuple[str, Sequence[Mapping[str, str]]]] = (),
) -> None:
    """Print a table; all rows have the same columns. Cells are kept whole, so that names can be copied.

    `optional`: columns to leave out on a narrow terminal, in that order; `folding`: the column that wraps between
    words before any column is left out; `right`: columns aligned to the right; `shorter`: the rows with shorter cells
    for a terminal that is too narrow without these columns, one form after the other, and what each leaves out.
    """
    names, left_out = list(rows[0]), []
    for name in optional:
        if console.is_terminal and name in names and _width(rows, names, folding) > console.width:
            names.remove(name)
            left_out.append(name)
    for what, form in shorter:
        if console.is_terminal and _width(rows, names, folding) > console.width:
            rows = form
            left_out.append(what)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for name in names:
        least = _least(rows, name, folding)
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name != folding,
            overflow="fold",
            min_width=least,
        )
    for row in rows:
        table.add_row(*(row[name] for name in names))
    narrow = console.width
    console.width = max(narrow, _width(rows, names, folding))
    console.print(table, crop=False)
    console.width = narrow
    if left_out:
        say(console, f"Not shown: {', '.join(left_out)} (a wider terminal or --json shows all).", "dim")


def _width(rows: Sequence[Mapping[str, str]], names: Sequence[str], folding: str) -> int:
    """The least width of a table with these columns."""
    return sum(_least(rows, name, folding) for name in names) + _GAP * (len(names) - 1)


def _least(rows: Sequence[Mapping[str, str]], name: str, folding: str) -> int:
    texts = [name, *(row[name] for row in rows)]
    if name == folding:
        texts = [word for text in texts for word in text.split()]
    return max(map(cell_len, texts))


_QUOTED = re.compile(r"\s*\d* \|")  # a line of source as g++ and clang quote it, or the marks below


class Reason:
    """The reason of a failure: sentences wrap, lines of source that a compiler quotes are cut, so its marks fit."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line."""
        for line in self._lines:
            if not _QUOTED.match(line) or len(line) <= options.max_width:
                yield Text(line)
            elif line.partition("|")[2][: options.max_width - line.index("|") - 1].strip():
                yield Text(line, no_wrap=True, overflow="ellipsis")  # a mark beyond the width is left out
