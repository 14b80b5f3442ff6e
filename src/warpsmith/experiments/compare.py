"""Compares two results: the same methods on another day, device or version, or other methods on the same tasks.

Only tasks that both have finished are compared. Everything else that differs is listed first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warpsmith.experiments.results import BenchResults
from warpsmith.experiments.statistics import (
    Group,
    MethodComparison,
    TaskResult,
    compare_pair,
    counted_best,
    pooled,
    summary,
)
from warpsmith.experiments.tables import Column, ColumnKind, Table, Value

_WORDS = {TaskResult.WIN: "B", TaskResult.LOSS: "A", TaskResult.TIE: "tie", TaskResult.NEITHER: "neither"}


@dataclass(frozen=True)
class BenchComparison:
    """The comparison of two benches."""

    differences: tuple[str, ...]  # sentences
    tables: tuple[Table, ...]


def compare(a: BenchResults, b: BenchResults, *, unverified: bool = False) -> BenchComparison:
    """B against A: methods of the same name; if they share none, every method of A with every method of B."""
    pairs = list(_pairs(a, b))
    found = [
        compare_pair(right, list(b.of_group(*right)), left, list(a.of_group(*left)), unverified=unverified)
        for left, right in pairs
    ]
    return BenchComparison(
        tuple(_differences(a, b)), (_methods(a, b, found, unverified), _tasks(a, b, found, unverified))
    )


def _pairs(a: BenchResults, b: BenchResults) -> Iterator[tuple[Group, Group]]:
    shared = [group for group in a.groups if group in b.groups]
    if shared:
        yield from ((group, group) for group in shared)
    else:
        yield from ((left, right) for left in a.groups for right in b.groups)


def _differences(a: BenchResults, b: BenchResults) -> Iterator[str]:
    facts = (
        ("device", ", ".join(a.devices), ", ".join(b.devices)),
        ("backend", a.backend, b.backend),
        ("Warpsmith", a.versions.warpsmith, b.versions.warpsmith),
        ("torch", a.versions.torch, b.versions.torch),
        ("compiler", a.versions.compiler, b.versions.compiler),
        ("driver", a.versions.driver, b.versions.driver),
        ("trials", str(a.budget.trials), str(b.budget.trials)),
        ("repeats", str(a.repeats), str(b.repeats)),
        ("verification", "on" if a.verify else "off", "on" if b.verify else "off"),
    )
    for what, left, right in facts:
        if left != right:
            yield f"{what}: {left or 'unknown'} in A, {right or 'unknown'} in B."
    for here, there, which in ((a, b, "A"), (b, a, "B")):
        tasks = {task.name for task in here.tasks} - {task.name for task in there.tasks}
        if tasks:
            yield f"tasks in {which} only: {_some(sorted(tasks))}."
        groups = [" · ".join(group) for group in here.groups if group not in there.groups]
        if groups:
            yield f"methods in {which} only: {_some(groups)}."
    classes = {task.name: task.precision for task in a.tasks}
    other = [task.name for task in b.tasks if task.precision and classes.get(task.name, "") not in ("", task.precision)]
    if other:
        yield f"precision class differs on {_some(other)}."


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _label(one: Group, other: Group) -> str:
    if one == other:
        return " · ".join(one)
    if one[1] == other[1]:
        return f"{other[0]} → {one[0]} · {one[1]}"
    return f"{' · '.join(other)} → {' · '.join(one)}"


def _methods(a: BenchResults, b: BenchResults, found: list[MethodComparison], unverified: bool) -> Table:
    columns = (
        Column("method"),
        Column("tasks", ColumnKind.COUNT),
        Column("A", ColumnKind.RATIO),
        Column("B", ColumnKind.RATIO),
        Column("B / A", ColumnKind.RATIO),
        Column("B wins", ColumnKind.COUNT),
        Column("ties", ColumnKind.COUNT),
        Column("A wins", ColumnKind.COUNT),
    )
    rows: list[tuple[Value, ...]] = []
    for each in found:
        shared = {task for task, _ in each.verdicts}
        means: list[Value] = []
        for bench, group in ((a, each.other), (b, each.one)):
            cells = [cell for cell in bench.of_group(*group) if cell.task in shared]
            eager = summary(group, cells, unverified=unverified).eager
            means.append(eager.geometric.value if eager else None)
        counts = [each.count(verdict) for verdict in (TaskResult.WIN, TaskResult.TIE, TaskResult.LOSS)]
        rows.append((_label(each.one, each.other), len(shared), *means, each.ratio, *counts))
    note = "A, B: geometric mean speedup over PyTorch eager of the best kernels on the tasks both have done."
    return Table("methods", "B against A", columns, tuple(rows), note)


def _tasks(a: BenchResults, b: BenchResults, found: list[MethodComparison], unverified: bool) -> Table:
    several = len(found) > 1
    columns = (
        Column("task"),
        *((Column("method"),) if several else ()),
        Column("A", ColumnKind.RATIO, row_best=True),
        Column("B", ColumnKind.RATIO, row_best=True),
        Column("B / A", ColumnKind.RATIO),
        Column("faster"),
    )
    rows: list[tuple[Value, ...]] = []
    for each in found:
        for task, verdict in each.verdicts:
            sides = []
            for bench, group in ((a, each.other), (b, each.one)):
                cells = [cell for cell in bench.of_group(*group) if cell.task == task]
                best = [winner.eager for cell in cells if (winner := counted_best(cell, unverified=unverified))]
                sides.append(pooled(best))
            left, right = sides
            ratio = right.over(left) if left is not None and right is not None else None
            name = (_label(each.one, each.other),) if several else ()
            rows.append((task, *name, left, right, ratio, _WORDS[verdict]))
    return Table("tasks", "Task by task", columns, tuple(rows))
