"""Objects to forbidden calls in the trace of a call, which lists functions, kernels and operators by name.

A native candidate may call functions of the CUDA runtime that launch and copy, and its own kernels. A Python candidate
may allocate and move data with PyTorch, and computes with kernels of its own. The names come from the candidate's own
process, so an empty trace is a sign of tampering.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from warpsmith.evaluator.guards import library_names
from warpsmith.evaluator.guards.attack_classes import rejection
from warpsmith.evaluator.guards.library_names import listed, readable
from warpsmith.evaluator.guards.symbol_lists import CALLS, FORBIDDEN, LIBRARY_CALL, forbidden_by
from warpsmith.model.evidence import Evidence, Guard, Objection, TracedCall

_NATIVE = "cuda"
_FEWEST_LOOKS, _HIDDEN_SHARE = 5, 0.3  # calling an operator is work of PyTorch too
_OPERATOR_MARGIN, _OPERATOR_NS = 2.0, 10_000
# Calling operators does not take so long. Beside slow code of its own, a small share of the time is most of the work.
_LONG_SHARE, _LONG_NS = 0.1, 200_000
_OWN_WORK = 'compute it yourself, or let the task allow the library (allow = ["{library}"])'


class TraceGuard:
    """The classes that imports show too, above all class 15, seen in the calls themselves."""

    name: str = "trace"
    attacks: tuple[int, ...] = (5, 6, 8, 9, 10, 15, 16, 19, 22)
    looks_at: type[Evidence] = TracedCall

    def objection(self, evidence: Evidence) -> Objection | None:
        """Forbidden calls first, then work of libraries."""
        assert isinstance(evidence, TracedCall)
        if evidence.backend == _NATIVE:
            return _native(evidence) or _elsewhere(evidence)
        if "torch" in evidence.allow:
            return _elsewhere(evidence)
        found = _operators(evidence) or _kernels(evidence) or _elsewhere(evidence)
        return found or _hidden(evidence) or _special(evidence)


def _native(evidence: TracedCall) -> Objection | None:
    if not evidence.calls and not evidence.kernels:
        return rejection(10, "the outputs were written, but no call to CUDA was seen: the trace was tampered with.")
    if evidence.allow:  # an allowed library makes streams, events and launches of its own
        return None
    for forbidden in (*FORBIDDEN, LIBRARY_CALL):
        names = [name for name in evidence.calls if forbidden_by(name, CALLS) is forbidden]
        if names:
            said = f"the call uses {listed([_plain(n) for n in names])}; {forbidden.cure}."
            return rejection(forbidden.attack, said)
    foreign = [name for name in evidence.kernels if name not in evidence.own]
    if foreign:
        return _library(f"kernels that are not its own run: {listed(readable(foreign))}", "cublas")
    return None


def _elsewhere(evidence: TracedCall) -> Objection | None:
    """Launches on streams that are not timed; allowed libraries may use such streams."""
    kernels = [k for k in evidence.elsewhere if not evidence.allow or library_names.PYTORCH_KERNEL.search(k)]
    if not kernels:
        return None
    said = f"{listed(readable(kernels))} runs on another stream; launch everything on the one the call is given."
    return rejection(5, said)


def _operators(evidence: TracedCall) -> Objection | None:
    """PyTorch operators that compute, or that are no longer PyTorch's."""
    redefined = [
        name.partition(".")[2] for name in evidence.operators if name.startswith(f"{library_names.REDEFINED}.")
    ]
    if redefined:
        return _library(f"it has replaced {listed(redefined)} of PyTorch", "torch")
    allowed = frozenset().union(*(library_names.OPERATORS_OF.get(a, frozenset()) for a in evidence.allow))
    computing = [
        name
        for name in evidence.operators
        if (parts := library_names.operator(name))[0] in library_names.NAMESPACES
        and parts[0] not in evidence.allow
        and parts[1] not in library_names.MOVING_OPERATORS
        and parts[1] not in allowed
    ]
    if not computing:
        return None
    return _library(f"it computes with {listed(computing)}", "torch")


def _kernels(evidence: TracedCall) -> Objection | None:
    """Kernels of libraries that compute, or no kernel of the candidate's own."""
    allowed = [library_names.KERNELS_OF[a] for a in evidence.allow if a in library_names.KERNELS_OF]
    theirs = [name for name in evidence.kernels if name not in evidence.own]
    computing = [n for n in theirs if not library_names.MOVING_KERNEL.search(n) and not _matches(n, allowed)]
    if computing:
        return _library(f"kernels of a library run: {listed(readable(computing))}", "torch")
    if theirs and len(theirs) == len(evidence.kernels) and not allowed:
        return _library(f"only kernels of a library run: {listed(readable(theirs))}", "torch")
    return None


def _hidden(evidence: TracedCall) -> Objection | None:
    """Time in the code of libraries that no operator in the list explains."""
    library = evidence.library
    if library is None or library.looks < _FEWEST_LOOKS:
        return None
    unexplained_ns = library.call_ns - _OPERATOR_MARGIN * evidence.operators_ns
    long = library.share >= _LONG_SHARE and unexplained_ns > _LONG_NS
    if not long and (library.share < _HIDDEN_SHARE or unexplained_ns <= _OPERATOR_NS):
        return None
    share, names = round(100 * library.share), listed(library.files)
    return _library(f"{share} % of its work is done by {names}, and no operator in the trace explains that", "torch")


def _special(evidence: TracedCall) -> Objection | None:
    """A call that computes differently while it is traced."""
    if not evidence.special:
        return None
    return _library("it computes something else when its operators are listed than when they are not", "torch")


def _matches(name: str, patterns: Collection[re.Pattern[str]]) -> bool:
    return any(pattern.search(name) for pattern in patterns)


def _library(said: str, library: str) -> Objection:
    return rejection(15, f"{said}; {_OWN_WORK.format(library=library)}.")


def _plain(name: str) -> str:
    """A runtime function without the version that tracing adds: cudaMalloc for cudaMalloc_v3020."""
    return re.sub(r"(?:_ptsz|_ptds)?_v\d{4,}$", "", name)


PLUGIN: Guard = TraceGuard()
