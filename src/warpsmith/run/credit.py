"""Who is credited with what: a kernel, against its parents, and a model, for its replies. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from warpsmith.core.search import Standing, Usage
from warpsmith.run.trials import Trial


def effect(trial: Trial, trials: Mapping[int, Trial], score: float | None) -> float | None:
    """A score over that of the best parent; None where one of them is not known."""
    known = [parent for number in trial.parents if number in trials and (parent := trials[number].score)]
    return score / max(known) if score is not None and known else None


def asked_again(standing: Standing, usage: Usage) -> Standing:
    """What a model stands for after one more reply."""
    cost = standing.cost_usd + (usage.cost_usd or 0.0)
    return replace(standing, replies=standing.replies + 1, cost_usd=cost, tokens=standing.tokens + usage.tokens)


def rewarded(standing: Standing, score: float, held: float | None) -> Standing:
    """What a model stands for after a kernel of it has become the best in place of one with the score `held`."""
    gain = math.log(score / held) if held else max(0.0, math.log(score))
    return replace(standing, gain=standing.gain + gain)
