"""What to ask next, and the brief that says so: the method's rules applied to what the ledger knows.

Pure but for reading the archive: nothing is kept here. The same ledger always gives the same question.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from warpsmith.archive.events import Asked, Budget, Proposed
from warpsmith.archive.log import Archive
from warpsmith.core.method import Move, Operator, Show, Stage
from warpsmith.core.search import Brief
from warpsmith.run.budgets import spent
from warpsmith.run.exhibits import Gallery
from warpsmith.run.ledger import Ledger
from warpsmith.run.similar import most_similar
from warpsmith.strategies.catalogue import advice

REPAIR = Operator("repair", Move.REPAIR, "common/repair", frozenset({Show.FAILURES}))
_ADVICE = 6  # strategies a brief shows
_FAILURES_SHOWN = 3
_RETRIEVED = 3


class Asking:
    """Questions of one run."""

    def __init__(self, archive: Archive, ledger: Ledger, gallery: Gallery) -> None:
        self._archive = archive
        self._ledger = ledger
        self._gallery = gallery

    def next(self, budget: Budget, now: float) -> Asked | None:
        """The next question; None where there is none now: the run is over, or something must come back first."""
        ledger = self._ledger
        if spent(ledger, budget, now) or ledger.totals.trials + len(ledger.in_flight) >= budget.trials:
            return None
        number = ledger.briefs + 1
        seed = _seed(ledger.begun.config.seed, number)
        if ledger.repairs:
            return self._repairing(number, seed, ledger.repairs[0])
        index = self._stage(budget)
        return None if index is None else self._asking(number, seed, index)

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
            best=gallery.show(event.best) if event.best else None,
            parents=tuple(gallery.show(each) for each in event.parents) if not event.failure else (),
            insights=tuple(gallery.insight(each) for each in event.insights),
            failure=gallery.show(event.failure) if event.failure else None,
            attempt=event.attempt,
            failures=tuple(gallery.label(each) for each in event.failures),
            retrieved=tuple(gallery.show(each) for each in event.retrieved),
            notes=self._notes() if Show.NOTES in shows else (),
            strategies=advice(problem, _ADVICE) if Show.STRATEGIES in shows else (),
            roofline=Show.ROOFLINE in shows,
            tried=tuple(ledger.tried),
            models=tuple(sorted(ledger.standings.values(), key=lambda each: each.model)),
            place=event.place,
        )

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

    def _asking(self, number: int, seed: int, index: int) -> Asked:
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
        )

    def _repairing(self, number: int, seed: int, trial: int) -> Asked:
        known = self._ledger.trials[trial]
        others = [each for each in self._ledger.failures if each != trial]
        return Asked(
            brief=number,
            stage=self._ledger.stage.index,
            operator=REPAIR.name,
            move=REPAIR.move,
            seed=seed,
            parents=known.parents,
            failure=trial,
            attempt=known.attempt + 1,
            failures=tuple(others)[-_FAILURES_SHOWN:],
            place=known.place,
        )

    def _similar(self, shown: Sequence[int]) -> tuple[int, ...]:
        """Valid kernels of this run that resemble the best most, other than those shown."""
        best = self._ledger.best
        if not best:
            return ()
        others = [number for number in self._ledger.found if number not in (best, *shown)]
        text = self._gallery.show(best).files[0].text
        return most_similar(text, others, lambda n: self._gallery.show(n).files[0].text, _RETRIEVED)

    def _operator(self, event: Asked) -> Operator:
        if event.move is Move.REPAIR:
            return REPAIR
        stage = self._ledger.begun.method.stages[event.stage]
        return next(each for each in stage.operators if each.name == event.operator)

    def _notes(self) -> tuple[tuple[str, str], ...]:
        found = []
        for operator, brief in self._ledger.notes:
            written = self._archive.of_brief(brief, Proposed)
            assert written is not None, "a note is a proposal"
            found.append((operator, written.text))
        return tuple(found)


def _in_turn(stage: Stage, turn: int) -> Operator:
    """Operators in order, each as often as it says, over and over."""
    row = [operator for operator in stage.operators for _ in range(operator.times)]
    return row[turn % len(row)]


def _seed(run: int, brief: int) -> int:
    """A seed of its own for every brief of every run."""
    return int.from_bytes(hashlib.sha256(f"{run}/{brief}".encode()).digest()[:8], "big")
