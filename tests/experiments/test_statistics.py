"""Statistics against cases worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.experiments.making import bench, best, cell, speedup
from warpsmith.experiments.results import CellStatus
from warpsmith.experiments.statistics import (
    Estimate,
    TaskResult,
    _draws,
    compare_methods,
    compared,
    counted_best,
    fast_curve,
    pooled,
    summaries,
    unverified_cells,
)

GROUP = ("m", "template")


def test_means_bring_repeats_together_before_tasks() -> None:
    # Task a: 1 and 4, geometric mean 2, median 2.5. Task b: 8 alone. Task c: nothing valid.
    made = bench(
        [
            cell("a", best(1.0, compile=0.5, start=2.0, share=0.2)),
            cell("a", best(4.0, compile=2.0, start=8.0, share=0.4), seed=1),
            cell("b", best(8.0, start=1.0, share=0.7)),
            cell("c", None),
        ],
        repeats=2,
    )

    (found,) = summaries(made)

    assert found.eager is not None
    assert found.compile is not None
    assert found.start is not None
    assert found.or_pytorch is not None
    assert found.share_of_floor is not None
    assert found.eager.geometric.value == pytest.approx(4.0)  # of 2 and 8
    assert found.eager.median.value == pytest.approx(5.25)  # of 2.5 and 8
    assert found.eager.tasks == 2
    assert found.compile.geometric.value == pytest.approx(1.0)  # of 0.5 and 2, on one task
    assert found.compile.tasks == 1
    assert found.start.geometric.value == pytest.approx(2.0)  # of 4 and 1
    assert found.or_pytorch.value == pytest.approx(16 ** (1 / 3))  # of 2, 8 and 1, which is PyTorch kept
    assert found.share_of_floor.value == pytest.approx(0.5)  # of 0.3 and 0.7
    assert (found.cells, found.done, found.winners, found.tasks) == (4, 4, 3, 3)


def test_a_slow_winner_counts_as_pytorch_kept() -> None:
    (found,) = summaries(bench([cell("a", best(0.25)), cell("b", best(4.0))]))

    assert found.eager is not None
    assert found.or_pytorch is not None
    assert found.eager.geometric.value == pytest.approx(1.0)
    assert found.or_pytorch.value == pytest.approx(2.0)


def test_only_verified_winners_count() -> None:
    cells = [
        cell("a", best(2.0)),
        cell("b", best(50.0, verified=False)),
        cell("c", best(8.0, verified=None)),
        cell("d", best(100.0), status=CellStatus.UNFINISHED),
        cell("e", best(100.0), status=CellStatus.FAILED),
    ]
    made = bench(cells)

    (strict,) = summaries(made)
    (loose,) = summaries(made, unverified=True)

    assert strict.eager is not None
    assert loose.eager is not None
    assert strict.eager.geometric.value == pytest.approx(2.0)
    assert (strict.winners, strict.unverified, strict.done, strict.failed) == (1, 2, 3, 1)
    assert loose.eager.geometric.value == pytest.approx(4.0)  # c counts, b never
    assert loose.unverified == 1
    assert [each.task for each in unverified_cells(made)] == ["b", "c"]
    assert counted_best(cells[1], unverified=True) is None


def test_rates_are_over_all_proposals_and_spending_is_per_cell() -> None:
    made = bench(
        [
            cell("a", None, trials=10, valid=1, compiled=5, tokens=100, usd=0.5),
            cell("b", None, trials=30, valid=9, compiled=15, tokens=300, usd=1.5),
        ]
    )

    (found,) = summaries(made)

    assert found.validity is not None
    assert found.compile_rate is not None
    assert found.validity.value == pytest.approx(10 / 40)
    assert found.compile_rate.value == pytest.approx(20 / 40)
    assert (found.tokens, found.usd, found.device_seconds, found.wall_seconds) == (200.0, 1.0, 2.0, 4.0)
    assert found.eager is None
    assert summaries(bench([cell("a", None, usd=None), cell("b", None)]))[0].usd is None


def test_rates_leave_out_what_awaited_a_verdict_when_its_run_ended() -> None:
    cells = [
        replace(cell("a", None, trials=6, valid=3, compiled=3), settled=3),
        cell("b", None, trials=1, valid=0, compiled=1),  # of a release that did not say
        replace(cell("c", None, trials=4, valid=0, compiled=0), settled=0),
    ]

    (found,) = summaries(bench(cells))

    assert found.validity is not None
    assert found.compile_rate is not None
    assert (found.validity.value, found.compile_rate.value) == pytest.approx((3 / 4, 4 / 4))


def test_fast_p_is_a_share_of_cells_by_task_above_and_not_at_p() -> None:
    cells = [
        *(cell("a", best(2.0), seed=seed) for seed in range(3)),
        cell("a", None, seed=3),
        cell("b", best(1.0)),
    ]

    curve = dict(fast_curve(cells))

    assert curve == {0.0: (0.75 + 1.0) / 2, 1.0: (0.75 + 0.0) / 2, 2.0: 0.0}
    assert fast_curve(cells, (0.5,)) == ((0.5, 0.875),)
    assert fast_curve([]) == ()


def test_intervals_are_repeatable_and_cover_the_spread() -> None:
    cells = [cell(f"t{number}", best(2.0 if number % 2 else 8.0)) for number in range(20)]

    (found,) = summaries(bench(cells))
    (again,) = summaries(bench(cells))

    assert found == again
    assert found.eager is not None
    interval = found.eager.geometric.interval
    assert interval is not None
    # Twenty logarithms that deviate by log 2: the mean's error is log 2 / sqrt 20, and 1.96 of it a factor of 1.355.
    assert interval.low == pytest.approx(4.0 / 1.355, rel=0.05)
    assert interval.high == pytest.approx(4.0 * 1.355, rel=0.05)


def test_a_task_with_fewer_repeats_is_drawn_as_often_as_others() -> None:
    # Ten tasks at 1 with five repeats, ten at 4 of which one repeat is done: the same as one repeat of each.
    short = [cell(f"t{number}", best(4.0)) for number in range(10)]
    long = [cell(f"u{number}", best(1.0), seed=seed) for number in range(10) for seed in range(5)]

    (found,) = summaries(bench([*short, *long]))
    (even,) = summaries(bench([*short, *(each for each in long if each.seed == 0)]))

    assert found.eager is not None
    assert even.eager is not None
    ours, theirs = found.eager.geometric.interval, even.eager.geometric.interval
    assert ours is not None
    assert theirs is not None
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=0.05)
    assert (ours.low * ours.high) ** 0.5 == pytest.approx(found.eager.geometric.value, rel=0.05)


def test_a_task_with_fewer_repeats_weighs_no_more_in_a_rate() -> None:
    # One repeat of task a with no valid trial, nine of task b with nothing else: a tenth of all trials is not valid.
    cells = [
        cell("a", None, trials=10, valid=0),
        *(cell("b", None, trials=10, valid=10, seed=seed) for seed in range(9)),
    ]

    (found,) = summaries(bench(cells))

    assert found.validity is not None
    assert found.validity.value == pytest.approx(0.9)
    assert found.validity.interval is not None
    assert (found.validity.interval.low, found.validity.interval.high) == pytest.approx((0.0, 1.0))
    tasks, repeats = _draws((1, 9), 7)
    for task, length in ((0, 1), (1, 9)):
        drawn = repeats[(tasks == task)[..., 0]]
        assert sorted(set(drawn[:, :length].ravel())) == list(range(length))  # each of its own, and no other
        assert (drawn[:, length:] == np.arange(length, 9)).all()  # what fills its row is no repeat


def test_one_cell_alone_has_no_interval() -> None:
    (found,) = summaries(bench([cell("a", best(2.0)), cell("b", None)]))

    assert found.eager is not None
    assert found.eager.geometric == Estimate(pytest.approx(2.0), None)  # type: ignore[arg-type]


def test_repeats_are_pooled_with_their_spread() -> None:
    alone = pooled([speedup(2.0, 0.1)])
    apart = pooled([speedup(1.0, 0.0001), speedup(4.0, 0.0001)])

    assert alone == speedup(2.0, 0.1)
    assert apart is not None
    assert apart.value == pytest.approx(2.0)
    # Logarithms 0 and log 4: their deviation is log 4 / sqrt 2, the mean's error half of log 4.
    assert apart.high == pytest.approx(2.0 * math.exp(1.96 * math.log(4) / 2), rel=1e-3)
    assert pooled([]) is None


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (speedup(2.0), speedup(1.0), TaskResult.WIN),
        (speedup(1.0), speedup(2.0), TaskResult.LOSS),
        (speedup(1.02, 0.03), speedup(1.0, 0.03), TaskResult.TIE),  # the intervals do not tell
        (speedup(1.004, 0.0001), speedup(1.0, 0.0001), TaskResult.TIE),  # sure, and of no use to anyone
        (speedup(1.0), None, TaskResult.WIN),
        (None, speedup(0.1), TaskResult.LOSS),
        (None, None, TaskResult.NEITHER),
    ],
)
def test_ties_are_decided_by_intervals(one: object, other: object, said: TaskResult) -> None:
    assert compared(one, other) is said  # type: ignore[arg-type]


def test_a_duel_counts_tasks_that_both_have_done() -> None:
    made = bench(
        [
            cell("a", best(4.0)),
            cell("b", best(1.0)),
            cell("c", None),
            cell("d", best(9.0)),
            cell("a", best(1.0), method="n"),
            cell("b", best(1.0), method="n"),
            cell("c", best(3.0), method="n"),
            cell("d", None, method="n", status=CellStatus.UNFINISHED),
        ]
    )

    (found,) = compare_methods(made)

    assert (found.one, found.other) == (GROUP, ("n", "template"))
    assert dict(found.verdicts) == {"a": TaskResult.WIN, "b": TaskResult.TIE, "c": TaskResult.LOSS}
    assert found.count(TaskResult.WIN) == 1
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(2.0)  # of 4 and 1
