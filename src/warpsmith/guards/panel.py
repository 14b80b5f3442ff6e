"""Asks every guard that is concerned about a piece of evidence."""

from __future__ import annotations

from collections.abc import Collection

from warpsmith.core.errors import UsageError
from warpsmith.core.guarding import Evidence, Guard, Objection
from warpsmith.core.registry import plugins


def guards() -> dict[str, Guard]:
    """All guards by name."""
    return plugins("warpsmith.guards")


def objection(evidence: Evidence, without: Collection[str] = ()) -> Objection | None:
    """The first objection; None where nobody minds. `without` names guards to leave out."""
    for name, guard in guards().items():
        if name not in without and isinstance(evidence, guard.looks_at):
            found = guard.objection(evidence)
            if found is not None:
                return found
    return None


def check_names(without: Collection[str]) -> None:
    """Raise where a guard to leave out does not exist."""
    unknown = sorted(set(without) - set(guards()))
    if unknown:
        raise UsageError(f"there is no guard {unknown[0]!r}; known: {', '.join(sorted(guards()))}.")
