"""Medians and intervals of paired timings: the statistics behind every reported speedup.

Distribution-free: timings are skewed and have outliers, so nothing here assumes a normal distribution.
`measure` takes the samples, `model.evaluation` combines workloads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from warpsmith.model.evaluation import Interval

_SAME = Interval(0.99, 1.01)  # a difference inside this range does not matter


class SpeedupClass(StrEnum):
    """Whether a candidate is faster than a baseline, by the interval of its speedup."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"  # known to be within 1 %
    UNCLEAR = "unclear"  # the interval is too wide


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones."""
    if not values:
        raise ValueError("the median of no values does not exist")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def lower_quartile(values: Sequence[float]) -> float:
    """The value that three quarters of the values reach."""
    if not values:
        raise ValueError("the quartile of no values does not exist")
    return sorted(values)[len(values) // 4]


def median_interval(values: Sequence[float]) -> Interval:
    """A 95 % interval of the median from order statistics, by exact binomial ranks.

    The true median lies between the r-th smallest and r-th largest of n values except with probability
    2 P(Bin(n, 1/2) < r). Below n = 6 no rank reaches 95 %: the full range is given, which is then less
    certain than 95 % (94 % at n = 5, 75 % at n = 3).
    """
    if not values:
        raise ValueError("the interval of no values does not exist")
    ordered = sorted(values)
    rank = _rank(len(ordered))
    return Interval(ordered[rank - 1], ordered[len(ordered) - rank])


def ratio_interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, Interval]:
    """Speedup from (baseline time, candidate time) pairs: median of the paired ratios and its interval.

    Ratios are taken pair by pair, so that a drift of the clock that hits both sides cancels.
    """
    if any(not (b > 0 and c > 0 and math.isfinite(b) and math.isfinite(c)) for b, c in pairs):
        raise ValueError("a time is not a positive number: the clock or the sample is broken")
    ratios = [baseline / candidate for baseline, candidate in pairs]
    return median(ratios), median_interval(ratios)


def narrow_enough(interval: Interval, target: float) -> bool:
    """Whether the half width of the interval, relative to its centre, has reached the target: sampling may stop."""
    return interval.high - interval.low <= target * (interval.high + interval.low)


def classify(interval: Interval) -> SpeedupClass:
    """Faster or slower only if the interval excludes 1 and reaches past ±1 %."""
    if _SAME.low <= interval.low and interval.high <= _SAME.high:
        return SpeedupClass.SAME
    if not interval.excludes_one:
        return SpeedupClass.UNCLEAR
    return SpeedupClass.FASTER if interval.low > 1.0 else SpeedupClass.SLOWER


def _rank(n: int) -> int:
    """The largest r with 2 P(Bin(n, 1/2) < r) <= 0.05, at least 1; in whole numbers, so exact for any n."""
    below, rank = 1, 1  # below = number of outcomes with fewer than `rank` successes
    term = 1
    while rank <= n // 2:
        term = term * (n - rank + 1) // rank
        if 40 * (below + term) > 1 << n:
            break
        below += term
        rank += 1
    return rank
