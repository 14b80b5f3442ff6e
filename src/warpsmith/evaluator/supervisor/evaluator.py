"""The supervisor: builds candidates in parallel, has them judged one at a time per device, caches the results.

    with Evaluator("auto") as evaluator:
        for index, evaluation in evaluator.evaluate("softmax.py", candidates):
            ...

This process imports no torch and holds no device state, so that it stays small and survives every failure of a
candidate. Failures of the harness are retried and never charged to a candidate.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from warpsmith.backends.cutlass import build_mark, find_cutlass
from warpsmith.backends.library import digest_with_headers
from warpsmith.backends.source import backend_named, devices_of
from warpsmith.evaluator.guards import check_guard_names
from warpsmith.evaluator.judge.records import CalibrationMode, JudgeConfig, JudgeReport
from warpsmith.evaluator.supervisor.device_lock import DeviceLock, DeviceUsers, lock_folder
from warpsmith.evaluator.supervisor.device_turns import DeviceTurns
from warpsmith.evaluator.supervisor.fork_server import ForkServer
from warpsmith.evaluator.supervisor.job import BUILD_ONLY, EvaluationJob, Progress
from warpsmith.evaluator.supervisor.judge_client import JudgeClient, VerificationSetup
from warpsmith.evaluator.supervisor.python_compile import PythonCompiler
from warpsmith.evaluator.supervisor.result_cache import ResultCache, ResultKey
from warpsmith.evaluator.supervisor.worker_pool import (
    CALLS,
    FAULTS,
    HEAP,
    LINES,
    WorkerPool,
    native_library,
    readable_paths,
)
from warpsmith.hardware.device import Device, cpu_threads, free_gpu_memory, select_device
from warpsmith.model.brief import Problem
from warpsmith.model.build import Artifact, Backend, BuildFailure, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Calibration
from warpsmith.model.errors import HarnessFault, TaskError, TooLittleMemory, ToolMissing, UsageError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Paths, Settings
from warpsmith.model.task import Precision, Task
from warpsmith.system.processes import stoppable

__all__ = ["Evaluator", "Progress"]

_ATTEMPTS = 3  # at an evaluation, if the harness fails
_VERIFICATION_TIME = 10  # times the time limit of an evaluation
_FRUITLESS_ATTEMPTS = 2  # in a row, before any code of a candidate ran: further candidates are not tried


class Evaluator:
    """Evaluates candidates on one device. A context manager; not shared between threads."""

    width = 1  # threads that may call `evaluate` at the same time

    def __init__(
        self,
        device: str | Device = "auto",
        settings: Settings | None = None,
        *,
        paths: Paths | None = None,
        use_cache: bool = True,
        shared: bool = False,  # other evaluators with `shared` may use the device too: for checks, never for times
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.device = select_device(device) if isinstance(device, str) else device
        self.settings = settings or Settings()
        check_guard_names(self.settings.without)
        self._paths = paths or Paths.from_environment()
        self._results = ResultCache(self._paths.cache if use_cache else None, on_message)
        self._on_progress = on_progress
        self._on_message = on_message
        folder, on_gpu = lock_folder(self.device.kind, self._paths.cache), self.device.kind == "cuda"
        self._lock = DeviceLock(folder, self.device.hardware, shared=shared)
        self._turns = DeviceTurns(
            self._lock,
            DeviceUsers(folder, self.device.hardware) if on_gpu else None,
            self._release_memory,
            free_bytes=lambda: free_gpu_memory(self.device.index),
            on_wait=self._on_lock_wait,
            on_message=on_message,
        )
        self._threads = cpu_threads()
        self._workers = WorkerPool(self.device.kind, self._paths.cache, self._threads)
        self._give_up_reason = ""  # why no more candidates of this batch are tried
        self._stopping = threading.Event()
        self._judges: dict[tuple[str, str], JudgeClient] = {}
        self._builders = ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="build")

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and compilers and remove their folders."""
        self._stopping.set()
        self._builders.shutdown(wait=True, cancel_futures=True)
        self._turns.close()
        self._stop_workers()
        self._workers.close()

    def describe(self, task: str | Path, precision: Precision | None = None) -> Task:
        """The task as the judge has read it."""
        return self._open_judge(str(task), precision).task

    def survey(self, task: str | Path, backend: str, precision: Precision | None = None) -> Problem:
        """Everything a proposer has to know: the task, its contract in one backend, and the limits of this device."""
        judge = self._open_judge(str(task), precision)
        return Problem(
            task=judge.task,
            contract=backend_named(backend).configured(self._paths, self.settings.limits).contract(judge.task),
            backend=backend,
            device=self.device.label,
            kind=self.device.kind,
            arch=self.device.arch,
            bounds=judge.facts.bounds,
            outline=judge.facts.outline,
            figures=judge.facts.figures,
            uncalibrated=judge.facts.uncalibrated,
        )

    def calibrate(
        self, task: str | Path, precision: Precision | None = None, *, fresh: bool = False
    ) -> tuple[Task, Calibration]:
        """Check whether a task can tell right results from wrong ones. Every evaluation checks and says that, too."""
        self._close_judges()
        mode = CalibrationMode.REPORT_AGAIN if fresh else CalibrationMode.REPORT
        with self._opened(str(task), precision, calibration=mode) as judge:
            judge.close()
        assert judge.facts.calibration is not None, "the judge was asked to calibrate"
        return judge.task, judge.facts.calibration

    def evaluate_one(
        self,
        task: str | Path,
        candidate: Candidate,
        precision: Precision | None = None,
        *,
        fresh: bool = False,
        more: int = 0,
    ) -> Evaluation:
        """Evaluate one candidate."""
        (_, evaluation), *_ = self.evaluate(task, [candidate], precision, fresh=fresh, more=more)
        return evaluation

    def evaluate(
        self,
        task: str | Path,
        candidates: Sequence[Candidate],
        precision: Precision | None = None,
        *,
        fresh: bool = False,  # do not use the cache
        more: int = 0,  # candidates of the same task that follow in further calls: their processes start ahead
    ) -> Iterator[tuple[int, Evaluation]]:
        """Evaluate many candidates; yields each position once with its evaluation, in the order of completion."""
        judge = self._open_judge(str(task), precision)
        pending: list[EvaluationJob] = []
        for index, candidate in enumerate(candidates):
            job = self._job(judge, index, candidate)
            known = self._results.get(job.key) if not fresh else None
            if known is None:
                pending.append(job)
            else:
                self._on_progress(Progress(index, "judged"))
                yield index, known
        yield from self._evaluate_jobs(str(task), precision, pending, more)

    def prepare(self, task: str | Path, candidates: Sequence[Candidate], precision: Precision | None = None) -> None:
        """Start to build candidates that will be evaluated soon. Returns at once; may be called from any thread.

        Does nothing before the task is open, and nothing on a CPU, where compilers would disturb the timing.
        """
        judge = self._judges.get(_key(task, precision))
        if judge is None or self.device.kind == "cpu":
            return
        for candidate in candidates:
            if self.device.kind in devices_of(candidate):
                job = self._job(judge, BUILD_ONLY, candidate)
                if self._results.get(job.key) is None:
                    self._builders.submit(self._build, job)

    def wait_for_memory(self, short: TooLittleMemory) -> None:
        """Wait, with no memory of the device, until the device may have what an attempt lacked."""
        self._close_judges()
        self._turns.wait_for_memory(short)

    def renew(self, settings: Settings | None = None) -> None:
        """Start a new judge for the next evaluation, with other settings if they are given."""
        self._close_judges()
        self.settings = settings or self.settings

    @contextmanager
    def verification_setup(
        self, task: str | Path, candidate: Candidate, precision: Precision | None, samples: Path
    ) -> Iterator[VerificationSetup]:
        """A valid candidate with a new judge that writes inputs to the folder `samples`; for `verification.verify`.

        The device is reserved meanwhile, and the next evaluation starts another judge.
        """
        job = self._job(self._open_judge(str(task), precision), 0, candidate)
        built = self._build(job)
        if isinstance(built, BuildFailure):
            raise HarnessFault(f"a candidate that was built before cannot be built now: {built.reason}")
        self._close_judges()
        with self._opened(str(task), precision, inputs_folder=str(samples)) as judge:
            try:
                sized = self._build(
                    replace(job, index=BUILD_ONLY, task=judge.task), locked=True
                )  # Triton compiles by size
                yield VerificationSetup(judge, job.task, job.contract, sized if isinstance(sized, Artifact) else built)
            except HarnessFault:
                self._stop_workers()  # the next attempt starts new ones
                raise
            finally:
                judge.close()

    # --- jobs ---

    def _job(self, judge: JudgeClient, index: int, candidate: Candidate) -> EvaluationJob:
        backend = self._backend(candidate)
        devices = devices_of(candidate)
        if self.device.kind not in devices:
            raise UsageError(
                f"{candidate.main.name} ({candidate.backend}) runs on {devices[0]}, not on {self.device.label}; "
                f"choose --device {devices[0]} or another file."
            )
        mark = build_mark((file.text for file in candidate.files), find_cutlass(os.environ))
        key = ResultKey(
            task=judge.task.digest,
            candidate=f"{digest_with_headers(candidate)}{mark and f'-{mark}'}",
            compiler=backend.available().detail,
            device=self.device.key,
            torch=judge.facts.torch,
            settings=self.settings,
        )
        contract = backend.contract(judge.task, candidate.entry)
        return EvaluationJob(index, candidate, contract, judge.task, judge.facts, key, time.monotonic())

    def _evaluate_jobs(
        self, task: str, precision: Precision | None, jobs: Sequence[EvaluationJob], more: int
    ) -> Iterator[tuple[int, Evaluation]]:
        futures: dict[Future[Artifact | BuildFailure], EvaluationJob] = {
            self._builders.submit(self._build, job): job for job in jobs
        }
        ready: Iterator[Future[Artifact | BuildFailure]] = as_completed(futures)
        if self.device.kind == "cpu":
            # Compilers on the same cores would disturb the timing: build everything first.
            ready = iter(list(ready))
        left = len(futures) + more
        self._give_up_reason = ""
        try:
            for future in ready:
                job = futures[future]
                evaluation = self._evaluate_built(task, precision, job, future, left)
                left -= 1
                self._results.put(job.key, evaluation)
                self._on_progress(Progress(job.index, "judged"))
                yield job.index, evaluation
        finally:
            for future in futures:
                future.cancel()

    def _evaluate_built(
        self,
        task: str,
        precision: Precision | None,
        job: EvaluationJob,
        future: Future[Artifact | BuildFailure],
        left: int,
    ) -> Evaluation:
        try:
            built = future.result()
            refused = job.check_build(built, self.settings.without)
        except (ToolMissing, HarnessFault) as fault:  # not the candidate's fault: the others go on
            return job.evaluation(self.device, JudgeReport(Status.NOT_JUDGED, str(fault)), None)
        if isinstance(built, BuildFailure) or refused is not None:
            assert refused is not None, "check_build refuses a failed build"
            return job.evaluation(self.device, refused, built if isinstance(built, Artifact) else None)
        return self._examine(task, precision, job, built, left)

    def _backend(self, candidate: Candidate) -> Backend:
        return backend_named(candidate.backend).configured(self._paths, self.settings.limits)

    def _build(self, job: EvaluationJob, *, locked: bool = False) -> Artifact | BuildFailure:
        if job.check_source(self.settings.without) is not None:
            return BuildFailure("a guard refuses its source.")  # `check_build` gives the reason
        if job.index != BUILD_ONLY:
            self._on_progress(Progress(job.index, "build"))
        target = Target(self.device.kind, self.device.arch)
        with stoppable(self._stopping):
            built = self._backend(job.candidate).build(job.candidate, job.contract, target)
            if isinstance(built, Artifact) and built.kind == "sources":
                built = self._python_compiler(target, locked).compile(job.candidate, built, job.contract, job.task)
        if job.index != BUILD_ONLY:
            self._on_progress(Progress(job.index, "built"))
        return built

    def _python_compiler(self, target: Target, locked: bool) -> PythonCompiler:
        return PythonCompiler(
            hosts=self._workers.python_hosts,
            paths=self._paths,
            limits=self.settings.limits,
            target=target,
            device=self.device.index,
            threads=self._threads,
            readable=readable_paths(self.device.kind),
            held=nullcontext if locked else lambda: self._lock.held(self._on_lock_wait),
        )

    def _examine(
        self, task: str, precision: Precision | None, job: EvaluationJob, artifact: Artifact, left: int
    ) -> Evaluation:
        """Examine one of `left` remaining candidates; failures of the harness are retried with new workers."""
        if self._give_up_reason:
            return job.evaluation(self.device, JudgeReport(Status.NOT_JUDGED, self._give_up_reason), artifact)
        fault, attempts, fruitless, killed = "", 0, 0, False
        while attempts < _ATTEMPTS:
            stages: list[str] = []
            try:
                report = self._attempt(task, precision, job, artifact, left, stages)
                if report.killed and not killed:  # perhaps other programs had used up the memory: once is no proof
                    killed = True
                    self._on_message(f"{job.candidate.main.name} was {report.reason} Trying again.")
                    continue
                if report.status is not Status.NOT_JUDGED:
                    return job.evaluation(self.device, report, artifact)
                fault = report.reason
            except (HarnessFault, TaskError) as error:  # the task was opened before, so it is not at fault
                fault = str(error)
            attempts += 1
            fruitless = 0 if stages else fruitless + 1
            self._stop_workers()
            if attempts < _ATTEMPTS:
                self._on_message(f"{fault} Trying again ({attempts} of {_ATTEMPTS - 1}).")
        reason = f"the evaluator failed {_ATTEMPTS} times on this candidate: {fault}"
        if fruitless >= _FRUITLESS_ATTEMPTS:
            what = "the device does not answer" if self.device.kind == "cuda" else "this machine cannot judge now"
            cure = "check nvidia-smi" if self.device.kind == "cuda" else "remove the cause"
            reason = self._give_up_reason = f"{what} ({fault.rstrip('.')}); {cure} and run again."
            self._on_message(reason)
        return job.evaluation(self.device, JudgeReport(Status.NOT_JUDGED, reason), artifact)

    def _attempt(
        self,
        task: str,
        precision: Precision | None,
        job: EvaluationJob,
        artifact: Artifact,
        left: int,
        stages: list[str],
    ) -> JudgeReport:
        """One examination; the stages that it reaches are added to `stages`."""

        def report_stage(stage: str) -> None:
            stages.append(stage)
            self._on_progress(Progress(job.index, stage))

        while True:
            judge = self._current_judge(task, precision)
            try:
                with self._turns.turn():
                    host = judge.take_host(left, python=artifact.kind != "library")
                    return judge.examine(host, artifact.library, job.contract, report_stage)
            except TooLittleMemory as short:
                self.wait_for_memory(short)

    def _on_lock_wait(self) -> None:
        self._on_message(f"waiting: another evaluation is using {self.device.label}.")

    # --- workers ---

    def _open_judge(self, task: str, precision: Precision | None) -> JudgeClient:
        """The judge of a task; failures of the harness are retried with new workers."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._current_judge(task, precision)
            except HarnessFault as fault:
                self._on_message(f"{fault} Trying again.")
                self._stop_workers()
        return self._current_judge(task, precision)

    def _current_judge(self, task: str, precision: Precision | None) -> JudgeClient:
        key = _key(task, precision)
        if self._workers.lost:
            self._stop_workers()
        if key not in self._judges:
            self._close_judges()  # one task at a time: the buffers of a task may fill the device
            with self._opened(task, precision) as judge:
                self._judges[key] = judge
        return self._judges[key]

    @contextmanager
    def _opened(
        self,
        task: str,
        precision: Precision | None,
        *,
        inputs_folder: str = "",
        calibration: CalibrationMode = CalibrationMode.JUDGE,
    ) -> Iterator[JudgeClient]:
        """A new judge in a turn on the device; waits while the device has too little memory for its task."""
        judge_server, _ = self._workers.start()
        with ExitStack() as turn:
            while True:
                turn.enter_context(self._turns.turn())
                try:
                    judge = self._open(judge_server, task, precision, inputs_folder, calibration)
                    break
                except TooLittleMemory as short:
                    turn.close()
                    self._turns.wait_for_memory(short)
            yield judge

    def _open(
        self,
        judge_server: ForkServer,
        task: str,
        precision: Precision | None,
        inputs_folder: str = "",
        calibration: CalibrationMode = CalibrationMode.JUDGE,
    ) -> JudgeClient:
        settings = self.settings
        if inputs_folder:  # verification tries many inputs, and the reference takes most of the time
            limits = replace(settings.limits, total_s=_VERIFICATION_TIME * settings.limits.total_s)
            settings = replace(settings, limits=limits)
        natives = {name: native_library(name, self._paths.cache, os.environ) for name in (FAULTS, HEAP, CALLS, LINES)}
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
            readable=readable_paths(self.device.kind),
            search_path=(os.path.dirname(os.path.abspath(task)),),
            inputs_folder=inputs_folder,
            calibration=calibration,
            lines_library=natives.pop(LINES),
        )
        return JudgeClient(
            judge_server,
            config,
            native_hosts=self._workers.native_hosts,
            python_hosts=self._workers.python_hosts,
            natives=natives,
        )

    def _release_memory(self) -> None:
        """Release the buffers of open judges; a judge that cannot is ended and opened again later."""
        try:
            for judge in self._judges.values():
                judge.release_memory()
        except HarnessFault:
            self._close_judges()

    def _close_judges(self) -> None:
        with self._turns.quiet():
            for judge in self._judges.values():
                judge.close()
            self._judges.clear()

    def _stop_workers(self) -> None:
        self._close_judges()
        self._workers.stop()


def _key(task: str | Path, precision: Precision | None) -> tuple[str, str]:
    return str(task), precision.value if precision else ""
