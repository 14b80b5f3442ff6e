from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.benches import make_bench
from warpsmith.experiments.results import BenchResults
from warpsmith.experiments.statistics import TaskResult, compare_methods, summaries, unverified_cells
from warpsmith.report.bench_page import bench_page
from warpsmith.report.document import BenchPage


@pytest.fixture(scope="module")
def bench() -> BenchResults:
    return make_bench(("evoengineer-full", "cupilot"))


@pytest.fixture(scope="module")
def page(bench: BenchResults) -> BenchPage:
    return bench_page(bench)


def test_methods_have_the_figures_of_the_statistics(bench: BenchResults, page: BenchPage) -> None:
    for group, said in zip(page.groups, summaries(bench), strict=True):
        assert (group.name, group.winners, group.done) == (said.method, said.winners, said.done)
        assert group.or_pytorch is not None
        assert said.or_pytorch is not None
        assert said.or_pytorch.interval is not None
        assert group.or_pytorch.value == said.or_pytorch.value
        assert (group.or_pytorch.low, group.or_pytorch.high) == (
            said.or_pytorch.interval.low,
            said.or_pytorch.interval.high,
        )
        for p, share in said.fast:
            assert [s for at, s in group.fast if at <= p][-1] == share


def test_only_winners_that_count_are_in_the_matrix(bench: BenchResults, page: BenchPage) -> None:
    for task in page.tasks:
        for place, (method, proposer) in enumerate(bench.groups):
            cells = [c for c in bench.of_task(task.name) if (c.method, c.proposer) == (method, proposer)]
            shown = task.cells[place]
            assert (shown.speedup is not None) == any(cell.winner for cell in cells)
            doubtful = [c.best.eager.value for c in cells if c.best and not c.best.verified]
            assert shown.unverified == (max(doubtful) if doubtful else None)
        found = [(cell.speedup.value, place) for place, cell in enumerate(task.cells) if cell.speedup]
        assert task.best == (max(found)[1] if found else -1)
    apart = [run for run in page.runs if run.speedup and not run.verified]
    assert len(apart) == len(unverified_cells(bench)) > 0
    assert all(run.why_not for run in apart)


def test_families_and_duels_cover_all(bench: BenchResults, page: BenchPage) -> None:
    assert sum(family.tasks for family in page.families) == len(bench.tasks)
    assert all(len(family.means) == len(page.groups) for family in page.families)
    for shown, said in zip(page.duels, compare_methods(bench), strict=True):
        assert (shown.wins, shown.ties, shown.losses) == tuple(
            said.count(each) for each in (TaskResult.WIN, TaskResult.TIE, TaskResult.LOSS)
        )


def test_progress_never_falls_and_ends_at_what_the_runs_measured(page: BenchPage) -> None:
    for group in page.groups:
        assert len(group.progress) == 45
        assert list(group.progress) == sorted(group.progress)
        assert group.progress[0] >= 1.0


def test_where_nobody_was_to_verify_all_winners_count_and_it_is_said(bench: BenchResults) -> None:
    cells = tuple(
        replace(c, best=replace(c.best, verified=None, why_not="not asked for")) if c.best else c for c in bench.cells
    )
    page = bench_page(replace(bench, verify=False, cells=cells))

    assert page.counts_unverified
    assert sum(group.winners for group in page.groups) == sum(c.done and c.best is not None for c in cells)
    assert "not verified" in page.remarks[0]


def test_a_bench_just_begun_has_a_page(bench: BenchResults) -> None:
    page = bench_page(replace(bench, cells=(), devices=()))

    assert page.figures[0].note == "no kernel yet"
    assert all(cell.speedup is None for task in page.tasks for cell in task.cells)
