"""What a call really did, by the names of what it called.

A native candidate calls the CUDA runtime and its own kernels, and of the runtime only what launches and copies. A
Python candidate has PyTorch at hand: it may allocate and move data with it, and computes with kernels of its own.
The names come from the candidate's own process, so a trace that shows nothing at all is taken for what it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Evidence, Guard, Objection, Traced
from warpsmith.guards import librarynames
from warpsmith.guards.classes import title
from warpsmith.guards.naming import listed, readable
from warpsmith.guards.suspects import LIBRARY_CALL, SUSPECTS, suspicion
from warpsmith.guards.symbols import CALLS

_NATIVE = "cuda"
_OWN_WORK = 'compute it yourself, or let the task allow the library (allow = ["{library}"])'


class TraceGuard:
    """The classes that imports show, class 15 above all, seen in what was called whatever the source looks like."""

    name: str = "trace"
    attacks: tuple[int, ...] = (5, 6, 8, 9, 10, 15, 16, 19, 22)
    looks_at: type[Evidence] = Traced

    def objection(self, evidence: Evidence) -> Objection | None:
        """Forbidden calls first, then work that others have written."""
        assert isinstance(evidence, Traced)
        if evidence.backend == _NATIVE:
            return _native(evidence) or _elsewhere(evidence)
        if "torch" in evidence.allow:
            return _elsewhere(evidence)
        return _operators(evidence) or _kernels(evidence) or _elsewhere(evidence) or _special(evidence)


def _native(evidence: Traced) -> Objection | None:
    if not evidence.calls and not evidence.kernels:
        return Objection(
            Status.REJECTED,
            10,
            f"{title(10)}: the outputs were written, but no call to CUDA was seen: the trace was tampered with.",
        )
    if evidence.allow:  # an allowed library makes streams, events and launches of its own
        return None
    for suspect in (*SUSPECTS, LIBRARY_CALL):
        names = [name for name in evidence.calls if suspicion(name, CALLS) is suspect]
        if names:
            said = f"the call uses {listed([_plain(n) for n in names])}; {suspect.cure}."
            return Objection(Status.REJECTED, suspect.attack, f"{title(suspect.attack)}: {said}")
    foreign = [name for name in evidence.kernels if name not in evidence.own]
    if foreign:
        return _library(f"kernels that are not its own run: {listed(readable(foreign))}", "cublas")
    return None


def _elsewhere(evidence: Traced) -> Objection | None:
    """Launches on streams that are not timed; libraries that are allowed may have such streams inside."""
    kernels = [k for k in evidence.elsewhere if not evidence.allow or librarynames.PYTORCH_KERNEL.search(k)]
    if not kernels:
        return None
    said = f"{listed(readable(kernels))} runs on another stream; launch everything on the one the call is given."
    return Objection(Status.REJECTED, 5, f"{title(5)}: {said}")


def _operators(evidence: Traced) -> Objection | None:
    """A Python candidate's use of PyTorch."""
    allowed = frozenset().union(*(librarynames.OPERATORS_OF.get(a, frozenset()) for a in evidence.allow))
    computing = [
        name
        for name in evidence.operators
        if (parts := librarynames.operator(name))[0] in librarynames.NAMESPACES
        and parts[0] not in evidence.allow
        and parts[1] not in librarynames.MOVING_OPERATORS
        and parts[1] not in allowed
    ]
    if not computing:
        return None
    return _library(f"it computes with {listed(computing)}", "torch")


def _kernels(evidence: Traced) -> Objection | None:
    """A Python candidate's kernels: those of libraries may only move data, and not all of them may be theirs."""
    allowed = [librarynames.KERNELS_OF[a] for a in evidence.allow if a in librarynames.KERNELS_OF]
    theirs = [name for name in evidence.kernels if name not in evidence.own]
    computing = [n for n in theirs if not librarynames.MOVING_KERNEL.search(n) and not _matches(n, allowed)]
    if computing:
        return _library(f"kernels of a library run: {listed(readable(computing))}", "torch")
    if theirs and len(theirs) == len(evidence.kernels) and not allowed:
        return _library(f"only kernels of a library run: {listed(readable(theirs))}", "torch")
    return None


def _special(evidence: Traced) -> Objection | None:
    """A call that is not what it is while it is watched."""
    if not evidence.special:
        return None
    return _library("it computes something else when its operators are listed than when they are not", "torch")


def _matches(name: str, patterns: Collection[re.Pattern[str]]) -> bool:
    return any(pattern.search(name) for pattern in patterns)


def _library(said: str, library: str) -> Objection:
    return Objection(Status.REJECTED, 15, f"{title(15)}: {said}; {_OWN_WORK.format(library=library)}.")


def _plain(name: str) -> str:
    """A runtime function without the version that tracing adds: cudaMalloc for cudaMalloc_v3020."""
    return re.sub(r"(?:_ptsz|_ptds)?_v\d{4,}$", "", name)


PLUGIN: Guard = TraceGuard()
