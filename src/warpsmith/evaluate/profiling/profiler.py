"""Finds out why a valid candidate is not faster, by the best means this machine has.

    with Profiler(device) as profiler:
        profile = profiler.profile("softmax.py", candidate, problem, evaluation)

On a GPU Nsight Compute where rights allow, else the times of its kernels; on the CPU the compiler's report on
vectorisation; otherwise what the evaluation knows anyway. Not for every candidate: it costs seconds, so ask for those
that are about to be parents.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from warpsmith.backends.source import backend_named
from warpsmith.core.build import Artifact, Target
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Limits, Paths
from warpsmith.core.errors import HarnessFault, ToolMissing
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.owned import OwnedFolder
from warpsmith.core.search import Problem
from warpsmith.core.task import Precision, Task, Workload
from warpsmith.evaluate.profiling import cpu, figures, ncu, rules, timings
from warpsmith.evaluate.profiling.digest import Digest, compose
from warpsmith.evaluate.supervising.lock import DeviceLock, lock_folder
from warpsmith.evaluate.supervising.workforce import Workforce, new_scratch
from warpsmith.evaluate.verification.solorun import Part, Stage, read_samples
from warpsmith.hardware.device import Device, threads

SMALL_BYTES = 128 << 20
"""Of all tensors: more than a GPU's cache holds, and few enough to be written, replayed and read back in a second."""

_INPUTS_S = 60.0
_NCU_S = 30.0  # the first time several ways are tried; afterwards it takes a few seconds
EVALUATION = "the evaluation"
CASES = "cases.json"  # as `inputs` writes it, which imports torch


@dataclass(frozen=True)
class Profile:
    """What could be found out: with a digest, or why there is none; `reason` also says what was not possible."""

    digest: Digest | None
    reason: str = ""


