"""Objects to built objects that import symbols which are not known to be harmless.

A filter before any code runs, never the only defence: attacks without imports (inline assembly, a search through
memory) are left to the sandbox, the judge's clock and the trace. For Python candidates, the extensions are checked and
whether the source imports the harness.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from warpsmith.backends.diagnostics import demangled
from warpsmith.evaluator.guards.attack_classes import rejection
from warpsmith.evaluator.guards.library_names import NAMED, listed, only_moves, operator_imported
from warpsmith.evaluator.guards.symbol_lists import (
    ALLOWED,
    EXTENSION,
    FORBIDDEN,
    LIBRARY_CALL,
    NEEDED,
    PYTHON,
    TOLERATED,
    ForbiddenNames,
    forbidden_by,
    library_of,
    symbols_of,
)
from warpsmith.model.evidence import BuiltObject, Evidence, Guard, Objection

_HARNESS = __name__.partition(".")[0]


class ImportsGuard:
    """All classes of attack that need imported symbols."""

    name: str = "imports"
    attacks: tuple[int, ...] = (2, 5, 6, 8, 9, 10, 15, 16, 17, 19, 22)
    looks_at: type[Evidence] = BuiltObject

    def objection(self, evidence: Evidence) -> Objection | None:
        """The gravest attack that the imports serve; then libraries that are not allowed."""
        assert isinstance(evidence, BuiltObject)
        if evidence.backend == PYTHON:
            return _harness_imports(evidence)
        allowed = ALLOWED.get(evidence.backend)
        if allowed is None:
            return None
        tolerated = TOLERATED[evidence.backend]
        given = [symbols_of(library) for library in evidence.allow]
        found: dict[ForbiddenNames, list[str]] = {}
        for name in evidence.imports:
            known = any(p.fullmatch(name) for p in given) or _is_allowed_operator(name, evidence)
            forbidden = None if known else forbidden_by(name, allowed, tolerated)
            if forbidden is not None:
                found.setdefault(forbidden, []).append(name)
        for forbidden in (*FORBIDDEN, LIBRARY_CALL):
            if forbidden in found:
                others = sum(map(len, found.values())) - len(found[forbidden])
                return _objection(forbidden, found[forbidden], others)
        return _unknown_library(evidence)


def _harness_imports(evidence: BuiltObject) -> Objection | None:
    """A Python candidate shares its process with modules of the harness and must not use them."""
    named = [name for name in evidence.imports if name.partition(".")[0] == _HARNESS]
    if not named:
        return None
    said = f"the source imports {', '.join(named[:NAMED])}, a part of the harness; a kernel needs none of it."
    return rejection(10, said)


def _is_allowed_operator(name: str, evidence: BuiltObject) -> bool:
    """True if an extension of PyTorch imports an operator that it may call."""
    called = operator_imported(name) if evidence.backend == EXTENSION else ""
    return called != "" and ("torch" in evidence.allow or only_moves(called))


def _objection(forbidden: ForbiddenNames, names: Sequence[str], others: int) -> Objection:
    shown = listed(demangled(names))
    if others:
        shown += f" ({others} other name{'s' if others > 1 else ''} would be refused too)"
    return rejection(forbidden.attack, f"the object imports {shown}; {_cure(forbidden, names)}.")


def _cure(forbidden: ForbiddenNames, names: Sequence[str]) -> str:
    if forbidden.attack != 15:
        return forbidden.cure
    library = library_of(names)
    if library:
        return f'{forbidden.cure}, or let the task allow the library (allow = ["{library}"])'
    return f"{forbidden.cure}, with what a kernel may use: memory, math, text, containers, OpenMP, kernel launches"


def _unknown_library(evidence: BuiltObject) -> Objection | None:
    given = [re.compile(rf"lib{re.escape(library)}[\w.+-]*") for library in evidence.allow]
    usual = NEEDED[evidence.backend]
    for library in evidence.needed:
        if not usual.fullmatch(library) and not any(p.fullmatch(library) for p in given):
            return rejection(15, f"the object needs {library}; compute it yourself, or let the task allow the library.")
    return None


PLUGIN: Guard = ImportsGuard()
