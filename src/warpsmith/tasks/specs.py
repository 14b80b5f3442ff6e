"""From what a trace saw to the words of a task: names of outputs, kinds of numbers, notes for the reader."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.core.task import ScalarKind
from warpsmith.tasks.names import as_identifier


def scalar_kind(value: bool | int | float) -> ScalarKind:
    """The C type of a Python number."""
    if isinstance(value, bool):
        return ScalarKind.BOOL
    return ScalarKind.INT if isinstance(value, int) else ScalarKind.FLOAT


def output_names(paths: Sequence[str], taken: set[str]) -> tuple[str, ...]:
    """Names for outputs: `out`, or `out0`, `out1`, or the keys they are returned under."""
    used, names = set(taken), list[str]()
    for index, path in enumerate(paths):
        plain = path[:1].isalpha()
        name = as_identifier(path if plain else "out" if len(paths) == 1 else f"out{index}", used)
        used.add(name)
        names.append(name)
    return tuple(names)


def draw_names(count: int, taken: set[str]) -> tuple[str, ...]:
    """Names for random numbers that a reference draws itself."""
    names: list[str] = []
    for index in range(count):
        names.append(as_identifier(f"drawn{index}", taken | set(names)))
    return tuple(names)


def trace_notes(dropout: bool, draws: tuple[str, ...], written: list[str], extras: bool) -> tuple[str, ...]:
    """One sentence for everything the loader changed about a reference."""
    notes: list[str] = []
    if draws:
        notes.append(f"Random numbers drawn inside the reference are passed in as {', '.join(draws)}.")
    if dropout:
        notes.append("Dropout is switched off, because a random result cannot be checked.")
    if written:
        names = ", ".join(written)
        notes.append(f"The reference writes to {names}; it works on a copy, and a kernel must not write there.")
    if extras:
        notes.append("The reference also returns something that is no tensor; it is not checked.")
    return tuple(notes)
