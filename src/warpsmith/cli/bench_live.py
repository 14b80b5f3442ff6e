"""The display of a bench while it runs: progress, what each device does, the last cells.

On a terminal it stays in place; elsewhere it is one plain line for each cell.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.cli.live import STAGES
from warpsmith.evaluator.supervisor.evaluator import Progress
from warpsmith.experiments.plan import BenchPlan, CellKey
from warpsmith.experiments.results import Cell, CellStatus
from warpsmith.experiments.runner import BenchObserver, BenchRunner
from warpsmith.model import numbers
from warpsmith.search.loop import SearchObserver
from warpsmith.search.session import Session

_LINES = 8  # cells shown
_BAR = 28


@dataclass
class _DeviceState:
    """What one device does."""

    key: CellKey | None = None
    session: Session | None = None
    doing: str = ""


@dataclass
class LiveBench(BenchObserver):
    """Prints events, which come from several threads, as lines, and draws the progress."""

    console: Console
    plan: BenchPlan
    runner: BenchRunner
    plain: bool
    _devices: dict[str, _DeviceState] = field(default_factory=dict)
    _lines: deque[Text] = field(default_factory=lambda: deque(maxlen=_LINES))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _begun: float = field(default_factory=time.monotonic)
    _known: int = -1  # cells settled before this process started

    # --- what happens ---

    def searching(self, device: str, key: CellKey, session: Session) -> SearchObserver:
        """A search begins."""
        self._devices[device] = _DeviceState(key, session)
        return _Messages(self)

    def progress(self, device: str, progress: Progress) -> None:
        """A candidate has reached another stage."""
        state = self._devices.get(device)
        if state is not None and state.session is not None:  # during verification the check is shown instead
            state.doing = STAGES.get(progress.stage, "")

    def examining(self, device: str, key: CellKey, check: str) -> None:
        """A best kernel is being verified or measured again."""
        what = f"verifying: {check.replace('_', ' ')}" if check else "measuring the best kernel again"
        self._devices[device] = _DeviceState(key, None, what)

    def ended(self, device: str, cell: Cell) -> None:
        """A search has ended."""
        self._devices[device] = _DeviceState()
        if cell.status is not CellStatus.DONE or cell.best is None:
            self._say(self._line(cell))

    def settled(self, device: str, cell: Cell) -> None:
        """A cell is finished."""
        self._devices[device] = _DeviceState()
        if cell.status is CellStatus.DONE and cell.best is not None:
            self._say(self._line(cell))

    def message(self, text: str) -> None:
        """Print a line of the evaluator or the search."""
        self._say(Text(f"  {text}", "dim"))

    def _say(self, line: Text) -> None:
        with self._lock:
            self._lines.append(line)
            if self.plain:
                self.console.print(line, soft_wrap=True)

    def _line(self, cell: Cell) -> Text:
        done, total = self._counts()
        count = f"[{done:>{len(str(total))}}/{total}] " if self.plain else ""
        return Text.assemble(count, cell_name(self.plan, cell), "  ", cell_outcome(cell))

    def _counts(self) -> tuple[int, int]:
        tally = self.runner.tally
        return tally.settled, tally.total

    # --- the view ---

    def __rich__(self) -> RenderableType:
        done, total = self._counts()
        if self._known < 0:
            self._known = done
        elapsed = time.monotonic() - self._begun
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"cell {done} of {total}", "bold"),
            ProgressBar(total=total, completed=done, width=_BAR),
            Text(clock_time(elapsed) + self._left(done, total, elapsed), "dim"),
        )
        with self._lock:
            lines = [line.copy() for line in self._lines]
        doing = [self._at(device, state) for device, state in sorted(dict(self._devices).items())]
        for line in (*doing, *lines):  # one line each, whatever the width of the terminal
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(head, *doing, *lines)

    def _left(self, done: int, total: int, elapsed: float) -> str:
        here = done - self._known
        return f", about {clock_time(elapsed / here * (total - done))} left" if here >= 2 and done < total else ""

    def _at(self, device: str, state: _DeviceState) -> Text:
        if state.key is None:
            return Text(f"{device}: …", "dim")
        what = [f"{device}: {state.key.task}  {state.key.method}"]
        if len(self.plan.proposers) > 1:
            what.append(state.key.proposer)
        if self.plan.repeats > 1:
            what.append(f"seed {state.key.seed}")
        if state.session is not None:
            run = state.session.state
            what.append(f"trial {run.totals.trials}/{state.session.budget.trials}")
            best = run.trials.get(run.best)
            if best is not None and best.score is not None:
                what.append(f"best {numbers.ratio(best.score)}x")
        return Text("  ".join([*what, state.doing]), "cyan")


class _Messages(SearchObserver):
    """Passes the messages of a search on, and none of its other events."""

    def __init__(self, view: LiveBench) -> None:
        self._view = view

    def message(self, text: str) -> None:
        """Print a line of the evaluator or the search."""
        self._view.message(text)


@contextmanager
def watching(console: Console, plan: BenchPlan, runner: BenchRunner) -> Iterator[LiveBench]:
    """The display of a bench while it runs."""
    view = LiveBench(console, plan, runner, plain=not console.is_terminal)
    runner.watch = view
    if view.plain:
        yield view
        return
    with Live(view, console=console, refresh_per_second=4, transient=True, redirect_stdout=False):
        yield view


def cell_outcome(cell: Cell) -> Text:
    """The outcome of a cell in one short line."""
    if cell.status is CellStatus.FAILED:
        return Text(f"✗ failed: {cards.short(cell.reason)}", "red")
    if cell.status is CellStatus.UNFINISHED:
        return Text(f"… {cards.short(cell.reason)}", "yellow")
    if cell.best is None:
        none = f"none of {cell.valid} valid kernels measured twice" if cell.valid else "no valid kernel"
        return Text(f"✗ {none} in {cell.trials} trials", "red")
    said = f"{numbers.ratio(cell.best.eager.value)}x"
    if cell.best.verified:
        return Text(f"✓ {said} verified", "green")
    if cell.best.verified is None:
        return Text(f"· {said} not verified", "")
    return Text(f"✗ {said} but not verified: {cards.short(cell.best.why_not)}", "red")


def cell_name(plan: BenchPlan, cell: Cell) -> str:
    """The name of a cell, without the parts that all cells share."""
    parts = [cell.task, cell.method]
    if len(plan.proposers) > 1:
        parts.append(cell.proposer)
    if plan.repeats > 1:
        parts.append(f"seed {cell.seed}")
    return "  ".join(parts)


def clock_time(seconds: float) -> str:
    """A remaining time as text: "2 h 05 min" or "12:34"."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60}:{whole % 60:02d}"
