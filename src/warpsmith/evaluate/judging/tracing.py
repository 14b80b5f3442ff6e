"""One more call of a candidate that has been timed, to see by name what it really calls.

The last thing done with a host: tracing changes how fast launches are, and nothing is timed after it. Which workload
and which data it is done with cannot be foreseen. The names come out of the candidate's own process (see `cupti`);
what they are worth is for the guards to say.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from warpsmith.backends.toolchain import TOOLKIT
from warpsmith.core.config import Settings
from warpsmith.core.contract import Contract
from warpsmith.core.guarding import Recounted, Traced
from warpsmith.evaluate.correctness.oracle import Case
from warpsmith.evaluate.judging.bench import Bench
from warpsmith.evaluate.judging.check import Checker
from warpsmith.evaluate.judging.findings import face
from warpsmith.evaluate.judging.peer import Peer
from warpsmith.evaluate.judging.premises import Premises
from warpsmith.evaluate.messages import Acknowledged, TraceOff, TraceOn, TraceReport

_NATIVE = "cuda"  # the backend whose object names all kernels that are its own
_MOST_NAMES = 20_000
_OBJECTS = (".so", ".cubin")  # extensions, and what Triton compiled


class Tracing:
    """Traces candidates of one task."""

    def __init__(self, premises: Premises) -> None:
        self._premises = premises
        self._settings: Settings = premises.settings
        on_gpu = premises.device.type == "cuda"
        self.cupti = find_cupti() if on_gpu and "trace" not in self._settings.without else ""
        self._objects: tuple[bytes, ...] = ()

    def remember(self, library: str) -> None:
        """The objects a candidate comes with, read before any of its code runs: kernels in them are its own."""
        path = Path(library)
        found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in _OBJECTS and p.is_file())
        self._objects = tuple(p.read_bytes() for p in found) if self.cupti else ()

    def trace(
        self,
        peer: Peer,
        contract: Contract,
        checker: Checker,
        limit_s: Callable[[Bench], float],
        recorded: Mapping[int, frozenset[str]],
    ) -> tuple[str, ...]:
        """Condemn a candidate that calls what it should not; notes on what could not be traced.

        `recorded` are the kernels that it launched on a set while its calls were recorded, where that is known and
        could not be replayed.
        """
        python = contract.call is not None
        if "trace" in self._settings.without or not (python or contract.backend == _NATIVE):
            return ()
        bench = secrets.choice(self._premises.benches)
        case = self._case(bench)
        report = self._traced(peer, bench, case, checker, limit_s(bench))
        on_gpu = self._premises.device.type == "cuda"
        if report.problem and not python:
            return (f"kernel names were not traced: {report.problem}",)
        watched = python and "torch" not in self._premises.task.allow
        evidence = Traced(
            backend=contract.backend,
            calls=report.calls[:_MOST_NAMES],
            kernels=report.kernels[:_MOST_NAMES],
            elsewhere=report.elsewhere[:_MOST_NAMES],
            own=_own(report.kernels, self._objects),
            operators=report.operators[:_MOST_NAMES],
            allow=self._premises.task.allow,
            special=watched and self._differs(peer, bench, case, checker, limit_s(bench)),
        )
        face(evidence, self._settings.without)
        if not (python or self._premises.task.allow):
            for other in (b for b in self._premises.benches if b.first_set in recorded):
                again = report
                if other is not bench:
                    again = self._traced(peer, other, self._case(other), checker, limit_s(other))
                said = tuple(sorted(recorded[other.first_set]))
                face(Recounted(again.kernels[:_MOST_NAMES], said), self._settings.without)
        return (f"kernel names were not traced: {report.problem}",) if report.problem and on_gpu else ()

    def _case(self, bench: Bench) -> Case:
        oracle = self._premises.oracle
        cases = self._premises.cases[bench.workload.name]
        return secrets.choice([case for case in cases if not oracle.surely_unusable(case)])

    def _traced(self, peer: Peer, bench: Bench, case: Case, checker: Checker, limit_s: float) -> TraceReport:
        """One call on the first set of a workload."""
        start_s = self._settings.limits.start_s
        peer.ask(TraceOn(bench.first_set), Acknowledged, start_s)
        checker.examine(peer, bench, (case,), limit_s + start_s, first_set=True)
        return peer.ask(TraceOff(), TraceReport, start_s)

    def _differs(self, peer: Peer, bench: Bench, case: Case, checker: Checker, limit_s: float) -> bool:
        """Whether the call that was traced just now gave other bits than two calls give that nobody watches: whoever
        notices the trace and does something else then rounds differently."""
        found = [_bits(bench)]
        for _ in range(2):
            checker.examine(peer, bench, (case,), limit_s, first_set=True)
            found.append(_bits(bench))
        watched, once, again = found
        return _equal(once, again) and not _equal(watched, once)


def _bits(bench: Bench) -> list[torch.Tensor]:
    """The results of the last call on the first set."""
    return [output.clone().reshape(-1).view(torch.uint8) for output in bench.sets[0].outputs]


def _equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def _own(kernels: Sequence[str], objects: Sequence[bytes]) -> tuple[str, ...]:
    """Those that an object defines: it registers each of its kernels with the runtime by this name."""
    return tuple(name for name in kernels if any(name.encode() + b"\0" in data for data in objects))


def find_cupti() -> str:
    """CUPTI's library: the one that torch has loaded, else of the packages, the search path or the toolkit."""
    loaded = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = [f"/{line.partition('/')[2]}" for line in loaded if "/libcupti.so" in line]
    if paths:
        return paths[0]
    packages = [nvidia for folder in sys.path for nvidia in Path(folder or ".").glob("nvidia/*/lib")]
    searched = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    toolkit = [TOOLKIT / folder for folder in ("lib64", "lib", "extras/CUPTI/lib64")]
    for folder in (*packages, *searched, *toolkit):
        found = sorted(folder.glob("libcupti.so*"), reverse=True)
        if found:
            return str(found[0])
    return ""
