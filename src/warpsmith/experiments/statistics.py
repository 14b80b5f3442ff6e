"""Statistics of a bench: means, rates, fast_p, intervals, and pairwise comparisons. Pure functions of `BenchResults`.

How the figures are computed:

- A cell counts once it is done. Its best kernel counts if it is verified; with `unverified=True` also if it was not
  checked, never if verification failed.
- Repeats of a task are averaged first (geometric mean, or median for a median), then tasks: a task with more finished
  repeats has the same weight.
- A speedup is a mean over tasks with a best kernel. `or_pytorch` is over all tasks: without a kernel faster than
  PyTorch the speedup is 1. Only this figure compares methods that failed on different tasks.
- fast_p is the share of cells whose best kernel is more than p times as fast as PyTorch eager, averaged by task. A cell
  without a best kernel counts as slower.
- Rates are over all proposals of all cells, without those not evaluated when their run ended. Spending is per cell,
  that is for one run on one task.
- Intervals are seeded 95 % percentile bootstraps over tasks and, within each task, over its repeats. With one task only
  repeats are resampled; with one cell there is no interval.
- Two methods are compared on a task by the ratio of their speedups, with the intervals of the measurements and, where
  there are repeats, their spread. If the interval of the ratio contains 1, or is within 1 % of it, they tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from warpsmith.evaluator.judge.timing.statistics import SpeedupClass, classify
from warpsmith.experiments.results import BenchResults, Cell, CellBest, CellStatus, CurvePoint, MeasuredSpeedup
from warpsmith.model.evaluation import Interval

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
"""The p for which tables show fast_p; 0 is the share of cells with a best kernel."""

RESAMPLES = 1000
_SEED = 20_251_003
_Z = 1.96

Floats = NDArray[np.float64]
Group = tuple[str, str]


@dataclass(frozen=True)
class Estimate:
    """A figure with its interval, which is None for a single cell."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class Means:
    """Speedups over one baseline, of the tasks with a best kernel."""

    median: Estimate
    geometric: Estimate
    tasks: int  # with a best kernel measured against this baseline


@dataclass(frozen=True)
class Summary:
    """The figures of one method with one proposer."""

    method: str
    proposer: str
    cells: int  # planned
    done: int
    failed: int
    winners: int  # cells whose best kernel counts
    unverified: int  # done cells whose best kernel does not count
    tasks: int  # with a done cell
    eager: Means | None
    compile: Means | None
    start: Means | None
    or_pytorch: Estimate | None  # geometric mean over all tasks; 1 where no kernel is faster than PyTorch
    fast: tuple[tuple[float, float], ...]  # (p, fast_p)
    validity: Estimate | None  # share of settled proposals that are valid
    compile_rate: Estimate | None  # share of settled proposals that compile
    share_of_floor: Estimate | None  # arithmetic mean over tasks with a best kernel
    tokens: float | None  # per cell, like the following; None without a done cell
    prompt_tokens: float | None  # of these; None also in older results
    usd: float | None  # None also if a price is not known
    device_seconds: float | None
    wall_seconds: float | None


class TaskResult(StrEnum):
    """The result of one method against another on a task."""

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"
    NEITHER = "neither"  # neither has a best kernel


@dataclass(frozen=True)
class MethodComparison:
    """One method against another, task by task."""

    one: Group
    other: Group
    verdicts: tuple[tuple[str, TaskResult], ...]  # by task
    ratio: Estimate | None  # geometric mean of one over other, over the tasks where both have a best kernel

    def count(self, verdict: TaskResult) -> int:
        """The number of tasks with a result."""
        return sum(each is verdict for _, each in self.verdicts)


# --- which cells count ---


def counted_best(cell: Cell, *, unverified: bool = False) -> CellBest | None:
    """The best kernel of a cell, if it counts."""
    if cell.winner is not None or not unverified:
        return cell.winner
    return cell.best if cell.done and cell.best is not None and cell.best.verified is None else None


def unverified_cells(bench: BenchResults) -> tuple[Cell, ...]:
    """Done cells whose best kernel is not verified."""
    return tuple(cell for cell in bench.cells if cell.done and cell.best is not None and not cell.best.verified)


