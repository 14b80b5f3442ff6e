"""Finds out why a valid candidate is not faster, with the best tool of this machine.

    with Profiler(device) as profiler:
        profile = profiler.profile("softmax.py", candidate, problem, evaluation)

On a GPU: Nsight Compute if the user may read counters, else the times of kernels. On the CPU: the compiler's report on
vectorisation. Otherwise: the figures of the evaluation. A profile takes seconds, so it is made for likely parents only.
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

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.device_lock import DeviceLock, lock_folder
from warpsmith.evaluator.supervisor.worker_pool import make_scratch_folder
from warpsmith.hardware.device import Device
from warpsmith.model.brief import Problem
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import HarnessFault, ToolMissing
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Precision, Task, Workload
from warpsmith.profiling import cpu_report, ncu, ncu_rules, torch_timings
from warpsmith.profiling.digest import Digest, compose_digest, evaluation_diagnoses, longest_workload, workload_zone
from warpsmith.system.files import OwnedFolder
from warpsmith.verification.standalone_run import StandaloneCandidate, StandaloneSettings, read_samples

SMALL_BYTES = 128 << 20
"""Bytes of all tensors: more than a GPU's cache, and few enough to be written, replayed and read back in a second."""
LARGE_BYTES = 2 << 30
"""Bytes of all tensors that profilers run at most."""

_INPUTS_S = 60.0
_NCU_S = 30.0  # the first run tries several confinements; later runs take a few seconds
EVALUATION = "the evaluation"
CASES = "cases.json"  # written by `write_inputs`, which imports torch


@dataclass(frozen=True)
class Profile:
    """A digest, or the reason why there is none; with a digest, `reason` is why a better tool could not be used."""

    digest: Digest | None
    reason: str = ""


