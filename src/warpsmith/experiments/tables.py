"""The tables of a bench as data: columns with a kind, rows of figures. `formats` writes them as text.

All figures come from `statistics`. A figure that does not exist is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from warpsmith.experiments.results import BenchResults, Cell, CellStatus, MeasuredSpeedup
from warpsmith.experiments.statistics import (
    Estimate,
    Group,
    Means,
    MethodComparison,
    Summary,
    TaskResult,
    at_equal_tokens,
    by_epoch,
    compare_methods,
    counted_best,
    family_means,
    fastest,
    mean_latency,
    pooled,
    summaries,
    unverified_cells,
)

Value = str | int | float | bool | Estimate | MeasuredSpeedup | None


class ColumnKind(StrEnum):
    """The unit of the figures of a column."""

    TEXT = "text"
    COUNT = "count"
    RATIO = "ratio"  # a speedup
    SHARE = "share"  # of one
    SECONDS = "seconds"
    USD = "usd"
    MS = "ms"
    NUMBER = "number"  # of the unit in the name of the column


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    kind: ColumnKind = ColumnKind.TEXT
    best: bool = False  # highlight the highest of the column
    row_best: bool = False  # highlight the highest of these columns in each row


@dataclass(frozen=True)
class Table:
    """One table."""

    key: str  # for programs: "speed"
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""  # below it


_SHOWN = (0.0, 0.8, 1.0, 1.2, 1.5, 2.0, 5.0, 10.0)  # points of fast_p


def tables(bench: BenchResults, *, unverified: bool = False) -> tuple[Table, ...]:
    """The tables for people, without empty ones and without those of single kernels and cells."""
    found = summaries(bench, unverified=unverified)
    made = (
        speed_table(bench, found, unverified=unverified),
        baseline_table(bench, found, unverified=unverified),
        search_table(bench, found),
        rule_table(bench),
        token_table(bench),
        fast_table(bench, found, unverified=unverified),
        family_table(bench, unverified=unverified),
        epoch_table(bench),
        task_table(bench, unverified=unverified),
        product_table(bench, unverified=unverified),
        pair_table(bench, compare_methods(bench, unverified=unverified)),
        unverified_table(bench),
        empty_table(bench),
        failed_table(bench),
        difference_table(bench),
    )
    return tuple(table for table in made if table.rows)


def table_named(bench: BenchResults, name: str, *, unverified: bool = False) -> Table:
    """One table by its key."""
    if name == "cells":
        return cell_table(bench)
    if name == "unverified":
        return unverified_table(bench)
    if name == "failed":
        return failed_table(bench)
    if name == "differences":
        return difference_table(bench)
    if name == "empty":
        return empty_table(bench)
    if name == "tasks":
        return task_table(bench, unverified=unverified)
    if name == "products":
        return product_table(bench, unverified=unverified)
    if name == "pairs":
        return pair_table(bench, compare_methods(bench, unverified=unverified))
    plain = {"rules": rule_table, "tokens": token_table, "epochs": epoch_table, "refused": refused_table}
    if name in plain:
        return plain[name](bench)
    if name == "families":
        return family_table(bench, unverified=unverified)
    found = summaries(bench, unverified=unverified)
    if name == "baselines":
        return baseline_table(bench, found, unverified=unverified)
    if name == "search":
        return search_table(bench, found)
    return (speed_table if name == "speed" else fast_table)(bench, found, unverified=unverified)


def label(bench: BenchResults, group: Group) -> str:
    """The name of a method in a table; with its proposer if the bench has several."""
    return group[0] if len(bench.proposers) == 1 else f"{group[0]} · {group[1]}"


# --- methods ---


def speed_table(bench: BenchResults, found: Sequence[Summary], *, unverified: bool = False) -> Table:
    """The speed of the best kernels."""
    columns = (
        Column("method"),
        Column("kernels"),
        Column("geo. mean", ColumnKind.RATIO, best=True),
        Column("median", ColumnKind.RATIO, best=True),
        Column("or PyTorch", ColumnKind.RATIO, best=True),
        Column("vs compile", ColumnKind.RATIO, best=True),
        Column("vs start", ColumnKind.RATIO, best=True),
        Column(">1x", ColumnKind.SHARE, best=True),
        Column("floor", ColumnKind.SHARE, best=True),
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
        "over the starting kernel, else the run's first valid one, geometric means. floor: share of the hardware "
        "limit. In brackets: 95 % intervals."
    )
    if unsure := [task.name for task in bench.tasks if not task.calibrated]:
        note += f" calibrated: no, so that some wrong results pass: {', '.join(unsure)}."
    return Table("speed", "How fast", columns, rows, note)


def search_table(bench: BenchResults, found: Sequence[Summary]) -> Table:
    """Rates and costs of the searches."""
    columns = (
        Column("method"),
        Column("done"),
        Column("valid", ColumnKind.SHARE, best=True),
        Column("compiled", ColumnKind.SHARE, best=True),
        Column("prompt tokens", ColumnKind.COUNT),
        Column("reply tokens", ColumnKind.COUNT),
        Column("cost", ColumnKind.USD),
        Column("device time", ColumnKind.SECONDS),
        Column("wall time", ColumnKind.SECONDS),
    )
    rows = tuple(
        (
            label(bench, (each.method, each.proposer)),
            f"{each.done}/{each.cells}",
            each.validity,
            each.compile_rate,
            *_tokens(each),
            each.usd,
            each.device_seconds,
            each.wall_seconds,
        )
        for each in found
    )
    return Table("search", "How it was found", columns, rows, "valid, compiled: of all proposals. The rest: per task.")


def _tokens(each: Summary) -> tuple[int | None, int | None]:
    """Prompt and reply tokens of a run."""
    if each.tokens is None or each.prompt_tokens is None:
        return None, None
    return round(each.prompt_tokens), round(each.tokens - each.prompt_tokens)


def baseline_table(bench: BenchResults, found: Sequence[Summary], *, unverified: bool = False) -> Table:
    """Speedups over the starting kernel, PyTorch eager and torch.compile side by side."""
    sides = ("start", "eager", "compile")
    columns = (
        Column("method"),
        *(Column(f"{side} {mean}", ColumnKind.RATIO, best=True) for side in sides for mean in ("median", "geo.")),
        Column("fastest on"),
    )
    won = fastest(bench, unverified=unverified)
    decided = sum(any(counted_best(cell, unverified=unverified) for cell in bench.of_task(t.name)) for t in bench.tasks)
    rows = []
    for each in found:
        means: list[Value] = []
        for side in sides:
            over: Means | None = getattr(each, side)
            means += [over.median.value, over.geometric.value] if over else [None, None]
        rows.append(
            (label(bench, (each.method, each.proposer)), *means, f"{won[each.method, each.proposer]}/{decided}")
        )
    note = (
        f"Median and geometric mean over tasks, of {_which(unverified)}. start: over the starting kernel, else the "
        "run's first valid one. fastest on: tasks with the highest speedup over eager, of those with a kernel that "
        "counts."
    )
    return Table("baselines", "Over start, eager and compile", columns, tuple(rows) if decided else (), note)


def rule_table(bench: BenchResults) -> Table:
    """What the published rule calls valid, and what of it is refused here."""
    columns = (
        Column("method"),
        Column("proposals", ColumnKind.COUNT),
        Column("valid as published", ColumnKind.COUNT),
        Column("valid here", ColumnKind.COUNT),
        Column("published only", ColumnKind.COUNT),
        Column("why refused"),
    )
    rows = []
    for group in bench.groups:
        cells = [cell for cell in bench.of_group(*group) if cell.published_valid is not None]
        refused: Counter[str] = Counter()
        for cell in cells:
            refused.update(dict(cell.published_only))
        why = ", ".join(f"{status} {count}" for status, count in refused.most_common())
        if cells:
            rows.append(
                (
                    label(bench, group),
                    sum(cell.trials if cell.settled is None else cell.settled for cell in cells),
                    sum(cell.published_valid or 0 for cell in cells),
                    sum(cell.valid for cell in cells),
                    refused.total(),
                    why or "–",
                )
            )
    note = (
        "The published rule: five random inputs, results within 1e-2 of PyTorch's. published only: valid by that rule "
        "and refused here. Kernels that were refused before they ran are in neither column."
    )
    return Table("rules", "Two rules of validity", columns, tuple(rows), note)


def token_table(bench: BenchResults) -> Table:
    """The same searches at equal trials and at equal tokens."""
    columns = (
        Column("method"),
        Column("tokens", ColumnKind.COUNT),
        Column("equal trials", ColumnKind.RATIO, best=True),
        Column("equal tokens", ColumnKind.RATIO, best=True),
    )
    means = at_equal_tokens(bench)
    spent = {(each.method, each.proposer): each.tokens for each in summaries(bench)}
    rows = tuple((label(bench, group), round(spent[group] or 0), *pair) for group, pair in means.items())
    note = (
        "Geometric mean over all tasks of the highest speedup over eager that a run measured, PyTorch where nothing is "
        "faster. equal tokens: until a run had spent the tokens of the method that spent the fewest on the task."
    )
    return Table("tokens", "Equal trials, equal tokens", columns, rows if len(rows) > 1 else (), note)


def family_table(bench: BenchResults, *, unverified: bool = False) -> Table:
    """The speedup of every method on every family of tasks."""
    names = {task.name: task.family or "other" for task in bench.tasks}
    columns = (
        Column("family"),
        Column("tasks", ColumnKind.COUNT),
        *(Column(label(bench, group), ColumnKind.RATIO, row_best=True) for group in bench.groups),
    )
    rows = []
    for family in dict.fromkeys(sorted(names.values())):
        means = [
            family_means((c for c in bench.of_group(*g) if names[c.task] == family), unverified=unverified)
            for g in bench.groups
        ]
        rows.append((family, sum(name == family for name in names.values()), *means))
    note = f"Geometric mean over PyTorch eager of {_which(unverified)}."
    return Table("families", "Family by family", columns, tuple(rows) if len(rows) > 1 else (), note)


def epoch_table(bench: BenchResults) -> Table:
    """The best speedup after each epoch, of methods with several."""
    found = {group: by_epoch(bench.of_group(*group)) for group in bench.groups}
    most = max(map(len, found.values()), default=0)
    columns = (Column("method"), *(Column(f"epoch {n + 1}", ColumnKind.RATIO) for n in range(most)))
    rows = tuple(
        (label(bench, group), *means, *[None] * (most - len(means))) for group, means in found.items() if len(means) > 1
    )
    note = "Geometric mean of the best speedup over eager that runs had measured by the end of an epoch or stage."
    return Table("epochs", "Epoch by epoch", columns, rows if any(any(row[1:]) for row in rows) else (), note)


def fast_table(bench: BenchResults, found: Sequence[Summary], *, unverified: bool = False) -> Table:
    """The fast_p curve at some points."""
    points = [p for p, _ in next((each.fast for each in found if each.fast), ()) if p in _SHOWN]
    columns = (Column("method"), *(Column(f">{p:g}x", ColumnKind.SHARE) for p in points))
    rows = tuple(
        (label(bench, (each.method, each.proposer)), *(dict(each.fast).get(p) for p in points)) for each in found
    )
    note = f"Share of cells that are more than so many times as fast as PyTorch eager, by {_which(unverified)}."
    return Table("fast", "fast_p", columns, rows if points else (), note)


def _which(unverified: bool) -> str:
    return "the best kernels, also those that nobody verified" if unverified else "verified kernels"


def _mean(means: Means | None) -> Estimate | None:
    return means.geometric if means else None


# --- tasks ---


def task_table(bench: BenchResults, *, unverified: bool = False) -> Table:
    """The speedup of every method on every task."""
    columns = (
        Column("task"),
        Column("zone"),
        *(Column(label(bench, group), ColumnKind.RATIO, row_best=True) for group in bench.groups),
    )
    by_group = {group: _grouped(bench.of_group(*group)) for group in bench.groups}
    rows = tuple(
        (
            task.name if task.calibrated else f"{task.name} (calibrated: no)",
            task.zone or "–",
            *(_of_task(by_group[group].get(task.name, ()), unverified) for group in bench.groups),
        )
        for task in bench.tasks
    )
    note = "Speedup over PyTorch eager, repeats as one. –: no kernel that counts, ✗: failed, …: not finished."
    return Table("tasks", "Task by task", columns, rows, note)


def product_table(bench: BenchResults, *, unverified: bool = False) -> Table:
    """How much of the arithmetic and of the bandwidth the kernels of matrix products use, task by task."""
    columns = (
        *(Column("task"), Column("kernel"), Column("time (ms)", ColumnKind.MS)),
        *(Column("TFLOP/s", ColumnKind.NUMBER), Column("of peak", ColumnKind.SHARE)),
        *(Column("GB/s", ColumnKind.NUMBER), Column("of bandwidth", ColumnKind.SHARE)),
    )
    rows: list[tuple[Value, ...]] = []
    for task in bench.tasks:
        if not task.product or not task.flops or not task.bytes:
            continue
        kernels = [("PyTorch eager", task.eager_ms), ("torch.compile", task.compile_ms)]
        for group in bench.groups:
            own = [cell for cell in bench.of_group(*group) if cell.task == task.name]
            kernels.append((label(bench, group), mean_latency(own, unverified=unverified)))
        for name, ms in kernels:
            if ms:
                flops_s, bytes_s = 1e3 * task.flops / ms, 1e3 * task.bytes / ms
                peak = flops_s / task.peak_flops_s if task.peak_flops_s else None
                bandwidth = bytes_s / task.peak_bytes_s if task.peak_bytes_s else None
                rows.append((task.name, name, ms, flops_s / 1e12, peak, bytes_s / 1e9, bandwidth))
    note = (
        f"Matrix products: time of {_which(unverified)}, geometric means over workloads and repeats. of peak: of the "
        "fastest arithmetic that the precision class of the task permits, measured with PyTorch; in the fp32 class "
        "that can be a product of several tensor-core products. GB/s: every input and output counted once."
    )
    return Table("products", "Utilisation of products", columns, tuple(rows), note)


def _grouped(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.task, []).append(cell)
    return found


def _of_task(cells: Sequence[Cell], unverified: bool) -> Value:
    winners = [best.eager for cell in cells if (best := counted_best(cell, unverified=unverified)) is not None]
    if winners:
        return pooled(winners)
    if any(cell.status is CellStatus.UNFINISHED for cell in cells):
        return "…"
    return "✗" if any(cell.status is CellStatus.FAILED for cell in cells) else "–"


def pair_table(bench: BenchResults, found: Sequence[MethodComparison]) -> Table:
    """Wins, ties and losses of every pair of methods."""
    columns = (
        Column("method"),
        Column("against"),
        Column("win", ColumnKind.COUNT),
        Column("tie", ColumnKind.COUNT),
        Column("loss", ColumnKind.COUNT),
        Column("neither", ColumnKind.COUNT),
        Column("speed ratio", ColumnKind.RATIO),
    )
    rows = tuple(
        (
            label(bench, each.one),
            label(bench, each.other),
            *(each.count(verdict) for verdict in (TaskResult.WIN, TaskResult.TIE, TaskResult.LOSS, TaskResult.NEITHER)),
            each.ratio,
        )
        for each in found
        if each.verdicts
    )
    note = "Tasks both have done; a tie is what the intervals do not tell apart. neither: no kernel on either side."
    return Table("pairs", "One against another", columns, rows, note)


# --- cells that do not count, and all cells ---


def refused_table(bench: BenchResults) -> Table:
    """Kernels that the published rule calls valid, and why they are refused here."""
    columns = (
        Column("task"),
        Column("method"),
        Column("seed", ColumnKind.COUNT),
        Column("trial", ColumnKind.COUNT),
        Column("verdict"),
        Column("why"),
    )
    rows = tuple(
        (cell.task, label(bench, (cell.method, cell.proposer)), cell.seed, each.trial, each.status, each.reason)
        for cell in bench.cells
        for each in cell.refused
    )
    return Table("refused", "Valid by the published rule, and refused here", columns, rows)


def unverified_table(bench: BenchResults) -> Table:
    """Best kernels that are not verified and do not count."""
    columns = (
        Column("task"),
        Column("method"),
        Column("seed", ColumnKind.COUNT),
        Column("speedup", ColumnKind.RATIO),
        Column("why"),
    )
    rows = []
    for cell in unverified_cells(bench):
        assert cell.best is not None, "unverified cells have a best kernel"
        group = label(bench, (cell.method, cell.proposer))
        rows.append((cell.task, group, cell.seed, cell.best.eager.value, cell.best.why_not))
    return Table("unverified", "Not verified, and not counted", columns, tuple(rows))


def empty_table(bench: BenchResults) -> Table:
    """Cells without a valid kernel."""
    found = (cell for cell in bench.cells if cell.done and cell.best is None)
    return Table("empty", "No valid kernel", *_reasons(bench, found))


def failed_table(bench: BenchResults) -> Table:
    """Cells that could not be run."""
    found = (cell for cell in bench.cells if cell.status is CellStatus.FAILED)
    return Table("failed", "Failed", *_reasons(bench, found))


def difference_table(bench: BenchResults) -> Table:
    """What a bench does otherwise than the paper it follows."""
    rows = tuple((text,) for text in bench.differences)
    return Table("differences", f"Where this differs from the paper ({bench.as_published})", (Column("what"),), rows)


def _reasons(bench: BenchResults, cells: Iterable[Cell]) -> tuple[tuple[Column, ...], tuple[tuple[Value, ...], ...]]:
    columns = (Column("task"), Column("method"), Column("seed", ColumnKind.COUNT), Column("why"))
    rows = [(cell.task, label(bench, (cell.method, cell.proposer)), cell.seed, cell.reason) for cell in cells]
    return columns, tuple(rows)


def cell_table(bench: BenchResults) -> Table:
    """Every cell with all of its figures."""
    columns = (
        *(Column(name) for name in ("task", "family", "zone", "method", "proposer")),
        Column("seed", ColumnKind.COUNT),
        Column("status"),
        Column("reason"),
        *(Column(name, ColumnKind.COUNT) for name in ("trials", "settled", "valid", "compiled")),
        *(Column(name, ColumnKind.RATIO) for name in ("eager", "compile", "start")),
        Column("latency_ms", ColumnKind.MS),
        Column("share_of_floor", ColumnKind.SHARE),
        *(Column(name) for name in ("remeasured", "verified", "why_not")),
        Column("tokens", ColumnKind.COUNT),
        Column("prompt_tokens", ColumnKind.COUNT),
        Column("epochs", ColumnKind.COUNT),
        Column("published_valid", ColumnKind.COUNT),
        Column("published_only"),
        Column("usd", ColumnKind.USD),
        Column("device_seconds", ColumnKind.SECONDS),
        Column("wall_seconds", ColumnKind.SECONDS),
        Column("candidate"),
        Column("trial", ColumnKind.COUNT),
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
                *(cell.tokens, cell.prompt_tokens, cell.epochs, cell.published_valid),
                " ".join(f"{status}={count}" for status, count in cell.published_only),
                *(cell.usd, cell.device_seconds, cell.wall_seconds),
                *((best.candidate, best.trial, best.strategy, best.file) if best else ("", None, "", "")),
                cell.device,
                cell.run,
            )
        )
    return Table("cells", "All cells", columns, tuple(rows))


def _said(yes: bool | None) -> str:
    return "" if yes is None else "yes" if yes else "no"
