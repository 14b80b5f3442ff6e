"""`warpsmith suite list [SUITE...]`: list tasks, without loading any."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated

import typer
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import AsJson, Family, Tag
from warpsmith.cli.terminal import print_columns
from warpsmith.model.task import Workload
from warpsmith.tasks.suites import SuiteTask, select_tasks


def suite_list(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE", help="warpsmith-100, warpsmith-fused, or kernelbench:PATH/level1.  [all]"),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these tasks.")] = None,
    family: Family = None,
    tag: Tag = None,
    json: AsJson = False,
) -> int:
    """List tasks with their family, sizes and precision classes."""
    found = select_tasks(
        tuple(suites or ()), names=tuple(name or ()), families=tuple(family or ()), tags=tuple(tag or ())
    )
    if json:
        print_document({"tasks": [_document(entry) for entry in found]})
        return 0
    console = cards.console()
    for number, (suite, members) in enumerate(groupby(found, key=lambda entry: entry.suite)):
        listed = list(members)
        if number:
            console.print()
        cards.say(console, Text.assemble((suite, "bold"), f"  {_count(len(listed))}"))
        print_columns(console, list(map(_row, listed)), optional=("precision", "family"), folding="workloads")
    if len({entry.suite for entry in found}) != 1:
        cards.say(console, f"\n{_count(len(found))} in all" if found else "No task has all of that.")
    if found:
        first = found[0]
        small = f", or {first.title}@small on a CPU" if first.small else ""
        cards.say(console, f"\nOptimise one: warpsmith optimize {first.title}{small}", "dim", whole=True)
    return 0


def _document(entry: SuiteTask) -> dict[str, object]:
    """A task as JSON; workloads are empty where only loading the file tells them."""
    return {
        "task": entry.title,  # as on the command line
        **{name: getattr(entry, name) for name in ("suite", "name", "family", "tags", "precisions", "description")},
        **{name: {w.name: w.sizes for w in getattr(entry, name)} for name in ("workloads", "small", "held_out")},
    }


def _row(entry: SuiteTask) -> dict[str, str]:
    sizes = ", ".join(_sizes(workload) for workload in entry.workloads)
    precisions = ", ".join(entry.precisions)
    return {"task": entry.name, "family": entry.family, "workloads": sizes or "–", "precision": precisions}


def _sizes(workload: Workload) -> str:
    return "×".join(str(size) for _, size in workload.axes) or workload.name


def _count(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"
