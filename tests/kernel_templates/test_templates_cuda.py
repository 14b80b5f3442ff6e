"""CUDA from templates: it compiles, and it computes the right numbers on an emulated device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.kernel_templates.bundle import case_of, every, load_case, wrong_cases
from tests.kernel_templates.operators import LONG_OPERATORS
from warpsmith import kernel_templates as templates
from warpsmith.backends.cuda import CudaBackend
from warpsmith.model.brief import Problem
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.strategy import Plan, StrategyChoice
from warpsmith.strategies import plan_space

EMULATED = (
    *("scaled", "transposed", "softmax", "middle_softmax", "layer_norm", "row_max", "column_argmin", "frobenius"),
    *("instance_norm", "batch_norm", "smooth_loss_mean", "smooth_loss_none", "smooth_loss_ignored", "log_softmax_sums"),
    *("cross_entropy", "half_softmax", "linear", "mm_both", "bmm", "gemv_t", "mm_tf32", "linear_half"),
)
ONE_WAY = ("row-in-shared", "warp-per-row", "atomic-reduction", "async-copy", "tensor-cores", "split-k")
OTHER_WAY = ("row-in-registers", "block-per-row", "two-stage-reduction", "double-buffer", "online-softmax")
QUICK = (
    "transposed",
    "softmax",
    "layer_norm",
    "column_argmin",
    "linear",
    "mm_tf32",
    "smooth_loss_mean",
)  # one of each kind of kernel
COMPILED = ("layer_norm", "long_layer_norm", "linear")


@pytest.mark.parametrize("names", [QUICK, pytest.param(EMULATED, marks=pytest.mark.slow)], ids=["quick", "all"])
def test_kernels_are_right_on_an_emulated_device(names: tuple[str, ...], operators_file: Path, tmp_path: Path) -> None:
    cases = []
    for name in names:
        program, problem = load_case(operators_file, name, "cuda")
        plans = [Plan(), every(problem, ONE_WAY), every(problem, OTHER_WAY)]
        if "tensor-cores" in {s.name for s in templates.abilities(problem)}:
            plans.append(Plan((StrategyChoice("shared-tile"), StrategyChoice("tensor-cores"))))
        cases += [case_of(program, problem, plan) for plan in plans]
    for operator in LONG_OPERATORS[: None if names is EMULATED else 2]:
        program, problem = load_case(operators_file, operator.name, "cuda")
        shared = Plan((StrategyChoice("split-rows"), StrategyChoice("warp-shuffle-reduction")))
        plans = [shared, every(problem, ("cluster-shared-memory", "row-in-shared")), every(problem)]
        for blocks, kept in (("8", ("row-in-shared", "vector-loads")), ("4", ("warp-shuffle-reduction",))):
            cluster = StrategyChoice("cluster-shared-memory", (("blocks", blocks),))
            plans.append(Plan((cluster, *(StrategyChoice(name) for name in kept))))
        cases += [case_of(program, problem, plan) for plan in plans]

    assert wrong_cases(cases, tmp_path) == []


@pytest.mark.nvcc
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("without", [ONE_WAY, OTHER_WAY], ids=["one", "other"])
@pytest.mark.slow
def test_rich_kernels_compile(name: str, without: tuple[str, ...], operators_file: Path, cache_folder: Path) -> None:
    backend = CudaBackend()
    if not backend.available().build:
        pytest.skip(backend.available().detail)
    _, problem = load_case(operators_file, name, "cuda")
    source = templates.translate(problem, every(problem, without))

    built = backend.build(
        Candidate((SourceFile("kernel.cu", source),), "cuda"),
        problem.contract,
        Target(DeviceKind.CUDA, "sm_90a"),
    )

    assert isinstance(built, Artifact), built.reason


def test_few_long_rows_are_shared_by_blocks(operators_file: Path) -> None:
    _, problem = load_case(operators_file, "long_layer_norm", "cuda")
    names = {s.name for s in templates.abilities(problem)}
    assert "split-rows" in names
    assert not names & {"block-per-row", "warp-per-row", "row-in-registers"}  # never of use there
    plan = first_plan(problem)
    assert "split-rows" in plan.names
    source = templates.translate(problem, plan)
    assert str(templates.plan_in_source(problem, source)) == str(plan)
    assert all(f"split0_{kernel}_<" in source for kernel in range(3))  # mean, variance, result

    _, short = load_case(operators_file, "layer_norm", "cuda")
    assert "split-rows" not in {s.name for s in templates.abilities(short)}


ROWS = """\
import torch
from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 65_535}])
def long(x):
    return x / x.abs().sum(-1, keepdim=True)


