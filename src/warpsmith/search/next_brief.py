"""Decides what to ask next and builds the brief: the rules of the method applied to the state of the run.

Reads the run log and stores nothing: the same state always gives the same brief. Also here: lessons of other runs
(`find_precedents`), and which programs of a run resemble one another (`SimilarPrograms`).
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from warpsmith.model.brief import Brief, Precedent, Problem, ShownCandidate
from warpsmith.model.candidate import SourceFile
from warpsmith.model.method import KernelFact, MethodOperator, Move, Product, Show, Stage
from warpsmith.model.strategy import Strategy
from warpsmith.model.task import Family
from warpsmith.populations.lineage import Lineage
from warpsmith.run_log.events import (
    AlignTrial,
    AskAgain,
    BriefAsked,
    BriefPurpose,
    Budget,
    GivenStart,
    OperatorTurn,
    ProposalRead,
    RepairTrial,
    StepTrial,
    TranslateIdea,
    TuneTrial,
)
from warpsmith.run_log.log import RunLog
from warpsmith.search.budget import stop_reason
from warpsmith.search.ideas import strategy_names, texts
from warpsmith.search.run_state import RunState
from warpsmith.search.start import START
from warpsmith.search.trial_reader import TrialReader
from warpsmith.strategies.catalogue import fits_backend, relevant_strategies, strategies, work_families
from warpsmith.strategies.pool import PoolRecord, measured_strategies, search_pool

REPAIR = MethodOperator("repair", Move.REPAIR, "common/repair", frozenset({Show.FAILURES}))
TUNE = MethodOperator(
    "auto-tune", Move.TUNE, "common/repair", frozenset({Show.PARENTS}), parents=1
)  # no prompt is written
MAX_PRECEDENTS = 5
"""Precedents shown to a strategist; each comes with its code."""

_OWN_OPERATORS = {operator.name: operator for operator in (REPAIR, TUNE, START)}  # that belong to no method
_UNSAID: dict[KernelFact, dict[str, Any]] = {  # fields of a kernel of which a fact is not said
    KernelFact.NAME: {"name": ""},
    KernelFact.MEASURED: {
        "latency_ms": (),
        "speedup": None,
        "interval": None,
        "share_of_floor": None,
        "error_share": None,
        "error_limit": None,
    },
    KernelFact.STRATEGY: {"strategy": ""},
    KernelFact.THOUGHT: {"thought": ""},
    KernelFact.RESOURCES: {"resources": ()},
}
_ADVICE = 5  # strategies of the catalogue in a brief, the most relevant ones
_FURTHER = 2  # more of them, which change from brief to brief
_ALL = 1000
_DIRECTIONS = 24  # strategies of the catalogue that another direction is chosen from
_VERSIONS = 8  # latest versions of a line in a brief
_FAILURES_SHOWN = 3
_RETRIEVED = 3
_IDEAS = 30
_MOST_SHOWN = 2048  # kernels held as operators show them: a kernel is shown in many briefs
_CARDS = 8
_EFFECTS = 16
_TRIED = 200  # ideas whose texts a proposer can avoid
_WORD = re.compile(r"[A-Za-z_]\w*|\d+")
_MOST_COMPARED = 200  # the latest programs: enough to choose from, and the cost does not grow with the run


def find_precedents(problem: Problem, pool: Path | None = None, *, apart_from: str = "") -> tuple[Precedent, ...]:
    """The most similar measured lessons of the pool, of tasks of the same kind. A `session.FindPrecedents`.

    `apart_from` is the digest of a task: see `search_pool`.
    """
    found = search_pool(problem, _ALL, pool, apart_from=apart_from, catalogue=False)
    words = work_families(problem)
    kind = words - {Family.OTHER.value} or words
    alike = [each for each in found if not kind or not each.families or kind & set(each.families)]
    return tuple(map(precedent_of, alike[:MAX_PRECEDENTS]))


def precedent_of(record: PoolRecord) -> Precedent:
    """A record of the pool as a precedent."""
    return Precedent(
        task=record.task,
        strategy=record.strategy,
        device=record.device,
        effect=record.effect,
        speedup=record.speedup,
        note=record.note,
        before=_text(record.start),
        reference=any(file.name.endswith(".py") for file in record.start) and record.backend in ("cuda", "cpu"),
        after=_text(record.kernel),
    )


def _text(files: Sequence[SourceFile]) -> str:
    return "\n\n".join(file.text.strip() for file in files)


class SimilarPrograms:
    """Ranks programs by the share of word pairs they have in common. Caches the pairs of those compared last."""

    def __init__(self, read_source: Callable[[int], str]) -> None:
        self._read_source = read_source
        self._pairs: dict[int, frozenset[tuple[str, str]]] = {}

    def most(self, trial: int, others: Sequence[int], count: int) -> tuple[int, ...]:
        """The `count` others most similar to a trial, most similar first; ties go to the later one."""
        compared, known = others[-_MOST_COMPARED:], self._pairs
        self._pairs = {each: known.get(each) or self._read_pairs(each) for each in (trial, *compared)}
        wanted = self._pairs[trial]

        def share(other: int) -> float:
            shared = len(wanted & self._pairs[other])
            return shared / max(1, len(wanted) + len(self._pairs[other]) - shared)

        return tuple(sorted(compared, key=lambda other: (-share(other), -other))[:count])

    def _read_pairs(self, trial: int) -> frozenset[tuple[str, str]]:
        return frozenset(pairwise(_WORD.findall(self._read_source(trial))))


class NextBrief:
    """Makes the briefs of one run."""

    def __init__(self, log: RunLog, state: RunState, reader: TrialReader) -> None:
        self._log = log
        self._state = state
        self._reader = reader
        self._idea_texts: tuple[int, tuple[str, ...]] = (0, ())  # revision of the ideas, and their texts
        self._similar = SimilarPrograms(lambda trial: reader.read(trial).files[0].text)

    def choose(self, budget: Budget, now: float) -> BriefAsked | None:
        """What to ask next; None if the run is over, or something in progress has to end first."""
        state = self._state
        if stop_reason(state, budget, now) or state.starting in state.pending:
            return None
        room = self.room(budget)
        if room > 0 and state.repairs:
            return self._repair(state.repairs[0])
        if state.returned:
            return self._ask_again(state.returned[0])
        if state.alignments:
            return self._align(state.alignments[0])
        if room <= 0:
            return None
        if state.ideas.waiting:
            return self._translate(state.ideas.waiting[0])
        requested = (*state.in_flight.values(), *state.unread.values())
        if any(self._operator(each).product is Product.STRATEGIES for each in requested):
            return None  # strategies invented at the same time would be alike
        index = self._stage_index(budget)
        return None if index is None else self._take_turn(index, self._wanted(index, room, budget))

    def build(self, event: BriefAsked) -> Brief:
        """The brief of an event, with everything it shows."""
        operator, reader, state = self._operator(event), self._reader, self._state
        shows, subject = operator.shows, event.aligned_trial
        return Brief(
            number=event.brief,
            operator=event.operator,
            move=event.move,
            wording=operator.wording,
            problem=state.setup.problem,
            seed=event.seed,
            best=self._exhibit(event.best, operator) if event.best else None,
            start=self._exhibit(state.starting, operator) if self._shows_start(operator) else None,
            parents=tuple(self._exhibit(each, operator) for each in event.parents) if not event.repaired_trial else (),
            insights=tuple(reader.insight(each) for each in event.insights),
            failure=self._failure(event, operator),
            attempt=event.attempt,
            failures=tuple(reader.read_without_code(each) for each in event.failures),
            retrieved=tuple(self._exhibit(each, operator) for each in event.retrieved),
            notes=self._notes() if Show.NOTES in shows else (),
            strategies=self._advice() if Show.STRATEGIES in shows else (),
            cards=self._cards(event) if Show.CARDS in shows else (),
            roofline=Show.ROOFLINE in shows,
            tried=self._tried() if not subject else (),
            models=tuple(sorted(state.standings.values(), key=lambda each: each.model)),
            place=event.place,
            role=operator.role,
            product=operator.product,
            wanted=event.wanted,
            idea=state.ideas.known[event.idea] if event.idea else None,
            subject=self._exhibit(subject, operator) if subject else None,
            ideas=state.ideas.latest(_IDEAS) if Show.IDEAS in shows else (),
            effects=state.effects[:_EFFECTS] if Show.EFFECTS in shows else (),
            precedents=self._precedents(operator),
            epoch=event.stage + 1,
            epochs=len(state.setup.method.stages),
            lineage=self._lineage(operator),
            stalled=event.stalled,
            direction=strategies().get(event.direction) if event.direction else None,
            restarts=event.restarts,
        )

    def unprofiled(self, event: BriefAsked) -> tuple[int, ...]:
        """The valid trials that a brief builds on and that are not profiled yet; none if it shows no profiles."""
        if Show.PROFILE not in self._operator(event).shows:
            return ()
        trials, done = self._state.trials, self._state.profiled
        built_on = (event.repaired_trial,) if event.repaired_trial else (*event.parents, event.best)
        shown = (each for each in dict.fromkeys(built_on) if each and each not in done)
        return tuple(each for each in shown if trials[each].score is not None)

    def tuning(self, trial: int) -> BriefAsked:
        """The event for a kernel that the tuner proposes."""
        return self._event(TUNE, TuneTrial(), parents=(trial,), place=self._state.trials[trial].place)

    def starting(self) -> BriefAsked:
        """The event for a starting kernel."""
        return self._event(START, GivenStart())

    def step(self, brief: int) -> BriefAsked:
        """The event for a kernel that the agent of a brief has evaluated on the way."""
        number, asked = self._state.briefs + 1, self._state.in_flight[brief]
        purpose = StepTrial(brief)
        return replace(asked, brief=number, seed=self._seed(number), purpose=purpose, direction="", restarts=False)

    def room(self, budget: Budget) -> int:
        """Trials of the budget that are neither spent nor reserved for a brief without a reply."""
        in_flight = sum(self._operator(each).is_trial for each in self._state.in_flight.values())
        return budget.trials - self._state.totals.trials - in_flight

    # --- one purpose each ---

    def _event(self, operator: MethodOperator, purpose: BriefPurpose, **shown: Any) -> BriefAsked:
        number = self._state.briefs + 1
        stage = shown.pop("stage", self._state.stage.index)
        return BriefAsked(number, stage, operator.name, operator.move, self._seed(number), purpose, **shown)

    def _take_turn(self, index: int, wanted: int) -> BriefAsked:
        state = self._state
        stage = state.setup.method.stages[index]
        operator = _in_turn(stage, state.stage.asked if index == state.stage.index else 0)
        if len(state.population.members) < operator.fewest_parents:
            operator = stage.operators[0]
        shows, seed = operator.shows, self._seed(state.briefs + 1)
        pick = state.population.pick(operator.parents, seed) if operator.parents else None
        parents = [state.trial_of(each) for each in pick.ids] if pick else []
        place, restarts = pick.place if pick else 0, self._restarts()
        if restarts:
            parents, place = self._ancestor(), place + 1
        if operator.order == "worst_first":
            parents.reverse()
        after = state.setup.method.redirect_after
        stalled = state.stalled if restarts or 0 < after <= state.stalled else 0
        insights = self._insights(operator.insights, seed) if Show.INSIGHTS in shows else ()
        return self._event(
            operator,
            OperatorTurn(wanted=min(operator.yields, wanted) if operator.product is Product.STRATEGIES else 0),
            stage=index,
            parents=tuple(parents) if Show.PARENTS in shows else (),
            best=self._best(operator),
            insights=insights,
            failures=self._recent_failures(operator),
            retrieved=self._most_similar(parents) if Show.RETRIEVED in shows else (),
            place=place,
            stalled=stalled,
            direction=self._direction() if stalled else "",
            restarts=restarts,
        )

    def _restarts(self) -> bool:
        """True if the line has stalled for so long that another one begins."""
        return 0 < self._state.setup.method.restart_after <= self._state.stalled

    def _ancestor(self) -> list[int]:
        """The version that another line begins at; none if there is no earlier one."""
        assert isinstance(self._state.population, Lineage), "a method that restarts has this population"
        found = self._state.population.ancestor()
        return [found.trial] if found else []

    def _direction(self) -> str:
        """A strategy of the catalogue that fits the task: the one that was least often tried or named."""
        fitting = [each.name for each in relevant_strategies(self._state.setup.problem, _DIRECTIONS)]
        used = Counter([*self._state.directions, *(name for text in self._tried() for name in strategy_names(text))])
        return min(fitting, key=lambda name: (used[name], fitting.index(name)), default="")

    def _lineage(self, operator: MethodOperator) -> tuple[ShownCandidate, ...]:
        population = self._state.population
        if Show.LINEAGE not in operator.shows or not isinstance(population, Lineage):
            return ()
        return tuple(self._exhibit(member.trial, operator) for member in population.line()[-_VERSIONS:])

    def _translate(self, number: int) -> BriefAsked:
        idea, state = self._state.ideas.known[number], self._state
        operator = self._operator_named(idea.operator)
        parents = idea.parents or ((state.starting,) if state.starting in state.found else ())
        return self._event(
            operator,
            TranslateIdea(number),
            parents=parents[: operator.parents] if Show.PARENTS in operator.shows else (),
            best=self._best(operator),
            failures=self._recent_failures(operator),
            place=idea.place,
        )

    def _align(self, trial: int) -> BriefAsked:
        operator = self._operator_named(self._state.trials[trial].operator).then
        assert operator is not None, "only trials whose operator is followed by an alignment are queued for it"
        return self._event(operator, AlignTrial(trial))

    def _repair(self, trial: int) -> BriefAsked:
        known = self._state.trials[trial]
        operator = self._state.setup.method.revise or REPAIR
        return self._event(
            operator,
            RepairTrial(trial, known.idea),
            parents=known.parents,
            attempt=known.attempt + 1,
            failures=self._recent_failures(operator, without=trial),
            place=known.place,
        )

    def _ask_again(self, event: BriefAsked) -> BriefAsked:
        """The same brief, together with what was wrong with its reply."""
        number = self._state.briefs + 1
        first = event.purpose.first if isinstance(event.purpose, AskAgain) else event.purpose
        assert isinstance(first, OperatorTurn | AlignTrial), "only replies that are no trial are asked for again"
        purpose = AskAgain(event.brief, first)
        return replace(event, brief=number, seed=self._seed(number), attempt=event.attempt + 1, purpose=purpose)

    # --- what a brief shows ---

    def _shows_start(self, operator: MethodOperator) -> bool:
        return Show.START in operator.shows and self._state.starting in self._state.found

    def _best(self, operator: MethodOperator) -> int | None:
        return (self._state.best or None) if Show.BEST in operator.shows else None

    def _insights(self, count: int, seed: int) -> tuple[int, ...]:
        """Kernels of the population whose authors gave a reason, drawn at random."""
        members = (self._state.trial_of(member.id) for member in self._state.population.members)
        known = [trial for trial in members if self._state.trials[trial].thought]
        return tuple(random.Random(seed).sample(known, min(count, len(known))))

    def _recent_failures(self, operator: MethodOperator, without: int | None = None) -> tuple[int, ...]:
        if Show.FAILURES not in operator.shows:
            return ()
        return tuple(each for each in self._state.failures if each != without)[-_FAILURES_SHOWN:]

    def _most_similar(self, shown: Sequence[int]) -> tuple[int, ...]:
        """The valid kernels of this run most similar to the best, other than those shown."""
        best = self._state.best
        if not best:
            return ()
        others = [number for number in self._state.found if number not in (best, *shown)]
        return self._similar.most(best, others, _RETRIEVED)

    def _tried(self) -> tuple[str, ...]:
        ideas = self._state.ideas
        if self._idea_texts[0] != ideas.revision:
            self._idea_texts = (ideas.revision, texts(ideas.latest(_TRIED)))
        return (*self._idea_texts[1], *self._state.tried)

    def _advice(self) -> tuple[Strategy, ...]:
        """The most relevant strategies of the catalogue for this task, and in turn some of the others that fit."""
        best, others = self._fitting[:_ADVICE], self._fitting[_ADVICE:]
        turn = len(self._state.ideas.known) or len(self._state.trials)  # with and without an ablation the same
        return (*best, *(others[(turn + n) % len(others)] for n in range(min(_FURTHER, len(others)))))

    @cached_property
    def _fitting(self) -> tuple[Strategy, ...]:
        problem = self._state.setup.problem
        return relevant_strategies(problem, _ALL, measured_strategies(problem))

    def _cards(self, event: BriefAsked) -> tuple[Strategy, ...]:
        """The catalogue's entries for the strategies that the idea names, as far as they fit the language."""
        problem = self._state.setup.problem
        idea = self._state.ideas.known[event.idea].strategy if event.idea else ""
        known = strategies()
        named = [known[name] for name in sorted(strategy_names(idea)) if name in known]
        return tuple(each for each in named if fits_backend(each, problem))[:_CARDS]

    def _exhibit(self, trial: int, operator: MethodOperator) -> ShownCandidate:
        return as_shown_by(operator, self._reader.read(trial))

    def _precedents(self, operator: MethodOperator) -> tuple[Precedent, ...]:
        """Measured lessons of other runs: unmeasured advice of the catalogue is a `Show` of its own."""
        return tuple(each for each in self._state.precedents if each.measured) if operator.recalls else ()

    def _failure(self, event: BriefAsked, operator: MethodOperator) -> ShownCandidate | None:
        if event.repaired_trial:
            return self._exhibit(event.repaired_trial, operator)
        return self._reader.unreadable_reply(event.purpose.brief) if isinstance(event.purpose, AskAgain) else None

    def _notes(self) -> tuple[tuple[str, str], ...]:
        found = []
        for operator, brief in self._state.notes:
            written = self._log.of_brief(brief, ProposalRead)
            assert written is not None, "a note is a proposal"
            found.append((operator, written.text))
        return tuple(found)

    # --- stages, operators, seeds ---

    def _wanted(self, index: int, room: int, budget: Budget) -> int:
        """As many strategies as can still be tried in this stage, at least one."""
        share = self._state.setup.method.stages[index].until.share
        left = math.ceil(share * budget.trials) - self._state.totals.trials if share is not None else room
        return max(1, min(room, left))

    def _stage_index(self, budget: Budget) -> int | None:
        """The stage to ask in; None if replies of the current stage have to come first."""
        state, stages = self._state, self._state.setup.method.stages
        index, asked, replied = state.stage.index, state.stage.asked, state.stage.replied
        while index + 1 < len(stages):
            until = stages[index].until
            if until.proposals is not None and replied < until.proposals <= asked:
                return None
            over = until.proposals is not None and replied >= until.proposals
            over |= until.valid is not None and len(state.found) >= until.valid
            over |= until.share is not None and state.totals.trials >= until.share * budget.trials
            if not over:
                break
            index, asked, replied = index + 1, 0, 0
        return index

    def _operator(self, event: BriefAsked) -> MethodOperator:
        return self._operator_named(event.operator)

    def _operator_named(self, name: str) -> MethodOperator:
        found = self._state.operators.get(name) or _OWN_OPERATORS.get(name)
        assert found is not None, f"the method has no operator {name!r}"
        return found

    def _seed(self, brief: int) -> int:
        """A different seed for every brief of every run."""
        text = f"{self._state.setup.config.seed}/{brief}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


@lru_cache(maxsize=_MOST_SHOWN)
def as_shown_by(operator: MethodOperator, exhibit: ShownCandidate) -> ShownCandidate:
    """A kernel with only the facts that the operator shows of kernels."""
    hidden: dict[str, Any] = {} if Show.PROFILE in operator.shows else {"profile": ""}
    hidden |= {} if Show.ROOFLINE in operator.shows else {"share_of_floor": None}
    for fact in KernelFact:
        hidden |= {} if fact in operator.facts else _UNSAID[fact]
    return replace(exhibit, **hidden)


def _in_turn(stage: Stage, turn: int) -> MethodOperator:
    """The operator of a turn: the operators of a stage in order, each `times` times, then from the first one again."""
    row = [operator for operator in stage.operators for _ in range(operator.times)]
    return row[turn % len(row)]
