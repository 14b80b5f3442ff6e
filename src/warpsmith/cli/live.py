"""What a person watches while a run goes on: progress, the best so far, what was spent, the last verdicts.

One line per event, which stays; below them, on a terminal, what is going on now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from warpsmith.cli import render
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.search import Brief, Outcome, Record, Reply
from warpsmith.evaluate.evaluator import Progress
from warpsmith.run.contenders import fastest
from warpsmith.run.ledger import Ledger, Totals
from warpsmith.run.loop import Watcher
from warpsmith.run.session import Session

_BAR = 28
_NUMBER = 5  # columns of a trial's number: what is broken goes on behind it
_STAGES = {
    "build": "compiling",
    "built": "compiled",
    "load": "loading",
    "check": "checking",
    "replay": "recording",
    "time": "timing",
}


@dataclass(frozen=True)
class _Seen:
    """A run as it was at its last event."""

    trials: int
    of: int
    facts: str
    thinking: int
    seconds: float  # of work until then
    at: float  # on the monotonic clock


class View(Watcher):
    """Turns events into lines, and knows what is going on.

    Events come from the thread that works on the run, and only there is the run looked at. Another thread draws: it
    gets what was seen then, which never changes, and the time that has passed.
    """

    def __init__(self, console: Console, session: Session) -> None:
        self._console = console
        self._session = session
        self._doing = ""
        self._thinking: set[int] = set()
        self._seen = self._look()

    def asked(self, brief: Brief) -> None:
        """Somebody is thinking."""
        self._thinking.add(brief.number)
        self._seen = self._look()

    def replied(self, brief: Brief, reply: Reply) -> None:
        """Not any more."""
        self._thinking.discard(brief.number)
        self._seen = self._look()

    def failed(self, brief: Brief, reason: str) -> None:
        """No reply: said, since it costs time though no trial."""
        self._thinking.discard(brief.number)
        self._seen = self._look()
        self._say(Text(f"     – no reply: {render.short(reason)}", "yellow"))

    def recorded(self, record: Record, evaluation: Evaluation | None) -> None:
        """A trial got on."""
        self._seen = self._look()
        line = verdict_line(record, evaluation, self._session.ledger)
        if line is not None:
            self._say(line)

    def message(self, text: str) -> None:
        """Something worth a line."""
        self._say(Text(f"     {text}", "dim"))

    def progress(self, progress: Progress) -> None:
        """A candidate got on; called from other threads."""
        self._doing = _STAGES.get(progress.stage, "")

    def _look(self) -> _Seen:
        ledger, budget = self._session.ledger, self._session.budget
        said = (best_line(ledger), rates(ledger.totals), spending(ledger.totals))
        return _Seen(
            trials=ledger.totals.trials,
            of=budget.trials,
            facts="  ".join(part for part in said if part),
            thinking=len(self._thinking),
            seconds=self._session.elapsed(),
            at=time.monotonic(),
        )

    def _say(self, line: Text) -> None:
        if not self._console.is_terminal:
            render.say(self._console, line)
            return
        grid = Table.grid()
        grid.add_column(width=_NUMBER)
        grid.add_column()
        grid.add_row(line[:_NUMBER], line[_NUMBER:])
        self._console.print(grid)

    def __rich__(self) -> RenderableType:
        seen = self._seen
        bar = ProgressBar(total=seen.of, completed=min(seen.trials, seen.of), width=_BAR)
        passed = _clock(seen.seconds + time.monotonic() - seen.at)
        head = Table.grid(padding=(0, 2))
        head.add_row(Text(f"trial {seen.trials} of {seen.of}", "bold"), bar, Text(passed, "dim"))
        doing = [f"{seen.thinking} thinking" if seen.thinking else "", self._doing]
        status = Text("  ".join(part for part in doing if part), "dim")
        return Group(head, Text(seen.facts, overflow="fold"), status)


@contextmanager
def watching(console: Console, session: Session) -> Iterator[View]:
    """A view of a run while it is worked on."""
    view = View(console, session)
    if not console.is_terminal:
        yield view
        return
    with Live(view, console=console, refresh_per_second=8, transient=True, redirect_stdout=False):
        yield view


def verdict_line(record: Record, evaluation: Evaluation | None, ledger: Ledger) -> Text | None:
    """One trial in one line; None while there is nothing to say."""
    number = f"{record.trial:>4} "
    trial = ledger.trials.get(record.trial)
    what = f"  {trial.strategy}" if trial and trial.strategy else ""
    if record.outcome is Outcome.DUPLICATE:
        return Text(f"{number}= the same as {record.twin}: not judged again{what}", "dim")
    if record.outcome is Outcome.UNREADABLE:
        what = "kernel" if record.trial else "strategy"
        return Text(f"{number}✗ no {what} in the reply: {render.short(record.reason)}", "yellow")
    if evaluation is None or record.status is None:
        return None
    if record.status is not Status.OK:
        word = record.status.value.replace("_", " ")
        return Text(f"{number}✗ {word}: {render.short(record.reason)}", "red")
    assert record.speedup is not None, "a valid one has a speedup"
    if record.outcome is Outcome.PENDING:
        return Text(f"{number}· {render.ratio(record.speedup)}x, would be best if a second measurement agrees{what}")
    mark, style = ("★", "bold green") if record.best else ("✓", "green")
    note = "  best so far" if record.best else ""
    return Text(f"{number}{mark} {render.ratio(record.speedup)}x{note}{what}", style)


def best_line(ledger: Ledger) -> str:
    """The best so far, in a few words."""
    best = ledger.trials.get(ledger.best)
    if best is None or best.score is None:
        first = fastest(ledger.contenders)
        unsure = f", {render.ratio(ledger.contenders[first])}x (trial {first}) measured once" if first else ""
        return f"best: none yet{unsure}"
    where = " in the worst workload" if len(ledger.begun.problem.task.workloads) > 1 else ""  # a verdict has the mean
    share = f", {render.percent(best.share)} of the speed of light{where}" if best.share is not None else ""
    return f"best: {render.ratio(best.score)}x PyTorch (trial {best.number}{share})"


def rates(totals: Totals) -> str:
    """How many were valid."""
    valid, settled = totals.valid, totals.settled
    return f"valid: {valid} of {settled} ({100 * valid / settled:.0f} %)" if settled else ""


def spending(totals: Totals) -> str:
    """What models have cost so far."""
    if not totals.tokens:
        return ""
    cost = f", ${totals.cost_usd:.3f}" if totals.cost_usd else ""
    unknown = " (price unknown)" if totals.unpriced else ""
    return f"tokens: {totals.tokens:,}{cost}{unknown}".replace(",", " ")


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S" if seconds >= 3600 else "%M:%S", time.gmtime(seconds))