@task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 65_535}, {"rows": 4096, "cols": 512}])
def mixed(x):
    return x / x.abs().sum(-1, keepdim=True)


@task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 16_384}])
def short(x):
    return x / x.abs().sum(-1, keepdim=True)


@task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 16_384}])
def mapped(x):
    return x.relu()
"""


def first_plan(problem: Problem) -> Plan:
    """What a search begins with."""
    found = plan_space.initial(templates.abilities(problem), Random(0), (), risky=templates.risky_strategies(problem))
    assert found is not None
    return found


def test_long_rows_are_for_clusters(tmp_path: Path) -> None:
    file = tmp_path / "rows.py"
    file.write_text(ROWS)
    problems = {name: load_case(file, name, "cuda")[1] for name in ("long", "mixed", "short")}
    names = {name: {s.name for s in templates.abilities(problem)} for name, problem in problems.items()}
    assert {"cluster-shared-memory", "row-in-shared"} <= names["long"]  # 262 KB: in eight parts it fits
    assert "cluster-shared-memory" in names["mixed"]
    assert "cluster-shared-memory" not in names["short"]

    plan = first_plan(problems["long"])
    assert {"cluster-shared-memory", "row-in-shared"} <= set(plan.names)
    assert "block-per-row" not in plan.names
    carried = templates.plan_in_source(problems["long"], templates.translate(problems["long"], plan))
    assert str(carried) == str(plan)
    assert "cluster-shared-memory" not in first_plan(problems["mixed"]).names  # a loss for its short rows

    old = replace(problems["long"], arch="sm_80")
    assert not {s.name for s in templates.abilities(old)} & {"cluster-shared-memory", "row-in-shared"}


def test_blocks_are_as_large_as_rows_need(tmp_path: Path) -> None:
    file = tmp_path / "rows.py"
    file.write_text(ROWS)
    threads = {}
    for name, arch in (("long", "sm_90a"), ("long", "sm_80"), ("short", "sm_90a"), ("mapped", "sm_90a")):
        problem = replace(load_case(file, name, "cuda")[1], arch=arch)
        sizes = next(s for s in templates.abilities(problem) if s.name == "block-size").parameters[0].values
        threads[name, arch] = sizes[0]
    assert threads == {
        ("long", "sm_90a"): "256",
        ("long", "sm_80"): "1024",
        ("short", "sm_90a"): "512",
        ("mapped", "sm_90a"): "256",
    }


def test_the_first_element_wise_kernel_has_one_pack_for_each_thread(tmp_path: Path) -> None:
    file = tmp_path / "rows.py"
    file.write_text(ROWS)
    problem = load_case(file, "mapped", "cuda")[1]
    assert "unroll" in {s.name for s in templates.abilities(problem)}
    assert not {"unroll", "grid-stride"} & set(first_plan(problem).names)
    assert "vector-loads" in first_plan(problem).names


def test_depth_is_shared_only_where_there_are_few_results(tmp_path: Path) -> None:
    file = tmp_path / "products.py"
    head = "import torch\nfrom warpsmith import normal, task\n\n\n"
    tasks = [
        f'@task(a=normal("m, k"), b=normal("k, n"), workloads=[{{"m": {rows}, "k": 64, "n": 4096}}])\n'
        f"def {name}(a, b):\n    return a @ b\n"
        for name, rows in (("few", 512), ("many", 4096))
    ]
    file.write_text(head + "\n\n".join(tasks))
    names = {name: {s.name for s in templates.abilities(load_case(file, name, "cuda")[1])} for name in ("few", "many")}
    assert "split-k" in names["few"]
    assert "split-k" not in names["many"]
    assert "shared-tile" in names["many"]
