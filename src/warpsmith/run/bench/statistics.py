"""What the results of a bench say: means, rates, fast_p, intervals, and who wins where. Pure functions over a `Bench`.

How figures are made, so that anybody can make them again:

- A cell counts once it is done. Its winner counts only where it is verified; with `unverified=True` also where nobody
  has looked, never where verification failed.
- Repeats of a task are brought together first (by geometric mean, for a median by median), then tasks: a task with
  more finished repeats weighs no more than another.
- A speedup is a mean over tasks that have a winner. `or_pytorch` is over all tasks: where there is no winner, or one
  slower than PyTorch, one would keep PyTorch, which is a speedup of 1. Only that one compares methods that failed on
  different tasks.
- fast_p is the share of cells whose winner is more than p times as fast as PyTorch eager, a missing one never, brought
  together by task.
- Rates are over all proposals of all cells, without those that still awaited a verdict when their run ended. Spending
  is per cell, that is for one run on one task.
- Intervals are 95 % percentile bootstraps, seeded: tasks are drawn anew, and within each as many repeats as it has.
  With one task only repeats are drawn; with one cell there is no interval.
- Two methods are compared on a task by the ratio of their speedups, with the intervals of the measurements and, where
  there are repeats, their spread. Where the interval of that ratio holds 1, or is within 1 % of it, they tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from warpsmith.core.evaluation import Interval
from warpsmith.evaluate.judging.statistics import Comparison, verdict
from warpsmith.run.bench.results import Bench, Best, Cell, CellStatus, Speedup

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Where tables give fast_p; 0 is the share of cells with a winner at all."""

RESAMPLES = 1000
_SEED = 20_251_003
_Z = 1.96

Floats = NDArray[np.float64]
Group = tuple[str, str]


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval; None where one cell alone stands behind it."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Means:
    """Speedups over one baseline, of the tasks that have a winner."""

    median: Estimate
    geometric: Estimate
    tasks: int  # with a winner that was compared with this baseline


@dataclass(frozen=True)
class Summary:
    """One method with one proposer."""

    method: str
    proposer: str
    cells: int  # planned
    done: int
    failed: int
    winners: int  # that count
    unverified: int  # winners of done cells that do not count
    tasks: int  # with a done cell
    eager: Means | None
    compile: Means | None
    start: Means | None
    or_pytorch: Estimate | None  # geometric mean over all tasks, PyTorch kept where nothing is faster
    fast: tuple[tuple[float, float], ...]  # (p, fast_p)
    validity: Estimate | None  # share of settled proposals that are valid
    compile_rate: Estimate | None  # share of settled proposals that compile
    share_of_floor: Estimate | None  # arithmetic mean over tasks with a winner
    tokens: float | None  # per cell, as is what follows; None without a done cell
    usd: float | None  # None also where a price is not known
    device_seconds: float | None
    wall_seconds: float | None


class Verdict(StrEnum):
    """How a method did against another on a task."""

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"
    NEITHER = "neither"  # none of them has a winner


@dataclass(frozen=True)
class Duel:
    """One method against another, task by task."""

    one: Group
    other: Group
    verdicts: tuple[tuple[str, Verdict], ...]  # by task
    ratio: Estimate | None  # geometric mean of one over other, of the tasks where both have a winner

    def count(self, verdict: Verdict) -> int:
        """On how many tasks it ended so."""
        return sum(each is verdict for _, each in self.verdicts)


# --- which cells count ---


def counted(cell: Cell, *, unverified: bool = False) -> Best | None:
    """The winner of a cell, where it counts."""
    if cell.winner is not None or not unverified:
        return cell.winner
    return cell.best if cell.done and cell.best is not None and cell.best.verified is None else None


def unverified_cells(bench: Bench) -> tuple[Cell, ...]:
    """Done cells with a winner that is not verified: to be listed apart."""
    return tuple(cell for cell in bench.cells if cell.done and cell.best is not None and not cell.best.verified)


# --- one method ---


def summaries(bench: Bench, *, unverified: bool = False) -> tuple[Summary, ...]:
    """One for each method with each proposer, in the bench's order."""
    return tuple(summary(group, list(bench.of_group(*group)), unverified=unverified) for group in bench.groups)


