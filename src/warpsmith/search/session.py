"""Drives one run: `ask` for a brief, `tell` what was proposed, `judge` what is pending.

    session = Session.create(folder, setup)
    while (brief := session.ask()) is not None:
        reply = proposer.propose(brief, prompt)
        session.answer(brief, reply)
        for job in session.pending():
            session.judge(job, evaluate(job.candidate))

Models, templates, coding agents, people and recordings all use a session in the same way. The session stores
everything in the run log before using it, recognises duplicates, asks for repairs and keeps to the budget. Its state is
computed from the log, so that a resumed run continues exactly where the log ends. Not safe for several threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from warpsmith.backends.fingerprint import fingerprint
from warpsmith.methods.check import method_errors, own_wordings
from warpsmith.model.brief import (
    Brief,
    Precedent,
    Problem,
    Prompt,
    Proposal,
    Reply,
    ShownCandidate,
    TrialOutcome,
    TrialRecord,
)
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import RunError, UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.method import Method, Product
from warpsmith.model.usage import TokenUsage
from warpsmith.prompts.parser import parse
from warpsmith.proposers.recorded import RECORDED
from warpsmith.run_log.events import (
    BriefAsked,
    Budget,
    Event,
    LogEntry,
    NoteAdded,
    PrecedentsFound,
    PromptSent,
    ProposalRead,
    ReplyFailed,
    ReplyReceived,
    RunClosed,
    RunCreated,
    RunOpened,
    StopReason,
    TrialJudged,
    TrialProfiled,
    TrialTuned,
)
from warpsmith.run_log.log import RunLog, storable
from warpsmith.search.budget import stop_reason
from warpsmith.search.next_brief import NextBrief
from warpsmith.search.run_state import RunState
from warpsmith.search.trial_reader import TrialReader
from warpsmith.search.trials import Trial
from warpsmith.search.trust import is_own

FindPrecedents = Callable[[Problem], tuple[Precedent, ...]]
"""Lessons of other runs on similar tasks, the most similar first."""

_CONTRADICTIONS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError)
_NO_TRIALS = (Product.STRATEGIES, Product.ALIGNMENT)  # an unreadable reply to these is no trial


def no_precedents(problem: Problem) -> tuple[Precedent, ...]:
    """A `FindPrecedents` that finds nothing."""
    return ()


@dataclass(frozen=True)
class PendingTrial:
    """A trial whose candidate is to be evaluated."""

    trial: int
    candidate: Candidate
    again: bool  # second measurement, because the trial would become the best: a cached result does not count


class Session:
    """One open run. Use as a context manager."""

    def __init__(self, log: RunLog, state: RunState) -> None:
        self._log = log
        self._reader = TrialReader(log, state)
        self._next_brief = NextBrief(log, state, self._reader)
        self.state = state

    # --- opening and closing ---

    @staticmethod
    def create(
        folder: Path,
        setup: RunCreated,
        find_precedents: FindPrecedents = no_precedents,
        start: Candidate | None = None,
    ) -> Session:
        """A new run in a new folder. Precedents are looked up once and stored, if the method shows them.

        A starting kernel is the first trial, pending.
        """
        wanted = any(operator.recalls for operator in setup.method.operators)
        precedents = find_precedents(setup.problem) if wanted else ()  # may raise: before the folder is made
        log = RunLog.create(folder)
        session = Session(log, RunState.start(setup))
        session._keep(setup, RunOpened(setup.config.proposer, setup.config.budget))
        if precedents:
            session._keep(PrecedentsFound(precedents))
        if start is not None:
            event = session._next_brief.starting()
            session._keep(event)
            session._give(event, start, author="given", name="starting kernel")
        return session

    @staticmethod
    def read(folder: Path) -> Session:
        """An existing run, read-only."""
        log = RunLog.read(folder)
        try:
            return Session(log, read_state(log, log.setup()))
        except RunError:
            log.close()
            raise

    @staticmethod
    def resume(
        folder: Path,
        proposer: str | None = None,
        budget: Budget | None = None,
        *,
        keep: bool = False,
        enough_share: float | None = None,
    ) -> Session:
        """An existing run, to continue where its log ends. Replies that were stored but not parsed are parsed now.

        Briefs without a reply are given up, unless `keep` is set, because somebody still works on them.
        `enough_share`: another share of the hardware limit to stop at, 0 for none.
        """
        log = RunLog.open(folder)
        try:
            setup = log.setup()
            session = Session(log, read_state(log, setup))
            known = session.state.opened
            if enough_share is None and known is not None:
                enough_share = known.enough_share
            session._keep(RunOpened(proposer or session.proposer, budget or session.budget, keep, enough_share))
            for number in tuple(session.state.unread):
                replied = log.of_brief(number, ReplyReceived)
                assert replied is not None, "an unread brief has a reply"
                session._read(session._next_brief.build(session.state.unread[number]), replied.reply)
        except RunError:
            log.close()
            raise
        return session

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()
        if isinstance(error, _CONTRADICTIONS[:-1]) and not is_own(self.folder, self.state.setup):
            with consistent(self.folder):
                raise error

    def end(self, reason: StopReason, detail: str = "") -> None:
        """Record why work on the run stops. The session stays readable until it is closed; the run can be resumed."""
        self._keep(RunClosed(reason, detail))

    # --- properties of the run ---

    @property
    def began(self) -> float:
        """When the run was created, seconds since 1970."""
        return self._log.began()

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self._log.folder

    @property
    def method(self) -> Method:
        """The method of the run."""
        return self.state.setup.method

    @property
    def budget(self) -> Budget:
        """The budget, as last given."""
        return self.state.opened.budget if self.state.opened else self.state.setup.config.budget

    @property
    def proposer(self) -> str:
        """The proposer, as last given."""
        return self.state.opened.proposer if self.state.opened else self.state.setup.config.proposer

    @property
    def stop_reason(self) -> StopReason | None:
        """Why nothing more is asked; None if the run may go on."""
        return stop_reason(self.state, self.budget, self._log.now())

    def elapsed(self) -> float:
        """Seconds of work so far, summed over all times the run was open."""
        return self.state.elapsed(self._log.now())

    def pending(self) -> tuple[PendingTrial, ...]:
        """The trials to evaluate now, in order: new ones, and at most one for its second measurement."""
        return tuple(
            PendingTrial(trial, self.candidate(trial), again) for trial, again in sorted(self.state.pending.items())
        )

    def candidate(self, trial: int) -> Candidate:
        """The candidate of a trial."""
        proposed = self._log.of_trial(trial, ProposalRead)
        if proposed is None or proposed.candidate is None:
            raise RunError(f"trial {trial} of {self.folder} has no candidate.")
        return proposed.candidate

    @property
    def recorded_trials(self) -> int:
        """How many trials came from a recording."""
        return sum(trial.model == RECORDED for trial in self.state.trials.values())

    def proposed(self, trial: int) -> ProposalRead | None:
        """The parsed proposal of a trial."""
        return self._log.of_trial(trial, ProposalRead)

    def conversation(self, brief: int) -> tuple[Prompt | None, Reply | None]:
        """The prompt and the reply of a brief."""
        prompted, replied = self._log.of_brief(brief, PromptSent), self._log.of_brief(brief, ReplyReceived)
        return prompted.prompt if prompted else None, replied.reply if replied else None

    def evaluation(self, trial: int) -> Evaluation | None:
        """The evaluation of a trial: see `TrialReader.evaluation`."""
        return self._reader.evaluation(trial)

    # --- ask ---

    def ask(self) -> Brief | None:
        """The next brief; None if nothing can be asked now: see `stop_reason`, or judge what is pending."""
        event = self._next_brief.choose(self.budget, self._log.now())
        if event is None:
            return None
        self._keep(event)
        return self._next_brief.build(event)

    def ask_and_word(self, word: Callable[[Brief], Prompt]) -> tuple[Brief, Prompt] | None:
        """`ask`, then `sent` with the prompt of the brief; both are stored at once, before the prompt is sent."""
        at = self._log.now()
        event = self._next_brief.choose(self.budget, at)
        if event is None:
            return None
        self.state.apply(LogEntry(0, at, event))
        events: tuple[Event, ...] = (event,)
        try:
            brief = self._next_brief.build(event)
            prompt = word(brief)
            events = (event, PromptSent(brief.number, prompt))
        finally:
            _, *sent = self._log.append(*events, at=at)
        for entry in sent:
            self.state.apply(entry)
        return brief, prompt

    def brief(self, number: int) -> Brief:
        """A brief that has no reply yet."""
        event = self.state.in_flight.get(number)
        if event is None:
            raise RunError(f"brief {number} is not waiting for a reply; ask for a new one with `warpsmith ask`.")
        return self._next_brief.build(event)

    def sent(self, brief: Brief, prompt: Prompt) -> None:
        """Store a prompt before it is sent."""
        self._keep(PromptSent(brief.number, prompt))

    # --- tell ---

    def received(self, brief: Brief, reply: Reply) -> None:
        """Store a reply before it is parsed."""
        if brief.number not in self.state.in_flight:
            raise RunError(f"brief {brief.number} was answered already, or given up; ask for a new one.")
        self._keep(ReplyReceived(brief.number, storable(reply)))

    def step_trial(self, brief: int, reply: Reply) -> TrialRecord:
        """Take in a kernel that the agent of a brief has evaluated on the way: a trial like any other.

        For a kernel that the run knows already the record of its trial, which spends nothing. A UsageError for a reply
        that holds no kernel, or if no trial is left besides those reserved for briefs without a reply.
        """
        if brief not in self.state.in_flight:
            raise UsageError(f"brief {brief} was answered already, or given up; end now.")
        if reason := self.stop_reason:
            raise UsageError(f"nothing more is evaluated, because {reason.words}; leave your best kernel and end.")
        event = self._next_brief.step(brief)
        proposal = parse(storable(reply), self._next_brief.build(event))
        if proposal.candidate is None:
            raise UsageError(proposal.failure or "The brief asks for no kernel; answer it without evaluating.")
        twin = self.state.fingerprints.get(fingerprint(proposal.candidate), 0)
        if twin:
            return self.record(twin)
        if self._next_brief.room(self.budget) <= 0:
            raise UsageError("the run has no trial left but the one for your proposal; leave your best kernel and end.")
        self._keep(event)
        return self.tell(self._next_brief.build(event), proposal)

    @property
    def room(self) -> int:
        """Trials that are neither spent nor reserved for a brief without a reply."""
        return max(0, self._next_brief.room(self.budget))

    def shown(self, trial: int) -> ShownCandidate:
        """A trial as a brief shows it."""
        if trial not in self.state.trials:
            raise UsageError(f"there is no trial {trial}; the trials so far are 1 to {self.state.last_trial}.")
        return self._reader.read(trial)

    def failed(self, brief: Brief, reason: str, usage: TokenUsage | None = None) -> None:
        """Record that no reply came; the attempt may have cost tokens."""
        self._keep(ReplyFailed(brief.number, reason, usage))

    def tell(self, brief: Brief, proposal: Proposal) -> TrialRecord:
        """Take in a parsed proposal; the record says if it is pending."""
        if brief.number not in self.state.unread:
            self.received(brief, proposal.reply)
        return self._take(brief, storable(proposal))

    def answer(self, brief: Brief, reply: Reply) -> TrialRecord:
        """Store a reply, parse it and take in the proposal."""
        if brief.number not in self.state.unread:
            self.received(brief, reply)
        return self._read(brief, reply)

    def _read(self, brief: Brief, reply: Reply) -> TrialRecord:
        return self._take(brief, parse(storable(reply), brief))

    def _take(self, brief: Brief, proposal: Proposal) -> TrialRecord:
        """Take in a proposal with characters that a log can store, so that a resumed run reads the same."""
        state = self.state
        if proposal.text or proposal.drafts:
            words = ProposalRead(
                brief.number, 0, TrialOutcome.WRITTEN, name=proposal.name, text=proposal.text, drafts=proposal.drafts
            )
            self._keep(words)
            return TrialRecord(0, brief.number, TrialOutcome.WRITTEN)
        if proposal.candidate is None and brief.product in _NO_TRIALS:
            self._keep(
                ProposalRead(brief.number, 0, TrialOutcome.UNREADABLE, name=proposal.name, failure=proposal.failure)
            )
            return TrialRecord(0, brief.number, TrialOutcome.UNREADABLE, reason=proposal.failure)
        trial = state.last_trial + 1
        candidate = proposal.candidate
        if candidate is None:
            self._keep(
                ProposalRead(brief.number, trial, TrialOutcome.UNREADABLE, name=proposal.name, failure=proposal.failure)
            )
            return self.record(trial)
        mark = fingerprint(candidate)
        twin = state.fingerprints.get(mark, 0)
        if twin and state.trials[twin].step == brief.number:  # the proposal of an agent that had it evaluated
            self._keep(ProposalRead(brief.number, 0, TrialOutcome.DUPLICATE, name=proposal.name, twin=twin))
            return replace(self.record(twin), brief=brief.number)
        outcome = TrialOutcome.DUPLICATE if twin else TrialOutcome.PENDING
        self._keep(
            ProposalRead(
                *(brief.number, trial, outcome),
                candidate=candidate,
                name=proposal.name,
                fingerprint=mark,
                twin=twin,
            )
        )
        return self.record(trial)

    # --- judge ---

    def judge(self, job: PendingTrial, evaluation: Evaluation) -> TrialRecord:
        """Record the evaluation of a pending trial."""
        self._keep(TrialJudged(job.trial, evaluation, job.again))
        self._reader.forget(job.trial)
        return self.record(job.trial)

    def unprofiled(self) -> tuple[int, ...]:
        """The trials that the next brief shows with a profile and that are not profiled yet."""
        event = self._next_brief.choose(self.budget, self._log.now())
        return () if event is None else self._next_brief.unprofiled(event)

    def profiled(self, trial: int, digest: str, seconds: float = 0.0) -> None:
        """Record the profile of a trial; an empty digest if profiling failed."""
        self._keep(TrialProfiled(trial, digest, seconds))
        self._reader.forget(trial)

    def tuned(self, found: TrialTuned, better: Candidate | None) -> TrialRecord | None:
        """Record the result of tuning a trial. A better candidate becomes a pending trial."""
        if better is None:
            self._keep(found)
            return None
        event = self._next_brief.tuning(found.trial)
        self._keep(found, event)
        return self._give(event, better, author="tuner", name="tuned")

    def _give(self, event: BriefAsked, candidate: Candidate, *, author: str, name: str) -> TrialRecord:
        """Take in a kernel that no proposer was asked for, as the reply to a stored event."""
        reply = Reply(candidate.main.text, author, TokenUsage(cost_usd=0.0, requests=0), file=candidate.main.name)
        return self.tell(self._next_brief.build(event), Proposal(reply, candidate, name=name))

    def note(self, text: str) -> None:
        """Add a remark for readers of the run."""
        self._keep(NoteAdded(text))

    def record(self, trial: int) -> TrialRecord:
        """The current record of a trial."""
        known: Trial = self.state.trials[trial]
        proposed = self._log.of_trial(trial, ProposalRead)
        assert proposed is not None, "a trial begins with a proposal"
        evaluation = self.evaluation(trial) if known.status else None
        waiting = trial in self.state.pending or trial in self.state.confirmation.waiting
        return TrialRecord(
            trial=trial,
            brief=known.brief,
            outcome=TrialOutcome.PENDING if waiting else known.outcome,
            candidate=known.candidate,
            status=known.status,
            reason=(evaluation.reason if evaluation else "") or proposed.failure,
            speedup=known.score,
            best=self.state.best == trial,
            twin=self.state.trials[proposed.twin].candidate if proposed.twin else "",
        )

    def _keep(self, *happened: Event) -> None:
        for entry in self._log.append(*happened):
            self.state.apply(entry)


def read_state(log: RunLog, setup: RunCreated) -> RunState:
    """The state of a run, computed from its log."""
    with consistent(log.folder):
        _check_setup(log.folder, setup)
        state = RunState.start(setup)
        for entry in log.entries():
            state.apply(entry)
    return state


@contextmanager
def consistent(folder: Path) -> Iterator[None]:
    """Raise a RunError where events that do not fit together make the block fail."""
    try:
        yield
    except _CONTRADICTIONS as fault:
        if os.environ.get("WARPSMITH_DEBUG"):
            raise
        raise RunError(
            f"the events in {folder} contradict each other ({type(fault).__name__}); the log was changed, or the "
            "Warpsmith that wrote it had other rules."
        ) from None


def _check_setup(folder: Path, setup: RunCreated) -> None:
    """Raise a RunError for a method that cannot work, or that words prompts with files which a stranger names."""
    fault = next(method_errors(setup.method), "")
    if fault:
        raise RunError(f"the method in {folder} {fault}.")
    foreign = own_wordings(setup.method)
    if foreign and not is_own(folder, setup):
        raise RunError(
            f"{folder} was not created by this user on this machine, and its method words prompts with the file "
            f"{foreign[0][:200]!r}; files that a log names are not read."
        )
