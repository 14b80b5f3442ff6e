"""The pool: what a run leaves for later ones, and what a later one finds."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.prompts.briefs import brief
from tests.strategies.problems import make_problem
from warpsmith.experiments.runner import POOL, bench_precedents
from warpsmith.methods.cupilot import INITIALISE
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.model.task import Family
from warpsmith.prompts.renderer import render
from warpsmith.search.next_brief import find_precedents
from warpsmith.strategies import pool
from warpsmith.strategies.catalogue import strategies
from warpsmith.strategies.pool import (
    Improvement,
    PoolSubmission,
    add_to_pool,
    catalogue_records,
    pool_matches,
    pool_path,
    pool_records,
    remove_from_pool,
    search_pool,
    shipped_records,
)

SOFTMAX = make_problem(operations=("aten._softmax.default",))
SOURCE = "__global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * %s; }\n"


def kernel(number: float, comment: str = "") -> Candidate:
    return Candidate((SourceFile("k.cu", f"{comment}{SOURCE % number}"),), "cuda")


def problem(name: str, source: str, family: Family, operations: tuple[str, ...], zone: str = "memory") -> Problem:
    made = make_problem(family=family, operations=operations, source=source, zone=zone)
    return replace(made, task=replace(made.task, name=name, digest=name.ljust(64, "0")))


NORM = problem("norm", "def f(x):\n    return layer_norm(x)", Family.ROW_REDUCTION, ("aten.native_layer_norm.default",))
GEMM = problem("gemm", "def f(a, b):\n    return a @ b", Family.MATMUL, ("aten.mm.default",), zone="compute")


def harvest(of: Problem, *improvements: Improvement) -> PoolSubmission:
    return PoolSubmission(of, improvements, "runs/one")


def better(number: float, effect: float, strategy: str = "warp-per-row", best: bool = False) -> Improvement:
    return Improvement(kernel(number), strategy, 2.0, kernel(0), effect, best)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's pool, without what ships with the package."""
    monkeypatch.setattr(pool, "shipped_records", lambda: ())
    return tmp_path / "kept" / "pool.jsonl"


def test_a_run_adds_its_best_and_its_notable_steps_only(path: Path) -> None:
    steps = [better(n, 1.0 + n / 10) for n in range(1, 12)]
    silent = better(90, 5.0, strategy="")
    added = add_to_pool(harvest(SOFTMAX, better(99, 1.01, best=True), better(50, 1.05), silent, *steps), path)

    assert len(added) == pool.MOST
    assert added[0].effect == 1.01  # the best, small as its last step was
    assert [record.effect for record in added[1:]] == [2.1, 2.0, 1.9, 1.8, 1.7]
    assert added[0].start == kernel(0).files
    assert (added[0].task, added[0].device, added[0].families, added[0].zones) == (
        "softmax",
        "a device",
        ("row_reduction", "softmax"),
        ("memory",),
    )
    assert pool_records(path) == added


def test_the_same_kernel_twice_is_one_record(path: Path) -> None:
    first = add_to_pool(harvest(SOFTMAX, better(1, 1.5)), path)
    renamed = Improvement(kernel(1, "// another comment\n"), "vector-loads", 2.0, kernel(0), 1.5)

    assert len(first) == 1
    assert add_to_pool(harvest(SOFTMAX, renamed), path) == ()
    assert pool_records(path) == first
    # Measured better, it replaces what was there; on another device or task it is another record.
    assert add_to_pool(harvest(SOFTMAX, replace(renamed, speedup=3.0)), path) == ()
    assert [record.speedup for record in pool_records(path)] == [3.0]
    elsewhere = replace(SOFTMAX, device="another device (cuda:1)")
    (second,) = add_to_pool(harvest(elsewhere, better(1, 1.5)), path)
    assert second.device == "another device"
    assert add_to_pool(harvest(replace(elsewhere, device="another device (cuda:0)"), better(1, 1.5)), path) == ()


def test_a_record_is_removed_by_its_key_and_a_run_by_its_name(path: Path) -> None:
    kept = add_to_pool(harvest(SOFTMAX, better(1, 1.5), better(2, 1.6)), path)
    other = add_to_pool(PoolSubmission(NORM, (better(3, 2.0),), "runs/other"), path)
    assert remove_from_pool("no such", path) == ()
    assert remove_from_pool(kept[0].key, path) == (kept[0],)
    assert pool_records(path) == (kept[1], *other)
    assert remove_from_pool("runs/other", path) == other
    assert pool_records(path) == (kept[1],)


