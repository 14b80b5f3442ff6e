"""Tables as text, and two benches side by side."""

from __future__ import annotations

import csv
import io
from dataclasses import fields, replace

import pytest
from rich.console import Console

from tests.experiments.making import bench, best, cell
from warpsmith.cli.bench_show import terminal_tables
from warpsmith.experiments import formats
from warpsmith.experiments.compare import compare
from warpsmith.experiments.results import BenchResults, Cell, CellBest, CellStatus, Versions
from warpsmith.experiments.tables import Table, table_named, tables


@pytest.fixture
def made() -> BenchResults:
    return bench(
        [
            cell("soft_max", best(2.0), method="evo-free"),
            cell("relu", best(1.5, verified=False), method="evo-free"),
            cell("soft_max", best(3.0), method="cu|pilot"),
            cell("relu", None, method="cu|pilot", status=CellStatus.FAILED),
            cell("tanh", None, method="evo-free"),
        ]
    )


def test_unverified_and_failed_cells_are_listed_apart(made: BenchResults) -> None:
    by_key = {table.key: table for table in tables(made)}

    assert list(by_key) == ["speed", "search", "fast", "tasks", "pairs", "unverified", "empty", "failed"]
    assert [row[:2] for row in by_key["unverified"].rows] == [("relu", "evo-free")]
    assert [row[0] for row in by_key["failed"].rows] == ["relu"]
    assert [(row[0], row[3]) for row in by_key["empty"].rows] == [("tanh", "all trials are spent")]
    assert by_key["tasks"].rows[1][2:] == ("–", "✗")
    assert by_key["speed"].rows[0][1] == "1/3"


def test_markdown_marks_the_best_and_keeps_its_pipes_apart(made: BenchResults) -> None:
    lines = formats.markdown([table_named(made, "tasks")]).splitlines()

    assert lines[2] == r"| task | zone | evo-free | cu\|pilot |"
    assert lines[3] == "| --- | --- | ---: | ---: |"
    assert lines[4] == "| soft_max | memory | 2.00x [1.98, 2.02] | **3.00x** [2.97, 3.03] |"


def test_latex_is_escaped(made: BenchResults) -> None:
    text = formats.latex([table_named(made, "tasks")])

    assert r"soft\_max & memory & 2.00x [1.98, 2.02] & \textbf{3.00x} [2.97, 3.03] \\" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1


def test_csv_has_figures_in_full_and_intervals_in_their_own_columns(made: BenchResults) -> None:
    rows = list(csv.DictReader(io.StringIO(formats.as_csv(table_named(made, "cells")))))

    assert len(rows) == 5
    assert float(rows[0]["eager"]) == 2.0
    assert float(rows[0]["eager low"]) == pytest.approx(1.98)
    assert [row["verified"] for row in rows] == ["yes", "no", "yes", "", ""]
    assert rows[3]["eager"] == rows[3]["eager high"] == ""


def test_csv_has_all_that_is_known_of_a_cell_but_its_curve(made: BenchResults) -> None:
    first, second = made.cells[:2]
    made = replace(made, cells=(replace(first, settled=7, device="some CPU"), second))
    text = formats.as_csv(table_named(made, "cells"))
    rows = list(csv.DictReader(io.StringIO(text)))

    known = {each.name for kind in (Cell, CellBest) for each in fields(kind)} - {"best", "curve"}
    assert known <= set(rows[0])
    assert [row["settled"] for row in rows] == ["7", "10"]  # of older results nothing else is known: all of them
    assert (rows[0]["trial"], rows[0]["remeasured"], rows[0]["device"]) == ("3", "yes", "some CPU")


@pytest.mark.parametrize("width", [48, 60, 80, 120, 200])
def test_nothing_is_cut_off_in_a_terminal_of_any_width(made: BenchResults, width: int) -> None:
    for table in tables(made):
        text = printed(table, width)
        assert max(map(len, text.splitlines())) <= width
        shown = "".join(text.split())
        for row in table.rows:
            for value, column in zip(row, table.columns, strict=True):
                assert "".join(formats.figure(value, column.kind).split())[:20] in shown or column.name == "why"
        assert "…" not in text.replace("…: not", "")


def printed(table: Table, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    for each in terminal_tables(table, width, len(table.rows)):
        console.print(each)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_two_benches_side_by_side() -> None:
    a = bench([cell("x", best(1.0)), cell("y", best(2.0)), cell("z", best(1.0))])
    b = bench(
        [cell("x", best(2.0)), cell("y", best(2.0)), cell("w", best(9.0))], versions=Versions("1.0", torch="2.10")
    )

    found = compare(a, b)
    methods, tasks = found.tables

    assert "torch: 2.9 in A, 2.10 in B." in found.differences
    assert {"tasks in A only: z.", "tasks in B only: w."} <= set(found.differences)
    name, shared, mean_a, mean_b, ratio, *counts = methods.rows[0]
    assert (name, shared, counts) == ("m · template", 2, [1, 1, 0])
    assert (mean_a, mean_b, formats.plain(ratio)) == pytest.approx((2**0.5, 2.0, 2**0.5))
    assert [(row[0], row[-1]) for row in tasks.rows] == [("x", "B"), ("y", "tie")]


def test_benches_without_a_common_method_are_compared_crosswise() -> None:
    a, b = bench([cell("x", best(4.0), method="old")]), bench([cell("x", best(2.0), method="new")])

    methods, tasks = compare(a, b).tables

    assert methods.rows[0][0] == "old → new · template"
    assert tasks.rows[0][-1] == "A"
