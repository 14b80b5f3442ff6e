"""The measured effect of each strategy: a kernel compared with the best of its parents, for what the kernel changed.

A gain is shared evenly by all strategies that were added or removed together. Which of them caused it, only more
comparisons can tell, so the number of comparisons is given with the mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from warpsmith.model.brief import Effect, Problem
from warpsmith.model.strategy import Plan
from warpsmith.search.trials import Trial
from warpsmith.strategies.catalogue import strategies
from warpsmith.strategies.plan_space import PLAIN


class StrategyEffects:
    """Sums over all comparisons of a run, updated trial by trial at a cost that does not grow with the run."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}  # by strategy: sum of ln(speed with / speed without), comparisons
        self._shares: dict[int, tuple[tuple[str, float], ...]] = {}  # by trial: its contribution
        self._children: dict[int, list[int]] = {}

    def update(self, trial: Trial, trials: Mapping[int, Trial], *, new: bool) -> None:
        """Take in a new or changed trial: its own comparison changes, and those of its children."""
        for parent in trial.parents if new else ():
            self._children.setdefault(parent, []).append(trial.number)
        for number in (trial.number, *self._children.get(trial.number, ())):
            shares = tuple(_shares(trials[number], trials))
            for name, share in self._shares.pop(number, ()):
                self._add(name, -share, -1)
            for name, share in shares:
                self._add(name, share, 1)
            if shares:
                self._shares[number] = shares

    def _add(self, name: str, share: float, count: int) -> None:
        total, known = self._sums.get(name, (0.0, 0))
        if known + count:
            self._sums[name] = total + share, known + count
        else:
            del self._sums[name]

    def best_first(self, problem: Problem) -> tuple[Effect, ...]:
        """The effects of all strategies that were added or removed, best first."""
        family, zone = problem.outline.family.value if problem.outline else "", problem.zone
        found = [Effect(name, zone, family, math.exp(total / n), n) for name, (total, n) in self._sums.items()]
        return tuple(sorted(found, key=lambda each: (-each.factor, each.strategy)))


def _shares(trial: Trial, trials: Mapping[int, Trial]) -> Iterator[tuple[str, float]]:
    """The contribution of one comparison to each strategy that differs, in ln(speed with / speed without)."""
    known = [trials[number] for number in trial.parents if number in trials and trials[number].score]
    if not trial.score or not known:
        return
    parent = max(known, key=lambda each: each.score or 0.0)
    assert parent.score is not None, "only parents with a score were taken"
    mine, theirs = names(trial.strategy), names(parent.strategy)
    share = math.log(trial.score / parent.score) / max(1, len(mine ^ theirs))
    for name in sorted(mine ^ theirs):
        yield name, share if name in mine else -share


@lru_cache(maxsize=4096)
def names(strategy: str) -> frozenset[str]:
    """The strategies in a text: all of a plan, or in prose those the catalogue knows."""
    plan = Plan.read(strategy) if strategy.strip() else None
    if plan is not None:
        return frozenset(plan.names) - {PLAIN}
    lowered = strategy.lower()
    return frozenset(name for name, pattern in _patterns() if pattern.search(lowered))


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Patterns that find "vector-loads" and "vector loads"."""
    return tuple((name, re.compile(rf"\b{name.replace('-', '[- ]')}\b")) for name in strategies())