# --- one method ---


def summaries(bench: BenchResults, *, unverified: bool = False) -> tuple[Summary, ...]:
    """One for each method with each proposer, in the bench's order."""
    return tuple(summary(group, list(bench.of_group(*group)), unverified=unverified) for group in bench.groups)


def summary(group: Group, cells: Sequence[Cell], *, unverified: bool = False) -> Summary:
    """The figures of the cells of one method."""
    done = [cell for cell in cells if cell.done]
    by_task = _by_task(done)
    lengths = tuple(map(len, by_task.values()))

    def table(figure: Callable[[Cell], float | None]) -> Floats:
        return _table([[figure(cell) for cell in group] for group in by_task.values()])

    def of_best(figure: Callable[[CellBest], float | None]) -> Floats:
        def look(cell: Cell) -> float | None:
            best = counted_best(cell, unverified=unverified)
            return figure(best) if best is not None else None

        return table(look)

    eager = of_best(lambda best: best.eager.value)
    kept = table(
        lambda cell: max(1.0, best.eager.value) if (best := counted_best(cell, unverified=unverified)) else 1.0
    )
    winners = [cell for cell in done if counted_best(cell, unverified=unverified) is not None]
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
        compile=_means(of_best(lambda best: best.compile.value if best.compile else None), lengths),
        start=_means(of_best(lambda best: best.start.value if best.start else None), lengths),
        or_pytorch=_estimate(geometric_mean, kept, lengths),
        fast=fast_curve(done, THRESHOLDS, unverified=unverified),
        validity=_rate(table(lambda cell: float(cell.valid)), settled, lengths),
        compile_rate=_rate(table(lambda cell: float(cell.compiled)), settled, lengths),
        share_of_floor=_estimate(arithmetic_mean, of_best(lambda best: best.share_of_floor), lengths),
        tokens=_per_cell([float(cell.tokens) for cell in done]),
        prompt_tokens=_per_cell([float(cell.prompt_tokens) for cell in done if cell.prompt_tokens is not None]),
        usd=None if None in prices else _per_cell([price for price in prices if price is not None]),
        device_seconds=_per_cell([cell.device_seconds for cell in done]),
        wall_seconds=_per_cell([cell.wall_seconds for cell in done]),
    )


def fast_curve(
    cells: Iterable[Cell], thresholds: Sequence[float] | None = None, *, unverified: bool = False
) -> tuple[tuple[float, float], ...]:
    """(p, fast_p) at the thresholds given, or at every p where it changes."""
    rows = _eager_rows((cell for cell in cells if cell.done), unverified)
    if not rows:
        return ()
    reached = sorted({value for row in rows for value in row if value is not None})
    return tuple((p, fast_p(rows, p)) for p in (thresholds if thresholds is not None else (0.0, *reached)))


# --- statistics of arrays: a row for each task, a column for each repeat, NaN for a missing value ---
# The last two axes are one table; more axes are many tables at once, for the bootstrap.

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
    """The share of cells more than p times as fast, averaged by task; None counts as slower."""
    shares = [sum(value is not None and value > p for value in row) / len(row) for row in rows]
    return sum(shares) / len(shares)


