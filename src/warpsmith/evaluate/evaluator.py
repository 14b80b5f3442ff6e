"""The supervisor: builds candidates in parallel, has them judged one at a time per device, keeps the verdicts.

    with Evaluator("auto") as evaluator:
        for index, evaluation in evaluator.evaluate("softmax.py", candidates):
            ...

This process imports no torch and holds no device state, so that it stays small and survives anything a
candidate does. Our own failures are retried and never charged to a candidate.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from warpsmith._version import __version__
from warpsmith.backends.source import backend_named
from warpsmith.core.build import Artifact, BuildFailure, Target
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Paths, Settings
from warpsmith.core.contract import Contract
from warpsmith.core.errors import HarnessFault, ToolMissing, UsageError
from warpsmith.core.evaluation import Environment, Evaluation, Status
from warpsmith.core.protocols import Backend
from warpsmith.core.task import Precision, Task
from warpsmith.evaluate.court import Court
from warpsmith.evaluate.findings import Facts, Findings
from warpsmith.evaluate.judge import JudgeConfig
from warpsmith.evaluate.lock import DeviceLock
from warpsmith.evaluate.native import fault_library
from warpsmith.evaluate.results import ResultCache, ResultKey
from warpsmith.evaluate.sandbox import default_readable
from warpsmith.evaluate.zygote import Zygote
from warpsmith.hardware.device import Device, gpus, select_device

_ATTEMPTS = 3  # for our own failures
_TORCH_PRELOAD = ("torch", "warpsmith.evaluate.judge", "warpsmith.tasks.load", "warpsmith.hardware.work")
_LEAN_PRELOAD = ("warpsmith.evaluate.host",)
_PASSED_ON = (
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "LANG",
    "TMPDIR",
)


@dataclass(frozen=True)
class Progress:
    """Something happened to a candidate: "build", "built", "load", "check", "time", "judged"."""

    index: int
    stage: str


@dataclass(frozen=True)
class _Job:
    """A candidate on its way to a verdict."""

    index: int
    candidate: Candidate
    contract: Contract
    key: ResultKey | None
    began: float


class Evaluator:
    """Judges candidates on one device. Use as a context manager; not shared between threads."""

    def __init__(
        self,
        device: str | Device = "auto",
        settings: Settings | None = None,
        *,
        paths: Paths | None = None,
        use_cache: bool = True,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.device = select_device(device) if isinstance(device, str) else device
        self.settings = settings or Settings()
        self._paths = paths or Paths.from_environment()
        self._results = ResultCache(self._paths.cache) if use_cache else None
        self._on_progress = on_progress
        self._on_message = on_message
        self._lock = DeviceLock(self._paths.cache, self.device.key)
        self._threads = len(os.sched_getaffinity(0))
        self._zygotes: tuple[Zygote, Zygote] | None = None
        self._scratch = Path()  # of the hosts; made and removed with their zygote
        self._courts: dict[tuple[str, str], Court] = {}
        self._builders = ThreadPoolExecutor(self._threads, thread_name_prefix="build")

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and remove every folder."""
        self._builders.shutdown(wait=True, cancel_futures=True)
        self._stop_workers()

    # --- public ---

    def describe(self, task: str | Path, precision: Precision | None = None) -> Task:
        """The task as the judge understands it."""
        return self._court(str(task), precision).task

    def evaluate_one(self, task: str | Path, candidate: Candidate, precision: Precision | None = None) -> Evaluation:
        """One candidate."""
        (_, evaluation), *_ = self.evaluate(task, [candidate], precision)
        return evaluation

    def evaluate(
        self, task: str | Path, candidates: Sequence[Candidate], precision: Precision | None = None
    ) -> Iterator[tuple[int, Evaluation]]:
        """Judge many: (position, verdict) as they come, each exactly once."""
        court = self._court(str(task), precision)
        pending: list[_Job] = []
        for index, candidate in enumerate(candidates):
            job = self._job(court, index, candidate)
            known = self._results.get(job.key) if self._results and job.key else None
            if known is None:
                pending.append(job)
            else:
                self._on_progress(Progress(index, "judged"))
                yield index, known
        yield from self._judge_all(str(task), precision, pending)

    # --- one after the other ---

    def _job(self, court: Court, index: int, candidate: Candidate) -> _Job:
        backend = self._backend(candidate)
        if backend.device != self.device.kind:
            raise UsageError(
                f"a {candidate.backend} candidate runs on {backend.device}, not on {self.device.label}; "
                f"choose --device {backend.device} or another file."
            )
        key = ResultKey(
            task=court.task.digest,
            candidate=candidate.digest,
            compiler=backend.available().detail,
            device=self.device.key,
            torch=court.facts.torch,
            settings=self.settings,
        )
        return _Job(index, candidate, backend.contract(court.task), key, time.monotonic())

    def _judge_all(
        self, task: str, precision: Precision | None, jobs: Sequence[_Job]
    ) -> Iterator[tuple[int, Evaluation]]:
        futures: dict[Future[Artifact | BuildFailure], _Job] = {
            self._builders.submit(self._build, job): job for job in jobs
        }
        ready: Iterator[Future[Artifact | BuildFailure]] = as_completed(futures)
        if self.device.kind == "cpu":
            # Compilers on the same cores would disturb the clock: build everything first.
            ready = iter(list(ready))
        left = len(futures)
        try:
            for future in ready:
                job = futures[future]
                built = future.result()
                if isinstance(built, BuildFailure):
                    evaluation = self._failure(job, self._court(task, precision), built)
                else:
                    evaluation = self._examine(task, precision, job, built, left)
                left -= 1
                if self._results and job.key:
                    self._results.put(job.key, evaluation)
                self._on_progress(Progress(job.index, "judged"))
                yield job.index, evaluation
        finally:
            for future in futures:
                future.cancel()

    def _backend(self, candidate: Candidate) -> Backend:
        return backend_named(candidate.backend).placed(self._paths, self.settings.limits)

    def _build(self, job: _Job) -> Artifact | BuildFailure:
        self._on_progress(Progress(job.index, "build"))
        target = Target(self.device.kind, self.device.arch)
        built = self._backend(job.candidate).build(job.candidate, job.contract, target)
        self._on_progress(Progress(job.index, "built"))
        return built

    def _examine(self, task: str, precision: Precision | None, job: _Job, artifact: Artifact, left: int) -> Evaluation:
        """One verdict, of `left` still to be reached; our own failures are tried again with new workers."""
        fault = ""
        for attempt in range(_ATTEMPTS):
            try:
                court = self._court(task, precision)
                with self._lock.held(self._waiting):
                    findings = court.examine(
                        court.take_host(left),
                        artifact.library,
                        job.contract,
                        lambda stage: self._on_progress(Progress(job.index, stage)),
                    )
                if findings.status is not Status.NOT_JUDGED:
                    return self._verdict(job, court, findings, artifact)
                fault = findings.reason
            except HarnessFault as error:
                fault = str(error)
            self._on_message(f"{fault} Trying again ({attempt + 1} of {_ATTEMPTS}).")
            self._stop_workers()
        court = self._court(task, precision)
        lost = Findings(Status.NOT_JUDGED, f"the evaluator failed {_ATTEMPTS} times on this candidate: {fault}")
        return self._verdict(job, court, lost, artifact)

    def _waiting(self) -> None:
        self._on_message(f"waiting: another evaluation is using {self.device.label}.")

    # --- verdicts ---

    def _failure(self, job: _Job, court: Court, built: BuildFailure) -> Evaluation:
        return self._verdict(job, court, Findings(Status.BUILD_ERROR, built.reason), None)

    def _verdict(self, job: _Job, court: Court, findings: Findings, artifact: Artifact | None) -> Evaluation:
        return Evaluation(
            task=court.task.name,
            candidate=job.candidate.id,
            status=findings.status,
            reason=findings.reason,
            environment=self._environment(job, court.facts, findings, artifact),
            precision=court.task.precision.value,
            workloads=findings.workloads,
            resources=artifact.resources if artifact else (),
            notes=(*court.facts.notes, *findings.notes),
            seconds=time.monotonic() - job.began,
        )

    def _environment(self, job: _Job, facts: Facts, findings: Findings, artifact: Artifact | None) -> Environment:
        driver = (
            next((g.driver for g in gpus() if g.index == self.device.index), "") if self.device.kind == "cuda" else ""
        )
        return Environment(
            device=self.device.label,
            backend=job.candidate.backend,
            compiler=artifact.compiler if artifact else "",
            torch=facts.torch,
            driver=driver,
            sandbox=findings.layers,
            threads=facts.threads,
            harness=__version__,
        )

    # --- workers ---

    def _court(self, task: str, precision: Precision | None) -> Court:
        key = (task, precision.value if precision else "")
        if key not in self._courts:
            for court in self._courts.values():  # one task at a time: its buffers may fill the device
                court.close()
            self._courts.clear()
            judges, hosts = self._workers()
            config = JudgeConfig(
                task=os.path.abspath(task),
                precision=key[1],
                kind=self.device.kind,
                index=self.device.index,
                device_key=self.device.key,
                device_name=self.device.label,
                cache=str(self._paths.cache),
                threads=self._threads,
                settings=self.settings,
                readable=self._readable(),
                search_path=(os.path.dirname(os.path.abspath(task)),),
            )
            with self._lock.held(self._waiting):
                self._courts[key] = Court(
                    judges,
                    hosts,
                    config,
                    scratch_root=self._scratch,
                    faults=fault_library(self._paths.cache, os.environ),
                    host_environ=self._host_environ(),
                )
        return self._courts[key]

    def _workers(self) -> tuple[Zygote, Zygote]:
        """The torch zygote (judges) and the lean one (hosts), started on first use."""
        if self._zygotes is not None and not all(z.alive for z in self._zygotes):
            self._stop_workers()
        if self._zygotes is None:
            # NVML, which numbered the devices, counts in the order of the bus.
            threads = {"OMP_NUM_THREADS": str(self._threads), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
            self._scratch = _new_scratch()
            compiled = {"TORCHINDUCTOR_CACHE_DIR": str(self._paths.cache / "inductor")}
            judge_environ = {k: v for k, v in os.environ.items() if "API_KEY" not in k} | threads | compiled
            lean_environ = {k: os.environ[k] for k in _PASSED_ON if k in os.environ} | threads
            try:
                judges = Zygote(_TORCH_PRELOAD, judge_environ)
            except HarnessFault as error:
                raise ToolMissing(
                    f"PyTorch cannot be imported by {sys.executable}: install torch >= 2.6 ({error})"
                ) from None
            self._zygotes = (judges, Zygote(_LEAN_PRELOAD, lean_environ, remove_at_end=self._scratch))
        return self._zygotes

    def _stop_workers(self) -> None:
        for court in self._courts.values():
            court.close()
        self._courts.clear()
        for zygote in self._zygotes or ():
            zygote.close()
        if self._zygotes is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._zygotes = None

    def _readable(self) -> tuple[str, ...]:
        libraries = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
        toolkit = ["/usr/local/cuda"] if self.device.kind == "cuda" else []
        return tuple(dict.fromkeys([*map(str, default_readable()), *libraries, *toolkit]))

    def _host_environ(self) -> Mapping[str, str]:
        kept = {
            k: os.environ[k]
            for k in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")
            if k in os.environ
        }
        return {
            **kept,
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": str(self._threads),
            "OMP_DYNAMIC": "false",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_CACHE_DISABLE": "1",
        }


def _new_scratch() -> Path:
    """A folder for the hosts' folders. As root, hosts run as another user, who must be able to pass through."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        path = Path(parent)
        if path.is_dir() and (os.geteuid() != 0 or all(p.stat().st_mode & 0o001 for p in (path, *path.parents))):
            folder = Path(tempfile.mkdtemp(prefix="warpsmith-", dir=path))
            folder.chmod(0o711)
            return folder
    raise ToolMissing("no temporary folder can be entered by other users: set TMPDIR to one that can.")
