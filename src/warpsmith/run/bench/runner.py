"""Carries a plan out: one run per cell, sharded over devices, to be broken off and gone on with at any point.

Each device has a thread and an evaluator of its own and takes one shard after another: the cells of a task, searched
one after the other so that what the evaluator knows of the task is used, then their winners. What is finished is
never repeated; what was broken off is resumed through the run's own log. State is in the folders, none is kept here.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.core.errors import HarnessFault, ProposerFault, TaskError
from warpsmith.core.search import Precedent, Problem
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator, Progress
from warpsmith.evaluate.verification.verify import Event
from warpsmith.hardware.device import Device
from warpsmith.llm.spec import is_spec
from warpsmith.propose.making import Choice, choose
from warpsmith.run import opening
from warpsmith.run.bench.folding import FAILED, FoldedCell, assemble, damage, fold_cell, is_begun, write_failure
from warpsmith.run.bench.plan import CellKey, Plan
from warpsmith.run.bench.results import RESULTS, Bench, Cell, CellStatus, write_results
from warpsmith.run.bench.winners import Examination, examine, folder_of, read_winner
from warpsmith.run.best import write_best
from warpsmith.run.budgets import check_counted
from warpsmith.run.finishing import can_be_tuned, finish
from warpsmith.run.loop import Loop, Watcher
from warpsmith.run.profiling import looking, pays
from warpsmith.run.recalling import precedent
from warpsmith.run.session import Session
from warpsmith.strategies import pool

_PRECEDENTS = 5  # shown to a strategist, as in a run of its own


class Watch:
    """Sees what happens, from several threads. This one does nothing with it; override what you want to see."""

    def searching(self, device: str, key: CellKey, session: Session) -> Watcher:
        """A cell's search begins, or goes on; the watcher sees its trials."""
        return Watcher()

    def progress(self, device: str, progress: Progress) -> None:
        """The candidate on a device got on."""

    def examining(self, device: str, key: CellKey, check: str) -> None:
        """A cell's winner is looked at once more; `check` is a check of verification, "" for a measurement."""

    def ended(self, device: str, cell: Cell) -> None:
        """A cell's search has ended."""

    def settled(self, device: str, cell: Cell) -> None:
        """Nothing is left to do for a cell."""

    def message(self, text: str) -> None:
        """Something worth a line."""


@dataclass(frozen=True)
class Tally:
    """How far a bench was when it was looked at."""

    total: int
    settled: int
    begun: int  # searches that are begun and not ended
    failed: int


