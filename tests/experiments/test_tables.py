"""Tables as text, and two benches side by side."""

from __future__ import annotations

import csv
import io
from dataclasses import fields, replace
from typing import Any

import pytest
from rich.console import Console

from tests.experiments.making import bench, best, cell
from warpsmith.cli.bench_show import TablePart, terminal_tables
from warpsmith.experiments import formats
from warpsmith.experiments.compare import compare
from warpsmith.experiments.results import (
    BenchResults,
    BenchTask,
    Cell,
    CellBest,
    CellStatus,
    CurvePoint,
    RefusedKernel,
    Versions,
)
from warpsmith.experiments.tables import ColumnKind, Table, table_named, tables
from warpsmith.report.bench_page import bench_page


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

    made_of = ["speed", "baselines", "search", "fast", "tasks", "pairs", "unverified", "empty", "failed"]
    assert list(by_key) == made_of
    assert [row[:2] for row in by_key["unverified"].rows] == [("relu", "evo-free")]
    assert [row[0] for row in by_key["failed"].rows] == ["relu"]
    assert [(row[0], row[3]) for row in by_key["empty"].rows] == [("tanh", "all trials are spent")]
    assert by_key["tasks"].rows[1][2:] == ("–", "✗")
    assert by_key["speed"].rows[0][1] == "1/3"


def test_a_task_that_is_not_calibrated_is_marked(made: BenchResults) -> None:
    doubtful = replace(made, tasks=(replace(made.tasks[0], calibrated=False), *made.tasks[1:]))
    assert [row[0] for row in table_named(doubtful, "tasks").rows] == ["soft_max (calibrated: no)", "relu", "tanh"]
    assert table_named(doubtful, "speed").note.endswith("so that some wrong results pass: soft_max.")
    assert "calibrated" not in table_named(made, "speed").note


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


def test_csv_has_all_that_is_known_of_a_cell_but_its_curve_and_single_kernels(made: BenchResults) -> None:
    first, second = made.cells[:2]
    made = replace(made, cells=(replace(first, settled=7, device="some CPU"), second))
    text = formats.as_csv(table_named(made, "cells"))
    rows = list(csv.DictReader(io.StringIO(text)))

    known = {each.name for kind in (Cell, CellBest) for each in fields(kind)} - {"best", "curve", "refused"}
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


def rows(bench: BenchResults, part: str) -> list[Any]:
    return list(table_named(bench, part).rows)


