"""`VerdictService`: accepts submissions, has an engine judge them in threads, and tells watchers what changed.

Results are known by content for each client by itself, and the local engine uses no build again (`Paths.reuse_builds`):
whether another client has submitted the same kernel can be seen neither in stages nor in the time of an answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from warpsmith._version import __version__
from warpsmith.backends.source import backend_named, devices_of
from warpsmith.engine.engine import Engine
from warpsmith.evaluator.supervisor.evaluator import Progress
from warpsmith.model.brief import Problem
from warpsmith.model.build import Availability
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Calibration, CheckOutcome
from warpsmith.model.errors import CandidateError, TaskError, UsageError, WarpsmithError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Paths, Settings
from warpsmith.model.task import Precision, Task
from warpsmith.server.journal import Job, Journal, NewSubmission, Outcome
from warpsmith.server.messages import (
    FINISHED,
    CandidateMessage,
    FaultKind,
    InspectionKind,
    InspectionRequest,
    JobResult,
    JobState,
    JudgingOptions,
    ResultsPage,
    SubmissionRequest,
    SubmissionState,
)
from warpsmith.server.metrics import ServerMetrics
from warpsmith.server.task_catalogue import ServedTask, TaskCatalogue
from warpsmith.server.tokens import TokenHolder
from warpsmith.verification.verify import Verifier

LOG = logging.getLogger("warpsmith.server")
EVALUATE = "evaluate"
_CANDIDATE = TypeAdapter(Candidate)
_EVALUATION = TypeAdapter(Evaluation)
_ANSWERS: dict[str, TypeAdapter[Any]] = {
    InspectionKind.DESCRIBE: TypeAdapter(Task),
    InspectionKind.SURVEY: TypeAdapter(Problem),
    InspectionKind.CALIBRATE: TypeAdapter(tuple[Task, Calibration]),
    InspectionKind.EXAMINE: TypeAdapter(list[CheckOutcome]),
}
_PAGE = 100  # results in one answer
_TOGETHER = 16  # jobs that are handed to the engine together
_TURN_S = 60.0  # for one task while others wait
_OPEN_S = 300.0  # that a task stays open for further candidates
_IDLE_S = 0.5
_FAULT_S = 5.0  # before another try where the journal cannot be read or written
_KEEP_S = 30 * 86400.0
_PRUNE_S = 3600.0
_STAGES = 1000  # that wait to be read


@dataclass
class Watcher:
    """Waits in an event loop for changes of one submission."""

    loop: asyncio.AbstractEventLoop
    changed: asyncio.Event
    stages: deque[tuple[int, str]]  # place and stage of candidates, not yet read

    def read_stages(self) -> Iterator[tuple[int, str]]:
        """The stages that candidates reached since the last call."""
        while self.stages:
            yield self.stages.popleft()


class VerdictService:
    """The submissions of a server."""

    def __init__(
        self,
        journal: Journal,
        catalogue: TaskCatalogue,
        open_engine: Callable[[Settings, Callable[[Progress], None]], Engine],
        *,
        available: Callable[[str], Availability] = lambda backend: backend_named(backend).available(),
        settings: Settings | None = None,
        metrics: ServerMetrics | None = None,
        paths: Paths | None = None,  # those of the engine
    ) -> None:
        self.journal = journal
        self.catalogue = catalogue
        self.available = available
        self.metrics = metrics or ServerMetrics()
        self.metrics.count_waiting = journal.waiting
        self._settings = settings or Settings()
        self._paths = paths
        self.engine = open_engine(self._settings, self._progressed)
        self._width = max(1, self.engine.width)
        self._stopping = threading.Event()
        self._work = threading.Event()
        self._watchers: dict[str, list[Watcher]] = {}
        self._watching = threading.Lock()
        self._current: Sequence[Job] = ()  # by the index in the engine's events
        self._dispatcher = threading.Thread(target=self._dispatch, name="dispatch", daemon=True)
        self._identity = f"{__version__}\0{self.engine.device.key}"

    def start(self) -> None:
        """Begin to judge."""
        self._dispatcher.start()

    def stop(self) -> None:
        """End the threads and close engine and journal. What is not judged is judged after the next start."""
        self._stopping.set()
        self._work.set()
        if self._dispatcher.is_alive():
            self._dispatcher.join()
        self.engine.close()
        self.journal.close()

    @property
    def fault(self) -> str:
        """Why nothing is judged; "" where the server can judge."""
        return "" if self._dispatcher.is_alive() else "the thread that judges has ended; restart the server."

    # --- submissions ---

    def submit(self, request: SubmissionRequest, holder: TokenHolder) -> str:
        """Accept candidates; the id of the submission, which the same request always gets. Raises QueueFull."""
        task = self.catalogue.find(request.task, holder.name)
        return self._accept(EVALUATE, task, request, holder, "", [self._keyed(each) for each in request.candidates])

    def _keyed(self, message: CandidateMessage) -> tuple[str, str]:
        """The digest of a candidate, and the candidate as JSON; a CandidateError if it does not run here."""
        candidate, kind = message.candidate(), self.engine.device.kind
        if kind not in devices_of(candidate):
            raise CandidateError(f"{candidate.main.name} ({candidate.backend}) does not run on this server's {kind}.")
        return candidate.digest, _CANDIDATE.dump_json(candidate).decode()

    def inspect(self, request: InspectionRequest, holder: TokenHolder) -> str:
        """Accept a question about a task; the id of its submission."""
        if (request.kind is InspectionKind.SURVEY) != bool(request.backend):
            raise UsageError("a survey names a backend; the other questions name none.")
        if (request.kind is InspectionKind.EXAMINE) != (request.candidate is not None):
            raise UsageError("examine has a candidate; the other questions have none.")
        task = self.catalogue.find(request.task, holder.name)
        keyed = ("", "") if request.candidate is None else self._keyed(request.candidate)
        return self._accept(request.kind, task, request, holder, request.backend, [keyed])

    def _accept(
        self,
        kind: str,
        task: ServedTask,
        request: SubmissionRequest | InspectionRequest,
        holder: TokenHolder,
        backend: str,
        keyed: Sequence[tuple[str, str]],
    ) -> str:
        options, precision = request.options.model_dump_json(), request.precision or ""
        batch = _digest(self._identity, kind, task.spec, task.digest, precision, options, backend)
        jobs = tuple((_digest(batch, digest), candidate) for digest, candidate in keyed)
        new = NewSubmission(
            id=_digest(holder.name, request.fresh, *(key for key, _ in jobs))[:32],
            client=holder.name,
            kind=kind,
            task=task.name,
            spec=task.spec,
            precision=precision,
            options=options,
            backend=backend,
            batch=batch,
            jobs=jobs,
            fresh=bool(request.fresh),
        )
        if self.journal.accept(new, holder):
            known = self.journal.counts(new.id).get(JobState.DONE, 0)
            self.metrics.accepted(len(jobs), known)
        self._work.set()
        return new.id

    def cancel(self, submission: str) -> None:
        """Cancel what waits. What is being judged comes to its end."""
        if self.journal.cancel(submission):
            self._notify({submission})

    def state(self, submission: str, task: str) -> SubmissionState:
        """Where a submission stands."""
        counts = self.journal.counts(submission)
        return SubmissionState(
            id=submission,
            task=task,
            finished=all(state in FINISHED for state in counts),
            counts=counts,
            ahead=self.journal.ahead(submission),
            queue=self.journal.waiting(),
        )

    def results(self, submission: str, after: int, limit: int = _PAGE) -> ResultsPage:
        """Outcomes behind a position."""
        rows = self.journal.results(submission, after, min(limit, _PAGE))
        results = []
        for sequence, place, state, result, error, fault in rows:
            found = JobResult(sequence=sequence, place=place, state=state, error=error, fault=fault)
            if result and _is_evaluation(result):
                found.evaluation = _EVALUATION.validate_json(result)
            elif result:
                found.answer = json.loads(result)["answer"]
            results.append(found)
        last = rows[-1][0] if rows else after
        finished = all(state in FINISHED for state in self.journal.counts(submission))
        return ResultsPage(
            results=results, next=last, finished=finished and not self.journal.results(submission, last, 1)
        )

    @contextmanager
    def watch(self, submission: str) -> Iterator[Watcher]:
        """Watch a submission in the running event loop."""
        watcher = Watcher(asyncio.get_running_loop(), asyncio.Event(), deque(maxlen=_STAGES))
        with self._watching:
            self._watchers.setdefault(submission, []).append(watcher)
        try:
            yield watcher
        finally:
            with self._watching:
                self._watchers[submission].remove(watcher)
                if not self._watchers[submission]:
                    del self._watchers[submission]

    # --- judging ---

    def _dispatch(self) -> None:
        """Take batches and hand them to as many threads as the engine serves at once."""
        batch, since, pruned = "", 0.0, 0.0
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(self._width, thread_name_prefix="judge") as threads:
            while not self._stopping.is_set():
                now = time.monotonic()
                if len(running) >= self._width:
                    running = set(wait(running, timeout=_IDLE_S, return_when="FIRST_COMPLETED").not_done)
                    continue
                self._work.clear()
                try:
                    if now - pruned > _PRUNE_S:
                        pruned = now
                        self.catalogue.prune(self.journal.prune(_KEEP_S))
                    jobs = self.journal.take(batch if now - since < _TURN_S else "", _TOGETHER)
                except (sqlite3.Error, OSError) as fault:  # e.g. a full disk: what was accepted waits
                    LOG.error("journal", extra={"fields": {"fault": str(fault)}})
                    self._stopping.wait(_FAULT_S)
                    continue
                if not jobs:
                    if batch and now - since > _OPEN_S and not running:
                        batch = ""
                        self.engine.renew()  # nobody asks: a task that stays open holds device memory
                    self._work.wait(_IDLE_S)
                    continue
                if jobs[0].batch != batch or now - since >= _TURN_S:
                    batch, since = jobs[0].batch, now
                settings = JudgingOptions.model_validate_json(jobs[0].options).settings(self._settings)
                if settings != self.engine.settings:
                    wait(running)  # the engine has one set of settings for all threads
                    self.engine.renew(settings)
                running.add(threads.submit(self._judge, jobs))

    def _judge(self, jobs: Sequence[Job]) -> None:
        """Judge jobs of one batch; whatever fails, each of them gets an outcome."""
        left = {job.number: job for job in jobs}
        try:
            self._current = jobs if self._width <= 1 else ()
            if jobs[0].kind == EVALUATE:
                self._evaluate(jobs, left)
            else:
                for job in jobs:
                    self._finish(job, self._answer(job), 0.0)
                    del left[job.number]
        except WarpsmithError as fault:
            if isinstance(fault, TaskError) or len(jobs) == 1:
                self._fail(left, str(fault), fault)
            else:  # one candidate spoils the batch: judge each by itself
                for job in list(left.values()):
                    if self._stopping.is_set():
                        self.journal.give_back([job])
                    else:
                        self._judge([job])
        except Exception as fault:  # noqa: BLE001 - the top frame of a thread: any other exception is a bug
            LOG.error("judging failed", extra={"fields": {"jobs": len(left), "fault": traceback.format_exc()}})
            with suppress(sqlite3.Error):  # where the journal cannot be written, the next start judges them again
                self._fail(left, f"internal error of the server ({type(fault).__name__}); tell its owner.", fault)

    def _evaluate(self, jobs: Sequence[Job], left: dict[int, Job]) -> None:
        candidates = [_CANDIDATE.validate_json(job.candidate) for job in jobs]
        since = time.monotonic()
        for index, evaluation in self.engine.evaluate(jobs[0].spec, candidates, _precision(jobs[0]), fresh=True):
            assert evaluation.candidate == candidates[index].id, "the engine gives a candidate its own evaluation"
            outcome = Outcome(
                JobState.DONE,
                _EVALUATION.dump_json(evaluation).decode(),
                reusable=evaluation.status is not Status.NOT_JUDGED,
            )
            now = time.monotonic()
            self._finish(jobs[index], outcome, now - since, evaluation.status)
            del left[jobs[index].number]
            since = now
            if self._stopping.is_set():
                self.journal.give_back(list(left.values()))
                left.clear()
                return

    def _answer(self, job: Job) -> Outcome:
        precision = _precision(job)
        found: object
        if job.kind == InspectionKind.SURVEY:
            found = self.engine.survey(job.spec, job.backend, precision)
        elif job.kind == InspectionKind.CALIBRATE:
            found = self.engine.calibrate(job.spec, precision, fresh=job.fresh)
        elif job.kind == InspectionKind.EXAMINE:
            verifier = Verifier(self.engine, paths=self._paths)
            found = verifier.examine(job.spec, _CANDIDATE.validate_json(job.candidate), precision)
        else:
            found = self.engine.describe(job.spec, precision)
        answer = json.dumps({"answer": _ANSWERS[job.kind].dump_python(found, mode="json")})
        return Outcome(JobState.DONE, answer, reusable=True)

    def _finish(self, job: Job, outcome: Outcome, seconds: float, status: str = "") -> None:
        self.metrics.judged(status or outcome.state, seconds)
        self._notify(self.journal.finish(job, outcome))
        fields = {
            "client": job.client,
            "submission": job.submission,
            "place": job.place,
            "outcome": status or outcome.state,
            "seconds": round(seconds, 3),
        }
        LOG.info("judged", extra={"fields": fields})

    def _fail(self, left: dict[int, Job], reason: str, fault: Exception) -> None:
        kind = FaultKind.of(fault)
        for job in left.values():
            folder = Path(job.spec.partition("::")[0]).parent  # where the server keeps the task is not the client's
            error = reason.replace(f"{folder}/", "")
            self._finish(job, Outcome(JobState.FAILED, error=error, fault=kind), 0.0)
        left.clear()

    def _progressed(self, progress: Progress) -> None:
        """A candidate of the current batch reached a stage; called from threads of the engine."""
        jobs = self._current
        if 0 <= progress.index < len(jobs):
            job = jobs[progress.index]
            self._notify({job.submission}, (job.place, progress.stage))

    def _notify(self, submissions: set[str], stage: tuple[int, str] | None = None) -> None:
        with self._watching:
            watchers = [each for submission in submissions for each in self._watchers.get(submission, ())]
        for watcher in watchers:
            if stage is not None:
                watcher.stages.append(stage)
            if not watcher.loop.is_closed():
                watcher.loop.call_soon_threadsafe(watcher.changed.set)


def _precision(job: Job) -> Precision | None:
    return Precision(job.precision) if job.precision else None


def _is_evaluation(result: str) -> bool:
    return not result.startswith('{"answer"')


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
