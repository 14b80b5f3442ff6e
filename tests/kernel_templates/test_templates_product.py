"""CUDA matrix products from templates: right for every way a tile can lie, and cut as the device needs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.kernel_templates.bundle import Case, case_of, load_case, wrong_cases
from warpsmith import kernel_templates as templates
from warpsmith.backends.cuda import CudaBackend
from warpsmith.model.brief import Problem
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.strategy import Plan
from warpsmith.strategies import plan_space
from warpsmith.strategies.catalogue import strategies

ODD = {"m": 70, "k": 33, "n": 50}  # one element at a time
EVEN = {"m": 72, "k": 36, "n": 52}  # packs of four
SEVERAL = {"m": 300, "k": 40, "n": 150}  # more than one tile in both directions
MANY = {"m": 150, "k": 9, "n": 40}  # ten rows of the smallest tiles
WIDE = {"m": 260, "k": 40, "n": 132}
DEEP = {"m": 5, "k": 4100, "n": 8}  # in sixteen parts, none of them a whole number of tiles
MATRICES = 'a=normal("m, k"), b=normal("k, n")'
TASKS = {
    "mm": (MATRICES, "a @ b"),
    "tn": ('a=normal("k, m"), b=normal("k, n")', "a.t() @ b"),
    "tt": ('a=normal("k, m"), b=normal("n, k")', "a.t() @ b.t()"),
    "linear": ('a=normal("m, k"), b=normal("n, k"), c=normal("n")', "torch.relu(a @ b.t() + c)"),
    "bmm": ('a=normal("2, m, k"), b=normal("2, k, n")', "torch.bmm(a, b)"),
}


@dataclass(frozen=True)
class Trial:
    """One kernel: which product, by which plan, in which sizes."""

    name: str
    plan: str
    sizes: tuple[dict[str, int], ...]
    precision: str = "fp32"


def plan(rows: int, depth: int, *others: str) -> str:
    """A plan as text."""
    tile = [f"register-tile(rows={rows})"] if rows else []
    return " + ".join([f"shared-tile(depth={depth})", *tile, *others])


TRIALS = (
    Trial("mm", plan(16, 8, "double-buffer", "padded-shared", "vector-loads"), (ODD, EVEN, SEVERAL, WIDE)),
    Trial("mm", plan(16, 16, "async-copy", "padded-shared", "vector-loads"), (ODD, EVEN, SEVERAL, WIDE)),
    Trial("mm", plan(16, 16, "vector-loads"), (ODD, EVEN)),
    Trial("mm", plan(8, 8, "double-buffer", "padded-shared", "vector-loads"), (ODD, EVEN, SEVERAL)),
    Trial("mm", plan(8, 32, "async-copy"), (ODD, EVEN)),
    Trial("mm", plan(0, 8, "double-buffer", "vector-loads"), (ODD, EVEN, MANY)),  # fewer packs than threads
    Trial("mm", plan(4, 8, "async-copy", "vector-loads"), (ODD, EVEN)),
    Trial("tn", plan(16, 8, "double-buffer", "padded-shared", "vector-loads"), (ODD, EVEN, {**EVEN, "k": 33})),
    Trial("tn", plan(8, 16, "async-copy", "vector-loads"), (ODD, EVEN, {**EVEN, "k": 33})),
    Trial("tt", plan(16, 16, "async-copy", "padded-shared", "vector-loads"), (ODD, EVEN, SEVERAL)),
    Trial("tt", plan(16, 8, "double-buffer", "vector-loads"), (ODD, EVEN)),
    Trial("linear", plan(16, 8, "double-buffer", "padded-shared", "vector-loads"), (ODD, EVEN, SEVERAL)),
    Trial("linear", plan(4, 32, "double-buffer", "vector-loads"), (ODD, EVEN)),
    Trial("bmm", plan(16, 8, "double-buffer", "vector-loads"), (ODD, EVEN)),
    Trial("bmm", plan(16, 8, "async-copy", "padded-shared", "split-k(parts=2)"), (ODD, EVEN)),
    Trial("mm", plan(4, 8, "double-buffer", "vector-loads", "split-k(parts=16)"), (DEEP, {**DEEP, "k": 4099})),
    Trial("linear", plan(8, 16, "async-copy", "split-k(parts=2)"), (ODD, {**ODD, "k": 1})),  # a part with nothing in it
    Trial("mm", plan(16, 32, "double-buffer", "padded-shared", "vector-loads"), (ODD, EVEN), "fp64"),
    Trial("tt", plan(8, 8, "async-copy", "padded-shared", "vector-loads"), (ODD, EVEN), "fp64"),
    Trial("tn", plan(16, 8, "double-buffer", "padded-shared", "vector-loads"), (ODD, EVEN), "fp16"),
    Trial("linear", plan(8, 8, "split-k(parts=2)", "vector-loads"), (ODD, EVEN), "bf16"),
)


def written(folder: Path, tasks: dict[str, tuple[str, str, str, str]]) -> Path:
    """A file with tasks of these names: inputs, result, workloads, precision class."""
    path = folder / "products.py"
    head = "import torch\nfrom warpsmith import normal, task\n"
    for name, (inputs, result, workloads, precision) in tasks.items():
        names = ", ".join(part.split("=")[0].strip() for part in inputs.split("), "))
        head += f"\n\n@task({inputs}, workloads={workloads}, precision={precision!r})\n"
        head += f"def {name}({names}):\n    return {result}\n"
    path.write_text(head)
    return path


def cases_of(folder: Path) -> list[Case]:
    """The kernels of all trials."""
    tasks = {
        f"trial{number}": (*TASKS[trial.name], repr(list(trial.sizes)), trial.precision)
        for number, trial in enumerate(TRIALS)
    }
    path = written(folder, tasks)
    cases = []
    for name, trial in zip(tasks, TRIALS, strict=True):
        wanted = Plan.read(trial.plan)
        assert wanted is not None
        cases.append(case_of(*load_case(path, name, "cuda"), wanted))
    return cases


@pytest.mark.slow
def test_products_are_right_on_an_emulated_device(tmp_path: Path) -> None:
    assert wrong_cases(cases_of(tmp_path), tmp_path) == []


def test_a_product_carries_what_it_was_asked_for(tmp_path: Path) -> None:
    for case, trial in zip(cases_of(tmp_path), TRIALS, strict=True):
        found = templates.plan_in_source(case.problem, case.source)
        assert found is not None
        asked = {c.strategy: dict(c.settings) for c in case.plan.choices}
        carried = {c.strategy: dict(c.settings) for c in found.choices}
        assert carried.keys() == asked.keys(), trial
        assert all(carried[name].items() >= settings.items() for name, settings in asked.items()), trial


@pytest.mark.nvcc
@pytest.mark.parametrize("rows", [pytest.param(8, marks=pytest.mark.slow), 16])  # 16 has the most to keep
@pytest.mark.parametrize("how", ["double-buffer", pytest.param("async-copy", marks=pytest.mark.slow)])
def test_sums_stay_in_registers(rows: int, how: str, tmp_path: Path, cache_folder: Path) -> None:
    backend = CudaBackend()
    if not backend.available().build:
        pytest.skip(backend.available().detail)
    path = written(tmp_path, {"mm": (*TASKS["mm"], repr([ODD]), "fp32")})
    _, problem = load_case(path, "mm", "cuda")
    wanted = Plan.read(plan(rows, 8, how, "padded-shared", "vector-loads"))
    assert wanted is not None
    files = (SourceFile("kernel.cu", templates.translate(problem, wanted)),)

    built = backend.build(Candidate(files, "cuda"), problem.contract, Target(DeviceKind.CUDA, "sm_90a"))

    assert isinstance(built, Artifact), built.reason
    assert len(built.resources) == 2  # in packs of four, and one element at a time
    assert [each.spill_bytes for each in built.resources] == [0, 0]


def problem_of_size(folder: Path, m: int, k: int, n: int, *more: dict[str, int], precision: str = "fp32") -> Problem:
    """A plain product."""
    workloads = repr([{"m": m, "k": k, "n": n}, *more])
    return load_case(written(folder, {"mm": (*TASKS["mm"], workloads, precision)}), "mm", "cuda")[1]


def values(problem: Problem, name: str) -> tuple[str, ...]:
    """What a strategy's only parameter may be, the usual value first; () where it is not offered."""
    found = [s for s in templates.abilities(problem) if s.name == name]
    return found[0].parameters[0].values if found else ()