@pytest.fixture
def papers() -> BenchResults:
    """Two methods on two families: one spends four times the tokens of the other, and has two epochs."""
    cheap: dict[str, Any] = {"method": "free", "tokens": 1000}
    roles: dict[str, Any] = {"method": "cupilot", "tokens": 4000}
    cells = [
        replace(cell("relu", best(2.0, start=4.0, compile=1.5), **cheap), curve=(CurvePoint(1, 2.0, 300, 1),)),
        replace(cell("conv", best(1.2, start=3.0), **cheap), curve=(CurvePoint(2, 1.2, 900, 1),)),
        replace(
            cell("relu", best(3.0, start=6.0), **roles), curve=(CurvePoint(1, 1.5, 900, 1), CurvePoint(9, 3.0, 3500, 2))
        ),
        replace(cell("conv", best(1.1, start=2.0), **roles), curve=(CurvePoint(5, 1.1, 2000, 2),)),
    ]
    cells = [replace(each, prompt_tokens=3 * each.tokens // 4) for each in cells]
    cells[2:] = [replace(each, epochs=2, published_valid=7) for each in cells[2:]]
    refused = (
        RefusedKernel(2, "wrong", "off"),
        RefusedKernel(3, "rejected", "stale output: x"),
        RefusedKernel(7, "wrong", "off"),
    )
    cells[3] = replace(cells[3], published_only=(("rejected", 1), ("wrong", 2)), refused=refused)
    families = (BenchTask("relu", "suite/relu", "activation"), BenchTask("conv", "suite/conv", "convolution"))
    return bench(cells, tasks=families, as_published="cupilot", differences=("Device: an A100, here a CPU.",))


def test_start_eager_and_compile_stand_side_by_side(papers: BenchResults) -> None:
    free, cupilot = rows(papers, "baselines")

    assert free[1:] == pytest.approx((3.5, 12**0.5, 1.6, 2.4**0.5, 1.5, 1.5, "1/2"))
    assert cupilot[1:5] == pytest.approx((4.0, 12**0.5, 2.05, 3.3**0.5))
    assert cupilot[5:] == (None, None, "1/2")


def test_prompt_and_reply_tokens_are_apart(papers: BenchResults) -> None:
    table = table_named(papers, "search")
    names = [column.name for column in table.columns]

    assert [row[names.index("prompt tokens")] for row in table.rows] == [750, 3000]
    assert [row[names.index("reply tokens")] for row in table.rows] == [250, 1000]
    assert [(group.tokens, group.prompt_tokens) for group in bench_page(papers).groups] == [(1000, 750), (4000, 3000)]


def test_equal_tokens_stand_beside_equal_trials(papers: BenchResults) -> None:
    free, cupilot = rows(papers, "tokens")

    assert free == ("free", 1000, pytest.approx(2.4**0.5), pytest.approx(2.4**0.5))
    assert cupilot == ("cupilot", 4000, pytest.approx(3.3**0.5), pytest.approx(1.5**0.5))  # the rest came later


def test_families_and_epochs_have_their_means(papers: BenchResults) -> None:
    families = {row[0]: row[1:] for row in rows(papers, "families")}
    assert [formats.plain(value) for value in families["activation"]] == pytest.approx([1, 2.0, 3.0])
    assert [formats.plain(value) for value in families["convolution"]] == pytest.approx([1, 1.2, 1.1])
    assert rows(papers, "epochs") == [("cupilot", pytest.approx(1.5), pytest.approx(3.3**0.5))]


def test_products_have_their_utilisation() -> None:
    product = BenchTask(
        *("mm", "suite/mm", "matmul"), eager_ms=4.0, product=True, flops=2e9, bytes=8e6, peak_flops_s=4e12
    )
    plain = replace(product, name="relu", product=False)
    cells = [
        cell("mm", replace(best(2.0), latency_ms=1.0), seed=0),
        cell("mm", replace(best(2.0), latency_ms=4.0), seed=1),
        cell("mm", replace(best(9.0, verified=False), latency_ms=0.1), method="n"),  # does not count
        cell("relu", best(2.0)),
    ]
    made = bench(cells, tasks=(replace(product, peak_bytes_s=16e9), plain), repeats=2)

    eager, method = rows(made, "products")

    assert eager == ("mm", "PyTorch eager", 4.0, 0.5, 0.125, 2.0, 0.125)
    assert method == ("mm", "m", *map(pytest.approx, (2.0, 1.0, 0.25, 4.0, 0.25)))
    assert "| mm | m | 2 | 1 | 25 % | 4 | 25 % |" in formats.markdown([table_named(made, "products")])
    assert "Utilisation of products" in {table.title for table in bench_page(made).tables}
    assert formats.figure(12_760.4, ColumnKind.NUMBER) == "12760"
    assert rows(bench(cells), "products") == []  # older results
    damaged = bench([cell("mm", replace(best(2.0), latency_ms=0.0))], tasks=(product,))
    assert [row[1] for row in rows(damaged, "products")] == ["PyTorch eager"]


def test_two_rules_of_validity_are_counted(papers: BenchResults) -> None:
    assert rows(papers, "rules") == [("cupilot", 20, 14, 10, 3, "wrong 2, rejected 1")]
    assert rows(papers, "refused")[1] == ("conv", "cupilot", 0, 3, "rejected", "stale output: x")


def test_every_table_has_every_format_and_the_page_has_the_new_ones(papers: BenchResults) -> None:
    for part in TablePart:
        table = table_named(papers, part)
        assert table.key == part
        assert formats.as_csv(table).count("\n") == 1 + len(table.rows)
        assert formats.latex([table]).count(r"\\") == 1 + len(table.rows)
        assert f"### {table.title}" in formats.markdown([table])
    shown = {table.title for table in bench_page(papers).tables}
    assert shown >= {
        "Two rules of validity",
        "Valid by the published rule, and refused here",
        "Equal trials, equal tokens",
        "Epoch by epoch",
    }
    assert any("cupilot" in title for title in shown)  # the differences from the paper


def test_the_page_has_the_first_rows_of_a_very_long_table(papers: BenchResults) -> None:
    many = tuple(RefusedKernel(number, "wrong", "off") for number in range(1, 251))
    made = replace(papers, cells=(replace(papers.cells[0], refused=many), *papers.cells[1:]))
    shown = next(each for each in bench_page(made).tables if "refused here" in each.title)
    assert len(shown.rows) == 200
    assert shown.note == "53 more rows: warpsmith bench show --part refused."