def test_search_prefers_the_same_kind_of_work_then_likeness(path: Path) -> None:
    for of, name in ((SOFTMAX, "online-softmax"), (NORM, "one-pass-variance"), (GEMM, "tensor-cores")):
        add_to_pool(harvest(of, better(1, 2.0, strategy=name)), path)

    assert [record.strategy for record in search_pool(SOFTMAX, 2, path)] == ["online-softmax", "one-pass-variance"]
    assert [record.strategy for record in search_pool(NORM, 2, path)] == ["one-pass-variance", "online-softmax"]
    assert search_pool(GEMM, 1, path)[0].strategy == "tensor-cores"
    assert [record.strategy for record in search_pool(SOFTMAX, 9, path, catalogue=False)][:1] == ["online-softmax"]
    assert all(record.measured for record in search_pool(SOFTMAX, 99, path, catalogue=False))
    # For a fair comparison, what was learnt on the task itself can be left out.
    assert search_pool(SOFTMAX, 1, path, apart_from=SOFTMAX.task.digest)[0].strategy == "one-pass-variance"
    assert pool_matches(SOFTMAX, 9, path) == pool_matches(SOFTMAX, 9, path)
    scores = [match.score for match in pool_matches(SOFTMAX, 9, path)]
    assert scores == sorted(scores, reverse=True)


def test_search_leaves_out_other_languages_and_what_did_not_help(path: Path) -> None:
    slow = Improvement(kernel(1), "unroll", 0.5, None, None, best=True)
    assert add_to_pool(harvest(SOFTMAX, slow, replace(better(5, 9.0), speedup=0.9)), path) == ()
    add_to_pool(PoolSubmission(make_problem(backend="cpu"), (better(2, 2.0),)), path)

    assert not any(record.measured for record in search_pool(SOFTMAX, 50, path))
    assert all(record.backend == "cpu" for record in search_pool(make_problem(backend="cpu"), 50, path))
    assert search_pool(make_problem(backend="cpu"), 1, path)[0].measured


def test_a_larger_effect_wins_among_equals_and_one_idea_comes_once(path: Path) -> None:
    add_to_pool(harvest(SOFTMAX, better(1, 1.2), better(2, 3.0), better(3, 2.0, strategy="vector-loads")), path)

    found = [record for record in search_pool(SOFTMAX, 9, path) if record.measured]

    assert [(record.strategy, record.effect) for record in found] == [("warp-per-row", 3.0), ("vector-loads", 2.0)]


def test_the_catalogues_entries_are_there_and_marked(path: Path) -> None:
    seeds = catalogue_records()

    assert {record.strategy.split(":")[0] for record in seeds} == set(strategies())
    assert not any(record.measured or record.speedup or record.effect for record in seeds)
    assert all(record.note and record.kernel[0].text for record in seeds)
    found = search_pool(SOFTMAX, 5, path)
    assert len(found) == 5
    assert not any(record.measured for record in found)
    old = [record.arch for record in search_pool(replace(SOFTMAX, arch="sm_80"), 99, path)]
    assert "sm_90" not in old
    assert "sm_90" in [record.arch for record in search_pool(GEMM, 99, path)]


def test_broken_lines_are_passed_over_and_mended(path: Path) -> None:
    add_to_pool(harvest(SOFTMAX, better(1, 1.5)), path)
    with path.open("a") as file:
        file.write('{"from": "another release"}\n\n{"key": "half')

    assert len(pool_records(path)) == 1
    add_to_pool(harvest(NORM, better(1, 1.5)), path)
    assert len(pool_records(path)) == 2


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\r\n", "\x0c", "\x1e"])
def test_a_kernel_with_any_line_break_is_read_back_and_added_once(path: Path, mark: str) -> None:
    odd = replace(better(1, 1.5), kernel=kernel(1, f"// one{mark}// two\n"))

    added = add_to_pool(harvest(SOFTMAX, odd), path)

    assert pool_records(path) == added
    assert len(added) == 1
    size = path.stat().st_size
    assert add_to_pool(harvest(SOFTMAX, odd), path) == ()
    assert path.stat().st_size == size


def test_runs_that_end_at_once_lose_nothing(path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: add_to_pool(harvest(SOFTMAX, better(n, 2.0)), path), range(1, 21)))

    assert len(pool_records(path)) == 20


def test_where_the_pool_is() -> None:
    assert pool_path({"WARPSMITH_POOL": "/p/mine.jsonl"}) == Path("/p/mine.jsonl")
    assert pool_path({"XDG_DATA_HOME": "/data"}) == Path("/data/warpsmith/pool.jsonl")
    assert pool_path({}).parts[-4:] == (".local", "share", "warpsmith", "pool.jsonl")


def test_a_pool_that_cannot_be_used_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="WARPSMITH_POOL"):
        add_to_pool(harvest(SOFTMAX, better(1, 1.5)), tmp_path / "file" / "pool.jsonl")
    with pytest.raises(UsageError, match="cannot be read"):
        pool_records(tmp_path)


