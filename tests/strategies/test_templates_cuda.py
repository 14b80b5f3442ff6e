"""CUDA from templates: it compiles, and it computes the right numbers on an emulated device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.strategies.bundle import build, case_of, error, every, load_case, run
from tests.strategies.operators import LONG_OPERATORS
from warpsmith.backends.cuda import CudaBackend
from warpsmith.core.build import Artifact, Target
from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.strategy import Choice, Plan
from warpsmith.strategies import templates

MOST_ERROR = 40.0
EMULATED = (
    *("scaled", "transposed", "softmax", "middle_softmax", "layer_norm", "row_max", "column_argmin", "frobenius"),
    *("cross_entropy", "half_softmax", "linear", "mm_both", "bmm", "gemv_t", "mm_tf32", "linear_half"),
)
ONE_WAY = ("row-in-shared", "warp-per-row", "atomic-reduction", "async-copy", "tensor-cores", "split-k")
OTHER_WAY = ("row-in-registers", "block-per-row", "two-stage-reduction", "double-buffer", "online-softmax")
COMPILED = ("layer_norm", "long_layer_norm", "linear")


def test_kernels_are_right_on_an_emulated_device(operators_file: Path, tmp_path: Path) -> None:
    cases = []
    for name in EMULATED:
        program, problem = load_case(operators_file, name, "cuda")
        plans = [Plan(), every(problem, ONE_WAY), every(problem, OTHER_WAY)]
        if "tensor-cores" in {s.name for s in templates.abilities(problem)}:
            plans.append(Plan((Choice("shared-tile"), Choice("tensor-cores"))))
        cases += [case_of(program, problem, plan) for plan in plans]
    for operator in LONG_OPERATORS:
        program, problem = load_case(operators_file, operator.name, "cuda")
        shared = Plan((Choice("split-rows"), Choice("warp-shuffle-reduction")))
        cases += [case_of(program, problem, plan) for plan in (shared, every(problem))]
    library = build(cases, tmp_path)

    wrong = []
    for number, case in enumerate(cases):
        for workload in case.problem.task.workloads:
            errors = [error(found, wanted) for found, wanted in zip(*run(library, number, case, workload), strict=True)]
            if max(errors) > MOST_ERROR:
                wrong.append(f"{case.problem.task.name} {workload.name} [{case.plan}]: {errors}")

    assert wrong == []


@pytest.mark.nvcc
@pytest.mark.parametrize("name", COMPILED)
def test_rich_kernels_compile(name: str, operators_file: Path, cache_folder: Path) -> None:
    backend = CudaBackend()
    if not backend.available().build:
        pytest.skip(backend.available().detail)
    _, problem = load_case(operators_file, name, "cuda")
    plan = every(problem, ONE_WAY)
    source = templates.translate(problem, plan)

    built = backend.build(
        Candidate((SourceFile("kernel.cu", source),), "cuda"), problem.contract, Target("cuda", "sm_90a")
    )

    assert isinstance(built, Artifact), built.reason


def test_few_long_rows_are_shared_by_blocks(operators_file: Path) -> None:
    _, problem = load_case(operators_file, "long_layer_norm", "cuda")
    names = {s.name for s in templates.abilities(problem)}
    assert "split-rows" in names
    assert not names & {"block-per-row", "warp-per-row", "row-in-registers", "row-in-shared"}  # never of use there
    source = templates.translate(problem, every(problem))
    carried = templates.carried(problem, source)
    assert carried is not None
    assert "split-rows" in carried.names
    assert all(f"split0_{kernel}_<" in source for kernel in range(3))  # mean, variance, result

    _, short = load_case(operators_file, "layer_norm", "cuda")
    assert "split-rows" not in {s.name for s in templates.abilities(short)}


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
