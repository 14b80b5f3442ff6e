"""Two result sets side by side: the same methods on another day, device or release, or other methods on the same tasks.

Only tasks that both have done are compared, and what else is different is said first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warpsmith.run.bench.results import Bench
from warpsmith.run.bench.statistics import Duel, Group, Verdict, counted, duel, pooled, summary
from warpsmith.run.bench.tables import Column, Kind, Table, Value

_WORDS = {Verdict.WIN: "B", Verdict.LOSS: "A", Verdict.TIE: "tie", Verdict.NEITHER: "neither"}


@dataclass(frozen=True)
class Comparison:
    """What two benches say about each other."""

    differences: tuple[str, ...]  # sentences: what else was different
    tables: tuple[Table, ...]


def compare(a: Bench, b: Bench, *, unverified: bool = False) -> Comparison:
    """B against A: methods of one name with each other; where they share none, all of A with all of B."""
    pairs = list(_pairs(a, b))
    found = [
        duel(right, list(b.of_group(*right)), left, list(a.of_group(*left)), unverified=unverified)
        for left, right in pairs
    ]
    return Comparison(tuple(_differences(a, b)), (_methods(a, b, found, unverified), _tasks(a, b, found, unverified)))


def _pairs(a: Bench, b: Bench) -> Iterator[tuple[Group, Group]]:
    shared = [group for group in a.groups if group in b.groups]
    if shared:
        yield from ((group, group) for group in shared)
    else:
        yield from ((left, right) for left in a.groups for right in b.groups)


def _differences(a: Bench, b: Bench) -> Iterator[str]:
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


def _methods(a: Bench, b: Bench, found: list[Duel], unverified: bool) -> Table:
    columns = (
        Column("method"),
        Column("tasks", Kind.COUNT),
        Column("A", Kind.RATIO),
        Column("B", Kind.RATIO),
        Column("B / A", Kind.RATIO),
        Column("B wins", Kind.COUNT),
        Column("ties", Kind.COUNT),
        Column("A wins", Kind.COUNT),
    )
    rows: list[tuple[Value, ...]] = []
    for each in found:
        shared = {task for task, _ in each.verdicts}
        means: list[Value] = []
        for bench, group in ((a, each.other), (b, each.one)):
            cells = [cell for cell in bench.of_group(*group) if cell.task in shared]
            eager = summary(group, cells, unverified=unverified).eager
            means.append(eager.geometric.value if eager else None)
        counts = [each.count(verdict) for verdict in (Verdict.WIN, Verdict.TIE, Verdict.LOSS)]
        rows.append((_label(each.one, each.other), len(shared), *means, each.ratio, *counts))
    note = "A, B: geometric mean speedup over PyTorch eager of the winners on the tasks both have done."
    return Table("methods", "B against A", columns, tuple(rows), note)


def _tasks(a: Bench, b: Bench, found: list[Duel], unverified: bool) -> Table:
    several = len(found) > 1
    columns = (
        Column("task"),
        *((Column("method"),) if several else ()),
        Column("A", Kind.RATIO, row_best=True),
        Column("B", Kind.RATIO, row_best=True),
        Column("B / A", Kind.RATIO),
        Column("faster"),
    )
    rows: list[tuple[Value, ...]] = []
    for each in found:
        for task, verdict in each.verdicts:
            sides = []
            for bench, group in ((a, each.other), (b, each.one)):
                cells = [cell for cell in bench.of_group(*group) if cell.task == task]
                best = [winner.eager for cell in cells if (winner := counted(cell, unverified=unverified))]
                sides.append(pooled(best))
            left, right = sides
            ratio = right.over(left) if left is not None and right is not None else None
            name = (_label(each.one, each.other),) if several else ()
            rows.append((task, *name, left, right, ratio, _WORDS[verdict]))
    return Table("tasks", "Task by task", columns, tuple(rows))
