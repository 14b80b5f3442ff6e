"""What a run knows: a fold over its events, in the order they were kept. The same log always gives the same ledger.

Small: it holds numbers and names, never source or prompts, so that ten thousand trials fit easily. It decides nothing
about what to ask next; that is `run.session`.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from warpsmith.archive.events import (
    Asked,
    Begun,
    Closed,
    Entry,
    Failed,
    Judged,
    Opened,
    Profiled,
    Proposed,
    Recalled,
    Replied,
    Tuned,
)
from warpsmith.core.evaluation import Status
from warpsmith.core.method import Operator, Product
from warpsmith.core.search import Effect, Member, Outcome, Population, Precedent, Standing
from warpsmith.populations.making import create
from warpsmith.run.contenders import beaten, fastest
from warpsmith.run.credit import asked_again, effect, rewarded
from warpsmith.run.effects import Effects
from warpsmith.run.ideas import Ideas, niche
from warpsmith.run.trials import StageState, Totals, Trial
from warpsmith.run.unconfirmed import once_more, retriable

__all__ = ["Ledger", "StageState", "Totals", "Trial"]

_TRIED = 200  # strategy texts that a brief can name
_FAILURES = 8
_UNREPAIRABLE = (Status.NOT_JUDGED,)


@dataclass
class Ledger:
    """The state of a run."""

    begun: Begun
    population: Population
    ideas: Ideas
    operators: dict[str, Operator]  # of the method, by name
    totals: Totals = field(default_factory=Totals)
    stage: StageState = field(default_factory=StageState)
    trials: dict[int, Trial] = field(default_factory=dict)
    briefs: int = 0  # numbers given out
    last_trial: int = 0
    in_flight: dict[int, Asked] = field(default_factory=dict)  # asked, no reply yet
    unread: dict[int, Asked] = field(default_factory=dict)  # replied, not looked at yet
    pending: dict[int, bool] = field(default_factory=dict)  # trials to be judged; True, one at most: once more
    contenders: dict[int, float] = field(default_factory=dict)  # trials that would be the best, by their one score
    unconfirmed: dict[int, float] = field(default_factory=dict)  # those that we failed to measure a second time
    repairs: deque[int] = field(default_factory=deque)  # trials to be given back with their error
    returned: deque[Asked] = field(default_factory=deque)  # questions whose answers were unreadable and no trials
    alignments: deque[int] = field(default_factory=deque)  # trials whose strategies are to be put right
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
    profiled: set[int] = field(default_factory=set)  # trials of which somebody has looked where their time goes
    tuned: set[int] = field(default_factory=set)  # trials whose tunables were tried
    precedents: tuple[Precedent, ...] = ()  # what other runs know
    faults_in_a_row: int = 0  # calls without a reply
    not_judged_in_a_row: int = 0
    _asked: dict[int, Asked] = field(default_factory=dict)
    _models: dict[int, str] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)
    _retries: Counter[int] = field(default_factory=Counter)  # of unconfirmed ones, in this sitting
    _effects: Effects = field(default_factory=Effects)
    _last_at: float = 0.0

    @staticmethod
    def start(begun: Begun) -> Ledger:
        """Of a run in which nothing has happened yet."""
        operators = {each.name: each for each in begun.method.operators}
        return Ledger(begun, create(begun.method.population), Ideas(begun.method.tries), operators)

    @property
    def repair_limit(self) -> int:
        """How often a failed kernel is given back."""
        own = self.begun.config.repairs
        return self.begun.method.repairs if own is None else own

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What each strategy has brought so far, for this task's zone and family."""
        return self._effects.best_first(self.begun.problem)

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
        elif isinstance(event, Profiled):
            self.profiled.add(event.trial)
            self.totals.device_seconds += event.seconds
        elif isinstance(event, Tuned):
            self.tuned.add(event.trial)
            self.totals.device_seconds += event.seconds
        elif isinstance(event, Recalled):
            self.precedents = event.precedents
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
        """Calls that were in flight when the last sitting ended are lost; what they showed can be asked again. So can
        second measurements that failed."""
        for brief in () if event.keep else tuple(self.in_flight):
            self._take_back(self.in_flight.pop(brief))
        self.opened, self.closed = event, None
        self.faults_in_a_row = self.not_judged_in_a_row = self.ideas.barren = 0
        if not event.keep:
            self._retries.clear()
        for number in retriable(self.unconfirmed, self._retries):
            self._retry(number)
        self._line_up()

    def _ask(self, event: Asked) -> None:
        self.briefs = max(self.briefs, event.brief)
        self.in_flight[event.brief] = event
        if event.stage > self.stage.index:
            self.stage = StageState(event.stage)
        if event.failure:
            if event.failure in self.repairs:
                self.repairs.remove(event.failure)
        elif event.again:
            self.returned = deque(each for each in self.returned if each.brief != event.again)
        elif event.subject:
            self.alignments = deque(each for each in self.alignments if each != event.subject)
        elif event.idea:
            self.ideas.begin(event.idea)
        elif not event.free:
            self.stage.asked += 1

    def _take_back(self, event: Asked) -> None:
        if event.failure:
            self.repairs.appendleft(event.failure)
        elif event.again:
            self.returned.appendleft(replace(event, brief=event.again, attempt=event.attempt - 1))
        elif event.subject:
            self.alignments.appendleft(event.subject)
        elif event.idea:
            self.ideas.give_back(event.idea)
        elif event.in_turn and event.stage == self.stage.index:
            self.stage.asked -= 1

    def _fail(self, event: Failed) -> None:
        asked = self.in_flight.pop(event.brief, None)
        if asked is not None:
            self._take_back(asked)
        self.totals.failed_calls += 1
        self.faults_in_a_row += 1
        if event.usage is not None:
            self.totals.book(event.usage)

    def _reply(self, event: Replied) -> None:
        asked = self.in_flight.pop(event.brief)
        self.unread[event.brief] = self._asked[event.brief] = asked
        reply, usage = event.reply, event.reply.usage
        self._models[event.brief] = reply.model
        self.faults_in_a_row = 0
        if asked.in_turn and asked.stage == self.stage.index:
            self.stage.replied += 1
        if asked.free:
            return
        self.totals.replies += 1
        self.totals.book(usage)
        known = self.standings.get(reply.model, Standing(reply.model, 0, 0.0, 0.0, 0))
        self.standings[reply.model] = asked_again(known, usage)

    def _propose(self, event: Proposed) -> None:
        asked = self.unread.pop(event.brief)
        self._asked.pop(event.brief, None)
        model = self._models.pop(event.brief, "")
        if not event.trial:
            self._take_words(event, asked)
            return
        self.totals.trials += not asked.free
        candidate = event.candidate
        idea = asked.idea or (self.trials[asked.failure].idea if asked.failure else 0)
        lineage = self.ideas.known[asked.idea].parents if asked.idea else asked.parents
        trial = Trial(
            number=event.trial,
            brief=event.brief,
            candidate=candidate.id if candidate else "",
            outcome=event.outcome,
            move=asked.move,
            parents=lineage or ((asked.best,) if asked.best else ()),
            attempt=asked.attempt,
            place=asked.place,
            length=sum(len(file.text) for file in candidate.files) if candidate else 0,
            model=model,
            strategy=candidate.strategy if candidate else "",
            thought=bool(candidate and candidate.thought.strip()),
            operator=asked.operator,
            idea=idea,
            free=asked.free,
        )
        self._know(trial)
        self.last_trial = trial.number
        if candidate is not None and candidate.strategy:
            self.tried.append(candidate.strategy)
        if event.outcome is Outcome.PENDING:
            self.fingerprints[event.fingerprint] = trial.number
            self._ids[trial.candidate] = trial.number
            self.pending[trial.number] = False
        elif event.outcome is Outcome.DUPLICATE:
            self.totals.duplicates += 1
            if trial.idea:
                self.ideas.repeat(trial.idea, self.trials[event.twin])
        else:
            self.totals.unreadable += 1
            self._offer_repair(trial)

    def _know(self, trial: Trial) -> Trial:
        new = trial.number not in self.trials
        self.trials[trial.number] = trial
        self._effects.update(trial, self.trials, new=new)
        return trial

    def _take_words(self, event: Proposed, asked: Asked) -> None:
        """A reply that is no trial: strategies, the true strategy of a kernel, a note, or nothing that can be read."""
        operator = self.operators.get(asked.operator)
        if event.outcome is not Outcome.WRITTEN:
            self.ideas.barren += not asked.subject
            if asked.attempt < self.repair_limit:
                self.returned.append(asked)
        elif event.drafts:
            then = operator.then.name if operator and operator.then else ""
            self.ideas.add(event.drafts, asked.parents, then, asked.place)
        elif asked.subject:
            self._align(self.trials[asked.subject], event.text)
        else:
            self.notes.append((asked.operator, event.brief))

    def _align(self, trial: Trial, strategy: str) -> None:
        """From now on a kernel stands for what its code does."""
        trial = self._know(replace(trial, strategy=strategy, aligned=True))
        self.tried.append(strategy)
        if trial.idea:
            self.ideas.align(trial.idea, strategy)
        if trial.score is not None:
            self.population.insert(self._member(trial))

    def _judge(self, event: Judged) -> None:
        self.pending.pop(event.trial, None)
        self.contenders.pop(event.trial, None)
        self.unconfirmed.pop(event.trial, None)
        self.totals.device_seconds += 0.0 if event.evaluation.cached else event.evaluation.seconds
        trial, evaluation = self.trials[event.trial], event.evaluation
        first = trial.measured == 0
        score = evaluation.speedup() if evaluation.ok else None
        shares = [each.share_of_floor for each in evaluation.workloads]
        stands = trial.score if evaluation.status is Status.NOT_JUDGED else None  # it was valid: that verdict stays
        trial = replace(trial, measured=trial.measured + 1)
        if stands is None:
            trial = replace(
                trial,
                outcome=Outcome.JUDGED,
                status=evaluation.status,
                score=score,
                share=min(shares) if shares else None,
                effect=effect(trial, self.trials, score),
            )
        self._know(trial)
        if first and not trial.free:
            self.totals.count(evaluation)
        self.not_judged_in_a_row = self.not_judged_in_a_row + 1 if evaluation.status is Status.NOT_JUDGED else 0
        if stands is not None:
            self._accept(trial, rises=False)
            if trial.number != self.best:
                self.unconfirmed[trial.number] = stands
        elif score is None:
            self._drop(trial, first)
        elif first and (self._held is None or score > self._held):
            self.contenders[trial.number] = score  # it would be the best: a lucky measurement must not stay on top
        else:
            self._accept(trial)
        self._line_up()

    @property
    def _held(self) -> float | None:
        """The score of the best; None where there is none."""
        return self.trials[self.best].score if self.best else None

    def _line_up(self) -> None:
        """Who would not be the best any more counts as it was measured; of the others the fastest is measured next."""
        for number in beaten(self.contenders, self._held):
            del self.contenders[number]
            self._accept(self.trials[number])
        for number in beaten(self.unconfirmed, self._held):
            del self.unconfirmed[number]
        if not self.contenders and not self.best:
            self._retry(once_more(self.unconfirmed, self._retries, self.not_judged_in_a_row))
        self.pending = {number: again for number, again in self.pending.items() if not again}
        if number := fastest(self.contenders):
            self.pending[number] = True

    def _retry(self, number: int) -> None:
        if number:
            self.contenders[number] = self.unconfirmed.pop(number)
            self._retries[number] += 1

    def _drop(self, trial: Trial, first: bool) -> None:
        if not first:
            self.totals.valid -= trial.status is not Status.NOT_JUDGED and not trial.free
            self.population.remove(trial.candidate)
            self.found = [number for number in self.found if number != trial.number]
            self.insights = [number for number in self.insights if number != trial.number]
            self.alignments = deque(number for number in self.alignments if number != trial.number)
        if trial.status is Status.NOT_JUDGED:
            self.fingerprints = {k: v for k, v in self.fingerprints.items() if v != trial.number}
            for idea in self.ideas.behind(trial):
                self.ideas.give_back(idea)
            return
        self.failures.append(trial.number)
        for idea in self.ideas.repeats.get(trial.number, ()):
            self.ideas.fail(idea)
        self._offer_repair(trial)

    def _offer_repair(self, trial: Trial) -> None:
        if trial.attempt < self.repair_limit and trial.status not in _UNREPAIRABLE and not trial.free:
            self.repairs.append(trial.number)
        elif trial.idea:
            self.ideas.fail(trial.idea)

    def _accept(self, trial: Trial, *, rises: bool = True) -> None:
        """Into the population, with what was measured last; best only by a measurement made for that."""
        assert trial.score is not None, "only valid ones"
        if trial.number not in self.found:
            self.found.append(trial.number)
            if trial.thought:
                self.insights.append(trial.number)
            self._offer_alignment(trial)
        for idea in self.ideas.behind(trial):
            self.ideas.succeed(idea, trial.score)
        self.population.insert(self._member(trial))
        held = self._held
        if rises and trial.measured > 1 and (held is None or trial.score > held):
            if trial.model in self.standings:
                self.standings[trial.model] = rewarded(self.standings[trial.model], trial.score, held)
            self.best = trial.number
            self.best_at.append((self.totals.trials, trial.score))

    def _offer_alignment(self, trial: Trial) -> None:
        operator = self.operators.get(trial.operator)
        follows = operator.then if operator else None
        if follows is not None and follows.product is Product.ALIGNMENT and not trial.aligned:
            self.alignments.append(trial.number)

    def _member(self, trial: Trial) -> Member:
        assert trial.score is not None, "only valid ones"
        kind = niche(trial.strategy) if trial.aligned or trial.idea else ""
        return Member(trial.candidate, trial.score, trial.number, trial.place, trial.length, kind)