def summary(group: Group, cells: Sequence[Cell], *, unverified: bool = False) -> Summary:
    """What the cells of one method say."""
    done = [cell for cell in cells if cell.done]
    by_task = _by_task(done)
    lengths = tuple(map(len, by_task.values()))

    def table(figure: Callable[[Cell], float | None]) -> Floats:
        return _table([[figure(cell) for cell in group] for group in by_task.values()])

    def of_winner(figure: Callable[[Best], float | None]) -> Floats:
        def look(cell: Cell) -> float | None:
            best = counted(cell, unverified=unverified)
            return figure(best) if best is not None else None

        return table(look)

    eager = of_winner(lambda best: best.eager.value)
    kept = table(lambda cell: max(1.0, best.eager.value) if (best := counted(cell, unverified=unverified)) else 1.0)
    winners = [cell for cell in done if counted(cell, unverified=unverified) is not None]
    settled = table(lambda cell: float(cell.trials if cell.settled is None else cell.settled))
    prices = [cell.usd for cell in done]
    return Summary(
        method=group[0],
        proposer=group[1],
        cells=len(cells),
        done=len(done),
        failed=sum(cell.status is CellStatus.FAILED for cell in cells),
        winners=len(winners),
        unverified=sum(cell.best is not None for cell in done) - len(winners),
        tasks=len(by_task),
        eager=_means(eager, lengths),
        compile=_means(of_winner(lambda best: best.compile.value if best.compile else None), lengths),
        start=_means(of_winner(lambda best: best.start.value if best.start else None), lengths),
        or_pytorch=_estimate(geometric_mean, kept, lengths),
        fast=fast_curve(done, THRESHOLDS, unverified=unverified),
        validity=_rate(table(lambda cell: float(cell.valid)), settled, lengths),
        compile_rate=_rate(table(lambda cell: float(cell.compiled)), settled, lengths),
        share_of_floor=_estimate(arithmetic_mean, of_winner(lambda best: best.share_of_floor), lengths),
        tokens=_per_cell([float(cell.tokens) for cell in done]),
        usd=None if None in prices else _per_cell([price for price in prices if price is not None]),
        device_seconds=_per_cell([cell.device_seconds for cell in done]),
        wall_seconds=_per_cell([cell.wall_seconds for cell in done]),
    )


def fast_curve(
    cells: Iterable[Cell], thresholds: Sequence[float] | None = None, *, unverified: bool = False
) -> tuple[tuple[float, float], ...]:
    """(p, fast_p), at the thresholds given or wherever it changes: to be drawn as steps."""
    rows = _eager_rows((cell for cell in cells if cell.done), unverified)
    if not rows:
        return ()
    reached = sorted({value for row in rows for value in row if value is not None})
    return tuple((p, fast_p(rows, p)) for p in (thresholds if thresholds is not None else (0.0, *reached)))


# --- statistics of tables: a row for each task, a column for each repeat, NaN where there is nothing ---
# They take many tables at once, as the last two axes of an array: a bootstrap draws thousands.

Statistic = Callable[[Floats], Floats]


def geometric_mean(values: Floats) -> Floats:
    """Repeats by geometric mean, then tasks; NaN without any."""
    return np.exp(_mean(_mean(np.log(values))))


def median_of_medians(values: Floats) -> Floats:
    """Repeats by median, then tasks; NaN without any."""
    return _median(_median(values))


def arithmetic_mean(values: Floats) -> Floats:
    """Repeats, then tasks; NaN without any."""
    return _mean(_mean(values))


def fast_p(rows: Sequence[Sequence[float | None]], p: float) -> float:
    """The share of cells more than p times as fast, task by task; a cell without a winner, None, is not."""
    shares = [sum(value is not None and value > p for value in row) / len(row) for row in rows]
    return sum(shares) / len(shares)


def bootstrap(statistic: Statistic, values: Floats, lengths: tuple[int, ...], seed: int = _SEED) -> Interval | None:
    """The interval of a statistic of one table; with three axes, of a pair of tables, which are drawn alike.

    `lengths` is how many repeats each task has: what follows them in its row only fills the table.
    """
    first = values if values.ndim == 2 else values[0]
    if np.count_nonzero(~np.isnan(first)) < 2:
        return None
    tasks, repeats = _draws(lengths, seed)
    found = statistic(values[..., tasks, repeats])
    kept = found[~np.isnan(found)]
    if not kept.size:
        return None
    low, high = np.quantile(kept, (0.025, 0.975))
    return Interval(float(low), float(high))


