"""One run, open for work on this machine: session, evaluator and proposer together.

`ActiveRun.search` is the only orchestration of a search: `optimize`, `bench` and the Python API all call it. It drives
the loop, tunes the best kernel, writes it, and ends the sitting in the log.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from warpsmith.engine.engine import Engine
from warpsmith.model.errors import WarpsmithError
from warpsmith.proposers.choose import ChosenProposer
from warpsmith.run_log.events import StopReason
from warpsmith.search import open_run
from warpsmith.search.best_kernel import bundle_folder, write_best
from warpsmith.search.final_tuning import can_tune, tune_and_judge
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.profiles import KnownProfiles, kernel_profiler, reads_profiles
from warpsmith.search.session import Session
from warpsmith.search.stop_request import listening


@dataclass(frozen=True)
class Ending:
    """How one sitting of a run ended."""

    reason: StopReason
    detail: str  # what the proposer or the evaluator said last, where that is the reason
    best: Path | None  # the file of the best kernel; None where the run has none
    bundle: Path  # the folder of its bundle
    write_fault: str  # why the best kernel is not where the caller asked for it; "" where it is


class ActiveRun:
    """Drives one sitting of a run to its end. The caller owns session and evaluator."""

    def __init__(
        self,
        session: Session,
        evaluator: Engine,
        choice: ChosenProposer,
        *,
        profile: bool = True,
        tune: bool = True,
        parallel: int | None = None,
        known_profiles: KnownProfiles | None = None,
        retune: bool = False,  # an interrupted tuning ends the sitting as interrupted: it is made again on resuming
    ) -> None:
        self._retune = retune
        self.session = session
        self._evaluator = evaluator
        self._choice = choice
        self._profile = profile and reads_profiles(session.method, choice.spec)
        self._known_profiles = known_profiles
        self._tune = tune
        self._parallel = parallel or session.state.setup.config.parallel
        self._loop: SearchLoop | None = None
        self._stopping = False

    def search(self, observer: SearchObserver, *, out: str = "") -> Ending:
        """Propose and judge until a budget is spent or `interrupt` is called, then tune and write the best kernel.

        `out` names a file for the best kernel's source or a folder for its bundle, instead of the run's folder.
        """
        session = self.session
        task_evaluator = open_run.task_evaluator(session, self._evaluator)
        with ExitStack() as stack:
            stack.enter_context(listening(session.folder, self.interrupt))
            proposer = self._choice.open()
            stack.callback(proposer.close)
            profile = (
                stack.enter_context(kernel_profiler(session, self._evaluator, known=self._known_profiles))
                if self._profile
                else None
            )
            loop = SearchLoop(
                session,
                proposer,
                task_evaluator,
                observer,
                parallel=self._parallel,
                profile=profile,
                prepare=task_evaluator.prepare,
                width=self._evaluator.width,
            )
            self._loop = loop
            if self._stopping:  # asked to stop before there was a loop
                loop.interrupt()
            reason = loop.run()
            if self._tune and can_tune(session, reason):
                self._tune_best(observer)
                reason = StopReason.INTERRUPTED if self._retune and self._stopping else reason
        best, bundle, fault = write_best_somewhere(session, out)
        session.end(reason, loop.refused)
        return Ending(reason, loop.refused, best, bundle, fault)

    def interrupt(self) -> None:
        """Stop soon; safe in a signal handler and from other threads. The second call does not wait for replies."""
        self._stopping = True
        if self._loop is not None:
            self._loop.interrupt()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM close the run in good order; only in the main thread, where signals can be handled."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with handling_signals(self.interrupt):
            yield

    def _tune_best(self, observer: SearchObserver) -> None:
        """Try other values of the best kernel's tunables; an interrupt ends that, and the run keeps what it has."""
        before, stopped_before = self.session.state.best, self._stopping
        observer.message("tuning the best kernel's tunables (Ctrl-C ends the tuning)")
        tuned = tune_and_judge(self.session, self._evaluator, lambda: self._stopping and not stopped_before)
        values = ", ".join(f"{name}={value}" for name, value in tuned.best.defines) if tuned.best else ""
        found = f"faster with {values}" if self.session.state.best != before else "none is faster beyond doubt"
        observer.message(f"{tuned.tried} of {tuned.total} settings tried: {found}")


def write_best_somewhere(session: Session, out: str) -> tuple[Path | None, Path, str]:
    """Write the best kernel and its bundle to `out`, or into the run's folder where that fails, and say why it did."""
    fault = ""
    for place in dict.fromkeys((out, "")):
        try:
            return write_best(session, place), bundle_folder(session, place), fault
        except WarpsmithError as refused:
            fault = fault or str(refused)
    return None, bundle_folder(session), fault


@contextmanager
def handling_signals(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` for SIGINT and SIGTERM instead of their usual effect."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: act())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
