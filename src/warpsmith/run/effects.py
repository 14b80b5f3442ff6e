"""What each strategy has brought, measured: kernels against the best of their parents, over what they changed.

A gain is shared evenly by all strategies that were added or taken away with it: which of them it is due to, only more
comparisons can tell, and their number is told with the mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache, lru_cache

from warpsmith.core.search import Effect, Problem
from warpsmith.core.strategy import Plan
from warpsmith.run.trials import Trial
from warpsmith.strategies.catalogue import strategies
from warpsmith.strategies.genome import PLAIN


def effects(trials: Mapping[int, Trial], problem: Problem) -> tuple[Effect, ...]:
    """Of all strategies that were ever added or taken away, the best first."""
    sums: dict[str, tuple[float, int]] = {}
    for trial in trials.values():
        known = [trials[number] for number in trial.parents if number in trials and trials[number].score]
        if not trial.score or not known:
            continue
        parent = max(known, key=lambda each: each.score or 0.0)
        assert parent.score is not None, "only those were taken"
        mine, theirs = names(trial.strategy), names(parent.strategy)
        gain = math.log(trial.score / parent.score)
        for name in mine ^ theirs:
            total, count = sums.get(name, (0.0, 0))
            share = gain / len(mine ^ theirs)
            sums[name] = total + (share if name in mine else -share), count + 1
    family = problem.outline.family.value if problem.outline else ""
    found = [Effect(name, problem.zone, family, math.exp(total / n), n) for name, (total, n) in sums.items()]
    return tuple(sorted(found, key=lambda each: (-each.factor, each.strategy)))


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
