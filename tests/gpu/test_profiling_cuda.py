"""On a GPU: zones of tasks that everybody knows, and kernels with one planted bottleneck each, which is named first."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.gpu.planted import KERNELS, PLANTED, ZONES, planted_kernel, planted_task

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import select_device
from warpsmith.profiling import ncu, torch_timings
from warpsmith.profiling.profiler import Profile, Profiler

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def profiler(gpu: None) -> Iterator[Profiler]:
    with Profiler(select_device("cuda")) as made:
        yield made


def profiled(name: str, evaluator: Evaluator, profiler: Profiler) -> Profile:
    task, candidate = planted_task(name), read_candidate(planted_kernel(name))
    problem = evaluator.survey(task, "cuda")
    evaluation = evaluator.evaluate_one(task, candidate)
    assert evaluation.ok, evaluation.reason
    return profiler.profile(task, candidate, problem, evaluation)


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_bottleneck_is_named_first(name: str, gpu_evaluator: Evaluator, profiler: Profiler) -> None:
    found = profiled(name, gpu_evaluator, profiler)
    if found.reason in (ncu.MISSING, ncu.NO_RIGHTS):
        pytest.skip(found.reason)

    assert found.digest is not None
    assert found.digest.bottleneck is PLANTED[name][1], f"{found.digest.text}\n{found.reason}"


def test_without_counters_there_are_times(gpu_evaluator: Evaluator) -> None:
    environ = {**os.environ, "PATH": "/nowhere", "CUDA_HOME": "", "CUDA_PATH": ""}
    if ncu.find(environ) is not None:
        pytest.skip("Nsight Compute is installed where it is always found")
    with Profiler(select_device("cuda"), environ=environ) as without:
        found = profiled("near_peak_copy", gpu_evaluator, without)

    assert found.reason == ncu.MISSING
    assert found.digest is not None
    assert found.digest.source == torch_timings.SOURCE
    assert found.digest.kernel == "copy4"


@pytest.mark.parametrize(("task", "zone"), ZONES)
def test_zones(task: str, zone: str, gpu_evaluator: Evaluator) -> None:
    problem = gpu_evaluator.survey(KERNELS / task, "cuda")

    assert problem.zone == zone, problem.bounds
