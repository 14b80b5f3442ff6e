"""Tuning against verdicts made up here, and once against a real compiler and clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Status, WorkloadResult
from warpsmith.model.settings import Settings
from warpsmith.search.tuning import (
    MeasuredPoint,
    TuningResult,
    TuningRound,
    screening_settings,
    source_with_values,
    tune,
    tuning_evaluator,
)

SOURCE = """\
// tune: BLOCK = 64, 128, 256, 512
//   tune: UNROLL=1, 2, 4
int x = BLOCK * UNROLL;
"""
KERNEL = Candidate((SourceFile("kernel.cpp", SOURCE),), "cpu")
WIDE = Candidate(
    (SourceFile("kernel.cpp", "".join(f"// tune: T{i} = 0, 1, 2, 3, 4, 5, 6, 7\n" for i in range(4))),), "cpu"
)


def verdict(candidate: Candidate, speedup: float | None) -> Evaluation:
    environment = Environment("a CPU", "cpu", "g++", "2")
    if speedup is None:
        return Evaluation("task", candidate.id, Status.WRONG, "it is off.", environment, "fp32")
    baseline = Baseline("eager", 1.0, speedup, Interval(speedup * 0.98, speedup * 1.02), 10)
    result = WorkloadResult("w", (), 1.0 / speedup, "single", (baseline,), 0.0, 1.0, 0.01, 8, 8, 1, "fp64")
    return Evaluation("task", candidate.id, Status.OK, "", environment, "fp32", (result,))


class Bench:
    """Judges by a formula, answers in the wrong order, and remembers what it was asked."""

    def __init__(self, speed: Callable[[dict[str, int], int], float | None]) -> None:
        self.speed = speed
        self.batches: list[tuple[tuple[dict[str, int], ...], Settings, bool]] = []

    def __call__(
        self, candidates: Sequence[Candidate], settings: Settings, *, fresh: bool
    ) -> Iterator[tuple[int, Evaluation]]:
        points = [{name: int(value) for name, value in candidate.defines} for candidate in candidates]
        self.batches.append((tuple(points), settings, fresh))
        for place in reversed(range(len(candidates))):
            yield place, verdict(candidates[place], self.speed(points[place], len(self.batches)))


def peak(point: dict[str, int], batch: int) -> float | None:
    """Best at BLOCK 256 and UNROLL 2; UNROLL 4 is wrong."""
    if point["UNROLL"] == 4:
        return None
    return 2.0 - abs(math.log2(point["BLOCK"] / 256)) / 4 + 0.1 * (point["UNROLL"] == 2)


def values(candidate: Candidate | None) -> dict[str, str]:
    assert candidate is not None
    return dict(candidate.defines)


def run(bench: Bench, candidate: Candidate = KERNEL, budget: int = 100, seed: int = 0) -> TuningResult:
    return tune(bench, candidate, budget, seed)


def test_where_all_points_can_be_tried_they_are_in_one_batch() -> None:
    bench = Bench(peak)
    tuned = run(bench)

    assert values(tuned.best) == {"BLOCK": "256", "UNROLL": "2"}
    assert (tuned.tried, tuned.total) == (12, 12)
    assert [len(points) for points, _, _ in bench.batches] == [12, 3, 3]
    assert tuned.discarded == 9


def test_bad_points_are_discarded_after_a_short_look_and_winners_measured_afresh() -> None:
    bench = Bench(peak)
    run(bench)
    (_, screen, screen_fresh), (_, full, full_fresh), (_, final, final_fresh) = bench.batches

    assert screen == screening_settings(Settings())
    assert screen.max_samples < full.max_samples
    assert screen.timing_budget_s < full.timing_budget_s
    assert full == final == Settings()
    assert (screen_fresh, full_fresh, final_fresh) == (False, False, True)


def test_the_kernel_as_it_came_is_in_the_last_round_so_that_the_gain_is_of_one_measurement() -> None:
    bench = Bench(peak)
    tuned = run(bench)
    last, _, _ = bench.batches[-1]

    assert {"BLOCK": 64, "UNROLL": 1} in last
    assert tuned.gain == pytest.approx(2.1 / 1.5)
    assert tuned.improved


def test_a_lucky_measurement_does_not_win() -> None:
    def lucky(point: dict[str, int], batch: int) -> float:
        slow, once_lucky = point["BLOCK"] == 512, batch < 3
        return 9.0 if slow and once_lucky else 1.0 if slow else 2.0 + point["BLOCK"] / 1000

    tuned = run(Bench(lucky))

    assert values(tuned.best)["BLOCK"] != "512"


def test_where_nothing_is_faster_it_says_so() -> None:
    tuned = run(Bench(lambda point, batch: 1.5))

    assert not tuned.improved
    assert tuned.gain == pytest.approx(1.0)


def test_no_valid_point_gives_no_best() -> None:
    bench = Bench(lambda point, batch: None)
    tuned = run(bench)

    assert tuned.best is None
    assert tuned.evaluation is None
    assert tuned.gain is None
    assert not tuned.improved
    assert len(bench.batches) == 1
    assert tuned.discarded == tuned.tried == 12


def test_a_point_that_works_where_the_kernel_as_it_came_does_not_is_an_improvement() -> None:
    tuned = run(Bench(lambda point, batch: 1.0 if point["BLOCK"] == 128 else None))

    assert values(tuned.best)["BLOCK"] == "128"
    assert tuned.before is not None
    assert tuned.before.status is Status.WRONG
    assert tuned.improved


def test_a_large_space_is_searched_within_the_budget_without_repeating_a_point() -> None:
    def slope(point: dict[str, int], batch: int) -> float:
        return 1.0 + sum(point.values())

    bench = Bench(slope)
    tuned = run(bench, WIDE, budget=64, seed=3)
    screened = [
        tuple(point.items())
        for points, s, _ in bench.batches
        for point in points
        if s == screening_settings(Settings())
    ]

    assert tuned.total == 8**4
    assert tuned.tried == len(screened) == len(set(screened)) == 64
    assert dict(screened[0]) == {f"T{i}": 0 for i in range(4)}, "the kernel as it came is always one of them"
    best = sum(int(value) for value in values(tuned.best).values())
    first = max(sum(point.values()) for point in bench.batches[0][0])
    assert best > first, "later batches close in on the best of the first"


def test_the_same_verdicts_and_seed_give_the_same_search_and_another_seed_another() -> None:
    def asked(seed: int) -> list[tuple[dict[str, int], ...]]:
        bench = Bench(lambda point, batch: 1.0 + sum(point.values()))
        run(bench, WIDE, budget=20, seed=seed)
        return [points for points, _, _ in bench.batches]

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)


def test_every_verdict_is_told_as_it_comes() -> None:
    told: list[MeasuredPoint] = []
    tuned = tune(Bench(peak), KERNEL, 100, 0, told.append)

    assert tuple(told) == tuned.measured
    assert [each.number for each in told if each.round is TuningRound.SCREEN] == list(range(1, 13))
    assert {each.round for each in told} == set(TuningRound)


def test_values_given_from_outside_are_where_the_search_starts() -> None:
    given = Candidate(KERNEL.files, "cpu", defines=(("BLOCK", "96"), ("OTHER", "7")))
    bench = Bench(lambda point, batch: 1.0)
    tuned = run(bench, given)

    assert tuned.total == 5 * 3
    assert bench.batches[0][0][0] == {"BLOCK": 96, "UNROLL": 1, "OTHER": 7}


def test_a_tuned_source_needs_no_defines() -> None:
    tuned = run(Bench(peak))
    assert tuned.best is not None
    text = source_with_values(tuned.best)

    assert "// tune: BLOCK = 256, 64, 128, 512\n" in text
    assert "//   tune: UNROLL=2, 1, 4\n" in text
    assert text.splitlines()[2] == SOURCE.splitlines()[2]


def test_nothing_to_tune_and_no_budget_are_said_in_a_sentence() -> None:
    plain = Candidate((SourceFile("plain.cu", "int x;"),), "cuda")

    with pytest.raises(UsageError, match=r"plain\.cu declares nothing to tune; add a line such as `// tune: "):
        run(Bench(peak), plain)
    with pytest.raises(UsageError, match="budget of 0 points"):
        run(Bench(peak), budget=0)


@pytest.mark.slow
def test_a_real_kernel_is_tuned_on_this_machine(
    evaluator: Evaluator, task_file: Callable[[str], Path], kernel: Callable[[str], Candidate]
) -> None:
    plain = kernel("right.cpp").main.text
    text = f"// tune: BROKEN = 1, 0\n#if BROKEN\n#error this value does not compile\n#endif\n{plain}"
    candidate = Candidate((SourceFile("right.cpp", text),), "cpu")
    with tuning_evaluator(lambda _: nullcontext(evaluator), task_file("softmax")) as judge:
        tuned = tune(judge, candidate, budget=4, seed=0, settings=evaluator.settings)

    assert values(tuned.best) == {"BROKEN": "0"}
    assert tuned.evaluation is not None
    assert tuned.evaluation.ok
    assert [each.evaluation.cached for each in tuned.measured if each.candidate == tuned.best] == [False, True, False]
    assert tuned.before is not None
    assert tuned.before.status is Status.BUILD_ERROR


def test_one_evaluator_is_opened_and_gets_a_new_judge_where_settings_change() -> None:
    events: list[str] = []

    @dataclass
    class Stub:
        settings: Settings

        def renew(self, settings: Settings) -> None:
            events.append("renew")
            self.settings = settings

        def evaluate(
            self, task: str, candidates: Sequence[Candidate], precision: None, *, fresh: bool
        ) -> Iterator[tuple[int, Evaluation]]:
            events.append(f"evaluate with {self.settings.max_samples}")
            yield from ((place, verdict(each, 1.0)) for place, each in enumerate(candidates))

    @contextmanager
    def opened(settings: Settings) -> Iterator[Evaluator]:
        events.append("open")
        yield cast(Evaluator, Stub(settings))
        events.append("close")

    with tuning_evaluator(opened, "task.py") as judge:
        tune(judge, KERNEL, 100, 0)

    few, many = screening_settings(Settings()).max_samples, Settings().max_samples
    assert events == [
        *("open", "renew", f"evaluate with {few}"),
        *("renew", f"evaluate with {many}", f"evaluate with {many}", "close"),
    ]