@lru_cache(maxsize=8)
def _draws(lengths: tuple[int, ...], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which tasks, and which repeats of each, every resample takes: the same for all figures of a method."""
    rng = np.random.default_rng(seed)
    rows, places = len(lengths), np.arange(max(lengths))
    tasks = rng.integers(0, rows, size=(RESAMPLES, rows, 1))
    known = np.array(lengths)[tasks]
    drawn = rng.integers(0, known, size=(RESAMPLES, rows, places.size))
    return tasks, np.where(places < known, drawn, places)  # as many as there are; the filling stays where it is


def _estimate(statistic: Statistic, values: Floats, lengths: tuple[int, ...]) -> Estimate | None:
    value = float(statistic(values)) if values.size else math.nan
    return None if math.isnan(value) else Estimate(value, bootstrap(statistic, values, lengths))


def _means(values: Floats, lengths: tuple[int, ...]) -> Means | None:
    median, geometric = (_estimate(statistic, values, lengths) for statistic in (median_of_medians, geometric_mean))
    if median is None or geometric is None:
        return None
    return Means(median, geometric, int((~np.isnan(values)).any(axis=1).sum()))


def _rate(part: Floats, whole: Floats, lengths: tuple[int, ...]) -> Estimate | None:
    """A share of all proposals that were settled."""

    def share(both: Floats) -> Floats:
        sums = np.nansum(both, axis=(-2, -1))
        shares: Floats = np.divide(sums[0], sums[1], out=np.full_like(sums[0], np.nan), where=sums[1] > 0)
        return shares

    return _estimate(share, np.stack((part, whole)), lengths)


def _mean(values: Floats) -> Floats:
    """Along the last axis, of what is there."""
    there = ~np.isnan(values)
    count = there.sum(axis=-1)
    total = np.where(there, values, 0.0).sum(axis=-1)
    mean: Floats = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return mean


def _median(values: Floats) -> Floats:
    """Along the last axis, of what is there."""
    ordered = np.sort(values, axis=-1)  # NaN last
    count = (~np.isnan(values)).sum(axis=-1, keepdims=True)
    last = values.shape[-1] - 1
    low = np.take_along_axis(ordered, np.clip((count - 1) // 2, 0, last), axis=-1)
    high = np.take_along_axis(ordered, np.clip(count // 2, 0, last), axis=-1)
    middle: Floats = np.where(count > 0, (low + high) / 2, np.nan)[..., 0]
    return middle


def _table(rows: Sequence[Sequence[float | None]]) -> Floats:
    """Rows of one length; NaN where a figure is not there."""
    width = max((len(row) for row in rows), default=0)
    padded = [[math.nan if value is None else value for value in row] + [math.nan] * (width - len(row)) for row in rows]
    return np.array(padded, dtype=np.float64).reshape(len(rows), width)


def _by_task(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    grouped: dict[str, list[Cell]] = {}
    for cell in cells:
        grouped.setdefault(cell.task, []).append(cell)
    return grouped


def _per_cell(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _eager_rows(cells: Iterable[Cell], unverified: bool) -> list[list[float | None]]:
    """Speedups over eager, a row for each task."""

    def value(cell: Cell) -> float | None:
        best = counted(cell, unverified=unverified)
        return best.eager.value if best is not None else None

    return [list(map(value, group)) for group in _by_task(cells).values()]


# --- two methods ---


def duels(bench: Bench, *, unverified: bool = False) -> tuple[Duel, ...]:
    """Every pair of methods with their proposers, each once."""
    cells = {group: list(bench.of_group(*group)) for group in bench.groups}
    groups = bench.groups
    return tuple(
        duel(one, cells[one], other, cells[other], unverified=unverified)
        for place, one in enumerate(groups)
        for other in groups[place + 1 :]
    )


def duel(one: Group, ones: Sequence[Cell], other: Group, others: Sequence[Cell], *, unverified: bool = False) -> Duel:
    """Two methods on the tasks for which both have done a cell; the cells may come from two benches."""
    left, right = (_by_task(cell for cell in cells if cell.done) for cells in (ones, others))
    verdicts, ratios = [], []
    for task in left:
        if task not in right:
            continue
        mine, theirs = (pooled(_speedups(side[task], unverified)) for side in (left, right))
        verdicts.append((task, compared(mine, theirs)))
        if mine is not None and theirs is not None:
            ratios.append([mine.value / theirs.value])
    return Duel(one, other, tuple(verdicts), _estimate(geometric_mean, _table(ratios), (1,) * len(ratios)))


def compared(one: Speedup | None, other: Speedup | None) -> Verdict:
    """Who is faster; a method without a winner loses to one that has one."""
    if one is None or other is None:
        if one is other:
            return Verdict.NEITHER
        return Verdict.LOSS if one is None else Verdict.WIN
    said = verdict(one.over(other).interval)
    return {Comparison.FASTER: Verdict.WIN, Comparison.SLOWER: Verdict.LOSS}.get(said, Verdict.TIE)


def pooled(found: Sequence[Speedup]) -> Speedup | None:
    """Repeats as one: their geometric mean, with the measurements' intervals and the spread between the repeats."""
    if len(found) < 2:
        return found[0] if found else None
    count = len(found)
    logs = [math.log(each.value) for each in found]
    centre = sum(logs) / count
    spread = _Z * math.sqrt(sum((log - centre) ** 2 for log in logs) / (count - 1) / count)
    below = math.sqrt(sum(math.log(each.value / each.low) ** 2 for each in found)) / count
    above = math.sqrt(sum(math.log(each.high / each.value) ** 2 for each in found)) / count
    value = math.exp(centre)
    return Speedup(value, value * math.exp(-math.hypot(below, spread)), value * math.exp(math.hypot(above, spread)))


def _speedups(cells: Iterable[Cell], unverified: bool) -> list[Speedup]:
    found = (counted(cell, unverified=unverified) for cell in cells)
    return [best.eager for best in found if best is not None]
