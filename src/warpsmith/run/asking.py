"""What to ask next, and the brief that says so: the method's rules applied to what the ledger knows.

Pure but for reading the archive: nothing is kept here. The same ledger always gives the same question.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from warpsmith.archive.events import Asked, Budget, Proposed
from warpsmith.archive.log import Archive
from warpsmith.core.method import Move, Operator, Product, Show, Stage
from warpsmith.core.search import Brief, Exhibit, Precedent
from warpsmith.core.strategy import Strategy
from warpsmith.run.budgets import spent
from warpsmith.run.exhibits import Gallery
from warpsmith.run.ideas import texts
from warpsmith.run.ledger import Ledger
from warpsmith.run.similar import Similar
from warpsmith.strategies.catalogue import advice

REPAIR = Operator("repair", Move.REPAIR, "common/repair", frozenset({Show.FAILURES}))
TUNE = Operator("auto-tune", Move.TUNE, "common/repair", frozenset({Show.PARENTS}), parents=1)  # never worded
_OWN = {operator.name: operator for operator in (REPAIR, TUNE)}  # of no method
_ADVICE = 6  # strategies a brief shows
_FAILURES_SHOWN = 3
_RETRIEVED = 3
_IDEAS = 30
_EFFECTS = 16
_TRIED = 200  # ideas whose texts a proposer can avoid


class Asking:
    """Questions of one run."""

    def __init__(self, archive: Archive, ledger: Ledger, gallery: Gallery) -> None:
        self._archive = archive
        self._ledger = ledger
        self._gallery = gallery
        self._texts: tuple[int, tuple[str, ...]] = (0, ())  # of ideas, at one revision of them
        self._similarity = Similar(lambda trial: gallery.show(trial).files[0].text)

    def next(self, budget: Budget, now: float) -> Asked | None:
        """The next question; None where there is none now: the run is over, or something must come back first."""
        ledger = self._ledger
        if spent(ledger, budget, now):
            return None
        number = ledger.briefs + 1
        seed = _seed(ledger.begun.config.seed, number)
        room = budget.trials - ledger.totals.trials - sum(map(self._is_trial, ledger.in_flight.values()))
        if room > 0 and ledger.repairs:
            return self._repairing(number, seed, ledger.repairs[0])
        if ledger.returned:
            return _once_more(number, seed, ledger.returned[0])
        if ledger.alignments:
            return self._aligning(number, seed, ledger.alignments[0])
        if room <= 0:
            return None
        if ledger.ideas.waiting:
            return self._translating(number, seed, ledger.ideas.waiting[0])
        if any(map(self._thinks, (*ledger.in_flight.values(), *ledger.unread.values()))):
            return None  # strategies are on their way; more of them, thought of at the same time, would be alike
        index = self._stage(budget)
        return None if index is None else self._asking(number, seed, index, self._wanted(index, room, budget))

    def brief(self, event: Asked) -> Brief:
        """The brief that a question stands for."""
        operator, gallery, ledger = self._operator(event), self._gallery, self._ledger
        shows, problem = operator.shows, ledger.begun.problem
        return Brief(
            number=event.brief,
            operator=event.operator,
            move=event.move,
            wording=operator.wording,
            problem=problem,
            seed=event.seed,
            best=self._shown(event.best, operator) if event.best else None,
            parents=tuple(self._shown(each, operator) for each in event.parents) if not event.failure else (),
            insights=tuple(gallery.insight(each) for each in event.insights),
            failure=self._failure(event, operator),
            attempt=event.attempt,
            failures=tuple(gallery.label(each) for each in event.failures),
            retrieved=tuple(self._shown(each, operator) for each in event.retrieved),
            notes=self._notes() if Show.NOTES in shows else (),
            strategies=self._advice if Show.STRATEGIES in shows else (),
            roofline=Show.ROOFLINE in shows,
            tried=self._tried() if not event.subject else (),
            models=tuple(sorted(ledger.standings.values(), key=lambda each: each.model)),
            place=event.place,
            role=operator.role,
            product=operator.product,
            wanted=event.wanted,
            idea=ledger.ideas.known[event.idea] if event.idea else None,
            subject=self._shown(event.subject, operator) if event.subject else None,
            ideas=ledger.ideas.latest(_IDEAS) if Show.IDEAS in shows else (),
            effects=ledger.effects[:_EFFECTS] if Show.EFFECTS in shows else (),
            precedents=self._precedents(operator),
            epoch=event.stage + 1,
            epochs=len(ledger.begun.method.stages),
        )

    def unprofiled(self, event: Asked) -> tuple[int, ...]:
        """The kernels that a question builds on, as far as it shows profiles and nobody has looked at theirs."""
        if Show.PROFILE not in self._operator(event).shows or event.failure:
            return ()
        trials, done = self._ledger.trials, self._ledger.profiled
        shown = (each for each in dict.fromkeys((*event.parents, event.best)) if each and each not in done)
        return tuple(each for each in shown if trials[each].score is not None)

    def tuning(self, trial: int) -> Asked:
        """What stands for a question where nobody is asked: a kernel with other values of its tunables."""
        number, seed = self._ledger.briefs + 1, _seed(self._ledger.begun.config.seed, self._ledger.briefs + 1)
        place = self._ledger.trials[trial].place
        return Asked(
            number, self._ledger.stage.index, TUNE.name, TUNE.move, seed, parents=(trial,), place=place, free=True
        )

    def _tried(self) -> tuple[str, ...]:
        ideas = self._ledger.ideas
        if self._texts[0] != ideas.revision:
            self._texts = (ideas.revision, texts(ideas.latest(_TRIED)))
        return (*self._texts[1], *self._ledger.tried)

    @cached_property
    def _advice(self) -> tuple[Strategy, ...]:
        """Of the catalogue, for this task: the same all the time."""
        return advice(self._ledger.begun.problem, _ADVICE)

    def _shown(self, trial: int, operator: Operator) -> Exhibit:
        """A kernel with no more about it than the operator shows."""
        exhibit = self._gallery.show(trial)
        return exhibit if Show.PROFILE in operator.shows else replace(exhibit, profile="")

    def _precedents(self, operator: Operator) -> tuple[Precedent, ...]:
        """What other runs know. What is mere advice is the catalogue's, and left out where that speaks for itself."""
        known = self._ledger.precedents if operator.recalls else ()
        return tuple(each for each in known if each.measured or Show.STRATEGIES not in operator.shows)

    def _failure(self, event: Asked, operator: Operator) -> Exhibit | None:
        if event.failure:
            return self._shown(event.failure, operator)
        return self._gallery.unread(event.again) if event.again else None

    def _is_trial(self, event: Asked) -> bool:
        return self._operator(event).is_trial

    def _thinks(self, event: Asked) -> bool:
        return self._operator(event).product is Product.STRATEGIES

    def _wanted(self, index: int, room: int, budget: Budget) -> int:
        """As many strategies as can still be tried in this stage, one at least."""
        share = self._ledger.begun.method.stages[index].until.share
        left = math.ceil(share * budget.trials) - self._ledger.totals.trials if share is not None else room
        return max(1, min(room, left))

    def _stage(self, budget: Budget) -> int | None:
        """Which stage is on; None where its last replies must be waited for."""
        ledger, stages = self._ledger, self._ledger.begun.method.stages
        index, asked, replied = ledger.stage.index, ledger.stage.asked, ledger.stage.replied
        while index + 1 < len(stages):
            until = stages[index].until
            if until.proposals is not None and replied < until.proposals <= asked:
                return None
            over = until.proposals is not None and replied >= until.proposals
            over |= until.valid is not None and len(ledger.found) >= until.valid
            over |= until.share is not None and ledger.totals.trials >= until.share * budget.trials
            if not over:
                break
            index, asked, replied = index + 1, 0, 0
        return index

    def _asking(self, number: int, seed: int, index: int, wanted: int) -> Asked:
        ledger = self._ledger
        stage = ledger.begun.method.stages[index]
        operator = _in_turn(stage, ledger.stage.asked if index == ledger.stage.index else 0)
        if len(ledger.population.members) < operator.fewest_parents:
            operator = stage.operators[0]
        shows = operator.shows
        pick = ledger.population.pick(operator.parents, seed) if operator.parents else None
        parents = [ledger.trial_of(each) for each in pick.ids] if pick else []
        if operator.order == "worst_first":
            parents.reverse()
        insights = random.Random(seed).sample(ledger.insights, min(operator.insights, len(ledger.insights)))
        return Asked(
            brief=number,
            stage=index,
            operator=operator.name,
            move=operator.move,
            seed=seed,
            parents=tuple(parents) if Show.PARENTS in shows else (),
            best=ledger.best if Show.BEST in shows else 0,
            insights=tuple(insights) if Show.INSIGHTS in shows else (),
            failures=tuple(ledger.failures)[-_FAILURES_SHOWN:] if Show.FAILURES in shows else (),
            retrieved=self._similar(parents) if Show.RETRIEVED in shows else (),
            place=pick.place if pick else 0,
            wanted=min(operator.yields, wanted) if operator.product is Product.STRATEGIES else 0,
        )

    def _translating(self, number: int, seed: int, waiting: int) -> Asked:
        ledger = self._ledger
        idea = ledger.ideas.known[waiting]
        operator = self._named(idea.operator)
        shows = operator.shows
        return Asked(
            brief=number,
            stage=ledger.stage.index,
            operator=operator.name,
            move=operator.move,
            seed=seed,
            parents=idea.parents[: operator.parents] if Show.PARENTS in shows else (),
            best=ledger.best if Show.BEST in shows else 0,
            failures=tuple(ledger.failures)[-_FAILURES_SHOWN:] if Show.FAILURES in shows else (),
            place=idea.place,
            idea=waiting,
        )

    def _aligning(self, number: int, seed: int, trial: int) -> Asked:
        ledger = self._ledger
        operator = self._named(ledger.trials[trial].operator).then
        assert operator is not None, "only what is to be aligned is in line for it"
        return Asked(number, ledger.stage.index, operator.name, operator.move, seed, subject=trial)

    def _repairing(self, number: int, seed: int, trial: int) -> Asked:
        known = self._ledger.trials[trial]
        operator = self._ledger.begun.method.revise or REPAIR
        others = [each for each in self._ledger.failures if each != trial]
        return Asked(
            brief=number,
            stage=self._ledger.stage.index,
            operator=operator.name,
            move=operator.move,
            seed=seed,
            parents=known.parents,
            failure=trial,
            attempt=known.attempt + 1,
            failures=tuple(others)[-_FAILURES_SHOWN:] if Show.FAILURES in operator.shows else (),
            place=known.place,
            idea=known.idea,
        )

    def _similar(self, shown: Sequence[int]) -> tuple[int, ...]:
        """Valid kernels of this run that resemble the best most, other than those shown."""
        best = self._ledger.best
        if not best:
            return ()
        others = [number for number in self._ledger.found if number not in (best, *shown)]
        return self._similarity.most(best, others, _RETRIEVED)

    def _operator(self, event: Asked) -> Operator:
        return self._named(event.operator)

    def _named(self, name: str) -> Operator:
        found = self._ledger.operators.get(name) or _OWN.get(name)
        assert found is not None, f"the method has an operator {name!r}, since it was asked"
        return found

    def _notes(self) -> tuple[tuple[str, str], ...]:
        found = []
        for operator, brief in self._ledger.notes:
            written = self._archive.of_brief(brief, Proposed)
            assert written is not None, "a note is a proposal"
            found.append((operator, written.text))
        return tuple(found)


def _once_more(number: int, seed: int, event: Asked) -> Asked:
    """The same question; what was wrong with the answer goes with it."""
    return replace(event, brief=number, seed=seed, attempt=event.attempt + 1, again=event.brief)


def _in_turn(stage: Stage, turn: int) -> Operator:
    """Operators in order, each as often as it says, over and over."""
    row = [operator for operator in stage.operators for _ in range(operator.times)]
    return row[turn % len(row)]


def _seed(run: int, brief: int) -> int:
    """A seed of its own for every brief of every run."""
    return int.from_bytes(hashlib.sha256(f"{run}/{brief}".encode()).digest()[:8], "big")
