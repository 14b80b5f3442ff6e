"""Runs the cells of a bench, distributed over devices. Can be interrupted and resumed at any point.

Each device has its own thread and evaluator, and takes one shard after another: the cells of one task, searched one
after the other so that the evaluator's caches are used, then their best kernels. Finished cells are never repeated;
interrupted ones are resumed from their run log. All state is in the folders.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from warpsmith.engine.engine import LOCAL, Engine, open_engine
from warpsmith.evaluator.supervisor.evaluator import Progress
from warpsmith.experiments.best_kernels import EVALUATION, WantedChecks, checks_folder, read_checks, run_checks
from warpsmith.experiments.collect import (
    FAILED,
    CollectedCell,
    assemble,
    collect_cell,
    collect_open_cell,
    is_begun,
    why_damaged,
    write_failure,
)
from warpsmith.experiments.plan import BenchPlan, CellKey, cell_folder, start_of
from warpsmith.experiments.results import RESULTS, BenchResults, Cell, CellStatus, write_results
from warpsmith.hardware.device import Device
from warpsmith.llm.spec import is_spec
from warpsmith.model.brief import Precedent, Problem
from warpsmith.model.errors import CandidateError, HarnessFault, ProposerFault, RunError, TaskError
from warpsmith.model.task import Precision
from warpsmith.proposers.choose import ChosenProposer, choose
from warpsmith.run_log.events import RunConfig, StopReason
from warpsmith.search import open_run
from warpsmith.search.active_run import ActiveRun
from warpsmith.search.budget import check_countable
from warpsmith.search.loop import SearchObserver
from warpsmith.search.next_brief import find_precedents
from warpsmith.search.options import RunOptions
from warpsmith.search.profiles import KnownProfiles
from warpsmith.search.session import Session
from warpsmith.search.start import read_start
from warpsmith.search.trust import TASK_FILE, UntrustedTask, allow_task
from warpsmith.strategies import pool
from warpsmith.system.files import check_below, read_file, remove_tree
from warpsmith.tasks.local_imports import local_modules
from warpsmith.verification.verify import VerificationEvent

POOL = "pool.jsonl"
"""The pool as it was when the bench began: all cells, also those of a resumed bench, retrieve from this file."""


class BenchObserver:
    """Gets told what happens, from several threads; does nothing. Override the methods you need."""

    def searching(self, device: str, key: CellKey, session: Session) -> SearchObserver:
        """The search of a cell starts or resumes; the returned observer gets its events."""
        return SearchObserver()

    def progress(self, device: str, progress: Progress) -> None:
        """Progress of the candidate on a device."""

    def examining(self, device: str, key: CellKey, check: str) -> None:
        """The best kernel of a cell is checked; `check` is a check of the verification, "" for a measurement."""

    def ended(self, device: str, cell: Cell) -> None:
        """A cell's search has ended."""

    def settled(self, device: str, cell: Cell) -> None:
        """Nothing is left to do for a cell."""

    def message(self, text: str) -> None:
        """A message for the user."""


@dataclass(frozen=True)
class BenchProgress:
    """The progress of a bench."""

    total: int
    settled: int
    begun: int  # searches started and not ended
    failed: int


@dataclass(frozen=True)
class _Place:
    """Where one cell is worked on at a time: a device, or one of several places on the devices of a cluster."""

    device: Device
    number: int

    @property
    def name(self) -> str:
        return f"{self.device.spec} #{self.number + 1}" if self.number else self.device.spec