def bootstrap(statistic: Statistic, values: Floats, lengths: tuple[int, ...], seed: int = _SEED) -> Interval | None:
    """The interval of a statistic of one table; with three axes, of a pair of tables resampled together.

    `lengths`: the number of repeats of each task; the rest of its row is padding.
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
    """The tasks and repeats of every resample: the same for all figures of a method."""
    rng = np.random.default_rng(seed)
    rows, places = len(lengths), np.arange(max(lengths))
    tasks = rng.integers(0, rows, size=(RESAMPLES, rows, 1))
    known = np.array(lengths)[tasks]
    drawn = rng.integers(0, known, size=(RESAMPLES, rows, places.size))
    return tasks, np.where(places < known, drawn, places)  # padding stays in place


def _estimate(statistic: Statistic, values: Floats, lengths: tuple[int, ...]) -> Estimate | None:
    value = float(statistic(values)) if values.size else math.nan
    return None if math.isnan(value) else Estimate(value, bootstrap(statistic, values, lengths))


def _means(values: Floats, lengths: tuple[int, ...]) -> Means | None:
    median, geometric = (_estimate(statistic, values, lengths) for statistic in (median_of_medians, geometric_mean))
    if median is None or geometric is None:
        return None
    return Means(median, geometric, int((~np.isnan(values)).any(axis=1).sum()))


def _rate(part: Floats, whole: Floats, lengths: tuple[int, ...]) -> Estimate | None:
    """The share of all settled proposals."""

    def share(both: Floats) -> Floats:
        sums = np.nansum(both, axis=(-2, -1))
        shares: Floats = np.divide(sums[0], sums[1], out=np.full_like(sums[0], np.nan), where=sums[1] > 0)
        return shares

    return _estimate(share, np.stack((part, whole)), lengths)


def _mean(values: Floats) -> Floats:
    """Along the last axis, without NaN."""
    there = ~np.isnan(values)
    count = there.sum(axis=-1)
    total = np.where(there, values, 0.0).sum(axis=-1)
    mean: Floats = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return mean


def _median(values: Floats) -> Floats:
    """Along the last axis, without NaN."""
    ordered = np.sort(values, axis=-1)  # NaN last
    count = (~np.isnan(values)).sum(axis=-1, keepdims=True)
    last = values.shape[-1] - 1
    low = np.take_along_axis(ordered, np.clip((count - 1) // 2, 0, last), axis=-1)
    high = np.take_along_axis(ordered, np.clip(count // 2, 0, last), axis=-1)
    middle: Floats = np.where(count > 0, (low + high) / 2, np.nan)[..., 0]
    return middle


def _table(rows: Sequence[Sequence[float | None]]) -> Floats:
    """An array of rows, padded with NaN; NaN for None."""
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
    """Speedups over eager, one row for each task."""

    def value(cell: Cell) -> float | None:
        best = counted_best(cell, unverified=unverified)
        return best.eager.value if best is not None else None

    return [list(map(value, group)) for group in _by_task(cells).values()]


# --- all methods ---


def fastest(bench: BenchResults, *, unverified: bool = False) -> dict[Group, int]:
    """On how many tasks each method has the fastest kernel; equal ones count for each."""
    won = dict.fromkeys(bench.groups, 0)
    for task in bench.tasks:
        found = {}
        for group in bench.groups:
            cells = [cell for cell in bench.of_group(*group) if cell.task == task.name and cell.done]
            pool = pooled(_speedups(cells, unverified))
            if pool is not None:
                found[group] = pool.value
        for group, value in found.items():
            won[group] += value == max(found.values())
    return won


def family_means(cells: Iterable[Cell], *, unverified: bool = False) -> Estimate | None:
    """The geometric mean over PyTorch eager of the tasks of one family with a best kernel."""
    rows = _eager_rows((cell for cell in cells if cell.done), unverified)
    return _estimate(geometric_mean, _table(rows), tuple(map(len, rows))) if rows else None


def mean_latency(cells: Iterable[Cell], *, unverified: bool = False) -> float | None:
    """The geometric mean of the times of the best kernels that count, in milliseconds."""
    found = (counted_best(cell, unverified=unverified) for cell in cells)
    logs = [math.log(best.latency_ms) for best in found if best is not None and best.latency_ms > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def by_epoch(cells: Iterable[Cell]) -> tuple[float | None, ...]:
    """The geometric mean of the best speedup after each epoch, of the runs that had a best kernel by then."""
    done = [cell for cell in cells if cell.done]
    found: list[float | None] = []
    for epoch in range(1, max((cell.epochs for cell in done), default=0) + 1):
        rows = [
            [_highest(p for p in cell.curve if 0 < p.epoch <= epoch) for cell in group]
            for group in _by_task(done).values()
        ]
        value = float(geometric_mean(_table(rows)))
        found.append(None if math.isnan(value) else value)
    return tuple(found)


def at_equal_tokens(bench: BenchResults) -> dict[Group, tuple[float, float]]:
    """Geometric means over all tasks after all trials and after equal tokens; PyTorch where nothing is faster.

    On each task the tokens are those of the method that spent the fewest. Empty if tokens are unknown, or nobody spent
    any.
    """
    done = [cell for cell in bench.cells if cell.done]
    points = [point for cell in done for point in cell.curve]
    if not points or not any(cell.tokens for cell in done) or any(p.tokens is None for p in points):
        return {}
    least: dict[str, int] = {}
    for cell in done:
        least[cell.task] = min(cell.tokens, least.get(cell.task, cell.tokens))
    means = {}
    for group in bench.groups:
        own = list(_by_task(cell for cell in bench.of_group(*group) if cell.done).values())
        whole = [[_highest(cell.curve) for cell in cells] for cells in own]
        equal = [
            [_highest(p for p in cell.curve if (p.tokens or 0) <= least[cell.task]) for cell in cells] for cells in own
        ]
        if own:
            means[group] = _or_pytorch(whole), _or_pytorch(equal)
    return means


def _highest(points: Iterable[CurvePoint]) -> float | None:
    return max((point.speedup for point in points), default=None)


def _or_pytorch(rows: Sequence[Sequence[float | None]]) -> float:
    return float(geometric_mean(_table([[max(1.0, value or 1.0) for value in row] for row in rows])))


# --- two methods ---


def compare_methods(bench: BenchResults, *, unverified: bool = False) -> tuple[MethodComparison, ...]:
    """Every pair of methods with their proposers, each once."""
    cells = {group: list(bench.of_group(*group)) for group in bench.groups}
    groups = bench.groups
    return tuple(
        compare_pair(one, cells[one], other, cells[other], unverified=unverified)
        for place, one in enumerate(groups)
        for other in groups[place + 1 :]
    )


def compare_pair(
    one: Group, ones: Sequence[Cell], other: Group, others: Sequence[Cell], *, unverified: bool = False
) -> MethodComparison:
    """Two methods on the tasks that both have done; the cells may come from two benches."""
    left, right = (_by_task(cell for cell in cells if cell.done) for cells in (ones, others))
    verdicts, ratios = [], []
    for task in left:
        if task not in right:
            continue
        mine, theirs = (pooled(_speedups(side[task], unverified)) for side in (left, right))
        verdicts.append((task, compared(mine, theirs)))
        if mine is not None and theirs is not None:
            ratios.append([mine.value / theirs.value])
    return MethodComparison(one, other, tuple(verdicts), _estimate(geometric_mean, _table(ratios), (1,) * len(ratios)))


def compared(one: MeasuredSpeedup | None, other: MeasuredSpeedup | None) -> TaskResult:
    """The result on one task; a method without a best kernel loses to one that has one."""
    if one is None or other is None:
        if one is other:
            return TaskResult.NEITHER
        return TaskResult.LOSS if one is None else TaskResult.WIN
    said = classify(one.over(other).interval)
    return {SpeedupClass.FASTER: TaskResult.WIN, SpeedupClass.SLOWER: TaskResult.LOSS}.get(said, TaskResult.TIE)


def pooled(found: Sequence[MeasuredSpeedup]) -> MeasuredSpeedup | None:
    """Combine repeats: their geometric mean, with an interval from the measurements and the spread of the repeats."""
    if len(found) < 2:
        return found[0] if found else None
    count = len(found)
    logs = [math.log(each.value) for each in found]
    centre = sum(logs) / count
    spread = _Z * math.sqrt(sum((log - centre) ** 2 for log in logs) / (count - 1) / count)
    below = math.sqrt(sum(math.log(each.value / each.low) ** 2 for each in found)) / count
    above = math.sqrt(sum(math.log(each.high / each.value) ** 2 for each in found)) / count
    value = math.exp(centre)
    return MeasuredSpeedup(
        value, value * math.exp(-math.hypot(below, spread)), value * math.exp(math.hypot(above, spread))
    )


def _speedups(cells: Iterable[Cell], unverified: bool) -> list[MeasuredSpeedup]:
    found = (counted_best(cell, unverified=unverified) for cell in cells)
    return [best.eager for best in found if best is not None]
