"""The display of a run while it works: a line for each verdict, and on a terminal the progress below them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.model import numbers
from warpsmith.model.brief import Brief, Reply, TrialOutcome, TrialRecord
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.search.loop import SearchObserver
from warpsmith.search.run_state import RunState
from warpsmith.search.session import Session
from warpsmith.search.trials import RunTotals

if TYPE_CHECKING:
    from warpsmith.evaluator.supervisor.evaluator import Progress

_BAR = 28
_NUMBER = 5  # columns of a trial's number; continued lines begin after it
STAGES = {
    "build": "compiling",
    "built": "compiled",
    "load": "loading",
    "check": "checking",
    "replay": "recording",
    "time": "timing",
}


@dataclass(frozen=True)
class _Snapshot:
    """A run at its last event."""

    trials: int
    of: int
    facts: str
    thinking: int  # briefs that wait for a reply
    seconds: float  # of work so far
    taken_at: float  # by the monotonic clock


class LiveRun(SearchObserver):
    """Prints events as lines and draws the progress.

    Events come from the thread that works on the run, and only that thread reads the run. The thread that draws uses an
    immutable snapshot, and the clock.
    """

    def __init__(self, console: Console, session: Session) -> None:
        self._console = console
        self._session = session
        self._doing = ""
        self._thinking: set[int] = set()
        self._snapshot = self._take_snapshot()

    def asked(self, brief: Brief) -> None:
        """A brief waits for a reply."""
        self._thinking.add(brief.number)
        self._snapshot = self._take_snapshot()

    def replied(self, brief: Brief, reply: Reply) -> None:
        """The reply has come."""
        self._thinking.discard(brief.number)
        self._snapshot = self._take_snapshot()

    def failed(self, brief: Brief, reason: str) -> None:
        """No reply came: print why, because it has cost time."""
        self._thinking.discard(brief.number)
        self._snapshot = self._take_snapshot()
        self._say(Text(f"     – no reply: {cards.short(reason)}", "yellow"))

    def recorded(self, record: TrialRecord, evaluation: Evaluation | None) -> None:
        """A trial has a new outcome."""
        self._snapshot = self._take_snapshot()
        line = verdict_line(record, evaluation, self._session.state)
        if line is not None:
            self._say(line)

    def message(self, text: str) -> None:
        """Print a line of the evaluator or the search."""
        self._say(Text(f"     {text}", "dim"))

    def progress(self, progress: Progress) -> None:
        """A candidate has reached another stage; called from other threads."""
        self._doing = STAGES.get(progress.stage, "")

    def _take_snapshot(self) -> _Snapshot:
        state, budget = self._session.state, self._session.budget
        said = (best_line(state), rates(state.totals), spending(state.totals))
        return _Snapshot(
            trials=state.totals.trials,
            of=budget.trials,
            facts="  ".join(part for part in said if part),
            thinking=len(self._thinking),
            seconds=self._session.elapsed(),
            taken_at=time.monotonic(),
        )

    def _say(self, line: Text) -> None:
        if not self._console.is_terminal:
            cards.say(self._console, line)
            return
        grid = Table.grid()
        grid.add_column(width=_NUMBER)
        grid.add_column()
        grid.add_row(line[:_NUMBER], line[_NUMBER:])
        self._console.print(grid)

    def __rich__(self) -> RenderableType:
        seen = self._snapshot
        bar = ProgressBar(total=seen.of, completed=min(seen.trials, seen.of), width=_BAR)
        passed = _clock(seen.seconds + time.monotonic() - seen.taken_at)
        head = Table.grid(padding=(0, 2))
        head.add_row(Text(f"trial {seen.trials} of {seen.of}", "bold"), bar, Text(passed, "dim"))
        doing = [f"{seen.thinking} thinking" if seen.thinking else "", self._doing]
        status = Text("  ".join(part for part in doing if part), "dim")
        return Group(head, Text(seen.facts, overflow="fold"), status)


@contextmanager
def watching(console: Console, session: Session) -> Iterator[LiveRun]:
    """The display of a run while it works."""
    view = LiveRun(console, session)
    if not (console.is_terminal or console.is_jupyter):
        yield view
        return
    with Live(view, console=console, refresh_per_second=8, transient=True, redirect_stdout=False):
        yield view


def verdict_line(record: TrialRecord, evaluation: Evaluation | None, state: RunState) -> Text | None:
    """One trial in one line; None if it has no verdict yet."""
    number = f"{record.trial or '':>4} "  # a reply that holds no strategy is no trial
    trial = state.trials.get(record.trial)
    what = f"  {trial.strategy}" if trial and trial.strategy else ""
    if evaluation and evaluation.mark:
        what = f"  {evaluation.warning if evaluation.without else f'({evaluation.mark})'}{what}"
    if record.outcome is TrialOutcome.DUPLICATE:
        return Text(f"{number}= same kernel as {record.twin}, not judged again{what}", "dim")
    if record.outcome is TrialOutcome.UNREADABLE:
        what = "kernel" if record.trial else "strategy"
        return Text(f"{number}✗ no {what} in the reply: {cards.short(record.reason)}", "yellow")
    if evaluation is None or record.status is None:
        return None
    if record.status is not Status.OK:
        word = record.status.value.replace("_", " ")
        return Text(f"{number}✗ {word}: {cards.short(record.reason)}", "red")
    assert record.speedup is not None, "a valid one has a speedup"
    speedup, interval = f"{numbers.ratio(record.speedup)}x", evaluation.interval()
    # Kernels are ranked by the lower end of the interval; it is shown where the speedups give another order.
    sure = f"{speedup}, at least {numbers.ratio(interval.low)}x" if interval is not None else speedup
    scores = [each.score for each in state.trials.values() if each.score is not None]
    if record.best or record.outcome is TrialOutcome.PENDING:
        shown = sure if max(scores, default=0.0) > record.speedup else speedup
        if record.best:
            return Text(f"{number}★ {shown}  best so far{what}", "bold green")
        return Text(f"{number}· {shown}, the best if a second measurement confirms it{what}")
    best = state.trials.get(state.best)
    higher = best is not None and best.score is not None and record.speedup > best.score
    return Text(f"{number}✓ {f'{sure}: times varied' if higher else speedup}{what}", "green")


def best_line(state: RunState) -> str:
    """The best so far, in a few words."""
    best = state.trials.get(state.best)
    if best is None or best.score is None:
        first = state.confirmation.next
        score = state.trials[first].score if first else None
        unsure = f", {numbers.ratio(score)}x (trial {first}) measured once" if score else ""
        return f"best: none yet{unsure}"
    where = " in the worst workload" if len(state.setup.problem.task.workloads) > 1 else ""  # a card shows the mean
    share = f", {numbers.percent(best.share)} of roofline{where}" if best.share is not None and best.share <= 1 else ""
    start = f", {numbers.ratio(state.over_start)}x the start" if state.over_start is not None else ""
    return f"best: {numbers.ratio(best.score)}x PyTorch{start} (trial {best.number}{share})"


def rates(totals: RunTotals) -> str:
    """The share of valid trials."""
    valid, settled = totals.valid, totals.settled
    return f"valid: {valid} of {settled} ({100 * valid / settled:.0f} %)" if settled else ""


def spending(totals: RunTotals) -> str:
    """Tokens and money so far."""
    if not totals.tokens:
        return ""
    cost = f", {numbers.dollars(totals.cost_usd)}" if totals.cost_usd else ""
    unknown = " (price unknown)" if totals.unpriced else ""
    tokens = f"{totals.tokens:,}".replace(",", " ")
    return f"tokens: {tokens}{cost}{unknown}"


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S" if seconds >= 3600 else "%M:%S", time.gmtime(seconds))