class BenchRunner:
    """Works on a bench until it is finished or interrupted."""

    def __init__(
        self,
        folder: Path,
        plan: BenchPlan,
        devices: Sequence[Device],
        *,
        engine: str = LOCAL,
        slots: int = 1,  # cells worked on at the same time on each device
        retry_failed: bool = False,
        most_cells: int = 0,  # of a shard: tasks are then finished one after the other; 0: as many as there are
    ) -> None:
        self.watch = BenchObserver()  # replace before `run` to get events
        self._folder = folder
        self._plan = plan
        self._engine = engine
        self._most_cells = most_cells
        self._places = tuple(_Place(each, number) for each in devices for number in range(slots))
        self._wanted = WantedChecks(plan.verify, plan.compile_baseline, accept_uncalibrated=plan.accept_uncalibrated)
        self._precision = Precision(plan.precision) if plan.precision else None
        self._guard = threading.Lock()
        self._cells = {key: collect_cell(plan, folder, key) for key in plan.cells}
        if retry_failed:
            self._reopen_failed()
        self._settled = {key for key, each in self._cells.items() if self._is_settled(each.cell)}
        self._runs: dict[str, ActiveRun] = {}  # by place
        self._profiles = KnownProfiles()
        self._checking: dict[Path, threading.Lock] = {}  # best kernels of several cells may be the same
        self._publishing = threading.Lock()
        self._publish_at = 0.0
        self._stopping = False
        self._fault: BaseException | None = None

    @property
    def tally(self) -> BenchProgress:
        """The progress so far."""
        with self._guard:
            cells = [each.cell for each in self._cells.values()]
            settled = len(self._settled)
        begun = sum(cell.status is CellStatus.UNFINISHED and cell.trials > 0 for cell in cells)
        failed = sum(cell.status is CellStatus.FAILED for cell in cells)
        return BenchProgress(len(cells), settled, begun, failed)

    @property
    def bench(self) -> BenchResults:
        """The results so far."""
        with self._guard:
            return assemble(self._plan, [self._cells[key] for key in self._plan.cells])

    @property
    def interrupted(self) -> bool:
        """True after `interrupt`."""
        return self._stopping

    def run(self) -> BenchResults:
        """Work until all cells are finished or `interrupt` is called."""
        pool.copy_pool(self._folder / POOL)
        shards = deque(sharded(self._open_cells(), len(self._places), self._most_cells))
        threads = [
            threading.Thread(target=self._serve, args=(place, shards), name=f"bench-{place.name}", daemon=True)
            for place in self._places[: len(shards)]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # returns now and then, so that signals are seen
        if self._fault is not None:
            with suppress(RunError):
                self._publish(now=True)
            raise self._fault
        self._publish(now=True)
        return self.bench

    def interrupt(self) -> None:
        """Stop soon: searches close, a verification in progress ends. Safe in signal handlers and other threads."""
        self._stopping = True
        for run in tuple(self._runs.values()):
            run.interrupt()

    # --- one place ---

    def _serve(self, place: _Place, shards: deque[tuple[CellKey, ...]]) -> None:
        """The thread of a place: one shard after the other."""
        try:
            with open_engine(
                self._engine,
                place.device,
                self._plan.settings,
                name=f"{self._folder.name} {place.name}",
                on_progress=lambda progress: self.watch.progress(place.name, progress),
                on_message=self.watch.message,
            ) as evaluator:
                while not self._stopping:
                    try:
                        shard = shards.popleft()
                    except IndexError:
                        return
                    self._work(shard, place.name, evaluator)
        except BaseException as error:  # noqa: BLE001  (a thread's top frame: the bench's own thread raises it)
            self._fault = self._fault or error
            self.interrupt()

    def _work(self, shard: Sequence[CellKey], place: str, evaluator: Engine) -> None:
        """Search all cells of a shard, then check their best kernels."""
        broken = ""
        for key in shard:
            if self._stopping:
                return
            if self._cells[key].cell.status is not CellStatus.UNFINISHED:
                continue
            folder, found = cell_folder(self._folder, key), None
            try:
                if why := broken or why_damaged(folder):
                    write_failure(folder, why)
                else:
                    found = self._search(key, place, evaluator)
            except TaskError as fault:  # the other cells of the task would fail too
                broken = str(fault)
                write_failure(folder, broken)
            except (HarnessFault, ProposerFault, UntrustedTask, CandidateError) as fault:
                write_failure(folder, str(fault))
            self.watch.ended(place, self._collect(key, found))
        for key in shard:
            if self._stopping:
                return
            self._check_best(key, place, evaluator)

    def _search(self, key: CellKey, place: str, evaluator: Engine) -> CollectedCell:
        folder, plan = cell_folder(self._folder, key), self._plan
        going_on = is_begun(folder)
        with ExitStack() as stack:
            if going_on:
                session = stack.enter_context(Session.resume(folder))
                self._allow_task(key, session)
            else:
                remove_tree(folder)  # killed before its first event
                session = stack.enter_context(self._begin(key, folder, evaluator))
            choice = choice_of(plan, key, skip=session.recorded_trials)
            run = ActiveRun(
                session,
                evaluator,
                choice,
                profile=plan.profile,
                tune=plan.tune,
                known_profiles=self._profiles,
                retune=True,
            )
            self._runs[place] = run
            try:
                if self._stopping:  # asked to stop before there was a run to tell
                    run.interrupt()
                run.search(self.watch.searching(place, key, session))
            finally:
                self._runs.pop(place, None)
            return collect_open_cell(plan, self._folder, key, session)

    def _allow_task(self, key: CellKey, session: Session) -> None:
        """Allow the task file of a cell's run if it is that of the plan, which was confirmed."""
        folder = session.folder
        with suppress(OSError):
            path = self._plan.task(key.task).path
            same = read_file(folder / TASK_FILE) == path.read_bytes()
            if same and local_modules(folder / TASK_FILE) == local_modules(path):
                allow_task(folder, session.state.setup)

    def _begin(self, key: CellKey, folder: Path, evaluator: Engine) -> Session:
        plan = self._plan
        config = RunConfig(
            task=plan.task(key.task).source,
            device=plan.device,
            backend=plan.backend,
            proposer=key.proposer,
            budget=plan.budget,
            settings=plan.settings,
            seed=key.seed,
            precision=plan.precision,
            repairs=plan.repairs,
            enough_share=plan.enough_share,
            parallel=plan.parallel or open_run.default_parallel(evaluator.device.kind),
            start=start_of(plan, key.task),
            accept_uncalibrated=plan.accept_uncalibrated,
            engine=self._engine,
        )
        method = plan.method(key.method)
        recall = partial(bench_precedents, self._folder)
        options = RunOptions(profile=plan.profile, tune=plan.tune, remember=False, models=plan.options)
        start = read_start(config.start, plan.backend)
        return open_run.begin(config, method, evaluator, folder=folder, recall=recall, options=options, start=start)

    def _check_best(self, key: CellKey, place: str, evaluator: Engine) -> None:
        """Measure and verify the best kernel of a cell, unless that was done."""
        cell = self._cells[key].cell
        unchecked = cell.status is CellStatus.DONE and cell.best is not None and key not in self._settled
        if unchecked:
            assert cell.best is not None, "said above"
            with Session.read(cell_folder(self._folder, key)) as session:
                candidate = session.candidate(cell.best.trial)
            task = self._plan.task(key.task).source
            self.watch.examining(place, key, "")

            def say(event: VerificationEvent) -> None:
                if event.outcome is None:
                    self.watch.examining(place, key, event.name)

            where = checks_folder(self._folder, key.task, candidate.id)
            with self._guard:
                alone = self._checking.setdefault(where, threading.Lock())
            try:
                check_below(self._folder, where / EVALUATION)
                with alone:
                    run_checks(evaluator, task, candidate, self._precision, self._wanted, where, say)
            except (HarnessFault, TaskError, OSError) as fault:  # a resumed bench tries again
                self.watch.message(f"the best kernel of {key.task} by {key.method} could not be checked: {fault}")
        self.watch.settled(place, self._collect(key) if unchecked else cell)

    # --- state ---

    def _open_cells(self) -> tuple[CellKey, ...]:
        return tuple(key for key in self._cells if key not in self._settled)

    def _is_settled(self, cell: Cell) -> bool:
        """True if nothing is left to do for a cell."""
        if cell.status is not CellStatus.DONE or cell.best is None:
            return cell.status is not CellStatus.UNFINISHED
        checks = read_checks(checks_folder(self._folder, cell.task, cell.best.candidate))
        return self._wanted.complete(checks)

    def _reopen_failed(self) -> None:
        """Make failed cells unfinished, so that they are resumed; not those whose run is damaged."""
        for key, each in self._cells.items():
            folder = cell_folder(self._folder, key)
            if each.cell.status is CellStatus.FAILED and not why_damaged(folder):
                (folder / FAILED).unlink(missing_ok=True)
                if is_begun(folder):
                    with Session.resume(folder) as session:
                        session.end(StopReason.INTERRUPTED, "to be tried again")
                self._cells[key] = collect_cell(self._plan, self._folder, key)

    def _collect(self, key: CellKey, found: CollectedCell | None = None) -> Cell:
        collected = found or collect_cell(self._plan, self._folder, key)
        with self._guard:
            self._cells[key] = collected
            if self._is_settled(collected.cell):
                self._settled.add(key)
        self._publish()
        return collected.cell

    def _publish(self, *, now: bool = False) -> None:
        """Write the results so far, not more often than is worth it: the whole bench is written each time."""
        with self._publishing:
            begun = time.monotonic()
            if now or begun >= self._publish_at:
                write_results(self.bench, self._folder / RESULTS)
                self._publish_at = time.monotonic() + max(1.0, 20 * (time.monotonic() - begun))


def sharded(cells: Sequence[CellKey], devices: int, most: int = 0) -> list[tuple[CellKey, ...]]:
    """The cells of each task as one shard; tasks are divided only if there are fewer tasks than devices.

    With `most`, every task is divided into shards of at most so many cells. Tasks keep their order.
    """
    grouped: dict[str, list[CellKey]] = {}
    for key in cells:
        grouped.setdefault(key.task, []).append(key)
    shards = []
    for group in grouped.values():
        parts = -(-len(group) // most) if most else 1
        shards += [tuple(group[number::parts]) for number in range(parts)]
    while len(shards) < devices and any(len(shard) > 1 for shard in shards):
        largest = max(shards, key=len)
        shards.remove(largest)
        half = (len(largest) + 1) // 2
        shards += [largest[:half], largest[half:]]
    return shards


def bench_precedents(folder: Path, problem: Problem) -> tuple[Precedent, ...]:
    """Lessons of the pool as it was when the bench began, without those on the problem's own task."""
    return find_precedents(problem, folder / POOL, apart_from=problem.task.digest)


def choice_of(plan: BenchPlan, key: CellKey, *, skip: int = 0) -> ChosenProposer:
    """The proposer of a cell; models for roles that the method does not have are left out."""
    roles = plan.method(key.method).roles
    models = tuple(text for text in plan.options.models if text.partition("=")[0] in roles)
    options = replace(plan.options, models=models if is_spec(key.proposer) else ())
    return choose(key.proposer, options, skip=skip, roles=roles)


def check_proposers(plan: BenchPlan, on_sentence: Callable[[str], None] = lambda _: None) -> None:
    """Raise if one of the proposers could not work, before anything is spent."""
    first: dict[str, str] = {}
    for key in plan.cells[: len(plan.methods) * len(plan.proposers)]:
        choice = choice_of(plan, key)
        check_countable(plan.budget, choice)
        first.setdefault(key.proposer, choice.sentence)
    for sentence in first.values():
        on_sentence(sentence)
