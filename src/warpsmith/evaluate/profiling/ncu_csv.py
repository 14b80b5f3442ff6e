"""Reads what `ncu --csv --page raw` prints: one record per kernel launch, in base units, whatever else is in the log.

Counters that a device or a release of the tool does not have are simply not there. Meaning is given them in `rules`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_ID, _KERNEL = "ID", "Kernel Name"
_MOST_LAUNCHES = 1000  # nobody asks the tool for more; a log with more is not read to its end
_SECONDS = {"nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3}
_BYTES = {"Kbyte": 1e3, "KB": 1e3, "Mbyte": 1e6, "MB": 1e6, "Gbyte": 1e9, "GB": 1e9, "Tbyte": 1e12, "TB": 1e12}
_HERTZ = {"Khz": 1e3, "Mhz": 1e6, "Ghz": 1e9, "KHz": 1e3, "MHz": 1e6, "GHz": 1e9}
_UNITS = _SECONDS | _BYTES | _HERTZ
_GROUPED = re.compile(r"-?\d{1,3}(?:[,'\u00a0\u202f]\d{3})+(?:\.\d+)?")
_GROUP = re.compile(r"[,'\u00a0\u202f]")


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel with what was counted."""

    kernel: str
    values: Mapping[str, float]  # by metric; seconds, bytes, hertz, per cent
    block: int = 0  # threads
    grid: int = 0  # blocks

    def get(self, *names: str) -> float | None:
        """The first of these metrics that is there."""
        return next((self.values[name] for name in names if name in self.values), None)

    @property
    def seconds(self) -> float:
        """How long it ran; 0 where that was not counted."""
        return (
            self.get("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration_measured_user.sum") or 0.0
        )


def parse(log: str) -> tuple[Launch, ...]:
    """All launches in a log; empty where it holds no table."""
    rows = iter(csv.reader(io.StringIO(_table(log))))
    try:
        return tuple(_launches(rows))
    except csv.Error:  # a NUL or a field without end: what came before it would be guesswork
        return ()


def complaint(log: str) -> str:
    """What the tool itself says went wrong; "" where it does not complain."""
    said = [line.removeprefix("==ERROR==").strip() for line in log.splitlines() if line.startswith("==ERROR==")]
    return said[0] if said else ""


def _table(log: str) -> str:
    """From the header on; the tool's own lines and whatever the program printed stand before and between."""
    lines = [line for line in log.splitlines() if not line.startswith("==")]
    for number, line in enumerate(lines):
        if line.startswith(f'"{_ID}"') and f'"{_KERNEL}"' in line:
            # A line that does not end as it began was cut off, or belongs to the program.
            return "\n".join(each for each in lines[number:] if each.startswith('"') and each.rstrip().endswith('"'))
    return ""


def _launches(rows: Iterator[list[str]]) -> Iterator[Launch]:
    header = next(rows, None)
    if header is None or _KERNEL not in header:
        return
    place = {name: index for index, name in enumerate(header)}
    units: list[str] = [""] * len(header)
    for count, row in enumerate(rows):
        if len(row) != len(header) or count > _MOST_LAUNCHES:
            continue  # cut off, or not of this table
        if not row[place[_ID]].strip().isdigit():
            units = row  # the second line
            continue
        values: dict[str, float] = {}
        for name, index in place.items():
            value = _number(row[index])
            if "__" in name and value is not None:
                values[name] = value * _factor(units[index])
        yield Launch(
            kernel=short_name(row[place[_KERNEL]]),
            values=values,
            block=_extent(row, place, "Block Size") or int(values.get("launch__block_size", 0)),
            grid=_extent(row, place, "Grid Size") or int(values.get("launch__grid_size", 0)),
        )


def _number(text: str) -> float | None:
    text = text.strip()
    if _GROUPED.fullmatch(text):
        text = _GROUP.sub("", text)
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _factor(unit: str) -> float:
    """To base units: of "Gbyte/second" the first word decides, below the line stand seconds and cycles only."""
    return _UNITS.get(unit.split("/")[0].strip(), 1.0)


def _extent(row: list[str], place: Mapping[str, int], name: str) -> int:
    if name not in place:
        return 0
    numbers = [int(each) for each in re.findall(r"\d{1,10}", row[place[name]])]
    return math.prod(numbers) if numbers else 0


def short_name(name: str) -> str:
    """Without return type, template arguments and parameters."""
    plain = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name)
    plain = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    return (plain.split() or [name])[-1][:80]
