"""Guards: one file per family of attack. A guard looks at one kind of evidence and objects or not.

Guards measure, run and load nothing, and none of them imports torch: other parts of the evaluator gather the evidence.
A new guard is a new file with a `PLUGIN`.
"""

from __future__ import annotations

from collections.abc import Collection

from warpsmith.model.errors import UsageError
from warpsmith.model.evidence import Evidence, Guard, Objection
from warpsmith.system.plugins import plugins


def all_guards() -> dict[str, Guard]:
    """All guards by name."""
    return plugins(__name__)


def first_objection(evidence: Evidence, without: Collection[str] = ()) -> Objection | None:
    """The objection of the first guard that objects; `without` names guards that are not asked."""
    for name, guard in all_guards().items():
        if name not in without and isinstance(evidence, guard.looks_at):
            found = guard.objection(evidence)
            if found is not None:
                return found
    return None


def check_guard_names(without: Collection[str]) -> None:
    """Raise UsageError if a guard to leave out does not exist."""
    unknown = sorted(set(without) - set(all_guards()))
    if unknown:
        raise UsageError(f"there is no guard {unknown[0]!r}; known: {', '.join(sorted(all_guards()))}.")
