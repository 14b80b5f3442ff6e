"""What a run knows: a fold over its events, in the order they were kept. The same log always gives the same ledger.

Small: it holds numbers and names, never source or prompts, so that ten thousand trials fit easily. It decides nothing
about what to ask next; that is `run.session`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

from warpsmith.archive.events import (
    Asked,
    Begun,
    Closed,
    Entry,
    Failed,
    Judged,
    Opened,
    Proposed,
    Replied,
)
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.method import Move
from warpsmith.core.search import Member, Outcome, Population, Standing, Usage
from warpsmith.populations.making import create

_TRIED = 200  # strategy texts that a brief can name
_FAILURES = 8
_UNREPAIRABLE = (Status.NOT_JUDGED,)


@dataclass(frozen=True, slots=True)
class Trial:
    """One proposal with a candidate, as far as the fold needs it."""

    number: int
    brief: int
    candidate: str  # id; "" where the reply could not be read
    outcome: Outcome
    move: Move
    parents: tuple[int, ...]
    attempt: int  # of repairing another
    place: int
    length: int
    model: str
    strategy: str
    thought: bool  # whether it said why
    status: Status | None = None
    score: float | None = None  # the latest, once judged valid
    share: float | None = None  # of the speed of light, in the worst workload
    first_score: float | None = None  # by the first measurement
    measured: int = 0  # how often
    effect: float | None = None  # its score over its best parent's


@dataclass
class Totals:
    """What a run has used and found."""

    trials: int = 0  # proposals that count against the budget
    judged: int = 0
    valid: int = 0
    compiled: int = 0
    duplicates: int = 0
    unreadable: int = 0
    failed_calls: int = 0
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0  # replies whose price is not known
    device_seconds: float = 0.0
    seconds: float = 0.0  # of sittings that are over, and of this one up to its last event

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass
class StageState:
    """Where in its method a run is."""

    index: int = 0
    asked: int = 0  # briefs of this stage that were not in vain
    replied: int = 0


@dataclass
class Ledger:
    """The state of a run."""

    begun: Begun
    population: Population
    totals: Totals = field(default_factory=Totals)
    stage: StageState = field(default_factory=StageState)
    trials: dict[int, Trial] = field(default_factory=dict)
    briefs: int = 0  # numbers given out
    last_trial: int = 0
    in_flight: dict[int, Asked] = field(default_factory=dict)  # asked, no reply yet
    unread: dict[int, Asked] = field(default_factory=dict)  # replied, not looked at yet
    pending: dict[int, bool] = field(default_factory=dict)  # trials to be judged; True: once more
    repairs: deque[int] = field(default_factory=deque)  # trials to be given back with their error
    failures: deque[int] = field(default_factory=lambda: deque(maxlen=_FAILURES))
    tried: deque[str] = field(default_factory=lambda: deque(maxlen=_TRIED))
    insights: list[int] = field(default_factory=list)  # trials that were measured and said why
    notes: list[tuple[str, int]] = field(default_factory=list)  # operator, and the brief whose reply was text
    fingerprints: dict[str, int] = field(default_factory=dict)
    best: int = 0  # the trial that stands as best
    best_at: list[tuple[int, float]] = field(default_factory=list)  # trial count and score, each time it changed
    standings: dict[str, Standing] = field(default_factory=dict)
    opened: Opened | None = None  # how it was last opened
    closed: Closed | None = None
    found: list[int] = field(default_factory=list)  # trials that are valid, in order
    faults_in_a_row: int = 0  # calls without a reply
    not_judged_in_a_row: int = 0
    _asked: dict[int, Asked] = field(default_factory=dict)
    _models: dict[int, str] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)
    _last_at: float = 0.0

    @staticmethod
    def start(begun: Begun) -> Ledger:
        """Of a run in which nothing has happened yet."""
        return Ledger(begun, create(begun.method.population))

    @property
    def repair_limit(self) -> int:
        """How often a failed kernel is given back."""
        own = self.begun.config.repairs
        return self.begun.method.repairs if own is None else own

    def apply(self, entry: Entry) -> None:
        """One more event."""
        event = entry.event
        if isinstance(event, Opened):
            self._open(event)
        else:
            self.totals.seconds += max(0.0, entry.at - self._last_at) if self._last_at else 0.0
        self._last_at = entry.at
        if isinstance(event, Asked):
            self._ask(event)
        elif isinstance(event, Replied):
            self._reply(event)
        elif isinstance(event, Failed):
            self._fail(event)
        elif isinstance(event, Proposed):
            self._propose(event)
        elif isinstance(event, Judged):
            self._judge(event)
        elif isinstance(event, Closed):
            self.closed = event

    def elapsed(self, now: float) -> float:
        """Seconds of work so far, all sittings together."""
        running = now - self._last_at if self.opened and not self.closed else 0.0
        return self.totals.seconds + max(0.0, running)

    def trial_of(self, candidate: str) -> int:
        """The trial that brought a candidate."""
        return self._ids[candidate]

    # --- one kind of event each ---

    def _open(self, event: Opened) -> None:
        """Calls that were in flight when the last sitting ended are lost; what they showed can be asked again."""
        for brief in () if event.keep else tuple(self.in_flight):
            self._take_back(self.in_flight.pop(brief))
        self.opened, self.closed = event, None
        self.faults_in_a_row = self.not_judged_in_a_row = 0

    def _ask(self, event: Asked) -> None:
        self.briefs = max(self.briefs, event.brief)
        self.in_flight[event.brief] = event
        if event.stage > self.stage.index:
            self.stage = StageState(event.stage)
        if event.failure:
            if event.failure in self.repairs:
                self.repairs.remove(event.failure)
        else:
            self.stage.asked += 1

    def _take_back(self, event: Asked) -> None:
        if event.failure:
            self.repairs.appendleft(event.failure)
        elif event.stage == self.stage.index:
            self.stage.asked -= 1

    def _fail(self, event: Failed) -> None:
        asked = self.in_flight.pop(event.brief, None)
        if asked is not None:
            self._take_back(asked)
        self.totals.failed_calls += 1
        self.faults_in_a_row += 1
        if event.usage is not None:
            self._book(event.usage)

    def _reply(self, event: Replied) -> None:
        asked = self.in_flight.pop(event.brief)
        self.unread[event.brief] = self._asked[event.brief] = asked
        reply, usage = event.reply, event.reply.usage
        self._models[event.brief] = reply.model
        self.faults_in_a_row = 0
        if not asked.failure and asked.stage == self.stage.index:
            self.stage.replied += 1
        self.totals.replies += 1
        self._book(usage)
        known = self.standings.get(reply.model, Standing(reply.model, 0, 0.0, 0.0, 0))
        self.standings[reply.model] = Standing(
            reply.model,
            known.replies + 1,
            known.gain,
            known.cost_usd + (usage.cost_usd or 0.0),
            known.tokens + usage.tokens,
        )

    def _book(self, usage: Usage) -> None:
        totals = self.totals
        totals.prompt_tokens += usage.prompt_tokens
        totals.completion_tokens += usage.completion_tokens
        totals.cached_tokens += usage.cached_tokens
        totals.cost_usd += usage.cost_usd or 0.0
        totals.unpriced += usage.cost_usd is None and usage.tokens > 0

    def _propose(self, event: Proposed) -> None:
        asked = self.unread.pop(event.brief)
        self._asked.pop(event.brief, None)
        model = self._models.pop(event.brief, "")
        if event.outcome is Outcome.WRITTEN:
            self.notes.append((asked.operator, event.brief))
            return
        self.totals.trials += 1
        candidate = event.candidate
        trial = Trial(
            number=event.trial,
            brief=event.brief,
            candidate=candidate.id if candidate else "",
            outcome=event.outcome,
            move=asked.move,
            parents=asked.parents or ((asked.best,) if asked.best else ()),
            attempt=asked.attempt,
            place=asked.place,
            length=sum(len(file.text) for file in candidate.files) if candidate else 0,
            model=model,
            strategy=candidate.strategy if candidate else "",
            thought=bool(candidate and candidate.thought.strip()),
        )
        self.trials[trial.number] = trial
        self.last_trial = trial.number
        if candidate is not None and candidate.strategy:
            self.tried.append(candidate.strategy)
        if event.outcome is Outcome.PENDING:
            self.fingerprints[event.fingerprint] = trial.number
            self._ids[trial.candidate] = trial.number
            self.pending[trial.number] = False
        elif event.outcome is Outcome.DUPLICATE:
            self.totals.duplicates += 1
        else:
            self.totals.unreadable += 1
            self._offer_repair(trial)

    def _judge(self, event: Judged) -> None:
        self.pending.pop(event.trial, None)
        self.totals.device_seconds += 0.0 if event.evaluation.cached else event.evaluation.seconds
        trial, evaluation = self.trials[event.trial], event.evaluation
        first = trial.measured == 0
        score = evaluation.speedup() if evaluation.ok else None
        shares = [each.share_of_floor for each in evaluation.workloads]
        trial = self.trials[event.trial] = replace(
            trial,
            outcome=Outcome.JUDGED,
            status=evaluation.status,
            score=score,
            share=min(shares) if shares else None,
            first_score=score if first else trial.first_score,
            measured=trial.measured + 1,
            effect=self._effect(trial, score),
        )
        if first:
            self._count(evaluation)
        self.not_judged_in_a_row = self.not_judged_in_a_row + 1 if evaluation.status is Status.NOT_JUDGED else 0
        if score is None:
            self._drop(trial, first)
        elif first and (not self.best or score > (self.trials[self.best].score or 0.0)):
            self.pending[trial.number] = True  # it would be the best: a lucky measurement must not stay on top
        else:
            self._accept(trial)

    def _count(self, evaluation: Evaluation) -> None:
        totals = self.totals
        if evaluation.status is Status.NOT_JUDGED:
            totals.trials -= 1  # our own fault: it may be proposed again
            return
        totals.judged += 1
        totals.valid += evaluation.ok
        totals.compiled += evaluation.status is not Status.BUILD_ERROR

    def _drop(self, trial: Trial, first: bool) -> None:
        if not first:
            self.totals.valid -= trial.status is not Status.NOT_JUDGED
            self.population.remove(trial.candidate)
            self.found = [number for number in self.found if number != trial.number]
            self.insights = [number for number in self.insights if number != trial.number]
        if trial.status is Status.NOT_JUDGED:
            if not first and trial.first_score is not None:  # it was valid once: that verdict stands
                self._accept(replace(trial, status=Status.OK, score=trial.first_score), rises=False)
            else:
                self.fingerprints = {k: v for k, v in self.fingerprints.items() if v != trial.number}
            return
        self.failures.append(trial.number)
        self._offer_repair(trial)

    def _offer_repair(self, trial: Trial) -> None:
        if trial.attempt < self.repair_limit and trial.status not in _UNREPAIRABLE:
            self.repairs.append(trial.number)

    def _accept(self, trial: Trial, *, rises: bool = True) -> None:
        """Into the population, with what was measured last; best only by a measurement made for that."""
        assert trial.score is not None, "only valid ones"
        self.trials[trial.number] = trial
        if trial.number not in self.found:
            self.found.append(trial.number)
            if trial.thought:
                self.insights.append(trial.number)
        member = Member(trial.candidate, trial.score, trial.number, trial.place, trial.length)
        self.population.insert(member)
        held = self.trials[self.best].score if self.best else None
        if rises and trial.measured > 1 and (held is None or trial.score > held):
            self._reward(trial, held)
            self.best = trial.number
            self.best_at.append((self.totals.trials, trial.score))

    def _reward(self, trial: Trial, held: float | None) -> None:
        assert trial.score is not None, "only valid ones"
        known = self.standings.get(trial.model)
        if known is not None:
            gain = math.log(trial.score / held) if held else max(0.0, math.log(trial.score))
            self.standings[trial.model] = Standing(
                known.model, known.replies, known.gain + gain, known.cost_usd, known.tokens
            )

    def _effect(self, trial: Trial, score: float | None) -> float | None:
        parents = [self.trials[number].score for number in trial.parents if number in self.trials]
        known = [each for each in parents if each]
        return score / max(known) if score is not None and known else None
