"""What a person watches while a bench runs: how far it is, what each device does, the last cells.

On a terminal a view that stays in place; elsewhere one plain line per cell, so that a log file reads well.
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

from warpsmith.cli import render
from warpsmith.evaluate.evaluator import Progress
from warpsmith.run.bench.plan import CellKey, Plan
from warpsmith.run.bench.results import Cell, CellStatus
from warpsmith.run.bench.runner import Runner, Watch
from warpsmith.run.loop import Watcher
from warpsmith.run.session import Session

_LINES = 8  # cells shown
_BAR = 28
_STAGES = {
    "build": "compiling",
    "built": "compiled",
    "load": "loading",
    "check": "checking",
    "replay": "recording",
    "time": "timing",
}


@dataclass
class _Desk:
    """What one device does."""

    key: CellKey | None = None
    session: Session | None = None
    doing: str = ""


@dataclass
class BenchView(Watch):
    """Turns events, which come from several threads, into lines, and keeps what the live view shows."""

    console: Console
    plan: Plan
    runner: Runner
    plain: bool
    _desks: dict[str, _Desk] = field(default_factory=dict)
    _lines: deque[Text] = field(default_factory=lambda: deque(maxlen=_LINES))
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _begun: float = field(default_factory=time.monotonic)
    _known: int = -1  # cells settled before this sitting

    # --- what happens ---

    def searching(self, device: str, key: CellKey, session: Session) -> Watcher:
        """A search begins."""
        self._desks[device] = _Desk(key, session)
        return _Messages(self)

    def progress(self, device: str, progress: Progress) -> None:
        """A candidate got on."""
        desk = self._desks.get(device)
        if desk is not None and desk.session is not None:  # a check of verification has a name of its own
            desk.doing = _STAGES.get(progress.stage, "")

    def examining(self, device: str, key: CellKey, check: str) -> None:
        """A winner is looked at."""
        what = f"verifying: {check.replace('_', ' ')}" if check else "measuring the winner anew"
        self._desks[device] = _Desk(key, None, what)

    def ended(self, device: str, cell: Cell) -> None:
        """A search has ended."""
        self._desks[device] = _Desk()
        if cell.status is not CellStatus.DONE or cell.best is None:
            self._say(self._line(cell))

    def settled(self, device: str, cell: Cell) -> None:
        """A cell is finished."""
        self._desks[device] = _Desk()
        if cell.status is CellStatus.DONE and cell.best is not None:
            self._say(self._line(cell))

    def message(self, text: str) -> None:
        """Something worth a line."""
        self._say(Text(f"  {text}", "dim"))

    def _say(self, line: Text) -> None:
        with self._guard:
            self._lines.append(line)
            if self.plain:
                self.console.print(line, soft_wrap=True)

    def _line(self, cell: Cell) -> Text:
        done, total = self._counts()
        count = f"[{done:>{len(str(total))}}/{total}] " if self.plain else ""
        return Text.assemble(count, name_of(self.plan, cell), "  ", outcome(cell))

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
            Text(clock(elapsed) + self._left(done, total, elapsed), "dim"),
        )
        with self._guard:
            lines = [line.copy() for line in self._lines]
        doing = [self._at(device, desk) for device, desk in sorted(dict(self._desks).items())]
        for line in (*doing, *lines):  # one line each, whatever the width of the terminal
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(head, *doing, *lines)

    def _left(self, done: int, total: int, elapsed: float) -> str:
        here = done - self._known
        return f", about {clock(elapsed / here * (total - done))} left" if here >= 2 and done < total else ""

    def _at(self, device: str, desk: _Desk) -> Text:
        if desk.key is None:
            return Text(f"{device}: …", "dim")
        what = [f"{device}: {desk.key.task}  {desk.key.method}"]
        if len(self.plan.proposers) > 1:
            what.append(desk.key.proposer)
        if self.plan.repeats > 1:
            what.append(f"seed {desk.key.seed}")
        if desk.session is not None:
            ledger = desk.session.ledger
            what.append(f"trial {ledger.totals.trials}/{desk.session.budget.trials}")
            best = ledger.trials.get(ledger.best)
            if best is not None and best.score is not None:
                what.append(f"best {render.ratio(best.score)}x")
        return Text("  ".join([*what, desk.doing]), "cyan")


class _Messages(Watcher):
    """Of the events of a search only what is worth a line among those of a whole bench."""

    def __init__(self, view: BenchView) -> None:
        self._view = view

    def message(self, text: str) -> None:
        """Something worth a line."""
        self._view.message(text)


@contextmanager
def watching(console: Console, plan: Plan, runner: Runner) -> Iterator[BenchView]:
    """A view of a bench while it runs."""
    view = BenchView(console, plan, runner, plain=not console.is_terminal)
    runner.watch = view
    if view.plain:
        yield view
        return
    with Live(view, console=console, refresh_per_second=4, transient=True, redirect_stdout=False):
        yield view


def outcome(cell: Cell) -> Text:
    """What became of a cell, in one short line."""
    if cell.status is CellStatus.FAILED:
        return Text(f"✗ failed: {render.short(cell.reason)}", "red")
    if cell.status is CellStatus.UNFINISHED:
        return Text(f"… {render.short(cell.reason)}", "yellow")
    if cell.best is None:
        none = f"none of {cell.valid} valid kernels measured twice" if cell.valid else "no valid kernel"
        return Text(f"✗ {none} in {cell.trials} trials", "red")
    said = f"{render.ratio(cell.best.eager.value)}x"
    if cell.best.verified:
        return Text(f"✓ {said} verified", "green")
    if cell.best.verified is None:
        return Text(f"· {said} not verified", "")
    return Text(f"✗ {said} but not verified: {render.short(cell.best.why_not)}", "red")


def name_of(plan: Plan, cell: Cell) -> str:
    """Which cell, without what is the same for all."""
    parts = [cell.task, cell.method]
    if len(plan.proposers) > 1:
        parts.append(cell.proposer)
    if plan.repeats > 1:
        parts.append(f"seed {cell.seed}")
    return "  ".join(parts)


def clock(seconds: float) -> str:
    """A time to wait, for people."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60}:{whole % 60:02d}"
