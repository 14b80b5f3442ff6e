"""`warpsmith suite list [SUITE...]`: which tasks there are to optimise and to measure by, without loading any."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby

from rich.text import Text

from warpsmith.cli import render
from warpsmith.cli.columns import print_columns
from warpsmith.core.task import Workload
from warpsmith.tasks import suites
from warpsmith.tasks.suites import Entry


@dataclass(frozen=True)
class Request:
    """What the command line asked for; of each kind any will do, except tags, all of which a task must have."""

    suites: tuple[str, ...] = ()  # none: those of the package
    names: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    as_json: bool = False


@dataclass(frozen=True)
class TaskDocument:
    """A task in JSON, one line each; field names are a promise to programs."""

    task: str  # what to write for it on the command line
    suite: str
    name: str
    family: str
    tags: tuple[str, ...]
    precisions: tuple[str, ...]
    workloads: Mapping[str, Mapping[str, int]]  # by name; none where only loading the file tells
    small: Mapping[str, Mapping[str, int]]
    held_out: Mapping[str, Mapping[str, int]]
    description: str


def run(request: Request) -> int:
    """Print the list; the exit status is 0 even where a selection leaves nothing."""
    found = suites.select(request.suites, names=request.names, families=request.families, tags=request.tags)
    if request.as_json:
        for entry in found:
            sys.stdout.write(json.dumps(asdict(_document(entry)), ensure_ascii=False) + "\n")
        return 0
    console = render.console()
    for number, (suite, members) in enumerate(groupby(found, key=lambda entry: entry.suite)):
        listed = list(members)
        if number:
            console.print()
        render.say(console, Text.assemble((suite, "bold"), f"  {_count(len(listed))}"))
        print_columns(console, list(map(_row, listed)), going=("precision", "family"), folding="workloads")
    if len({entry.suite for entry in found}) != 1:
        render.say(console, f"\n{_count(len(found))} in all" if found else "No task has all of that.")
    if found:
        render.say(console, f"\nTake one: {_use(found[0])}", "dim", whole=True)
    return 0


def _use(entry: Entry) -> str:
    """How a task of the list is used, by way of example."""
    small = f", or {entry.title}@small on a CPU" if entry.small else ""
    return f"warpsmith optimize {entry.title}{small}"


def _document(entry: Entry) -> TaskDocument:
    return TaskDocument(
        task=entry.title,
        suite=entry.suite,
        name=entry.name,
        family=entry.family,
        tags=entry.tags,
        precisions=tuple(precision.value for precision in entry.precisions),
        workloads={w.name: w.sizes for w in entry.workloads},
        small={w.name: w.sizes for w in entry.small},
        held_out={w.name: w.sizes for w in entry.held_out},
        description=entry.description,
    )


def _row(entry: Entry) -> dict[str, str]:
    sizes = ", ".join(_sizes(workload) for workload in entry.workloads)
    precisions = ", ".join(entry.precisions)
    return {"task": entry.name, "family": entry.family, "workloads": sizes or "–", "precision": precisions}


def _sizes(workload: Workload) -> str:
    return "×".join(str(size) for _, size in workload.axes) or workload.name


def _count(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"
