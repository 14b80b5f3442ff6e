"""The history of a run: its log, read once; a process that uses the log is not disturbed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.model.evaluation import Status
from warpsmith.report.document import NewBest, ProgressPoint, RunningTotals
from warpsmith.run_log.events import (
    BriefAsked,
    LogEntry,
    NoteAdded,
    PromptSent,
    ProposalRead,
    ReplyReceived,
    RunOpened,
    TrialJudged,
    TrialProfiled,
)
from warpsmith.run_log.log import RunLog
from warpsmith.search.run_state import RunState


def progress_point(state: RunState) -> ProgressPoint:
    """The best kernel of a run, and what was spent by now."""
    used = state.totals
    speedup = state.trials[state.best].score or 0.0
    return ProgressPoint(state.last_trial, used.seconds, used.cost_usd, used.tokens, speedup)


@dataclass
class RunHistory:
    """The data of a run's report."""

    state: RunState
    began_at: float = 0.0  # seconds since 1970
    proposer: str = ""
    asked: dict[int, BriefAsked] = field(default_factory=dict)  # by brief
    prompted: dict[int, PromptSent] = field(default_factory=dict)  # by brief
    replied: dict[int, ReplyReceived] = field(default_factory=dict)  # by brief
    proposed: dict[int, ProposalRead] = field(default_factory=dict)  # by brief, in the order they came
    proposed_s: dict[int, float] = field(default_factory=dict)  # by brief: when, since the run began
    judged: dict[int, TrialJudged] = field(default_factory=dict)  # by trial, the latest
    profiled: dict[int, TrialProfiled] = field(default_factory=dict)  # by trial
    asked_at: dict[int, float] = field(default_factory=dict)  # by brief, seconds since 1970
    waiting_since: dict[int, float] = field(default_factory=dict)  # by trial: since when it waits for the evaluator
    seq: int = 0  # of the last event
    noted: list[str] = field(default_factory=list)
    steps: list[NewBest] = field(default_factory=list)
    progress: list[ProgressPoint] = field(default_factory=list)
    totals: list[RunningTotals] = field(default_factory=list)

    def take(self, entry: LogEntry) -> None:
        """Take in one more event."""
        event, state = entry.event, self.state
        best = state.best
        self.began_at = self.began_at or entry.at
        state.apply(entry)
        self.seq = entry.seq
        if isinstance(event, RunOpened):
            self.proposer = event.proposer
        elif isinstance(event, BriefAsked):
            self.asked[event.brief] = event
            self.asked_at[event.brief] = entry.at
        elif isinstance(event, PromptSent):
            self.prompted[event.brief] = event
        elif isinstance(event, ReplyReceived):
            self.replied[event.brief] = event
        elif isinstance(event, ProposalRead):
            self.proposed[event.brief] = event
            self.proposed_s[event.brief] = entry.at - self.began_at
        elif isinstance(event, TrialJudged):
            self._judge(event)
        elif isinstance(event, TrialProfiled):
            self.profiled[event.trial] = event
        elif isinstance(event, NoteAdded):
            self.noted.append(event.text)
        if state.best != best:
            self.steps.append(NewBest(state.best, state.trials[state.best].score or 0.0))
            self.progress.append(progress_point(state))
        if isinstance(event, ProposalRead | TrialJudged) and event.trial:
            self.add_totals()
        if isinstance(event, ProposalRead | TrialJudged | RunOpened):
            kept = self.waiting_since
            self.waiting_since = {trial: kept.get(trial, entry.at) for trial in state.pending}
            if isinstance(event, TrialJudged) and event.trial in state.pending:
                self.waiting_since[event.trial] = entry.at  # to be measured a second time

    def _judge(self, event: TrialJudged) -> None:
        """Keep the latest verdict, unless it is a second measurement that failed."""
        known = self.judged.get(event.trial)
        if known is None or not known.evaluation.ok or event.evaluation.status is not Status.NOT_JUDGED:
            self.judged[event.trial] = event

    def add_totals(self) -> None:
        """Note what the run has used by now."""
        used = self.state.totals
        now = RunningTotals(self.state.last_trial, used.seconds, used.device_seconds, used.tokens, used.cost_usd)
        if self.totals and self.totals[-1].trial == now.trial:
            self.totals.pop()
        self.totals.append(now)


def read_history(folder: Path) -> RunHistory:
    """The history of the run in a folder."""
    with RunLog.read(folder) as log:
        history = RunHistory(RunState.start(log.setup()))
        for entry in log.entries():
            history.take(entry)
    if history.totals:
        history.add_totals()  # of tuning and profiling after the last trial
    return history