class Profiler:
    """Profiles candidates on one device; keeps inputs of the last task between calls. Not shared between threads."""

    def __init__(
        self,
        device: Device,
        *,
        paths: Paths | None = None,
        limits: Limits | None = None,
        environ: Mapping[str, str] | None = None,
        on_wait: Callable[[], None] = lambda: None,  # somebody else uses the device
    ) -> None:
        self._device = device
        self._paths = paths or Paths.from_environment()
        self._limits = limits or Limits()
        self._environ = os.environ if environ is None else environ
        self._on_wait = on_wait
        self._lock = DeviceLock(lock_folder(device.kind, self._paths.cache), device.hardware)
        self._inputs: tuple[str, OwnedFolder] | None = None
        self._ways: tuple[ncu.Way, ...] = ncu.WAYS
        self._timed_ways: tuple[bool, ...] = timings.WAYS
        self._refused = ""  # why the tool cannot be used here, once that is known

    def __enter__(self) -> Profiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was written."""
        if self._inputs is not None:
            self._inputs[1].remove()
            self._inputs = None

    def profile(
        self,
        task: str | Path,
        candidate: Candidate,
        problem: Problem,
        evaluation: Evaluation,
        precision: Precision | None = None,
    ) -> Profile:
        """Why this candidate is not faster. A fault of ours is a reason, never an exception of the candidate's."""
        if not evaluation.ok:
            return Profile(None, "only a valid candidate can be profiled; mend it first.")
        begun = time.monotonic()
        try:
            if self._device.kind == "cuda":
                return self._on_gpu(str(task), candidate, problem, evaluation, precision)
            return self._on_cpu(candidate, problem, evaluation)
        except (HarnessFault, ToolMissing) as fault:
            return _by_figures(problem, evaluation, str(fault), time.monotonic() - begun)

    def _on_cpu(self, candidate: Candidate, problem: Problem, evaluation: Evaluation) -> Profile:
        begun = time.monotonic()
        if candidate.backend != "cpu":
            return _by_figures(problem, evaluation, "the compiler's report is for C++ candidates only.", 0.0)
        target = Target("cpu", self._device.arch)
        report = cpu.report(candidate, problem.contract, target, self._paths, self._limits)
        suspects = [*cpu.suspects(report, candidate, problem, evaluation), *figures.suspects(problem, evaluation)]
        workload = figures.longest(evaluation).workload
        seconds = time.monotonic() - begun
        return Profile(compose(suspects, source=report.compiler, workload=workload, seconds=seconds))

    def _on_gpu(
        self, task: str, candidate: Candidate, problem: Problem, evaluation: Evaluation, precision: Precision | None
    ) -> Profile:
        workload = chosen(problem.task)
        if workload is None:
            return _by_figures(problem, evaluation, "every workload is too large to be run under a profiler.", 0.0)
        backend = backend_named(candidate.backend).placed(self._paths, self._limits)
        contract = backend.contract(problem.task, candidate.entry)
        built = backend.build(candidate, contract, Target("cuda", self._device.arch))
        if not isinstance(built, Artifact) or built.kind != "library":
            return _by_figures(problem, evaluation, "profilers are run on CUDA C++ candidates only.", 0.0)
        samples = self._written(task, precision, problem.task, workload)
        part = Part(built.library, contract, problem.task, read_samples(samples / CASES), samples)
        folder = new_scratch()
        try:
            with self._lock.held(self._on_wait):
                digest, reason = self._counted(self._stage(folder.path), part, candidate, problem, evaluation)
                if digest is not None:
                    return Profile(digest)
                times = timings.measure(self._stage(folder.path), part, self._timed_ways)
        finally:
            folder.remove()
        if not times.kernels:
            return _by_figures(problem, evaluation, reason or times.reason, times.seconds)
        self._timed_ways = (times.confined,)
        suspects = [*timings.suspects(times), *figures.suspects(problem, evaluation)]
        source, kernel = timings.SOURCE, times.longest
        digest = compose(suspects, source=source, workload=workload.name, kernel=kernel, seconds=times.seconds)
        return Profile(digest, reason)

    def _counted(
        self, stage: Stage, part: Part, candidate: Candidate, problem: Problem, evaluation: Evaluation
    ) -> tuple[Digest | None, str]:
        """By Nsight Compute; or why not."""
        program = ncu.find(self._environ)
        if program is None or self._refused:
            return None, self._refused or ncu.MISSING
        workload = part.samples[0].workload
        zone = figures.zone_of(problem, workload)
        counted = ncu.count(program, stage, part, zone, kernels=ncu.kernels_of(candidate), ways=self._ways)
        if not counted.launches:
            if counted.reason == ncu.NO_RIGHTS:
                self._refused = counted.reason  # the next candidate would be told the same
            return None, counted.reason
        self._ways = (counted.way,) if counted.way else self._ways
        seen = rules.sight(counted.launches, zone=zone, arch=self._device.arch, resources=evaluation.resources)
        digest = compose(
            rules.suspects(seen),
            source=ncu.version(program),
            workload=workload,
            kernel=seen.launch.kernel,
            seconds=counted.seconds,
        )
        return digest, ""

    def _stage(self, folder: Path) -> Stage:
        crew = Workforce(self._device.kind, self._paths.cache, threads())
        return Stage(
            kind=self._device.kind,
            device=self._device.index,
            threads=threads(),
            environ=crew.host_environ(),
            readable=crew.readable(),
            memory_bytes=2 * self._limits.memory_bytes,
            limit_s=_NCU_S,
            folder=folder,
        )

    def _written(self, task: str, precision: Precision | None, known: Task, workload: Workload) -> Path:
        """One input set in files, written once for all candidates of a task."""
        key = hashlib.sha256(f"{known.digest}\0{workload.name}".encode()).hexdigest()[:16]
        if self._inputs is None or self._inputs[0] != key:
            self.close()
            folder = new_scratch()
            self._inputs = (key, folder)
            command = [sys.executable, "-m", "warpsmith.evaluate.profiling.inputs", os.path.abspath(task)]
            command += [precision.value if precision else "", workload.name, str(folder.path / "inputs")]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_INPUTS_S, env=self._own())
            except subprocess.TimeoutExpired:
                self.close()
                raise HarnessFault(f"making inputs of {known.name} took longer than {_INPUTS_S:.0f} s.") from None
            if done.returncode != 0:
                self.close()
                said = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise HarnessFault(f"inputs of {known.name} could not be made: {said}")
        return self._inputs[1].path / "inputs"

    def _own(self) -> dict[str, str]:
        return {name: value for name, value in self._environ.items() if "API_KEY" not in name}


def chosen(task: Task) -> Workload | None:
    """The largest workload that is still small; None where all are too large even so."""
    sizes = {w.name: sum(t.nbytes(w.sizes) for t in task.tensors) for w in task.workloads}
    small = [w for w in task.workloads if sizes[w.name] <= SMALL_BYTES]
    if small:
        return max(small, key=lambda w: sizes[w.name])
    least = min(task.workloads, key=lambda w: sizes[w.name])
    return least if sizes[least.name] <= 8 * SMALL_BYTES else None


def _by_figures(problem: Problem, evaluation: Evaluation, reason: str, seconds: float) -> Profile:
    suspects = figures.suspects(problem, evaluation)
    workload = figures.longest(evaluation).workload
    return Profile(compose(suspects, source=EVALUATION, workload=workload, seconds=seconds), reason)
