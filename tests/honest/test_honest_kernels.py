"""Honest kernels of thirty different operators must not be refused.

Here every task gives its contracts, and some of the C++ kernels are judged once (all thirty: `make test-all`);
`benchmarks/false_rejects.py` judges all of them many times. The CUDA kernels run in tests/gpu.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cuda_front_end import compile_errors

from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Status
from warpsmith.tasks.load import load_task

HERE = Path(__file__).resolve().parent
NAMES = sorted(p.stem for p in HERE.glob("*.cpp"))
JUDGED = ("attention", "histogram")  # one of each kind
ALSO_JUDGED = tuple(name for name in NAMES if name not in JUDGED)  # by `make test-all`
COMPILED = ("attention", "rms_norm_fp16")  # dynamic shared memory, halves


def test_there_are_thirty_operators_with_a_kernel_for_each_device() -> None:
    assert len(NAMES) == 30
    assert [p.stem for p in sorted(HERE.glob("*.cu"))] == NAMES
    assert {p.stem for p in HERE.glob("*.py") if not p.stem.startswith("test_")} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_task_has_a_contract_for_both_devices(name: str) -> None:
    task = load_task(HERE / f"{name}.py").task
    assert task.name == name
    assert len(task.workloads) == 2
    for device, suffix in (("cpu", ".cpp"), ("cuda", ".cu")):
        contract = backend_named(device).contract(task)
        declared = ", ".join(f"{a.ctype} {a.name}" for a in contract.arguments)
        defined = (HERE / f"{name}{suffix}").read_text().partition("int launch(")[2].partition(")")[0]
        assert " ".join(defined.split()) == declared


@pytest.mark.parametrize("name", [*JUDGED, *(pytest.param(name, marks=pytest.mark.slow) for name in ALSO_JUDGED)])
def test_kernel_is_not_refused(name: str, evaluator: Evaluator) -> None:
    verdict = evaluator.evaluate_one(HERE / f"{name}.py", read_candidate(HERE / f"{name}.cpp"))
    assert verdict.status is Status.OK, verdict.reason
    assert [w.workload for w in verdict.workloads] == [w.name for w in load_task(HERE / f"{name}.py").task.workloads]


@pytest.mark.nvcc
@pytest.mark.parametrize("name", COMPILED)
def test_cuda_kernel_compiles(name: str, tmp_path: Path) -> None:
    backend = CudaBackend()
    if not backend.available().build:
        pytest.skip(backend.available().detail)
    contract = backend.contract(load_task(HERE / f"{name}.py").task)
    assert not compile_errors((HERE / f"{name}.cu").read_text(encoding="utf-8"), contract, tmp_path)
