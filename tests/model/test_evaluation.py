from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Status, WorkloadResult

ENVIRONMENT = Environment(device="a CPU", backend="cpu", compiler="g++ 12", torch="2.13")
FAILURES = [status for status in Status if status is not Status.OK]


def baseline(speedup: float, low: float, high: float, name: str = "eager") -> Baseline:
    return Baseline(name, latency_ms=1.0, speedup=speedup, interval=Interval(low, high), samples=10)


def workload(*baselines: Baseline, latency_ms: float = 2.0, floor_ms: float = 1.0) -> WorkloadResult:
    return WorkloadResult(
        workload="w",
        axes=(("n", 4),),
        latency_ms=latency_ms,
        timing="single",
        baselines=baselines,
        error=0.0,
        error_limit=1.0,
        floor_ms=floor_ms,
        bytes=32,
        flops=4,
        checks=3,
        reference="fp64",
    )


def verdict(*workloads: WorkloadResult, status: Status = Status.OK, reason: str = "") -> Evaluation:
    return Evaluation("task", "0123456789ab", status, reason, ENVIRONMENT, "fp32", workloads)


@pytest.mark.parametrize("status", FAILURES)
def test_a_failure_has_a_reason_and_no_measurement(status: Status) -> None:
    failed = verdict(status=status, reason="what to change")

    assert not failed.ok
    assert failed.speedup() is None
    assert failed.interval() is None
    with pytest.raises(ValueError, match="needs a reason"):
        verdict(status=status)
    with pytest.raises(ValueError, match="no latency and no speedup"):
        verdict(workload(), status=status, reason="what to change")


def test_a_valid_candidate_was_measured_and_has_nothing_to_explain() -> None:
    assert verdict(workload()).ok
    with pytest.raises(ValueError, match="at least one workload"):
        verdict()
    with pytest.raises(ValueError, match="no reason for failure"):
        verdict(workload(), reason="but it is valid")


def test_a_changed_copy_is_checked_too() -> None:
    with pytest.raises(ValueError, match="no latency and no speedup"):
        replace(verdict(workload()), status=Status.WRONG, reason="it is wrong")


def test_time_spent_and_cache_do_not_make_two_verdicts_differ() -> None:
    assert replace(verdict(workload()), seconds=9.0, cached=True) == verdict(workload())


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.5), (math.nan, 1.0), (1.0, math.nan)])
def test_an_interval_runs_forwards(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="backwards"):
        Interval(low, high)


@pytest.mark.parametrize(
    ("low", "high", "sure"),
    [(1.01, 1.5, True), (0.5, 0.99, True), (0.9, 1.1, False), (1.0, 1.2, False), (0.8, 1.0, False)],
)
def test_faster_or_slower_is_said_only_when_sure(low: float, high: float, sure: bool) -> None:
    assert Interval(low, high).excludes_one is sure


def test_speedup_is_the_geometric_mean_over_the_workloads() -> None:
    both = verdict(workload(baseline(2.0, 1.9, 2.1)), workload(baseline(8.0, 7.0, 9.0)))

    assert both.speedup() == pytest.approx(4.0)


def test_each_baseline_is_counted_by_itself() -> None:
    judged = verdict(workload(baseline(2.0, 1.9, 2.1), baseline(0.5, 0.4, 0.6, name="compile")))

    assert judged.speedup("eager") == pytest.approx(2.0)
    assert judged.speedup("compile") == pytest.approx(0.5)
    assert judged.speedup("start") is None
    assert judged.interval("start") is None


def test_one_workloads_interval_is_kept_as_it_is() -> None:
    found = verdict(workload(baseline(2.0, 1.8, 2.3))).interval()

    assert found is not None
    assert (found.low, found.high) == pytest.approx((1.8, 2.3))


def test_equal_workloads_narrow_the_interval_by_the_root_of_their_number() -> None:
    one = baseline(2.0, 2.0 / math.exp(0.1), 2.0 * math.exp(0.1))
    found = verdict(*[workload(one)] * 4).interval()

    assert found is not None
    assert (found.low, found.high) == pytest.approx((2.0 / math.exp(0.05), 2.0 * math.exp(0.05)))


ratios = st.floats(0.01, 100.0)
widths = st.floats(1.0, 3.0)


@settings(deadline=None)
@given(st.lists(st.tuples(ratios, widths, widths), min_size=1, max_size=8))
def test_the_combined_interval_holds_the_combined_speedup(measured: list[tuple[float, float, float]]) -> None:
    judged = verdict(*(workload(baseline(r, r / below, r * above)) for r, below, above in measured))
    speedup, interval = judged.speedup(), judged.interval()

    assert speedup is not None
    assert interval is not None
    assert interval.low <= speedup * (1 + 1e-9)
    assert interval.high >= speedup * (1 - 1e-9)
    assert min(r for r, _, _ in measured) <= speedup * (1 + 1e-9)
    assert max(r for r, _, _ in measured) >= speedup * (1 - 1e-9)


def test_the_share_of_speed_of_light() -> None:
    assert workload(latency_ms=4.0, floor_ms=1.0).share_of_floor == 0.25
    assert workload(latency_ms=0.0).share_of_floor == math.inf
