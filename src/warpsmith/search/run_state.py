"""The state of a run, computed from its events in order. The same log always gives the same state.

The state holds numbers and names, never source or prompts, so that ten thousand trials fit in memory. It does not
decide what to ask next: see `search.next_brief`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

from warpsmith.model.brief import Effect, Member, Population, Precedent, TrialOutcome
from warpsmith.model.evaluation import Status
from warpsmith.model.method import MethodOperator, Product
from warpsmith.model.usage import ModelUsage
from warpsmith.populations.create import create
from warpsmith.populations.lineage import Lineage
from warpsmith.run_log.events import (
    AlignTrial,
    AskAgain,
    BriefAsked,
    GivenStart,
    LogEntry,
    OperatorTurn,
    PrecedentsFound,
    ProposalRead,
    RepairTrial,
    ReplyFailed,
    ReplyReceived,
    RunClosed,
    RunCreated,
    RunOpened,
    StepTrial,
    TranslateIdea,
    TrialJudged,
    TrialProfiled,
    TrialTuned,
)
from warpsmith.search.confirmation import Confirmation
from warpsmith.search.ideas import Ideas, StrategyEffects, canonical_strategy
from warpsmith.search.trials import BestChange, RunTotals, StageState, Trial

_MAX_TRIED = 200  # strategy texts that a brief can name
_MAX_FAILURES = 8


@dataclass
class RunState:
    """Everything known about a run. Trials and briefs are named by number."""

    setup: RunCreated
    population: Population
    ideas: Ideas
    operators: dict[str, MethodOperator]  # of the method, by name
    totals: RunTotals = field(default_factory=RunTotals)
    stage: StageState = field(default_factory=StageState)
    trials: dict[int, Trial] = field(default_factory=dict)
    briefs: int = 0  # number of the last brief
    last_trial: int = 0
    in_flight: dict[int, BriefAsked] = field(default_factory=dict)  # asked, no reply yet
    unread: dict[int, BriefAsked] = field(default_factory=dict)  # replied, not parsed yet
    pending: dict[int, bool] = field(default_factory=dict)  # trials to evaluate; True (at most one): a second time
    confirmation: Confirmation = field(default_factory=Confirmation)
    repairs: deque[int] = field(default_factory=deque)  # failed trials to be repaired
    returned: deque[BriefAsked] = field(default_factory=deque)  # to be asked again: the reply, no trial, was unreadable
    alignments: deque[int] = field(default_factory=deque)  # trials whose strategy is to be corrected
    failures: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_FAILURES))
    tried: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_TRIED))
    notes: list[tuple[str, int]] = field(default_factory=list)  # operator, and the brief whose reply was text
    fingerprints: dict[str, int] = field(default_factory=dict)  # trial by fingerprint
    starting: int = 0  # the trial of the starting kernel; 0 for none
    best: int = 0  # the trial that is the best, measured twice; 0 for none
    best_at: list[BestChange] = field(default_factory=list)
    standings: dict[str, ModelUsage] = field(default_factory=dict)  # by model
    opened: RunOpened | None = None  # the last time
    closed: RunClosed | None = None
    found: list[int] = field(default_factory=list)  # valid trials, in order
    profiled: set[int] = field(default_factory=set)
    tuned: set[int] = field(default_factory=set)
    precedents: tuple[Precedent, ...] = ()
    floor_beaten: bool = False  # a valid trial was faster than its floor: the floors are wrong
    failed_calls_in_a_row: int = 0
    failed_evaluations_in_a_row: int = 0
    stalled: int = 0  # turns in a row that brought no new version of the line
    directions: list[str] = field(default_factory=list)  # that briefs have named, in order
    _gained_in: int = 0  # the brief whose work brought the latest version of the line
    _models: dict[int, str] = field(default_factory=dict)  # by brief, until its reply is parsed
    _ids: dict[str, int] = field(default_factory=dict)  # trial by candidate id
    _effects: StrategyEffects = field(default_factory=StrategyEffects)
    _last_at: float = 0.0

    @staticmethod
    def start(setup: RunCreated) -> RunState:
        """The state of a run in which nothing has happened yet."""
        operators = {each.name: each for each in setup.method.operators}
        return RunState(setup, create(setup.method.population), Ideas(setup.method.tries), operators)

    @property
    def repair_limit(self) -> int:
        """How often a failed kernel may be repaired."""
        given = self.setup.config.repairs
        return self.setup.method.repairs if given is None else given

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The measured effect of each strategy so far."""
        return self._effects.best_first(self.setup.problem)

    @property
    def best_low(self) -> float | None:
        """The lower end of the best trial's speedup, by which kernels are ranked; None if there is no best."""
        return self.trials[self.best].low if self.best else None

    @property
    def over_start(self) -> float | None:
        """The speed of the best trial over that of the starting kernel; None if either is missing."""
        best, start = self.trials.get(self.best), self.trials.get(self.starting)
        return best.score / start.score if best and start and best.score and start.score else None

    def apply(self, entry: LogEntry) -> None:
        """Take in one more event."""
        event = entry.event
        if isinstance(event, RunOpened):
            self._open(event)
        else:
            self.totals.seconds += max(0.0, entry.at - self._last_at) if self._last_at else 0.0
        self._last_at = entry.at
        if isinstance(event, BriefAsked):
            self._ask(event)
        elif isinstance(event, ReplyReceived):
            self._reply(event)
        elif isinstance(event, ReplyFailed):
            self._fail(event)
        elif isinstance(event, ProposalRead):
            self._propose(event)
        elif isinstance(event, TrialJudged):
            self._judge(event)
        elif isinstance(event, TrialProfiled):
            self.profiled.add(event.trial)
            self.totals.device_seconds += event.seconds
        elif isinstance(event, TrialTuned):
            self.tuned.add(event.trial)
            self.totals.device_seconds += event.seconds
        elif isinstance(event, PrecedentsFound):
            self.precedents = event.precedents
        elif isinstance(event, RunClosed):
            self.closed = event

    def elapsed(self, now: float) -> float:
        """Seconds of work so far, summed over all times the run was open."""
        running = now - self._last_at if self.opened and not self.closed else 0.0
        return self.totals.seconds + max(0.0, running)

    def trial_of(self, candidate: str) -> int:
        """The trial that proposed a candidate."""
        return self._ids[candidate]

    # --- briefs and replies ---

    def _open(self, event: RunOpened) -> None:
        """Give up briefs without a reply, unless they are kept, so that the same can be asked again."""
        for brief in () if event.keep else tuple(self.in_flight):
            self._take_back(self.in_flight.pop(brief))
        self.opened, self.closed = event, None
        self.failed_calls_in_a_row = self.failed_evaluations_in_a_row = self.ideas.empty_replies_in_a_row = 0
        self.confirmation.reopen(keep=event.keep)
        self._update_confirmation()

    def _ask(self, event: BriefAsked) -> None:
        if not 0 <= event.stage < len(self.setup.method.stages):
            raise ValueError("a brief belongs to a stage of the method")
        self.briefs = max(self.briefs, event.brief)
        self.in_flight[event.brief] = event
        if event.stage > self.stage.index:
            self.stage = StageState(event.stage)
        purpose = event.purpose
        if isinstance(purpose, RepairTrial):
            if purpose.trial in self.repairs:
                self.repairs.remove(purpose.trial)
        elif isinstance(purpose, AskAgain):
            self.returned = deque(each for each in self.returned if each.brief != purpose.brief)
        elif isinstance(purpose, AlignTrial):
            self.alignments = deque(each for each in self.alignments if each != purpose.trial)
        elif isinstance(purpose, TranslateIdea):
            self.ideas.begin(purpose.idea)
        elif isinstance(purpose, OperatorTurn):
            self.stage.asked += 1
            if event.direction:
                self.directions.append(event.direction)
            if event.restarts:
                self._restart(event)

    def _restart(self, event: BriefAsked) -> None:
        """A new line begins at the parent of a brief, or at nothing."""
        assert isinstance(self.population, Lineage), "a method that restarts has this population"
        base = self.trials[event.parents[0]].candidate if event.parents else ""
        self.population.branch(event.place, base)
        self.stalled = 0

    def _take_back(self, event: BriefAsked) -> None:
        """Undo `_ask`: no reply will come."""
        purpose = event.purpose
        if isinstance(purpose, RepairTrial):
            self.repairs.appendleft(purpose.trial)
        elif isinstance(purpose, AskAgain):
            before = replace(event, brief=purpose.brief, attempt=event.attempt - 1, purpose=purpose.first)
            self.returned.appendleft(before)
        elif isinstance(purpose, AlignTrial):
            self.alignments.appendleft(purpose.trial)
        elif isinstance(purpose, TranslateIdea):
            self.ideas.give_back(purpose.idea)
        elif isinstance(purpose, OperatorTurn) and event.stage == self.stage.index:
            self.stage.asked -= 1

    def _fail(self, event: ReplyFailed) -> None:
        asked = self.in_flight.pop(event.brief, None)
        if asked is not None:
            self._take_back(asked)
        self.totals.failed_calls += 1
        self.failed_calls_in_a_row += 1
        if event.usage is not None:
            self.totals.add_usage(event.usage)

    def _reply(self, event: ReplyReceived) -> None:
        asked = self.unread[event.brief] = self.in_flight.pop(event.brief)
        model, usage = event.reply.model, event.reply.usage
        self._models[event.brief] = model
        self.failed_calls_in_a_row = 0
        if asked.is_turn and asked.stage == self.stage.index:
            self.stage.replied += 1
        if asked.is_turn:
            self.stalled = 0 if event.brief == self._gained_in else self.stalled + 1
        if asked.is_free:
            return
        self.totals.replies += 1
        self.totals.add_usage(usage)
        known = self.standings.get(model, ModelUsage(model, 0, 0.0, 0.0, 0))
        self.standings[model] = replace(
            known,
            replies=known.replies + 1,
            cost_usd=known.cost_usd + (usage.cost_usd or 0.0),
            tokens=known.tokens + usage.tokens,
        )

    # --- proposals ---

    def _propose(self, event: ProposalRead) -> None:
        asked = self.unread.pop(event.brief)
        model = self._models.pop(event.brief, "")
        if not event.trial:
            self._take_text(event, asked)
            return
        self.totals.trials += not asked.is_free
        candidate = event.candidate
        lineage = (asked.idea and self.ideas.known[asked.idea].parents) or asked.parents
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
            idea=asked.idea,
            free=asked.is_free,
            step=asked.purpose.step if isinstance(asked.purpose, StepTrial) else 0,
        )
        self._store(trial)
        self.starting = trial.number if isinstance(asked.purpose, GivenStart) else self.starting
        self.last_trial = trial.number
        if candidate is not None and candidate.strategy:
            self.tried.append(candidate.strategy)
        if event.outcome is TrialOutcome.PENDING:
            self.fingerprints[event.fingerprint] = trial.number
            self._ids[trial.candidate] = trial.number
            self.pending[trial.number] = False
        elif event.outcome is TrialOutcome.DUPLICATE:
            self.totals.duplicates += 1
            if trial.idea:
                self.ideas.repeat(trial.idea, self.trials[event.twin])
        else:
            self.totals.unreadable += 1
            self._offer_repair(trial)

    def _store(self, trial: Trial) -> Trial:
        new = trial.number not in self.trials
        self.trials[trial.number] = trial
        self._effects.update(trial, self.trials, new=new)
        return trial

    def _take_text(self, event: ProposalRead, asked: BriefAsked) -> None:
        """A reply that is no trial: strategies, the corrected strategy of a kernel, a note, or nothing readable."""
        operator = self.operators.get(asked.operator)
        if event.outcome is TrialOutcome.DUPLICATE:  # the agent of the brief had this kernel evaluated
            if asked.idea:
                self.ideas.repeat(asked.idea, self.trials[event.twin])
        elif event.outcome is not TrialOutcome.WRITTEN:
            self.ideas.empty_replies_in_a_row += not asked.aligned_trial
            if asked.attempt < self.repair_limit:
                self.returned.append(asked)
        elif event.drafts:
            then = operator.then.name if operator and operator.then else ""
            self.ideas.add(event.drafts, asked.parents, then, asked.place)
        elif asked.aligned_trial:
            self._align(self.trials[asked.aligned_trial], event.text)
        else:
            self.notes.append((asked.operator, event.brief))

    def _align(self, trial: Trial, strategy: str) -> None:
        """The strategy of a kernel is from now on what its code does."""
        trial = self._store(replace(trial, strategy=strategy, aligned=True))
        self.tried.append(strategy)
        if trial.idea:
            self.ideas.align(trial.idea, strategy)
        if trial.score is not None:
            self.population.insert(self._member(trial))

    def rank(self, trial: int) -> tuple[int, int] | None:
        """The place of a valid trial among all valid ones, from 1, and how many these are; None if it is not valid."""
        lows = sorted((each.low for each in self.trials.values() if each.low is not None), reverse=True)
        low = self.trials[trial].low if trial in self.trials else None
        return (lows.index(low) + 1, len(lows)) if low is not None else None

    # --- evaluations ---

    def _judge(self, event: TrialJudged) -> None:
        self.pending.pop(event.trial, None)
        self.confirmation.remove(event.trial)
        self.totals.device_seconds += 0.0 if event.evaluation.cached else event.evaluation.seconds
        trial, evaluation = self.trials[event.trial], event.evaluation
        first = trial.measured == 0
        failed = evaluation.status is Status.NOT_JUDGED
        score = evaluation.speedup() if evaluation.ok else None
        interval = evaluation.interval() if evaluation.ok else None
        if evaluation.ok and (score is None or interval is None):
            raise ValueError("a valid trial was compared with PyTorch eager")
        kept_low = trial.low if failed else None  # an earlier evaluation was valid and stays
        if kept_low is not None:
            trial = replace(trial, measured=trial.measured + 1)
        else:
            shares = [each.share_of_floor for each in evaluation.workloads]
            self.floor_beaten |= evaluation.ok and max(shares, default=0.0) > 1
            trial = replace(
                trial,
                measured=trial.measured + 1,
                outcome=TrialOutcome.JUDGED,
                status=evaluation.status,
                score=score,
                low=interval.low if interval else None,
                share=min(shares) if shares else None,
                effect=trial.gain_over_parents(self.trials, score),
            )
        self._store(trial)
        if first and not trial.free:
            self.totals.add_evaluation(evaluation)
        self.failed_evaluations_in_a_row = self.failed_evaluations_in_a_row + 1 if failed else 0
        if kept_low is not None:
            self._accept(trial, may_be_best=False)
            if trial.number != self.best:
                self.confirmation.unconfirmed[trial.number] = kept_low
        elif trial.low is None:
            self._drop(trial, first)
        elif first and (self.best_low is None or trial.low > self.best_low):
            self.confirmation.waiting[trial.number] = trial.low
        else:
            self._accept(trial)
        self._update_confirmation()

    def _update_confirmation(self) -> None:
        """Accept the kernels that need no second measurement any more; the fastest of the others is pending."""
        for number in self.confirmation.update(self.best_low, self.failed_evaluations_in_a_row):
            self._accept(self.trials[number])
        self.pending = {number: again for number, again in self.pending.items() if not again}
        if self.confirmation.next is not None:
            self.pending[self.confirmation.next] = True

    def _drop(self, trial: Trial, first: bool) -> None:
        """A trial is invalid, or its evaluation failed."""
        failed = trial.status is Status.NOT_JUDGED
        if not first:
            self.totals.valid -= not failed and not trial.free
            self.population.remove(trial.candidate)
            self.found = [number for number in self.found if number != trial.number]
            self.alignments = deque(number for number in self.alignments if number != trial.number)
            self.repairs = deque(number for number in self.repairs if number != trial.number)
        if failed:
            self.fingerprints = {k: v for k, v in self.fingerprints.items() if v != trial.number}
            for idea in self.ideas.behind(trial):
                self.ideas.give_back(idea)
            return
        self.failures.append(trial.number)
        for idea in self.ideas.repeats.get(trial.number, ()):
            self.ideas.fail(idea)
        self._offer_repair(trial)

    def _offer_repair(self, trial: Trial) -> None:
        if trial.attempt < self.repair_limit and not trial.free and not trial.step:
            self.repairs.append(trial.number)
        elif trial.idea and not self._other_scores(trial.idea, trial):  # a valid kernel that was revised stays
            self.ideas.fail(trial.idea)

    def _other_scores(self, idea: int, trial: Trial) -> list[float]:
        """The scores of the valid kernels of an idea, apart from one."""
        others = (each for each in self.trials.values() if each.idea == idea and each.number != trial.number)
        return [each.score for each in others if each.score is not None]

    def _is_slow(self, trial: Trial) -> bool:
        """True for the first kernel of a strategy that is far from the hardware's limit: the revisor gets it once."""
        below = self.setup.method.revise_below if self.repair_limit else 0.0
        first = trial.idea is not None and not trial.attempt and not trial.free
        return first and trial.share is not None and trial.share < below

    def _accept(self, trial: Trial, *, may_be_best: bool = True) -> None:
        """Insert a valid trial into the population with its latest score; after two measurements it may be the best."""
        assert trial.score is not None, "only valid trials are accepted"
        assert trial.low is not None, "a score has an interval"
        if trial.number not in self.found:
            self.found.append(trial.number)
            operator = self.operators.get(trial.operator)
            then = operator.then if operator else None
            if then is not None and then.product is Product.ALIGNMENT and not trial.aligned and not trial.step:
                self.alignments.append(trial.number)
            if self._is_slow(trial):
                self.repairs.append(trial.number)
        for idea in self.ideas.behind(trial):
            self.ideas.succeed(idea, max(trial.score, *self._other_scores(idea, trial), 0.0))
        latest = self._latest_version()
        self.population.insert(self._member(trial))
        if self._latest_version() != latest:
            self.stalled, self._gained_in = 0, trial.step or trial.brief
        before = self.best_low
        if may_be_best and trial.measured > 1 and (before is None or trial.low > before):
            if trial.model in self.standings:
                gain = math.log(trial.low / before) if before else max(0.0, math.log(trial.low))
                known = self.standings[trial.model]
                self.standings[trial.model] = replace(known, gain=known.gain + gain)
            self.best = trial.number
            self.best_at.append(BestChange(self.totals.trials, trial.score, self.totals.tokens, self.stage.index))

    def _latest_version(self) -> tuple[str, ...]:
        """The candidate that is the latest version of the line, where the population has lines."""
        return self.population.pick(1, 0).ids if isinstance(self.population, Lineage) else ()

    def _member(self, trial: Trial) -> Member:
        assert trial.score is not None, "only valid trials are members"
        niche = canonical_strategy(trial.strategy) if trial.aligned or trial.idea else ""
        return Member(trial.candidate, trial.score, trial.number, trial.place, trial.length, niche)
