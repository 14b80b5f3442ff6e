"""A run's log read once from beginning to end: what was asked, answered and judged, and what was known by then.

Read-only; whoever works on the run meanwhile is not disturbed. What becomes of it on a page is `run_page`'s part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.archive.events import Asked, Entry, Judged, Noted, Opened, Profiled, Prompted, Proposed, Replied
from warpsmith.archive.log import Archive
from warpsmith.core.evaluation import Status
from warpsmith.report.document import Account, Step
from warpsmith.run.ledger import Ledger


@dataclass
class Story:
    """Everything a report of a run is made of."""

    ledger: Ledger
    began_at: float = 0.0  # seconds since 1970
    proposer: str = ""
    asked: dict[int, Asked] = field(default_factory=dict)  # by brief
    prompted: dict[int, Prompted] = field(default_factory=dict)  # by brief
    replied: dict[int, Replied] = field(default_factory=dict)  # by brief
    proposed: dict[int, Proposed] = field(default_factory=dict)  # by brief, in the order they came
    proposed_s: dict[int, float] = field(default_factory=dict)  # by brief: when, since the run began
    judged: dict[int, Judged] = field(default_factory=dict)  # by trial, the latest
    profiled: dict[int, Profiled] = field(default_factory=dict)  # by trial
    noted: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)

    def _take(self, entry: Entry) -> None:
        event, ledger = entry.event, self.ledger
        best = ledger.best
        self.began_at = self.began_at or entry.at
        ledger.apply(entry)
        if isinstance(event, Opened):
            self.proposer = event.proposer
        elif isinstance(event, Asked):
            self.asked[event.brief] = event
        elif isinstance(event, Prompted):
            self.prompted[event.brief] = event
        elif isinstance(event, Replied):
            self.replied[event.brief] = event
        elif isinstance(event, Proposed):
            self.proposed[event.brief] = event
            self.proposed_s[event.brief] = entry.at - self.began_at
        elif isinstance(event, Judged):
            self._judge(event)
        elif isinstance(event, Profiled):
            self.profiled[event.trial] = event
        elif isinstance(event, Noted):
            self.noted.append(event.text)
        if ledger.best != best:
            self.steps.append(Step(ledger.best, ledger.trials[ledger.best].score or 0.0))
        if isinstance(event, Proposed | Judged) and event.trial:
            self._account()

    def _judge(self, event: Judged) -> None:
        """The latest verdict counts, but for a second one that we failed to reach: then the first stands."""
        known = self.judged.get(event.trial)
        if known is None or not known.evaluation.ok or event.evaluation.status is not Status.NOT_JUDGED:
            self.judged[event.trial] = event

    def _account(self) -> None:
        totals = self.ledger.totals
        now = Account(self.ledger.last_trial, totals.seconds, totals.device_seconds, totals.tokens, totals.cost_usd)
        if self.accounts and self.accounts[-1].trial == now.trial:
            self.accounts.pop()
        self.accounts.append(now)


def read(folder: Path) -> Story:
    """The story of the run in a folder."""
    with Archive.read(folder) as archive:
        story = Story(Ledger.start(archive.begun()))
        for entry in archive.entries():
            story._take(entry)
    if story.accounts:
        story._account()  # what came after the last trial: tuning, profiling, the end
    return story