class Profiler:
    """Profiles candidates on one device; stores the inputs of the last task. Not shared between threads."""

    def __init__(
        self,
        device: Device,
        *,
        paths: Paths | None = None,
        limits: Limits | None = None,
        environ: Mapping[str, str] | None = None,
        on_wait: Callable[[], None] = lambda: None,  # called if another process uses the device
    ) -> None:
        self._device = device
        self._paths = paths or Paths.from_environment()
        self._limits = limits or Limits()
        self._environ = os.environ if environ is None else environ
        self._on_wait = on_wait
        self._lock = DeviceLock(lock_folder(device.kind, self._paths.cache), device.hardware)
        self._inputs: tuple[str, OwnedFolder] | None = None
        self._confinements: tuple[ncu.Confinement, ...] = ncu.CONFINEMENTS
        self._timed_confinements: tuple[bool, ...] = torch_timings.CONFINEMENTS
        self._ncu_refused = ""  # why Nsight Compute cannot be used here, once that is known

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the stored inputs."""
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
        """Why this candidate is not faster. If a tool fails or is missing, the profile is made from the evaluation."""
        if not evaluation.ok:
            return Profile(None, "only a valid candidate can be profiled; repair the candidate first.")
        begun = time.monotonic()
        try:
            if self._device.kind == "cuda":
                return self._on_gpu(str(task), candidate, problem, evaluation, precision)
            return self._on_cpu(candidate, problem, evaluation)
        except (HarnessFault, ToolMissing) as fault:
            return _from_evaluation(problem, evaluation, str(fault), time.monotonic() - begun)

    def _on_cpu(self, candidate: Candidate, problem: Problem, evaluation: Evaluation) -> Profile:
        begun = time.monotonic()
        if candidate.backend != "cpu":
            return _from_evaluation(problem, evaluation, "the compiler's report is for C++ candidates only.", 0.0)
        target = Target(DeviceKind.CPU, self._device.arch)
        report = cpu_report.compile_report(candidate, problem.contract, target, self._paths, self._limits)
        diagnoses = [
            *cpu_report.diagnoses(report, candidate, problem, evaluation),
            *evaluation_diagnoses(problem, evaluation),
        ]
        workload = longest_workload(evaluation).workload
        seconds = time.monotonic() - begun
        return Profile(compose_digest(diagnoses, source=report.compiler, workload=workload, seconds=seconds))

    def _on_gpu(
        self, task: str, candidate: Candidate, problem: Problem, evaluation: Evaluation, precision: Precision | None
    ) -> Profile:
        workload = choose_workload(problem.task)
        if workload is None:
            return _from_evaluation(problem, evaluation, "every workload is too large to be run under a profiler.", 0.0)
        backend = backend_named(candidate.backend).configured(self._paths, self._limits)
        contract = backend.contract(problem.task, candidate.entry)
        built = backend.build(candidate, contract, Target(DeviceKind.CUDA, self._device.arch))
        if not isinstance(built, Artifact) or built.kind != "library":
            return _from_evaluation(problem, evaluation, "profilers are run on CUDA C++ candidates only.", 0.0)
        samples = self._written(task, precision, problem.task, workload)
        standalone = StandaloneCandidate(built.library, contract, problem.task, read_samples(samples / CASES), samples)
        folder = make_scratch_folder()
        try:
            settings = StandaloneSettings.for_device(self._device, self._limits, folder.path, _NCU_S)
            with self._lock.held(self._on_wait):
                digest, reason = self._counted(settings, standalone, candidate, problem, evaluation)
                if digest is not None:
                    return Profile(digest)
                times = torch_timings.measure(settings, standalone, self._timed_confinements)
        finally:
            folder.remove()
        if not times.kernels:
            return _from_evaluation(problem, evaluation, reason or times.reason, times.seconds)
        self._timed_confinements = (times.confined,)
        diagnoses = [*torch_timings.diagnoses(times), *evaluation_diagnoses(problem, evaluation)]
        source, kernel = torch_timings.SOURCE, times.longest
        digest = compose_digest(diagnoses, source=source, workload=workload.name, kernel=kernel, seconds=times.seconds)
        return Profile(digest, reason)

    def _counted(
        self,
        settings: StandaloneSettings,
        standalone: StandaloneCandidate,
        candidate: Candidate,
        problem: Problem,
        evaluation: Evaluation,
    ) -> tuple[Digest | None, str]:
        """The digest from Nsight Compute, or the reason why there is none."""
        program = ncu.find(self._environ)
        if program is None or self._ncu_refused:
            return None, self._ncu_refused or ncu.MISSING
        workload = standalone.samples[0].workload
        zone = workload_zone(problem, workload)
        counted = ncu.count(
            program, settings, standalone, zone, kernels=ncu.kernels_of(candidate), confinements=self._confinements
        )
        if not counted.launches:
            if counted.reason == ncu.NO_RIGHTS:
                self._ncu_refused = counted.reason  # the next candidate would get the same answer
            return None, counted.reason
        self._confinements = (counted.confinement,) if counted.confinement else self._confinements
        seen = ncu_rules.longest_kernel(
            counted.launches, zone=zone, arch=self._device.arch, resources=evaluation.resources
        )
        digest = compose_digest(
            ncu_rules.diagnoses(seen),
            source=ncu.version(program),
            workload=workload,
            kernel=seen.counters.kernel,
            seconds=counted.seconds,
        )
        return digest, ""

    def _written(self, task: str, precision: Precision | None, known: Task, workload: Workload) -> Path:
        """The folder of an input set, written once for all candidates of a task."""
        key = hashlib.sha256(f"{known.digest}\0{workload.name}".encode()).hexdigest()[:16]
        if self._inputs is None or self._inputs[0] != key:
            self.close()
            folder = make_scratch_folder()
            self._inputs = (key, folder)
            command = [sys.executable, "-P", "-m", "warpsmith.profiling.write_inputs", os.path.abspath(task)]
            command += [precision.value if precision else "", workload.name, str(folder.path / "inputs")]
            environ = {name: value for name, value in self._environ.items() if "API_KEY" not in name}
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_INPUTS_S, env=environ)
            except subprocess.TimeoutExpired:
                self.close()
                raise HarnessFault(f"making inputs of {known.name} took longer than {_INPUTS_S:.0f} s.") from None
            if done.returncode != 0:
                self.close()
                said = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise HarnessFault(f"inputs of {known.name} could not be made: {said}")
        return self._inputs[1].path / "inputs"


def choose_workload(task: Task) -> Workload | None:
    """The largest workload below SMALL_BYTES, else the smallest one if it is below LARGE_BYTES, else None."""
    sizes = {w.name: sum(t.nbytes(w.sizes) for t in task.tensors) for w in task.workloads}
    small = [w for w in task.workloads if sizes[w.name] <= SMALL_BYTES]
    if small:
        return max(small, key=lambda w: sizes[w.name])
    least = min(task.workloads, key=lambda w: sizes[w.name])
    return least if sizes[least.name] <= LARGE_BYTES else None


def _from_evaluation(problem: Problem, evaluation: Evaluation, reason: str, seconds: float) -> Profile:
    diagnoses = evaluation_diagnoses(problem, evaluation)
    workload = longest_workload(evaluation).workload
    return Profile(compose_digest(diagnoses, source=EVALUATION, workload=workload, seconds=seconds), reason)