class Runner:
    """One sitting of a bench."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        devices: Sequence[Device],
        *,
        retry_failed: bool = False,
    ) -> None:
        self.watch = Watch()  # whoever wants to see more puts another here before `run`
        self._folder = folder
        self._plan = plan
        self._devices = tuple(devices)
        self._wanted = Examination(plan.verify, plan.compile_baseline)
        self._precision = Precision(plan.precision) if plan.precision else None
        self._guard = threading.Lock()
        self._cells = {key: fold_cell(plan, folder, key) for key in plan.cells}
        if retry_failed:
            self._forgive()
        self._settled = {key for key, each in self._cells.items() if self._is_settled(each.cell)}
        self._loops: dict[str, Loop] = {}
        self._stopping = False
        self._fault: BaseException | None = None

    @property
    def tally(self) -> Tally:
        """How far it is."""
        with self._guard:
            cells = [each.cell for each in self._cells.values()]
            settled = len(self._settled)
        begun = sum(cell.status is CellStatus.UNFINISHED and cell.trials > 0 for cell in cells)
        failed = sum(cell.status is CellStatus.FAILED for cell in cells)
        return Tally(len(cells), settled, begun, failed)

    @property
    def bench(self) -> Bench:
        """The results so far."""
        with self._guard:
            return assemble(self._plan, [self._cells[key] for key in self._plan.cells])

    @property
    def interrupted(self) -> bool:
        """Whether somebody has asked it to stop."""
        return self._stopping

    def run(self) -> Bench:
        """Work until all is done or somebody interrupts."""
        shards = deque(sharded(self._open_cells(), len(self._devices)))
        threads = [
            threading.Thread(target=self._serve, args=(device, shards), name=f"bench-{device.spec}", daemon=True)
            for device in self._devices[: len(shards)]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # returns now and then, so that signals are seen
        if self._fault is not None:
            raise self._fault
        self._publish()
        return self.bench

    def interrupt(self) -> None:
        """Stop soon, from a signal handler or another thread: searches close, verification under way is finished."""
        self._stopping = True
        for loop in tuple(self._loops.values()):
            loop.interrupt()

    # --- one device ---

    def _serve(self, device: Device, shards: deque[tuple[CellKey, ...]]) -> None:
        """A thread: shards one after the other."""
        try:
            with Evaluator(
                device,
                self._plan.settings,
                on_progress=lambda progress: self.watch.progress(device.spec, progress),
                on_message=self.watch.message,
            ) as evaluator:
                while not self._stopping:
                    try:
                        shard = shards.popleft()
                    except IndexError:
                        return
                    self._work(shard, evaluator)
        except BaseException as error:  # noqa: BLE001  (a thread's top frame: the bench's own thread raises it)
            self._fault = self._fault or error
            self.interrupt()

    def _work(self, shard: Sequence[CellKey], evaluator: Evaluator) -> None:
        """Search all cells, then look at their winners."""
        broken = ""
        for key in shard:
            if self._stopping:
                return
            if self._cells[key].cell.status is not CellStatus.UNFINISHED:
                continue
            folder = self._folder / key.folder
            try:
                if why := broken or damage(folder):
                    write_failure(folder, why)
                else:
                    self._search(key, evaluator)
            except TaskError as fault:  # the task's own: the other cells have the same
                broken = str(fault)
                write_failure(folder, broken)
            except (HarnessFault, ProposerFault) as fault:
                write_failure(folder, str(fault))
            self.watch.ended(evaluator.device.spec, self._refold(key))
        for key in shard:
            if self._stopping:
                return
            self._look_at(key, evaluator)

    def _search(self, key: CellKey, evaluator: Evaluator) -> None:
        folder, plan = self._folder / key.folder, self._plan
        going_on = is_begun(folder)
        with ExitStack() as stack:
            if going_on:
                session = stack.enter_context(Session.resume(folder))
            else:
                shutil.rmtree(folder, ignore_errors=True)  # killed before its first event
                session = stack.enter_context(self._begin(key, folder, evaluator))
            proposer = choice_of(plan, key, skip=session.replayed).open()
            stack.callback(proposer.close)
            profiled = plan.profile and pays(session.method, key.proposer)
            bench = opening.bench_of(session, evaluator)
            loop = Loop(
                session,
                proposer,
                bench,
                self.watch.searching(evaluator.device.spec, key, session),
                parallel=session.ledger.begun.config.parallel,
                look=stack.enter_context(looking(session, evaluator)) if profiled else None,
                prepare=bench.prepare,
            )
            reason = self._looped(loop, evaluator.device.spec)
            if plan.tune and can_be_tuned(session, reason):
                finish(session, evaluator, lambda: self._stopping)
                reason = "interrupted" if self._stopping else reason
            write_best(session)
            session.end(reason, loop.refused)

    def _looped(self, loop: Loop, device: str) -> str:
        """Let a loop work, where it can be told to stop; why it did."""
        self._loops[device] = loop
        try:
            if self._stopping:  # asked to, before the loop was there to be told
                loop.interrupt()
            return loop.run() or "told"
        finally:
            self._loops.pop(device, None)

    def _begin(self, key: CellKey, folder: Path, evaluator: Evaluator) -> Session:
        plan = self._plan
        order = opening.Order(
            task=plan.task(key.task).source,
            method=plan.method(key.method),
            proposer=key.proposer,
            budget=plan.budget,
            folder=folder,
            device=plan.device,
            settings=plan.settings,
            seed=key.seed,
            precision=self._precision,
            repairs=plan.repairs,
            enough_share=plan.enough_share,
            parallel=plan.parallel,
        )
        return opening.begin(order, evaluator, plan.backend, self._recall)

    def _recall(self, problem: Problem) -> tuple[Precedent, ...]:
        """Of the catalogue only: a cell must not know what another one, or the user's own runs, found out."""
        nowhere = self._folder / "no-pool.jsonl"
        return tuple(map(precedent, pool.search(problem, _PRECEDENTS, nowhere)))

    def _look_at(self, key: CellKey, evaluator: Evaluator) -> None:
        """Measure and verify a cell's winner, unless that is known."""
        cell, device = self._cells[key].cell, evaluator.device.spec
        if cell.status is CellStatus.DONE and cell.best is not None and key not in self._settled:
            folder = self._folder / key.folder
            with Session.peek(folder) as session:
                candidate = session.candidate(cell.best.trial)
                task = opening.task_of(folder, session.ledger.begun.config)
            self.watch.examining(device, key, "")

            def say(event: Event) -> None:
                if event.outcome is None:
                    self.watch.examining(device, key, event.name)

            where = folder_of(self._folder, key.task, candidate.id)
            try:
                examine(evaluator, task, candidate, self._precision, self._wanted, where, say)
            except (HarnessFault, TaskError) as fault:  # ours, after retries: the next sitting tries again
                self.watch.message(f"the winner of {key.task} by {key.method} could not be looked at: {fault}")
        self.watch.settled(device, self._refold(key))

    # --- what is known ---

    def _open_cells(self) -> tuple[CellKey, ...]:
        return tuple(key for key in self._cells if key not in self._settled)

    def _is_settled(self, cell: Cell) -> bool:
        """Whether nothing is left to do."""
        if cell.status is not CellStatus.DONE or cell.best is None:
            return cell.status is not CellStatus.UNFINISHED
        known = read_winner(folder_of(self._folder, cell.task, cell.best.candidate))
        return self._wanted.complete(known)

    def _forgive(self) -> None:
        """Failed cells are taken up again, where they stopped; not those whose run is damaged."""
        for key, each in self._cells.items():
            folder = self._folder / key.folder
            if each.cell.status is CellStatus.FAILED and not damage(folder):
                (folder / FAILED).unlink(missing_ok=True)
                if is_begun(folder):
                    with Session.resume(folder) as session:
                        session.end("interrupted", "to be tried again")
                self._cells[key] = fold_cell(self._plan, self._folder, key)

    def _refold(self, key: CellKey) -> Cell:
        folded: FoldedCell = fold_cell(self._plan, self._folder, key)
        with self._guard:
            self._cells[key] = folded
            if self._is_settled(folded.cell):
                self._settled.add(key)
        self._publish()
        return folded.cell

    def _publish(self) -> None:
        write_results(self.bench, self._folder / RESULTS)


