"""Plain starting kernels: which tasks of the suites have one, and that they compute what PyTorch computes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.collection.test_cpu_forms import (
    HEAD,
    POOLINGS,
    SCANS,
    axis_names,
    convolution_tasks,
    named,
    task_text,
)
from tests.kernel_templates.bundle import MOST_ERROR, Case, errors_of, problem_of
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.kernels.plain import FILES, plain_kernel
from warpsmith.model.errors import CandidateError
from warpsmith.model.strategy import Plan
from warpsmith.search.start import PLAIN, offline_start
from warpsmith.tasks.load import load_task
from warpsmith.tasks.suites import SHIPPED, resolve_task, suite_tasks


def tasks_of_forms() -> list[str]:
    tasks = convolution_tasks()
    for extents, result, a, b in POOLINGS:
        sizes = named(["b", *axis_names(extents)], [(2, *a), (1, *b)])
        tasks.append(task_text(f"mine{len(tasks)}", {"x": f"b, {extents}"}, sizes, result))
    for result, *scans in SCANS:
        tensors = {"x": "r, n", **({"mask": "r, n"} if "mask" in result else {})}
        tasks.append(task_text(f"mine{len(tasks)}", tensors, named(["r", "n"], scans), result))
    return tasks


@pytest.mark.parametrize(
    ("backend", "every"),
    [("cpu", 4), pytest.param("cpu", 1, marks=pytest.mark.slow), pytest.param("cuda", 1, marks=pytest.mark.slow)],
)  # CUDA on an emulated device
def test_plain_kernels_compute_what_pytorch_computes(backend: str, every: int, tmp_path: Path) -> None:
    tasks = [re.sub(r"mine\d+", f"mine{n}", each) for n, each in enumerate(tasks_of_forms()[::every])]
    (tmp_path / "tasks.py").write_text("\n\n".join([HEAD, *tasks]))
    cases = []
    for number in range(len(tasks)):
        program = load_task(f"{tmp_path / 'tasks.py'}::mine{number}")
        problem = problem_of(program, backend)
        assert problem.outline is not None
        written = plain_kernel(problem.task, problem.contract, problem.outline)
        assert written is not None, tasks[number]
        cases.append(Case(program, problem, Plan(), written.source))
    errors = errors_of(cases, tmp_path)
    assert {tasks[n]: each for n, each in enumerate(errors) if not max(each) < MOST_ERROR} == {}


@pytest.mark.slow
def test_every_task_of_the_suites_has_a_starting_kernel() -> None:
    optimised: dict[str, set[str]] = {"cpu": set(), "cuda": set()}
    for entry in (entry for suite in SHIPPED for entry in suite_tasks(suite)):
        program = load_task(entry.spec("small"))
        for backend, found in optimised.items():
            try:
                plain = offline_start(problem_of(program, backend), PLAIN).strategy == "none"
            except CandidateError:  # the collection has a kernel for the full size only
                plain = False
            if not plain:
                found.add(entry.name)
    assert optimised == {"cpu": set(), "cuda": set()}


def cases_of_files() -> list[Case]:
    """Every file of plain CUDA kernels on the small and the held-out sizes of its task."""
    tasks = {entry.name: entry for suite in SHIPPED for entry in suite_tasks(suite)}
    cases = []
    for path in sorted(FILES.glob("*.cu")):
        entry = tasks[path.stem]
        program = load_task(entry.spec("small"))
        problem = problem_of(program, "cuda")
        start = offline_start(problem, PLAIN)
        assert start.main.text == path.read_text()
        workloads = (*problem.task.workloads, *entry.held_out)
        problem = replace(problem, task=replace(problem.task, workloads=workloads))
        cases.append(Case(program, problem, Plan(), path.read_text()))
    return cases


@pytest.mark.slow
def test_plain_cuda_files_compute_what_pytorch_computes(tmp_path: Path) -> None:  # on an emulated device
    cases = cases_of_files()
    errors = errors_of(cases, tmp_path)
    assert {c.problem.task.name: e for c, e in zip(cases, errors, strict=True) if not max(e) < MOST_ERROR} == {}


def test_a_task_of_the_same_name_and_other_arguments_is_not_given_the_file() -> None:
    program = load_task(next(e for e in suite_tasks("warpsmith-fused") if e.name == "swiglu").spec("small"))
    problem = problem_of(program, "cuda")
    assert problem.outline is not None
    assert plain_kernel(problem.task, problem.contract, problem.outline) is not None
    other = replace(problem.contract, arguments=problem.contract.arguments[1:])
    assert plain_kernel(problem.task, other, problem.outline) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv2d_depthwise_separable", "conv_transpose1d", "max_pool2d", "cumsum", "swiglu"])
def test_plain_kernels_are_judged_valid(name: str, evaluator: Evaluator) -> None:
    suite = "warpsmith-fused" if name == "swiglu" else "warpsmith-100"
    task = resolve_task(f"{suite}/{name}@small")
    start = offline_start(evaluator.survey(task, "cpu"), PLAIN)
    assert start.strategy == "none"
    verdict = evaluator.evaluate_one(task, start)
    assert verdict.ok, verdict.reason
