"""The supervisor: builds candidates in parallel, has them judged one at a time per device, keeps the verdicts.

    with Evaluator("auto") as evaluator:
        for index, evaluation in evaluator.evaluate("softmax.py", candidates):
            ...

This process imports no torch and holds no device state, so that it stays small and survives anything a
candidate does. Our own failures are retried and never charged to a candidate.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from warpsmith.backends.source import backend_named, devices_of
from warpsmith.backends.stopping import stoppable
from warpsmith.core.build import Artifact, BuildFailure, Target
from warpsmith.core.calibration import Calibration
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Paths, Settings
from warpsmith.core.errors import HarnessFault, TaskError, ToolMissing, UsageError
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.protocols import Backend
from warpsmith.core.search import Problem
from warpsmith.core.task import Precision, Task
from warpsmith.evaluate.judging.findings import Findings
from warpsmith.evaluate.judging.judge import JudgeConfig
from warpsmith.evaluate.native import FAULTS, HEAP, native_library
from warpsmith.evaluate.supervising.court import Court, Reopened
from warpsmith.evaluate.supervising.foundry import Foundry
from warpsmith.evaluate.supervising.job import AHEAD, Job, Progress
from warpsmith.evaluate.supervising.lock import DeviceLock, lock_folder
from warpsmith.evaluate.supervising.results import ResultCache, ResultKey, Verdicts
from warpsmith.evaluate.supervising.workforce import Workforce
from warpsmith.evaluate.supervising.zygote import Zygote
from warpsmith.guards import panel
from warpsmith.hardware.device import Device, select_device, threads

__all__ = ["Evaluator", "Progress"]

_ATTEMPTS = 3  # for our own failures
_PATIENCE = 10  # how much longer verifying a candidate may take
_HOPELESS = 2  # attempts in a row that failed before any code of a candidate ran: the next ones would too


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
        panel.check_names(self.settings.without)
        self._paths = paths or Paths.from_environment()
        self._results = Verdicts(ResultCache(self._paths.cache) if use_cache else None, on_message)
        self._on_progress = on_progress
        self._on_message = on_message
        self._lock = DeviceLock(lock_folder(self.device.kind, self._paths.cache), self.device.hardware)
        self._threads = threads()
        self._workforce = Workforce(self.device.kind, self._paths.cache, self._threads)
        self._hopeless = ""  # why no more candidates are tried in this batch
        self._stopping = threading.Event()
        self._courts: dict[tuple[str, str], Court] = {}
        self._builders = ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="build")

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and compilers and remove every folder."""
        self._stopping.set()
        self._builders.shutdown(wait=True, cancel_futures=True)
        self._stop_workers()
        self._workforce.close()

    # --- public ---

    def describe(self, task: str | Path, precision: Precision | None = None) -> Task:
        """The task as the judge understands it."""
        return self._opened(str(task), precision).task

    def survey(self, task: str | Path, backend: str, precision: Precision | None = None) -> Problem:
        """The task on this device in one language: what whoever proposes kernels has to know."""
        court = self._opened(str(task), precision)
        return Problem(
            task=court.task,
            contract=backend_named(backend).placed(self._paths, self.settings.limits).contract(court.task),
            backend=backend,
            device=self.device.label,
            kind=self.device.kind,
            arch=self.device.arch,
            bounds=court.facts.bounds,
            outline=court.facts.outline,
        )

    def calibrate(
        self, task: str | Path, precision: Precision | None = None, *, fresh: bool = False
    ) -> tuple[Task, Calibration]:
        """Whether a task is fit to judge by. Every evaluation asks this too, and raises where it is not."""
        self._close_courts()
        judges, _ = self._workforce.start()
        with self._lock.held(self._waiting):
            court = self._open(judges, str(task), precision, calibrate="again" if fresh else "show")
            court.close()
        assert court.facts.calibration is not None, "that is what it was asked"
        return court.task, court.facts.calibration

    def evaluate_one(
        self, task: str | Path, candidate: Candidate, precision: Precision | None = None, *, fresh: bool = False
    ) -> Evaluation:
        """One candidate."""
        (_, evaluation), *_ = self.evaluate(task, [candidate], precision, fresh=fresh)
        return evaluation

    def evaluate(
        self,
        task: str | Path,
        candidates: Sequence[Candidate],
        precision: Precision | None = None,
        *,
        fresh: bool = False,  # even where a verdict is in the cache
    ) -> Iterator[tuple[int, Evaluation]]:
        """Judge many: (position, verdict) as they come, each exactly once."""
        court = self._opened(str(task), precision)
        pending: list[Job] = []
        for index, candidate in enumerate(candidates):
            job = self._job(court, index, candidate)
            known = self._results.get(job.key) if not fresh else None
            if known is None:
                pending.append(job)
            else:
                self._on_progress(Progress(index, "judged"))
                yield index, known
        yield from self._judge_all(str(task), precision, pending)

    def prepare(self, task: str | Path, candidates: Sequence[Candidate], precision: Precision | None = None) -> None:
        """Begin to build what will be judged soon; returns at once, and may be called from any thread.

        Does nothing before the task is open, nor on a CPU, whose clock compilers would disturb.
        """
        court = self._courts.get(_key(task, precision))
        if court is None or self.device.kind == "cpu":
            return
        for candidate in candidates:
            if self.device.kind in devices_of(candidate):
                job = self._job(court, AHEAD, candidate)
                if self._results.get(job.key) is None:
                    self._builders.submit(self._build, job)

    def renew(self, settings: Settings | None = None) -> None:
        """The next evaluation has a new judge, and other settings where they are given."""
        self._close_courts()
        self.settings = settings or self.settings

    @contextmanager
    def reopened(
        self, task: str | Path, candidate: Candidate, precision: Precision | None, samples: Path
    ) -> Iterator[Reopened]:
        """The case of a valid candidate before a new judge, which puts samples of inputs there: see `verify`.

        Nobody else uses the device meanwhile, and the next evaluation has a new judge again.
        """
        job = self._job(self._opened(str(task), precision), 0, candidate)
        built = self._build(job)
        if isinstance(built, BuildFailure):
            raise HarnessFault(f"what was built before does not build now: {built.reason}")
        self._close_courts()
        judges, _ = self._workforce.start()
        with self._lock.held(self._waiting):
            court = self._open(judges, str(task), precision, str(samples))
            try:
                sized = self._build(replace(job, index=AHEAD, task=court.task), locked=True)  # Triton compiles by size
                yield Reopened(court, job.task, job.contract, sized if isinstance(sized, Artifact) else built)
            except HarnessFault:
                self._stop_workers()  # whoever tries again gets new ones
                raise
            finally:
                court.close()

    # --- one after the other ---

    def _job(self, court: Court, index: int, candidate: Candidate) -> Job:
        backend = self._backend(candidate)
        devices = devices_of(candidate)
        if self.device.kind not in devices:
            raise UsageError(
                f"{candidate.main.name} ({candidate.backend}) runs on {devices[0]}, not on {self.device.label}; "
                f"choose --device {devices[0]} or another file."
            )
        key = ResultKey(
            task=court.task.digest,
            candidate=candidate.digest,
            compiler=backend.available().detail,
            device=self.device.key,
            torch=court.facts.torch,
            settings=self.settings,
        )
        contract = backend.contract(court.task, candidate.entry)
        return Job(index, candidate, contract, court.task, court.facts, key, time.monotonic())

    def _judge_all(
        self, task: str, precision: Precision | None, jobs: Sequence[Job]
    ) -> Iterator[tuple[int, Evaluation]]:
        futures: dict[Future[Artifact | BuildFailure], Job] = {
            self._builders.submit(self._build, job): job for job in jobs
        }
        ready: Iterator[Future[Artifact | BuildFailure]] = as_completed(futures)
        if self.device.kind == "cpu":
            # Compilers on the same cores would disturb the clock: build everything first.
            ready = iter(list(ready))
        left = len(futures)
        self._hopeless = ""
        try:
            for future in ready:
                job = futures[future]
                evaluation = self._judge(task, precision, job, future, left)
                left -= 1
                self._results.keep(job.key, evaluation)
                self._on_progress(Progress(job.index, "judged"))
                yield job.index, evaluation
        finally:
            for future in futures:
                future.cancel()

    def _judge(
        self, task: str, precision: Precision | None, job: Job, future: Future[Artifact | BuildFailure], left: int
    ) -> Evaluation:
        try:
            built = future.result()
            refused = job.refused(built, self.settings.without)
        except (ToolMissing, HarnessFault) as fault:  # this machine's, not the source's: the others go on
            return job.verdict(self.device, Findings(Status.NOT_JUDGED, str(fault)), None)
        if isinstance(built, BuildFailure) or refused is not None:
            assert refused is not None, "a failed build is a reason to refuse"
            return job.verdict(self.device, refused, built if isinstance(built, Artifact) else None)
        return self._examine(task, precision, job, built, left)

    def _backend(self, candidate: Candidate) -> Backend:
        return backend_named(candidate.backend).placed(self._paths, self.settings.limits)

    def _build(self, job: Job, *, locked: bool = False) -> Artifact | BuildFailure:
        if job.refused_unbuilt(self.settings.without) is not None:
            return BuildFailure("its text speaks against it.")
        if job.index != AHEAD:
            self._on_progress(Progress(job.index, "build"))
        target = Target(self.device.kind, self.device.arch)
        with stoppable(self._stopping):
            built = self._backend(job.candidate).build(job.candidate, job.contract, target)
            if isinstance(built, Artifact) and built.kind == "sources":
                built = self._foundry(target, locked).forge(job.candidate, built, job.contract, job.task)
        if job.index != AHEAD:
            self._on_progress(Progress(job.index, "built"))
        return built

    def _foundry(self, target: Target, locked: bool) -> Foundry:
        return Foundry(
            crew=self._workforce.python,
            paths=self._paths,
            limits=self.settings.limits,
            target=target,
            device=self.device.index,
            threads=self._threads,
            readable=self._workforce.readable(),
            held=nullcontext if locked else lambda: self._lock.held(self._waiting),
        )

    def _examine(self, task: str, precision: Precision | None, job: Job, artifact: Artifact, left: int) -> Evaluation:
        """One verdict, of `left` still to be reached; our own failures are tried again with new workers."""
        if self._hopeless:
            return job.verdict(self.device, Findings(Status.NOT_JUDGED, self._hopeless), artifact)
        fault, attempts, in_vain, killed = "", 0, 0, False
        while attempts < _ATTEMPTS:
            stages: list[str] = []
            try:
                findings = self._attempt(task, precision, job, artifact, left, stages)
                if findings.killed and not killed:  # perhaps others had used up the memory: once is no proof
                    killed = True
                    self._on_message(f"{job.candidate.main.name} was {findings.reason} Trying again.")
                    continue
                if findings.status is not Status.NOT_JUDGED:
                    return job.verdict(self.device, findings, artifact)
                fault = findings.reason
            except (HarnessFault, TaskError) as error:  # the task was opened before: it is not to blame
                fault = str(error)
            attempts += 1
            in_vain = 0 if stages else in_vain + 1
            self._stop_workers()
            if attempts < _ATTEMPTS:
                self._on_message(f"{fault} Trying again ({attempts} of {_ATTEMPTS - 1}).")
        reason = f"the evaluator failed {_ATTEMPTS} times on this candidate: {fault}"
        if in_vain >= _HOPELESS:
            what = "the device does not answer" if self.device.kind == "cuda" else "this machine cannot judge now"
            cure = "check nvidia-smi" if self.device.kind == "cuda" else "see to that"
            reason = self._hopeless = f"{what} ({fault.rstrip('.')}); {cure} and run again."
            self._on_message(reason)
        return job.verdict(self.device, Findings(Status.NOT_JUDGED, reason), artifact)

    def _attempt(
        self, task: str, precision: Precision | None, job: Job, artifact: Artifact, left: int, stages: list[str]
    ) -> Findings:
        """One examination; `stages` tells how far it came, however it ends."""

        def report(stage: str) -> None:
            stages.append(stage)
            self._on_progress(Progress(job.index, stage))

        court = self._court(task, precision)
        with self._lock.held(self._waiting):
            host = court.take_host(left, python=artifact.kind != "library")
            return court.examine(host, artifact.library, job.contract, report)

    def _waiting(self) -> None:
        self._on_message(f"waiting: another evaluation is using {self.device.label}.")

    # --- workers ---

    def _opened(self, task: str, precision: Precision | None) -> Court:
        """The court for a call that begins; our own failures are tried again with new workers."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._court(task, precision)
            except HarnessFault as fault:
                self._on_message(f"{fault} Trying again.")
                self._stop_workers()
        return self._court(task, precision)

    def _court(self, task: str, precision: Precision | None) -> Court:
        key = _key(task, precision)
        if self._workforce.lost:
            self._stop_workers()
        if key not in self._courts:
            self._close_courts()  # one task at a time: its buffers may fill the device
            judges, _ = self._workforce.start()
            with self._lock.held(self._waiting):
                self._courts[key] = self._open(judges, task, precision)
        return self._courts[key]

    def _open(
        self, judges: Zygote, task: str, precision: Precision | None, samples: str = "", calibrate: str = ""
    ) -> Court:
        settings = self.settings
        if samples:  # much is tried there, and most of the time is the reference's
            limits = replace(settings.limits, total_s=_PATIENCE * settings.limits.total_s)
            settings = replace(settings, limits=limits)
        config = JudgeConfig(
            task=os.path.abspath(task),
            precision=precision.value if precision else "",
            kind=self.device.kind,
            index=self.device.index,
            device_key=self.device.key,
            device_name=self.device.label,
            cache=str(self._paths.cache),
            threads=self._threads,
            settings=settings,
            readable=self._workforce.readable(),
            search_path=(os.path.dirname(os.path.abspath(task)),),
            samples=samples,
            calibrate=calibrate,
        )
        return Court(
            judges,
            config,
            hosts=self._workforce.hosts,
            python_hosts=self._workforce.python,
            natives={name: native_library(name, self._paths.cache, os.environ) for name in (FAULTS, HEAP)},
        )

    def _close_courts(self) -> None:
        for court in self._courts.values():
            court.close()
        self._courts.clear()

    def _stop_workers(self) -> None:
        self._close_courts()
        self._workforce.stop()


def _key(task: str | Path, precision: Precision | None) -> tuple[str, str]:
    return str(task), precision.value if precision else ""
