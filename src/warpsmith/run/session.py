"""The only way to search: `ask` for a brief, `tell` what was proposed, `judge` what is pending.

    session = Session.begin(folder, begun)
    while (brief := session.ask()) is not None:
        reply = proposer.propose(brief, prompt)
        session.answer(brief, reply)
        for job in session.pending():
            session.judge(job, evaluate(job.candidate))

A model, the catalogue, a coding agent, a person and a recording are equal clients of it. The session keeps everything
before it is used, recognises duplicates, gives failures back for repair and keeps to the budget; what it knows is the
ledger, so that a run goes on exactly where its log ends. Not shared between threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from warpsmith.archive.events import (
    Begun,
    Budget,
    Closed,
    Entry,
    Event,
    Failed,
    Judged,
    Noted,
    Opened,
    Profiled,
    Prompted,
    Proposed,
    Recalled,
    Replied,
    Tuned,
)
from warpsmith.archive.log import Archive, storable
from warpsmith.core.candidate import Candidate
from warpsmith.core.errors import RunError
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.method import Method, Product
from warpsmith.core.sameness import fingerprint
from warpsmith.core.search import Brief, Outcome, Precedent, Problem, Prompt, Proposal, Record, Reply, Usage
from warpsmith.prompts.parser import parse
from warpsmith.run.asking import Asking
from warpsmith.run.budgets import spent
from warpsmith.run.exhibits import Gallery
from warpsmith.run.ledger import Ledger, Trial

Recall = Callable[[Problem], tuple[Precedent, ...]]
"""What other runs know of tasks like one, the nearest first."""

_WORDS = (Product.STRATEGIES, Product.ALIGNMENT)  # an answer that cannot be read is no trial either


def no_memory(problem: Problem) -> tuple[Precedent, ...]:
    """Of other runs nothing is known."""
    return ()


@dataclass(frozen=True)
class Job:
    """A candidate to be judged."""

    trial: int
    candidate: Candidate
    again: bool  # it would be the best: measure it anew, whatever is in a cache


class Session:
    """One run, open for work. Use as a context manager."""

    def __init__(self, archive: Archive, ledger: Ledger) -> None:
        self._archive = archive
        self._gallery = Gallery(archive, ledger)
        self._asking = Asking(archive, ledger, self._gallery)
        self.ledger = ledger

    # --- opening and closing ---

    @staticmethod
    def begin(folder: Path, begun: Begun, recall: Recall = no_memory) -> Session:
        """A new run in a new folder. What other runs know is asked once and kept, for methods that show it."""
        wanted = any(operator.recalls for operator in begun.method.operators)
        precedents = recall(begun.problem) if wanted else ()  # may fail: before there is a folder
        archive = Archive.create(folder)
        session = Session(archive, Ledger.start(begun))
        session._keep(begun, Opened(begun.config.proposer, begun.config.budget))
        if precedents:
            session._keep(Recalled(precedents))
        return session

    @staticmethod
    def peek(folder: Path) -> Session:
        """An existing run, to look at only."""
        archive = Archive.read(folder)
        try:
            return Session(archive, fold(archive, archive.begun()))
        except RunError:
            archive.close()
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
        """An existing run, exactly as its log left it. Replies that nobody looked at are looked at now.

        Briefs without a reply are given up, unless they are to be kept for whoever still works on them. `enough_share`:
        another share of the speed of light to stop at, 0 for none.
        """
        archive = Archive.open(folder)
        try:
            begun = archive.begun()
            session = Session(archive, fold(archive, begun))
            known = session.ledger.opened
            if enough_share is None and known is not None:
                enough_share = known.enough_share
            session._keep(Opened(proposer or session.proposer, budget or session.budget, keep, enough_share))
            for number in tuple(session.ledger.unread):
                replied = archive.of_brief(number, Replied)
                assert replied is not None, "that is what unread means"
                session._read(session._asking.brief(session.ledger.unread[number]), replied.reply)
        except RunError:
            archive.close()
            raise
        return session

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.close()

    def end(self, reason: str, detail: str = "") -> None:
        """End this sitting; the run can be resumed, and looked at as long as it is open."""
        self._keep(Closed(reason, detail))

    # --- what is known ---

    @property
    def folder(self) -> Path:
        """Where the run lies."""
        return self._archive.folder

    @property
    def method(self) -> Method:
        """How it searches."""
        return self.ledger.begun.method

    @property
    def budget(self) -> Budget:
        """What it may use: as it was last opened."""
        return self.ledger.opened.budget if self.ledger.opened else self.ledger.begun.config.budget

    @property
    def proposer(self) -> str:
        """Who proposes: as it was last opened."""
        return self.ledger.opened.proposer if self.ledger.opened else self.ledger.begun.config.proposer

    @property
    def stopped_because(self) -> str:
        """Why nothing more is asked; "" while something may be."""
        return spent(self.ledger, self.budget, self._archive.now())

    def elapsed(self) -> float:
        """Seconds of work so far."""
        return self.ledger.elapsed(self._archive.now())

    def pending(self) -> tuple[Job, ...]:
        """What is to be judged now, in order: new candidates, and the one that would be the best once more."""
        return tuple(Job(trial, self.candidate(trial), again) for trial, again in sorted(self.ledger.pending.items()))

    def candidate(self, trial: int) -> Candidate:
        """The program of one trial."""
        proposed = self._archive.of_trial(trial, Proposed)
        if proposed is None or proposed.candidate is None:
            raise RunError(f"trial {trial} of {self.folder} has no candidate.")
        return proposed.candidate

    @property
    def replayed(self) -> int:
        """How many programs of a recording it was given."""
        return sum(trial.model == "replay" for trial in self.ledger.trials.values())

    def proposed(self, trial: int) -> Proposed | None:
        """What one trial proposed."""
        return self._archive.of_trial(trial, Proposed)

    def conversation(self, brief: int) -> tuple[Prompt | None, Reply | None]:
        """What was asked and answered, word for word."""
        prompted, replied = self._archive.of_brief(brief, Prompted), self._archive.of_brief(brief, Replied)
        return prompted.prompt if prompted else None, replied.reply if replied else None

    def evaluation(self, trial: int) -> Evaluation | None:
        """The verdict on one trial: the latest, but for one that we failed to reach after a valid one."""
        return self._gallery.evaluation(trial)

    # --- ask ---

    def ask(self) -> Brief | None:
        """The next brief; None where nothing can be asked now: see `stopped_because`, or judge what is pending."""
        event = self._asking.next(self.budget, self._archive.now())
        if event is None:
            return None
        self._keep(event)
        return self._asking.brief(event)

    def brief(self, number: int) -> Brief:
        """A brief that was asked and waits for its reply."""
        event = self.ledger.in_flight.get(number)
        if event is None:
            raise RunError(f"brief {number} is not waiting for a reply; ask for a new one with `warpsmith ask`.")
        return self._asking.brief(event)

    def sent(self, brief: Brief, prompt: Prompt) -> None:
        """A prompt is about to be sent: keep it first."""
        self._keep(Prompted(brief.number, prompt))

    # --- tell ---

    def received(self, brief: Brief, reply: Reply) -> None:
        """A reply has come: keep it before anything else is done with it."""
        if brief.number not in self.ledger.in_flight:
            raise RunError(f"brief {brief.number} was answered already, or given up; ask for a new one.")
        self._keep(Replied(brief.number, storable(reply)))

    def failed(self, brief: Brief, reason: str, usage: Usage | None = None) -> None:
        """No reply has come, and none will; trying may have cost something."""
        self._keep(Failed(brief.number, reason, usage))

    def tell(self, brief: Brief, proposal: Proposal) -> Record:
        """What was proposed; says whether there is something to judge."""
        if brief.number not in self.ledger.unread:
            self.received(brief, proposal.reply)
        return self._take(brief, proposal)

    def answer(self, brief: Brief, reply: Reply) -> Record:
        """Keep a reply, read it and tell what it proposes."""
        if brief.number not in self.ledger.unread:
            self.received(brief, reply)
        return self._read(brief, reply)

    def _read(self, brief: Brief, reply: Reply) -> Record:
        return self._take(brief, parse(storable(reply), brief))

    def _take(self, brief: Brief, proposal: Proposal) -> Record:
        ledger, proposal = self.ledger, storable(proposal)  # what is known now is what a resumed run will know
        if proposal.text or proposal.drafts:
            words = Proposed(
                brief.number, 0, Outcome.WRITTEN, name=proposal.name, text=proposal.text, drafts=proposal.drafts
            )
            self._keep(words)
            return Record(0, brief.number, Outcome.WRITTEN)
        if proposal.candidate is None and brief.product in _WORDS:
            self._keep(Proposed(brief.number, 0, Outcome.UNREADABLE, name=proposal.name, failure=proposal.failure))
            return Record(0, brief.number, Outcome.UNREADABLE, reason=proposal.failure)
        trial = ledger.last_trial + 1
        candidate = proposal.candidate
        if candidate is None:
            self._keep(Proposed(brief.number, trial, Outcome.UNREADABLE, name=proposal.name, failure=proposal.failure))
            return self.record(trial)
        mark = fingerprint(candidate)
        twin = ledger.fingerprints.get(mark, 0)
        outcome = Outcome.DUPLICATE if twin else Outcome.PENDING
        self._keep(
            Proposed(
                *(brief.number, trial, outcome),
                candidate=candidate,
                name=proposal.name,
                fingerprint=mark,
                twin=twin,
            )
        )
        return self.record(trial)

    # --- judge ---

    def judge(self, job: Job, evaluation: Evaluation) -> Record:
        """The verdict on a pending candidate."""
        self._keep(Judged(job.trial, evaluation, job.again))
        self._gallery.forget(job.trial)
        return self.record(job.trial)

    def unprofiled(self) -> tuple[int, ...]:
        """The trials that `ask` would build on now, as far as it shows profiles and nobody has looked at theirs."""
        event = self._asking.next(self.budget, self._archive.now())
        return () if event is None else self._asking.unprofiled(event)

    def profiled(self, trial: int, digest: str, seconds: float = 0.0) -> None:
        """Where a candidate's time goes, in words; "" where that could not be found out."""
        self._keep(Profiled(trial, digest, seconds))
        self._gallery.forget(trial)

    def tuned(self, found: Tuned, better: Candidate | None) -> Record | None:
        """Other values of a candidate's tunables were tried; the better candidate, if there is one, is to be judged."""
        if better is None:
            self._keep(found)
            return None
        event = self._asking.tuning(found.trial)
        self._keep(found, event)
        reply = Reply(better.main.text, "tuner", Usage(cost_usd=0.0, requests=0), file=better.main.name)
        return self.tell(self._asking.brief(event), Proposal(reply, better, name="tuned"))

    def note(self, text: str) -> None:
        """Something a reader of the run should know."""
        self._keep(Noted(text))

    def record(self, trial: int) -> Record:
        """What is known of a trial now."""
        known: Trial = self.ledger.trials[trial]
        proposed = self._archive.of_trial(trial, Proposed)
        assert proposed is not None, "a trial begins with a proposal"
        evaluation = self.evaluation(trial) if known.status else None
        waiting = trial in self.ledger.pending or trial in self.ledger.contenders
        return Record(
            trial=trial,
            brief=known.brief,
            outcome=Outcome.PENDING if waiting else known.outcome,
            candidate=known.candidate,
            status=known.status,
            reason=(evaluation.reason if evaluation else "") or proposed.failure,
            speedup=known.score,
            best=self.ledger.best == trial,
            twin=self.ledger.trials[proposed.twin].candidate if proposed.twin else "",
        )

    def _keep(self, *happened: Event) -> None:
        for entry in self._archive.append(*happened):
            self.ledger.apply(entry)


def fold(archive: Archive, begun: Begun) -> Ledger:
    """The ledger of a log."""
    ledger = Ledger.start(begun)
    entry: Entry
    for entry in archive.entries():
        ledger.apply(entry)
    return ledger
