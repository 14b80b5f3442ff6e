"""Tables as Markdown, LaTeX and CSV, and the format of single figures, which the terminal shares.

For people, figures are rounded and have units. CSV has full figures, with intervals in separate columns.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence

from warpsmith.experiments.results import MeasuredSpeedup
from warpsmith.experiments.statistics import Estimate
from warpsmith.experiments.tables import Column, ColumnKind, Table, Value
from warpsmith.model import numbers
from warpsmith.model.evaluation import Interval

_NUMBERS = frozenset(ColumnKind) - {ColumnKind.TEXT}
_FORMULAS = ("=", "+", "-", "@")  # what the cells of a spreadsheet that are formulas begin with
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "–": "--",
    "…": r"\ldots{}",
    "✗": r"$\times$",
}


# --- figures ---


def is_number(column: Column) -> bool:
    """True if a column is aligned to the right."""
    return column.kind in _NUMBERS


def plain(value: Value) -> float | str | None:
    """A figure without its interval."""
    return value.value if isinstance(value, Estimate | MeasuredSpeedup) else value


def figure(value: Value, kind: ColumnKind) -> str:
    """A figure for people, without its interval."""
    bare = plain(value)
    if bare is None:
        return "–"
    if isinstance(bare, str):
        return bare
    if kind is ColumnKind.RATIO:
        return f"{_ratio(bare)}x"
    if kind is ColumnKind.SHARE:
        return f"{100 * bare:.0f} %" if bare >= 0.0995 or bare == 0 else f"{100 * bare:.1f} %"
    if kind is ColumnKind.SECONDS:
        return f"{bare:.1f} s" if bare < 100 else f"{bare / 60:.1f} min" if bare < 6000 else f"{bare / 3600:.1f} h"
    if kind is ColumnKind.USD:
        return numbers.dollars(bare)
    if kind is ColumnKind.COUNT:
        return f"{bare:,.0f}".replace(",", " ")
    return f"{bare:.0f}" if bare >= 1000 else f"{bare:.4g}"


def bounds(value: Value, kind: ColumnKind) -> str:
    """The interval of a figure for people; "" if it has none."""
    interval = value.interval if isinstance(value, Estimate | MeasuredSpeedup) else None
    if interval is None:
        return ""
    shown = (f"{100 * end:.0f}" if kind is ColumnKind.SHARE else _ratio(end) for end in (interval.low, interval.high))
    low, high = shown
    return f"[{low}, {high}]" if low != high else ""  # the rounded ends are equal


def highlighted(table: Table) -> set[tuple[int, int]]:
    """(row, column) of the figures in bold: the highest of their column, or of their row."""
    found: set[tuple[int, int]] = set()
    for place, column in enumerate(table.columns):
        if column.best and len(table.rows) > 1:
            found |= {(row, place) for row in _highest([each[place] for each in table.rows])}
    rivals = [place for place, column in enumerate(table.columns) if column.row_best]
    if len(rivals) > 1:
        for row, values in enumerate(table.rows):
            found |= {(row, rivals[place]) for place in _highest([values[rival] for rival in rivals])}
    return found


def _highest(values: Sequence[Value]) -> list[int]:
    known = {place: bare for place, value in enumerate(values) if isinstance(bare := plain(value), float)}
    top = max(known.values(), default=math.nan)
    return [place for place, bare in known.items() if bare == top] if len(known) > 1 else []


def _ratio(value: float) -> str:
    """Two decimals below ten, three near one."""
    if 0.9 <= value < 1.1:
        return f"{value:.3f}"
    if value < 0.1:
        return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


# --- formats ---


def markdown(tables: Sequence[Table]) -> str:
    """Tables under headings."""
    parts = []
    for table in tables:
        bold = highlighted(table)
        lines = [
            _pipes(_markdown(column.name) for column in table.columns),
            _pipes("---:" if is_number(column) else "---" for column in table.columns),
        ]
        for row, values in enumerate(table.rows):
            cells = []
            for place, (value, column) in enumerate(zip(values, table.columns, strict=True)):
                text = _markdown(figure(value, column.kind))
                text = f"**{text}**" if (row, place) in bold else text
                cells.append(" ".join(filter(None, (text, bounds(value, column.kind)))))
            lines.append(_pipes(cells))
        parts.append("\n".join([f"### {table.title}", "", *lines, *(("", table.note) if table.note else ())]))
    return "\n\n".join(parts) + "\n"


def latex(tables: Sequence[Table]) -> str:
    r"""Tables for `booktabs`: put \usepackage{booktabs} in the preamble."""
    parts = []
    for table in tables:
        bold = highlighted(table)
        layout = "".join("r" if is_number(column) else "l" for column in table.columns)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{{layout}}}",
            r"\toprule",
            " & ".join(_latex(column.name) for column in table.columns) + r" \\",
            r"\midrule",
        ]
        for row, values in enumerate(table.rows):
            cells = []
            for place, (value, column) in enumerate(zip(values, table.columns, strict=True)):
                text = _latex(figure(value, column.kind))
                text = rf"\textbf{{{text}}}" if (row, place) in bold else text
                cells.append(" ".join(filter(None, (text, _latex(bounds(value, column.kind))))))
            lines.append(" & ".join(cells) + r" \\")
        caption = _latex(f"{table.title}. {table.note}".strip())
        lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def as_csv(table: Table) -> str:
    """One table; full figures, an interval in two columns after its figure."""
    spread = [any(_interval(row[place]) for row in table.rows) for place in range(len(table.columns))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = []
    for column, wide in zip(table.columns, spread, strict=True):
        head += [column.name, f"{column.name} low", f"{column.name} high"] if wide else [column.name]
    writer.writerow(map(_spreadsheet, head))
    for row in table.rows:
        cells: list[object] = []
        for value, wide in zip(row, spread, strict=True):
            bare = plain(value)
            cells.append("" if bare is None else _spreadsheet(bare) if isinstance(bare, str) else bare)
            if wide:
                interval = _interval(value)
                cells += [interval.low, interval.high] if interval else ["", ""]
        writer.writerow(cells)
    return text.getvalue()


def _spreadsheet(text: str) -> str:
    """A text that no spreadsheet takes for a formula: one that begins like a formula gets an apostrophe before it."""
    return f"'{text}" if text.lstrip()[:1] in _FORMULAS or text[:1] in ("\t", "\r") else text


def _interval(value: Value) -> Interval | None:
    return value.interval if isinstance(value, Estimate | MeasuredSpeedup) else None


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*").replace("\n", " ")


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text.replace("\n", " "))