def first_plan(problem: Problem) -> str:
    """What a search begins with."""
    return str(
        plan_space.initial(templates.abilities(problem), Random(0), (), risky=templates.risky_strategies(problem))
    )


REST = "padded-shared + register-tile(rows={}) + shared-tile(depth=8)"


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((4096, 4096, 4096), f"double-buffer + {REST.format(16)} + vector-loads(width=4)"),
        ((8205, 2949, 5921), f"double-buffer + {REST.format(16)} + vector-loads(width=4)"),
        ((1024, 1024, 1024), f"double-buffer + {REST.format(8)} + vector-loads(width=4)"),
        ((256, 524288, 256), f"double-buffer + {REST.format(8)} + split-k(parts=64) + vector-loads(width=4)"),
    ],
)
def test_a_search_begins_with_what_fills_a_large_device(
    sizes: tuple[int, int, int], wanted: str, tmp_path: Path
) -> None:
    problem = problem_of_size(tmp_path, *sizes)
    plan_ = first_plan(problem)
    assert plan_ == wanted
    read = Plan.read(plan_)
    assert read is not None
    assert str(templates.plan_in_source(problem, templates.translate(problem, read))) == wanted


def test_large_tiles_come_first_where_there_are_enough_of_them(tmp_path: Path) -> None:
    large, small = ("16", "8", "4"), ("8", "4", "16")
    assert values(problem_of_size(tmp_path, 2048, 64, 4096), "register-tile") == large
    assert values(problem_of_size(tmp_path, 255, 64, 100_000), "register-tile") == small  # none would be full
    assert values(problem_of_size(tmp_path, 64, 64, 64), "register-tile") == small
    assert values(problem_of_size(tmp_path, 2048, 64, 4096, precision="fp64"), "register-tile") == small


