"""Picks one of several models for a brief: by fixed weights, or by the measured improvement per cost.

The choice depends on the brief alone: equal briefs go to the same model.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from warpsmith.model.brief import Brief
from warpsmith.model.errors import UsageError
from warpsmith.model.usage import ModelUsage

PickModel = Callable[[Brief], int]
"""A function from a brief to the index of the model to ask."""

CHOICES = ("weighted", "ucb")
_EXPLORATION = 0.5  # the weight of UCB1's bonus for models that were asked less; rewards are between 0 and 1


def choice(name: str, names: Sequence[str], weights: Sequence[float]) -> PickModel:
    """The function that picks a model, by its name on the command line."""
    if name == "weighted":
        return weighted(weights)
    if name == "ucb":
        return ucb(names)
    raise UsageError(f"unknown choice among models {name!r}; known: {', '.join(CHOICES)}.")


def weighted(weights: Sequence[float]) -> PickModel:
    """Pick each model in proportion to its weight."""
    shares = list(weights)

    def pick(brief: Brief) -> int:
        return random.Random(brief.seed).choices(range(len(shares)), shares)[0]

    return pick


def ucb(names: Sequence[str], exploration: float = _EXPLORATION) -> PickModel:
    """Pick by UCB1 on the measured improvement per cost, relative to the best model's.

    Cost is in dollars if all models have a price, else in tokens, and in replies if tokens are unknown. A model that
    never answered gets its share of briefs, not all of them: its endpoint may be down.
    """
    models = list(names)

    def pick(brief: Brief) -> int:
        standings = [_standing(name, brief) for name in models]
        turn = brief.number % len(models)
        if standings[turn] is None:
            return turn
        tried = [(index, standing) for index, standing in enumerate(standings) if standing is not None]
        rewards = _rewards([standing for _, standing in tried])
        total = sum(standing.replies for _, standing in tried)
        scores = {
            index: reward + exploration * math.sqrt(2 * math.log(total) / standing.replies)
            for (index, standing), reward in zip(tried, rewards, strict=True)
        }
        best = max(scores.values())
        level = [index for index, score in scores.items() if math.isclose(score, best, rel_tol=1e-12)]
        return random.Random(brief.seed).choice(level)

    return pick


def _standing(name: str, brief: Brief) -> ModelUsage | None:
    """The usage of a model, under its full name or its provider's name for it; None if it has not answered yet."""
    known = (name, name.partition(":")[2])
    return next((standing for standing in brief.models if standing.model in known and standing.replies > 0), None)


def _rewards(standings: Sequence[ModelUsage]) -> list[float]:
    if all(standing.cost_usd > 0 for standing in standings):
        costs = [standing.cost_usd for standing in standings]
    elif all(standing.tokens > 0 for standing in standings):
        costs = [float(standing.tokens) for standing in standings]
    else:
        costs = [float(standing.replies) for standing in standings]
    rates = [max(standing.gain, 0.0) / cost for standing, cost in zip(standings, costs, strict=True)]
    best = max(rates, default=0.0)
    return [rate / best if best > 0 else 0.0 for rate in rates]