def test_a_bench_retrieves_from_the_pool_as_it_was_without_what_its_own_task_taught(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPSMITH_POOL", str(path))
    add_to_pool(harvest(SOFTMAX, better(1, 2.0, strategy="online-softmax")), path)
    add_to_pool(harvest(NORM, better(1, 2.0, strategy="one-pass-variance")), path)
    pool.copy_pool(tmp_path / POOL)
    add_to_pool(harvest(GEMM, better(1, 2.0, strategy="tensor-cores")), path)
    pool.copy_pool(tmp_path / POOL)  # a resumed bench

    assert [each.strategy for each in bench_precedents(tmp_path, SOFTMAX)] == ["one-pass-variance"]
    other_sizes = replace(SOFTMAX, task=replace(SOFTMAX.task, digest="another"))
    assert [each.strategy for each in bench_precedents(tmp_path, other_sizes)] == ["one-pass-variance"]
    assert [each.strategy for each in bench_precedents(tmp_path, NORM)] == ["online-softmax"]
    assert bench_precedents(tmp_path, GEMM) == ()  # the others are of another kind


def test_precedents_are_of_tasks_of_the_same_kind(tmp_path: Path) -> None:
    found = search_pool(GEMM, 40, tmp_path / "none.jsonl", catalogue=False)
    assert any("matmul" not in each.families for each in found)
    shown = find_precedents(GEMM, tmp_path / "none.jsonl")
    assert shown
    assert {each.task for each in shown} <= {each.task for each in found if "matmul" in each.families}


CONVOLUTION = problem("conv", "def f(x, w):\n    return conv2d(x, w)", Family.OTHER, ("aten.convolution.default",))


@pytest.mark.parametrize(
    ("wanted", "family"), [(SOFTMAX, "row_reduction"), (GEMM, "matmul"), (CONVOLUTION, "convolution")]
)
def test_a_fresh_installation_finds_measured_precedents(wanted: Problem, family: str, tmp_path: Path) -> None:
    first = search_pool(wanted, 1, tmp_path / "none.jsonl")[0]

    assert first.measured
    assert family in first.families
    shown = find_precedents(wanted, tmp_path / "none.jsonl")[0]
    prompt = render(replace(brief(INITIALISE, first=True), precedents=(shown,))).messages[1].text
    assert "Before" in prompt
    assert first.start[0].text.strip().splitlines()[0] in prompt
    assert first.kernel[0].text.strip().splitlines()[0] in prompt


def test_shipped_records_are_whole_and_measured() -> None:
    for record in shipped_records():
        assert record.kernel[0].text, record.task
        assert record.start[0].text, record.task
        assert record.speedup is not None, record.task
        assert record.speedup > 1, record.task
        assert record.device == "NVIDIA H200"
    assert len({record.key for record in shipped_records()}) == len(shipped_records()) > 30


def test_a_bench_is_not_shown_the_same_task_of_a_shipped_suite(tmp_path: Path) -> None:
    known = [each for each in shipped_records() if each.task == "softmax"]
    twin = replace(SOFTMAX, task=replace(SOFTMAX.task, name="23_Softmax"))
    assert {each.operations for each in known} == {("aten._softmax.default",)}
    keys, strategies = {each.key for each in known}, {each.strategy for each in known}

    assert keys <= {each.key for each in search_pool(twin, 9, tmp_path / "none.jsonl")}
    left = search_pool(twin, 9, tmp_path / "none.jsonl", apart_from=twin.task.digest)
    assert not keys & {each.key for each in left}
    assert any(each.measured for each in left)
    assert not strategies & {each.strategy for each in bench_precedents(tmp_path, twin)}


@pytest.mark.slow
def test_the_shipped_records_are_those_that_the_script_writes() -> None:
    from benchmarks.seed_pool import seed_lines  # imports torch

    def measured(lines: list[str]) -> set[tuple[object, ...]]:
        """What was measured; sources of the collection may have changed a little meanwhile."""
        found = [json.loads(line) for line in lines]
        return {(each["task"], each["strategy"], each["speedup"], each.get("effect"), each["date"]) for each in found}

    shipped = pool.SHIPPED.read_text(encoding="utf-8").splitlines()
    assert measured(shipped) == measured(seed_lines()), "run python -m benchmarks.seed_pool"


def test_strategies_of_shipped_kernels_for_other_tasks_of_the_kind_are_measured() -> None:
    normed = make_problem(operations=("aten.native_group_norm.default",))
    found = pool.measured_strategies(normed)

    assert found["row-in-shared"] > 1
    assert "wgmma" not in found  # of convolutions and products
    convolution = make_problem(family=Family.OTHER, operations=("aten.convolution.default",))
    assert {"split-product", "implicit-gemm", "wgmma"} <= set(pool.measured_strategies(convolution))
    assert pool.measured_strategies(make_problem(backend="cpu")) == {}
    named = {each.task for each in pool.shipped_records() if "row-in-shared" in each.strategy}
    others = [each for each in pool.shipped_records() if each.task not in named - {"instance_norm"}]
    alone = replace(normed, task=replace(normed.task, name="instance_norm"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pool, "shipped_records", lambda: tuple(others))
        assert "row-in-shared" in pool.measured_strategies(normed)
        assert "row-in-shared" not in pool.measured_strategies(alone)  # what the task itself taught is left out
