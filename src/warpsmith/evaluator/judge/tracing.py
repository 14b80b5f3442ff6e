"""Traces one call of a candidate to see the names of the functions and kernels that it really calls.

The last thing done with a host: tracing changes the speed of launches, and nothing is timed after it. The candidate
cannot predict the workload and the data. The names come from the candidate's own process (see `cupti`); the guards
decide what they are worth.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from warpsmith.backends.toolchain import TOOLKIT
from warpsmith.evaluator.judge.check import Checker
from warpsmith.evaluator.judge.executed_code import ExecutedCode
from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.numerics.compare import same_bits
from warpsmith.evaluator.judge.numerics.reference import Case
from warpsmith.evaluator.judge.records import check_guards
from warpsmith.evaluator.judge.task_context import TaskContext
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import (
    Acknowledged,
    CallSets,
    CallsMade,
    FlushCaches,
    StartTrace,
    StopTrace,
    TraceReport,
)
from warpsmith.model.contract import Contract
from warpsmith.model.evidence import RecordingComparison, TracedCall
from warpsmith.model.settings import Settings

_NATIVE = "cuda"  # the backend whose object file names all kernels of the candidate
_MOST_NAMES = 20_000
_LOOKING_S, _LONGEST_S = 1.0, 20.0  # the longer time is for a busy machine
_WANTED_LOOKS, _FEWEST_LOOKS, _MOST_LOOKS = 80, 20, 400  # the first two at a process that works, and does not wait
_LOOKS_PER_REQUEST = 10
_WATCHED_S = 0.025  # the length of a request in which looks are taken: the kernel counts CPU time in ticks
_OBJECTS = (".so", ".cubin")  # extensions, and kernels that Triton compiled


class Tracing:
    """Traces candidates of one task."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._settings: Settings = context.settings
        on_gpu = context.device.type == "cuda"
        self.cupti = find_cupti() if on_gpu and "trace" not in self._settings.without else ""
        self._objects: tuple[bytes, ...] = ()
        self._library = ""

    def read_objects(self, library: str) -> None:
        """Read the object files of a candidate before any of its code runs: kernels in them are its own."""
        path, self._library = Path(library), library
        found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in _OBJECTS and p.is_file())
        self._objects = tuple(p.read_bytes() for p in found) if self.cupti else ()

    def trace(
        self,
        host: HostClient,
        contract: Contract,
        checker: Checker,
        limit_s: Callable[[WorkloadBuffers], float],
        recorded: Mapping[int, frozenset[str]],
    ) -> tuple[str, ...]:
        """Raise CandidateFailed for a candidate that calls what it may not; returns notes on what was not traced.

        `recorded`: by set, the kernels that a candidate that could not be replayed launched while it was recorded.
        """
        python = contract.call is not None
        if "trace" in self._settings.without or not (python or contract.backend == _NATIVE):
            return ()
        buffers = secrets.choice(self._context.workload_buffers)
        case = self._case(buffers)
        report = self._traced(host, buffers, case, checker, limit_s(buffers))
        on_gpu = self._context.device.type == "cuda"
        if report.problem and not python:
            return (f"kernel names were not traced: {report.problem}",)
        compares = python and "torch" not in self._context.task.allow
        special = compares and self._differs(host, buffers, case, checker, limit_s(buffers))
        code = None
        if compares and not on_gpu and not self._context.task.allow:
            code = self._look(host, buffers, limit_s(buffers))
        evidence = TracedCall(
            backend=contract.backend,
            calls=report.calls[:_MOST_NAMES],
            kernels=report.kernels[:_MOST_NAMES],
            elsewhere=report.elsewhere[:_MOST_NAMES],
            own=_own(report.kernels, self._objects),
            operators=report.operators[:_MOST_NAMES],
            allow=self._context.task.allow,
            library=code.library() if code is not None else None,
            operators_ns=report.operators_ns * self._context.config.threads,
            special=special,
        )
        check_guards(evidence, self._settings.without)
        if not (python or self._context.task.allow):
            for other in (b for b in self._context.workload_buffers if b.first_set in recorded):
                again = report
                if other is not buffers:
                    again = self._traced(host, other, self._case(other), checker, limit_s(other))
                said = tuple(sorted(recorded[other.first_set]))
                check_guards(RecordingComparison(again.kernels[:_MOST_NAMES], said), self._settings.without)
        if code is not None and code.at_work < _FEWEST_LOOKS:
            return (f"the machine was too busy to see whose code runs ({code.at_work} looks of {_FEWEST_LOOKS})",)
        return (f"kernel names were not traced: {report.problem}",) if report.problem and on_gpu else ()

    def _look(self, host: HostClient, buffers: WorkloadBuffers, limit_s: float) -> ExecutedCode:
        """Look at which code runs while calls are made like those that are timed, many in one request."""
        code, rng, numbers = ExecutedCode(host.pid, self._library), random.SystemRandom(), tuple(buffers.set_numbers)
        host.ask(FlushCaches(), Acknowledged, self._settings.limits.start_s)
        host.ask(CallSets(numbers), CallsMade, limit_s * len(numbers) + 1.0)
        numbers *= max(1, math.ceil(1e9 * _WATCHED_S / host.round_trip_ns))
        start = time.monotonic()
        while code.at_work < _WANTED_LOOKS and code.count < _MOST_LOOKS:
            if time.monotonic() - start > (_LOOKING_S if code.at_work >= _FEWEST_LOOKS else _LONGEST_S):
                break
            for index in range(len(buffers.sets)):
                buffers.draw_arguments(index, rng)
            with code.request(len(numbers)):
                request, timeout_s = CallSets(numbers), 2 * limit_s * len(numbers) + 1.0
                host.ask_watched(request, CallsMade, timeout_s, code.look, _WATCHED_S / _LOOKS_PER_REQUEST)
        return code

    def _case(self, buffers: WorkloadBuffers) -> Case:
        reference = self._context.reference
        cases = self._context.cases[buffers.workload.name]
        return secrets.choice([case for case in cases if not reference.known_unusable(case)])

    def _traced(
        self, host: HostClient, buffers: WorkloadBuffers, case: Case, checker: Checker, limit_s: float
    ) -> TraceReport:
        """Trace one call on the first set of a workload."""
        start_s = self._settings.limits.start_s
        host.ask(StartTrace(buffers.first_set), Acknowledged, start_s)
        checker.check_cases(host, buffers, (case,), limit_s + start_s, first_set=True)
        return host.ask(StopTrace(), TraceReport, start_s)

    def _differs(
        self, host: HostClient, buffers: WorkloadBuffers, case: Case, checker: Checker, limit_s: float
    ) -> bool:
        """Whether the traced call gave other bits than two untraced calls, which agree: a candidate that notices the
        trace and computes in another way then rounds differently."""
        found = [buffers.copy_outputs(0)]
        for _ in range(2):
            checker.check_cases(host, buffers, (case,), limit_s, first_set=True)
            found.append(buffers.copy_outputs(0))
        traced, once, again = found
        return all(map(same_bits, once, again)) and not all(map(same_bits, traced, once))


def _own(kernels: Sequence[str], objects: Sequence[bytes]) -> tuple[str, ...]:
    """The kernels that an object file defines: it registers each of them with the runtime by this name."""
    return tuple(name for name in kernels if any(name.encode() + b"\0" in data for data in objects))


def find_cupti() -> str:
    """The path of CUPTI: as torch has loaded it, else from packages, the search path or the toolkit."""
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
