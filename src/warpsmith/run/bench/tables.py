"""The tables of a bench, as data: columns with a kind, rows with figures. How they are written is `formats`' part.

Statistics come from `statistics`; nothing is computed here that is not there. A figure that does not exist is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from warpsmith.run.bench.results import Bench, Cell, CellStatus, Speedup
from warpsmith.run.bench.statistics import (
    Duel,
    Estimate,
    Group,
    Means,
    Summary,
    Verdict,
    counted,
    duels,
    pooled,
    summaries,
    unverified_cells,
)

Value = str | int | float | bool | Estimate | Speedup | None


class Kind(StrEnum):
    """What the figures of a column are."""

    TEXT = "text"
    COUNT = "count"
    RATIO = "ratio"  # a speedup
    SHARE = "share"  # of one
    SECONDS = "seconds"
    USD = "usd"
    MS = "ms"


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    kind: Kind = Kind.TEXT
    best: bool = False  # the highest of the column stands out
    row_best: bool = False  # the highest among such columns of a row stands out


@dataclass(frozen=True)
class Table:
    """One table."""

    key: str  # for programs: "speed"
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""  # below it


_SHOWN = (0.0, 0.8, 1.0, 1.2, 1.5, 2.0, 5.0, 10.0)  # points of fast_p
PARTS = ("speed", "search", "fast", "tasks", "pairs", "unverified", "empty", "failed", "cells")


def tables(bench: Bench, *, unverified: bool = False) -> tuple[Table, ...]:
    """All that a person wants to see, without those that would be empty."""
    found = summaries(bench, unverified=unverified)
    made = (
        speed_table(bench, found, unverified=unverified),
        search_table(bench, found),
        fast_table(bench, found, unverified=unverified),
        task_table(bench, unverified=unverified),
        pair_table(bench, duels(bench, unverified=unverified)),
        unverified_table(bench),
        empty_table(bench),
        failed_table(bench),
    )
    return tuple(table for table in made if table.rows)


def part(bench: Bench, name: str, *, unverified: bool = False) -> Table:
    """One table by its key."""
    if name == "cells":
        return cell_table(bench)
    if name == "unverified":
        return unverified_table(bench)
    if name == "failed":
        return failed_table(bench)
    if name == "empty":
        return empty_table(bench)
    if name == "tasks":
        return task_table(bench, unverified=unverified)
    if name == "pairs":
        return pair_table(bench, duels(bench, unverified=unverified))
    found = summaries(bench, unverified=unverified)
    if name == "search":
        return search_table(bench, found)
    return (speed_table if name == "speed" else fast_table)(bench, found, unverified=unverified)


def label(bench: Bench, group: Group) -> str:
    """What a method is called in a table: with its proposer only where there are several."""
    return group[0] if len(bench.proposers) == 1 else f"{group[0]} · {group[1]}"


# --- methods ---


def speed_table(bench: Bench, found: Sequence[Summary], *, unverified: bool = False) -> Table:
    """How fast the winners are."""
    columns = (
        Column("method"),
        Column("winners"),
        Column("geo. mean", Kind.RATIO, best=True),
        Column("median", Kind.RATIO, best=True),
        Column("or PyTorch", Kind.RATIO, best=True),
        Column("vs compile", Kind.RATIO, best=True),
        Column("vs start", Kind.RATIO, best=True),
        Column(">1x", Kind.SHARE, best=True),
        Column("floor", Kind.SHARE, best=True),
    )
    rows = tuple(
        (
            label(bench, (each.method, each.proposer)),
            f"{each.winners}/{each.done}",
            _mean(each.eager),
            each.eager.median.value if each.eager else None,
            each.or_pytorch.value if each.or_pytorch else None,
            each.compile.geometric.value if each.compile else None,
            each.start.geometric.value if each.start else None,
            dict(each.fast).get(1.0),
            each.share_of_floor.value if each.share_of_floor else None,
        )
        for each in found
    )
    note = (
        f"Speedup over PyTorch eager, of {_which(unverified)}; or PyTorch: over all tasks, PyTorch kept where nothing "
        "is faster. >1x: fast_1, the share of cells that beat PyTorch. vs compile, vs start: over torch.compile and "
        "over the run's first valid kernel, geometric means. floor: share of the speed of light. In brackets: 95 % "
        "intervals."
    )
    return Table("speed", "How fast", columns, rows, note)


def search_table(bench: Bench, found: Sequence[Summary]) -> Table:
    """What the searches were like, and what they have cost."""
    columns = (
        Column("method"),
        Column("done"),
        Column("valid", Kind.SHARE, best=True),
        Column("compiled", Kind.SHARE, best=True),
        Column("tokens", Kind.COUNT),
        Column("cost", Kind.USD),
        Column("device time", Kind.SECONDS),
        Column("wall time", Kind.SECONDS),
    )
    rows = tuple(
        (
            label(bench, (each.method, each.proposer)),
            f"{each.done}/{each.cells}",
            each.validity,
            each.compile_rate,
            None if each.tokens is None else round(each.tokens),
            each.usd,
            each.device_seconds,
            each.wall_seconds,
        )
        for each in found
    )
    return Table("search", "How it was found", columns, rows, "valid, compiled: of all proposals. The rest: per task.")


def fast_table(bench: Bench, found: Sequence[Summary], *, unverified: bool = False) -> Table:
    """The fast_p curve at some points."""
    points = [p for p, _ in next((each.fast for each in found if each.fast), ()) if p in _SHOWN]
    columns = (Column("method"), *(Column(f">{p:g}x", Kind.SHARE) for p in points))
    rows = tuple(
        (label(bench, (each.method, each.proposer)), *(dict(each.fast).get(p) for p in points)) for each in found
    )
    note = f"Share of cells that are more than so many times as fast as PyTorch eager, by {_which(unverified)}."
    return Table("fast", "fast_p", columns, rows if points else (), note)


def _which(unverified: bool) -> str:
    return "winners, also of those that nobody verified" if unverified else "verified winners"


def _mean(means: Means | None) -> Estimate | None:
    return means.geometric if means else None


# --- tasks ---


def task_table(bench: Bench, *, unverified: bool = False) -> Table:
    """Every task with every method."""
    columns = (
        Column("task"),
        Column("zone"),
        *(Column(label(bench, group), Kind.RATIO, row_best=True) for group in bench.groups),
    )
    by_group = {group: _grouped(bench.of_group(*group)) for group in bench.groups}
    rows = tuple(
        (
            task.name,
            task.zone or "–",
            *(_of_task(by_group[group].get(task.name, ()), unverified) for group in bench.groups),
        )
        for task in bench.tasks
    )
    note = "Speedup over PyTorch eager, repeats as one. –: no winner that counts, ✗: failed, …: not finished."
    return Table("tasks", "Task by task", columns, rows, note)


def _grouped(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.task, []).append(cell)
    return found


def _of_task(cells: Sequence[Cell], unverified: bool) -> Value:
    winners = [best.eager for cell in cells if (best := counted(cell, unverified=unverified)) is not None]
    if winners:
        return pooled(winners)
    if any(cell.status is CellStatus.UNFINISHED for cell in cells):
        return "…"
    return "✗" if any(cell.status is CellStatus.FAILED for cell in cells) else "–"


def pair_table(bench: Bench, found: Sequence[Duel]) -> Table:
    """Who wins how often."""
    columns = (
        Column("method"),
        Column("against"),
        Column("win", Kind.COUNT),
        Column("tie", Kind.COUNT),
        Column("loss", Kind.COUNT),
        Column("neither", Kind.COUNT),
        Column("speed ratio", Kind.RATIO),
    )
    rows = tuple(
        (
            label(bench, each.one),
            label(bench, each.other),
            *(each.count(verdict) for verdict in (Verdict.WIN, Verdict.TIE, Verdict.LOSS, Verdict.NEITHER)),
            each.ratio,
        )
        for each in found
        if each.verdicts
    )
    note = "Tasks both have done; a tie is what the intervals do not tell apart. neither: no winner on either side."
    return Table("pairs", "One against another", columns, rows, note)


# --- what does not count, and everything ---


def unverified_table(bench: Bench) -> Table:
    """Winners that are not verified, apart from all statistics."""
    columns = (
        Column("task"),
        Column("method"),
        Column("seed", Kind.COUNT),
        Column("speedup", Kind.RATIO),
        Column("why"),
    )
    rows = []
    for cell in unverified_cells(bench):
        assert cell.best is not None, "that is what is unverified"
        group = label(bench, (cell.method, cell.proposer))
        rows.append((cell.task, group, cell.seed, cell.best.eager.value, cell.best.why_not))
    return Table("unverified", "Not verified, and not counted", columns, tuple(rows))


def empty_table(bench: Bench) -> Table:
    """Cells that have found no valid kernel."""
    found = (cell for cell in bench.cells if cell.done and cell.best is None)
    return Table("empty", "No valid kernel", *_reasons(bench, found))


def failed_table(bench: Bench) -> Table:
    """Cells that could not be carried out."""
    found = (cell for cell in bench.cells if cell.status is CellStatus.FAILED)
    return Table("failed", "Failed", *_reasons(bench, found))


def _reasons(bench: Bench, cells: Iterable[Cell]) -> tuple[tuple[Column, ...], tuple[tuple[Value, ...], ...]]:
    columns = (Column("task"), Column("method"), Column("seed", Kind.COUNT), Column("why"))
    rows = [(cell.task, label(bench, (cell.method, cell.proposer)), cell.seed, cell.reason) for cell in cells]
    return columns, tuple(rows)


def cell_table(bench: Bench) -> Table:
    """Every cell, with all of its figures but the curve, which is no figure."""
    columns = (
        *(Column(name) for name in ("task", "family", "zone", "method", "proposer")),
        Column("seed", Kind.COUNT),
        Column("status"),
        Column("reason"),
        *(Column(name, Kind.COUNT) for name in ("trials", "settled", "valid", "compiled")),
        *(Column(name, Kind.RATIO) for name in ("eager", "compile", "start")),
        Column("latency_ms", Kind.MS),
        Column("share_of_floor", Kind.SHARE),
        *(Column(name) for name in ("remeasured", "verified", "why_not")),
        Column("tokens", Kind.COUNT),
        Column("usd", Kind.USD),
        Column("device_seconds", Kind.SECONDS),
        Column("wall_seconds", Kind.SECONDS),
        Column("candidate"),
        Column("trial", Kind.COUNT),
        *(Column(name) for name in ("strategy", "file", "device", "run")),
    )
    known = {task.name: task for task in bench.tasks}
    rows = []
    for cell in bench.cells:
        task, best = known[cell.task], cell.best
        settled = cell.trials if cell.settled is None else cell.settled
        rows.append(
            (
                *(cell.task, task.family, task.zone, cell.method, cell.proposer, cell.seed, cell.status.value),
                *(cell.reason, cell.trials, settled, cell.valid, cell.compiled),
                *((best.eager, best.compile, best.start) if best else (None, None, None)),
                best.latency_ms if best else None,
                best.share_of_floor if best else None,
                _said(best.remeasured if best else None),
                _said(best.verified if best else None),
                best.why_not if best else "",
                *(cell.tokens, cell.usd, cell.device_seconds, cell.wall_seconds),
                *((best.candidate, best.trial, best.strategy, best.file) if best else ("", None, "", "")),
                cell.device,
                cell.run,
            )
        )
    return Table("cells", "All cells", columns, tuple(rows))


def _said(yes: bool | None) -> str:
    return "" if yes is None else "yes" if yes else "no"
