"""Lists of things whose names are to be copied: names stay whole, other columns go where a terminal is too narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from warpsmith.cli.lines import say

_GAP = 2  # between columns


def print_columns(
    console: Console,
    rows: Sequence[Mapping[str, str]],
    *,
    going: Sequence[str] = (),
    folding: str = "",
    right: Sequence[str] = (),
) -> None:
    """A table of rows, all with the same columns.

    `going`: columns that are left out where there is no room, in that order; `folding`: the one that is broken between
    words before that; `right`: those that are set to the right.
    """
    names, left_out = list(rows[0]), []
    for name in going:
        if console.is_terminal and name in names and _width(rows, names, folding) > console.width:
            names.remove(name)
            left_out.append(name)
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
    """Columns of a terminal that it takes at least."""
    return sum(_least(rows, name, folding) for name in names) + _GAP * (len(names) - 1)


def _least(rows: Sequence[Mapping[str, str]], name: str, folding: str) -> int:
    texts = [name, *(row[name] for row in rows)]
    if name == folding:
        texts = [word for text in texts for word in text.split()]
    return max(map(cell_len, texts))