def sharded(cells: Sequence[CellKey], devices: int) -> list[tuple[CellKey, ...]]:
    """The cells of each task together; only where there are fewer tasks than devices are tasks divided."""
    grouped: dict[str, list[CellKey]] = {}
    for key in cells:
        grouped.setdefault(key.task, []).append(key)
    shards = [tuple(group) for group in grouped.values()]
    while len(shards) < devices and any(len(shard) > 1 for shard in shards):
        largest = max(shards, key=len)
        shards.remove(largest)
        half = (len(largest) + 1) // 2
        shards += [largest[:half], largest[half:]]
    return shards


def choice_of(plan: Plan, key: CellKey, *, skip: int = 0) -> Choice:
    """The proposer of a cell; other models for roles go where the method has these roles."""
    roles = plan.method(key.method).roles
    models = tuple(text for text in plan.options.models if text.partition("=")[0] in roles)
    options = replace(plan.options, models=models if is_spec(key.proposer) else ())
    return choose(key.proposer, options, skip=skip, roles=roles)


def check_proposers(plan: Plan, on_sentence: Callable[[str], None] = lambda _: None) -> None:
    """Raise where one of the proposers could not work: before anything is spent."""
    first: dict[str, str] = {}
    for key in plan.cells[: len(plan.methods) * len(plan.proposers)]:
        choice = choice_of(plan, key)
        check_counted(plan.budget, choice)
        first.setdefault(key.proposer, choice.sentence)
    for sentence in first.values():
        on_sentence(sentence)