def test_the_depth_is_cut_into_as_many_parts_as_the_device_has_places(tmp_path: Path) -> None:
    assert values(problem_of_size(tmp_path, 256, 524288, 256), "split-k") == ("64", "32", "128")
    assert values(problem_of_size(tmp_path, 128, 524288, 128), "split-k") == ("128", "64")
    assert values(problem_of_size(tmp_path, 256, 8192, 256), "split-k") == ("32", "16")  # of 256 each, and of 512
    assert values(problem_of_size(tmp_path, 512, 8192, 4096), "split-k") == ("2", "4")
    assert values(problem_of_size(tmp_path, 64, 64, 64), "split-k") == ("2",)
    assert values(problem_of_size(tmp_path, 4096, 8192, 4096), "split-k") == ()
    both = problem_of_size(tmp_path, 256, 524288, 256, {"m": 512, "k": 8192, "n": 4096})
    assert values(both, "split-k") == ("64", "2", "32", "128", "4")


def test_the_depth_is_shared_from_the_beginning_only_where_most_of_the_device_is_idle(tmp_path: Path) -> None:
    assert "split-k" in first_plan(problem_of_size(tmp_path, 512, 4096, 512))
    assert "split-k" not in first_plan(problem_of_size(tmp_path, 512, 4095, 512))
    assert "split-k" not in first_plan(problem_of_size(tmp_path, 1024, 4096, 1024))
    mixed = problem_of_size(tmp_path, 512, 4096, 512, {"m": 4096, "k": 4096, "n": 4096})
    assert "split-k" in {s.name for s in templates.abilities(mixed)}
    assert "split-k" not in first_plan(mixed)


def test_what_is_offered_is_in_the_catalogue(tmp_path: Path) -> None:
    catalogue = strategies()
    for sizes in ((256, 524288, 256), (4096, 4096, 4096), (64, 64, 64)):
        for strategy in templates.abilities(problem_of_size(tmp_path, *sizes)):
            known = {p.name: set(p.values) for p in catalogue[strategy.name].parameters}
            assert all(set(p.values) <= known[p.name] for p in strategy.parameters), strategy.name


def test_tensor_cores_come_first_where_they_are_allowed_and_the_device_is_busy(tmp_path: Path) -> None:
    square = problem_of_size(tmp_path, 4096, 4096, 4096, precision="tf32")
    assert first_plan(square) == "shared-tile(depth=8) + tensor-cores + vector-loads(width=4)"
    starved = first_plan(problem_of_size(tmp_path, 256, 524_288, 256, precision="tf32"))
    assert "split-k(parts=64)" in starved
    assert "tensor-cores" not in starved
