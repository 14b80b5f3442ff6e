"""What a built object can call is what it imports: everything that is not known to be harmless is refused.

A filter before anything runs, never the only defence. What a candidate does without importing anything (inline
assembly, a walk through its own memory) is not seen here: the sandbox, the judge's clock and the trace are for that.
Of a Python candidate the extensions are looked at that it brings, if any, and whether its text names the harness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from warpsmith.backends.ptxas import demangled
from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Built, Evidence, Guard, Objection
from warpsmith.guards.classes import title
from warpsmith.guards.librarynames import only_moves, operator_imported
from warpsmith.guards.naming import NAMED, listed
from warpsmith.guards.suspects import LIBRARY_CALL, SUSPECTS, Suspect, suspicion
from warpsmith.guards.symbols import ALLOWED, EXTENSION, NEEDED, PYTHON, TOLERATED, library_of, symbols_of

_HARNESS = __name__.partition(".")[0]


class ImportsGuard:
    """All classes that show in the names an object takes from other libraries."""

    name: str = "imports"
    attacks: tuple[int, ...] = (2, 5, 6, 8, 9, 10, 15, 16, 17, 19, 22)
    looks_at: type[Evidence] = Built

    def objection(self, evidence: Evidence) -> Objection | None:
        """The worst kind of attack that the imports serve; then libraries that nobody allowed."""
        assert isinstance(evidence, Built)
        if evidence.backend == PYTHON:
            return _of_the_harness(evidence)
        allowed = ALLOWED.get(evidence.backend)
        if allowed is None:
            return None
        tolerated = TOLERATED[evidence.backend]
        given = [symbols_of(library) for library in evidence.allow]
        suspected: dict[Suspect, list[str]] = {}
        for name in evidence.imports:
            known = any(p.fullmatch(name) for p in given) or _moves(name, evidence)
            suspect = None if known else suspicion(name, allowed, tolerated)
            if suspect is not None:
                suspected.setdefault(suspect, []).append(name)
        for suspect in (*SUSPECTS, LIBRARY_CALL):
            if suspect in suspected:
                others = sum(map(len, suspected.values())) - len(suspected[suspect])
                return _objection(suspect, suspected[suspect], others)
        return _unknown_library(evidence)


def _of_the_harness(evidence: Built) -> Objection | None:
    """A Python candidate shares its process with the harness's own modules, and has no business with them."""
    named = [name for name in evidence.imports if name.partition(".")[0] == _HARNESS]
    if not named:
        return None
    said = f"the source imports {', '.join(named[:NAMED])}, a part of the harness; a kernel needs none of it."
    return Objection(Status.REJECTED, 10, f"{title(10)}: {said}")


def _moves(name: str, evidence: Built) -> bool:
    """Whether an extension of PyTorch imports an operator that it may call."""
    called = operator_imported(name) if evidence.backend == EXTENSION else ""
    return called != "" and ("torch" in evidence.allow or only_moves(called))


def _objection(suspect: Suspect, names: Sequence[str], others: int) -> Objection:
    shown = listed(demangled(names))
    if others:
        shown += f" ({others} other name{'s' if others > 1 else ''} would be refused too)"
    return Objection(
        Status.REJECTED,
        suspect.attack,
        f"{title(suspect.attack)}: the object imports {shown}; {_cure(suspect, names)}.",
    )


def _cure(suspect: Suspect, names: Sequence[str]) -> str:
    if suspect.attack != 15:
        return suspect.cure
    library = library_of(names)
    if library:
        return f'{suspect.cure}, or let the task allow the library (allow = ["{library}"])'
    return f"{suspect.cure}, with what a kernel may use: memory, math, text, containers, OpenMP, kernel launches"


def _unknown_library(evidence: Built) -> Objection | None:
    given = [re.compile(rf"lib{re.escape(library)}[\w.+-]*") for library in evidence.allow]
    usual = NEEDED[evidence.backend]
    for library in evidence.needed:
        if not usual.fullmatch(library) and not any(p.fullmatch(library) for p in given):
            return Objection(
                Status.REJECTED,
                15,
                f"{title(15)}: the object needs {library}; compute it yourself, or let the task allow the library.",
            )
    return None


PLUGIN: Guard = ImportsGuard()
