from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.evaluator.judge.timing.statistics import (
    SpeedupClass,
    classify,
    lower_quartile,
    median,
    median_interval,
    narrow_enough,
    ratio_interval,
)
from warpsmith.model.evaluation import Interval

times = st.floats(1e-3, 1e3)
pairs = st.lists(st.tuples(times, times), min_size=1, max_size=60)


@settings(deadline=None)
@given(pairs)
def test_interval_contains_the_median_ratio(sample: list[tuple[float, float]]) -> None:
    speedup, interval = ratio_interval(sample)
    assert interval.low <= speedup <= interval.high
    assert min(b / c for b, c in sample) <= interval.low
    assert interval.high <= max(b / c for b, c in sample)


@settings(deadline=None)
@given(pairs, st.randoms(use_true_random=False))
def test_order_of_the_pairs_does_not_matter(sample: list[tuple[float, float]], rng: random.Random) -> None:
    shuffled = list(sample)
    rng.shuffle(shuffled)
    assert ratio_interval(shuffled) == ratio_interval(sample)


@pytest.mark.parametrize("n", [10, 30, 100])
def test_interval_covers_the_true_median_of_skewed_timings(n: int) -> None:
    rng = random.Random(20 + n)
    trials = 2000
    covered = 0
    for _ in range(trials):  # log-normal around a true median of 1.2, the shape of real timing ratios
        interval = median_interval([1.2 * rng.lognormvariate(0.0, 0.3) for _ in range(n)])
        covered += interval.low <= 1.2 <= interval.high
    assert 0.93 <= covered / trials <= 0.995


def test_ranks_are_the_tabulated_ones() -> None:
    # Tables of the sign test: n = 10 takes the 2nd and 9th value, n = 100 the 40th and 61st.
    assert median_interval(range(1, 11)) == Interval(2, 9)
    assert median_interval(range(1, 101)) == Interval(40, 61)
    assert median_interval(range(1, 7)) == Interval(1, 6)


def test_few_samples_give_the_full_range() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == Interval(1.0, 3.0)
    assert median_interval([5.0]) == Interval(5.0, 5.0)


def test_median_of_even_and_odd_counts() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_three_quarters_reach_the_lower_quartile() -> None:
    assert lower_quartile([4.0, 1.0, 3.0, 2.0]) == 2.0
    assert lower_quartile([5.0]) == 5.0


def test_a_drift_that_hits_both_sides_cancels() -> None:
    speedup, interval = ratio_interval([(2.0 * drift, 1.0 * drift) for drift in (1.0, 1.1, 1.3, 1.7, 2.5, 4.0)])
    assert speedup == 2.0
    assert interval == Interval(2.0, 2.0)


@pytest.mark.parametrize("bad", [[(0.0, 1.0)], [(1.0, -1.0)], [(float("nan"), 1.0)], [(float("inf"), 1.0)], []])
def test_broken_samples_are_refused(bad: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"not a positive number|no values"):
        ratio_interval(bad)


def test_narrow_enough_is_the_relative_half_width() -> None:
    assert narrow_enough(Interval(1.981, 2.019), 0.01)
    assert not narrow_enough(Interval(1.97, 2.03), 0.01)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.2, 1.3, SpeedupClass.FASTER),
        (0.5, 0.8, SpeedupClass.SLOWER),
        (0.995, 1.005, SpeedupClass.SAME),
        (1.002, 1.008, SpeedupClass.SAME),
        (0.9, 1.1, SpeedupClass.UNCLEAR),
        (1.005, 1.02, SpeedupClass.FASTER),
    ],
)
def test_verdict(low: float, high: float, expected: SpeedupClass) -> None:
    assert classify(Interval(low, high)) is expected
