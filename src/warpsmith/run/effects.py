"""What each strategy has brought, measured: kernels against the best of their parents, over what they changed.

A gain is shared evenly by all strategies that were added or taken away with it: which of them it is due to, only more
comparisons can tell, and their number is told with the mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache

from warpsmith.core.search import Effect, Problem
from warpsmith.core.strategy import Plan
from warpsmith.run.trials import Trial
from warpsmith.strategies.catalogue import strategies
from warpsmith.strategies.genome import PLAIN


class Effects:
    """Kept up to date trial by trial: what a trial costs does not grow with the run."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}  # by strategy: ln(speed with it over speed without), comparisons
        self._shares: dict[int, tuple[tuple[str, float], ...]] = {}  # what each trial has added to them
        self._children: dict[int, list[int]] = {}

    def update(self, trial: Trial, trials: Mapping[int, Trial], *, new: bool) -> None:
        """A trial is new, or more is known of it: its own comparison changes, and those of its children."""
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
        """Of all strategies that were ever added or taken away."""
        family, zone = problem.outline.family.value if problem.outline else "", problem.zone
        found = [Effect(name, zone, family, math.exp(total / n), n) for name, (total, n) in self._sums.items()]
        return tuple(sorted(found, key=lambda each: (-each.factor, each.strategy)))


def _shares(trial: Trial, trials: Mapping[int, Trial]) -> Iterator[tuple[str, float]]:
    """What one comparison says of each strategy that makes the difference, in ln(speed with it over without)."""
    known = [trials[number] for number in trial.parents if number in trials and trials[number].score]
    if not trial.score or not known:
        return
    parent = max(known, key=lambda each: each.score or 0.0)
    assert parent.score is not None, "only those were taken"
    mine, theirs = names(trial.strategy), names(parent.strategy)
    share = math.log(trial.score / parent.score) / max(1, len(mine ^ theirs))
    for name in sorted(mine ^ theirs):
        yield name, share if name in mine else -share


@lru_cache(maxsize=4096)
def names(strategy: str) -> frozenset[str]:
    """The strategies that a text names: all of a plan, and in prose those the catalogue knows."""
    plan = Plan.read(strategy) if strategy.strip() else None
    if plan is not None:
        return frozenset(plan.names) - {PLAIN}
    lowered = strategy.lower()
    return frozenset(name for name, pattern in _patterns() if pattern.search(lowered))


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """People and models write "vector loads" for "vector-loads"."""
    return tuple((name, re.compile(rf"\b{name.replace('-', '[- ]')}\b")) for name in strategies())
