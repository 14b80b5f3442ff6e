"""`@listed`: the properties of a task in a suite besides its computation.

They are a family and tags to select by, the precision classes it is meant for, a small workload for a CPU, and held-out
shapes that only verification uses. `@listed` is above `@task`, so that a copy of the file has all properties.

    @listed(family="activation", small=[{"rows": 64, "cols": 1000}], held_out=[{"rows": 61, "cols": 4099}])
    @task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 393_216}])
    def relu(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

`warpsmith.tasks.suites` finds and selects listed tasks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from warpsmith.model.errors import TaskError
from warpsmith.model.source_text import parse_python
from warpsmith.model.task import Workload
from warpsmith.tasks.declare import ATTRIBUTE, TaskDeclaration, checked_precision, checked_workloads

FULL = "full"
SMALL = "small"
SIZES = (FULL, SMALL)
"""The sizes that may follow `@` in the name of a task; without one a task has its full size."""

F = TypeVar("F", bound=Callable[..., object])
Sizes = Sequence[Mapping[str, int | str]]


def listed(
    *,
    family: str,
    tags: Sequence[str] = (),
    precisions: Sequence[str] = (),
    small: Sizes = (),
    held_out: Sizes = (),
) -> Callable[[F], F]:
    """Declare the family of a task, its tags and precisions, and its small and held-out sizes."""
    if not isinstance(family, str) or not family:
        raise TaskError(f"listed needs a family such as 'activation', not {family!r}.")
    for key, words in (("tags", tags), ("precisions", precisions)):
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise TaskError(f"{key} of listed is a list of words, not {words!r}.")
    classes = tuple(checked_precision(text) for text in precisions)

    def add(function: F) -> F:
        declaration = getattr(function, "__dict__", {}).get(ATTRIBUTE)
        if not isinstance(declaration, TaskDeclaration):
            raise TaskError("@listed goes above @task, which declares the inputs.")
        if classes and declaration.precision not in classes:
            raise TaskError(
                f"task {declaration.name!r} has precision {declaration.precision}; add it to `precisions` of @listed."
            )
        vars(function)[ATTRIBUTE] = replace(
            declaration,
            family=family,
            tags=tuple(tags),
            precisions=classes or (declaration.precision,),
            small=_sized(declaration, small),
            held_out=_sized(declaration, held_out),
        )
        return function

    return add


def sized(declaration: TaskDeclaration, size: str) -> TaskDeclaration:
    """The declaration with the workloads of one size."""
    if size == FULL:
        return declaration
    if size != SMALL:
        raise TaskError(f"task {declaration.name!r} has no size {size!r}; use one of {', '.join(SIZES)}.")
    if not declaration.small:
        raise TaskError(f"task {declaration.name!r} has no small workload; leave out '@{size}'.")
    return replace(declaration, workloads=declaration.small)


def without_listing(text: str) -> str:
    """The text of a task file without `@listed`: proposers must not see the held-out shapes."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(parse_python(text)):
        for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(mark, ast.Call) and ast.unparse(mark.func).split(".")[-1] == listed.__name__:
                last = mark.end_lineno or mark.lineno
                lines[mark.lineno - 1 : last] = [""] * (last - mark.lineno + 1)
    return "".join(lines)


def _sized(declaration: TaskDeclaration, given: Sizes) -> tuple[Workload, ...]:
    """Workloads of other sizes, with the task's axes in the task's order."""
    if not given:
        return ()
    own = tuple(declaration.workloads[0].sizes)
    made = checked_workloads(declaration.name, given, {})
    if set(made[0].sizes) != set(own):
        listing, wanted = (", ".join(axes) or "none" for axes in (made[0].sizes, own))
        raise TaskError(f"task {declaration.name!r}: @listed gives the axes {listing}, but the task has {wanted}.")
    return tuple(Workload(w.name, tuple((axis, w.sizes[axis]) for axis in own)) for w in made)
