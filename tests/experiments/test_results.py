from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.making import bench, best, cell
from warpsmith.experiments.results import (
    CurvePoint,
    MeasuredSpeedup,
    dump_results,
    load_results,
    read_results,
    write_results,
)
from warpsmith.model.errors import RunError


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    made = bench([replace(cell("a", best(2.0, compile=1.5)), curve=(CurvePoint(1, 1.5),)), cell("b", None, usd=None)])

    write_results(made, tmp_path / "deep" / "results.json")

    assert read_results(tmp_path / "deep" / "results.json") == made


def test_results_of_a_release_that_did_not_count_settled_trials_can_be_read() -> None:
    made = bench([replace(cell("a", best(2.0)), settled=7)])
    text = dump_results(made)
    assert text.count('"settled": 7,') == 1

    (old,) = load_results(text.replace('"settled": 7,', "")).cells

    assert old == replace(made.cells[0], settled=None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "cannot be read as results of a bench"),
        ("not json", "cannot be read as results of a bench"),
        (dump_results(bench([cell("a", None)], format=7)), "format 7"),
        (dump_results(bench([cell("a", best(2.0))])).replace('"low":', '"how":'), "cells"),
    ],
)
def test_what_is_no_result_is_said_to_be_none(text: str, said: str) -> None:
    with pytest.raises(RunError, match=said):
        load_results(text)


def test_impossible_figures_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="no speedup"):
        MeasuredSpeedup(2.0, 2.5, 3.0)
    with pytest.raises(ValueError, match="verified"):
        replace(best(2.0), verified=False)
    with pytest.raises(ValueError, match="verified"):
        replace(best(2.0), why_not="it is not")


def test_a_ratio_of_speedups_has_the_interval_of_both() -> None:
    ratio = MeasuredSpeedup(4.0, 2.0, 8.0).over(MeasuredSpeedup(1.0, 1.0, 1.0))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((4.0, 2.0, 8.0))
    both = MeasuredSpeedup(4.0, 2.0, 8.0).over(MeasuredSpeedup(2.0, 1.0, 4.0))
    assert (both.value, both.low) == pytest.approx((2.0, 2.0 / 2 ** (2**0.5)))
