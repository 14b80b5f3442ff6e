from __future__ import annotations

import os
from pathlib import Path

import pytest

from warpsmith.backends.build import Workshop
from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.toolchain import find_nvcc
from warpsmith.core.config import Paths
from warpsmith.core.task import Precision, Task, TensorRole, TensorSpec, Workload


@pytest.fixture
def softmax() -> Task:
    tensors = (
        TensorSpec("x", "float32", ("rows", "cols"), TensorRole.INPUT),
        TensorSpec("out", "float32", ("rows", "cols"), TensorRole.OUTPUT),
    )
    workloads = (
        Workload("short", (("rows", 64), ("cols", 1024))),
        Workload("tall", (("rows", 4096), ("cols", 1024))),
    )
    source = "import torch\n\n\ndef softmax(x):\n    return torch.softmax(x, dim=-1)\n"
    return Task(
        "softmax",
        source,
        "native",
        tensors,
        (),
        workloads,
        Precision.FP32,
        "digest",
        "Softmax over the last axis.",
    )


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(Paths(tmp_path / "cache"))


@pytest.fixture
def cpu(workshop: Workshop) -> CpuBackend:
    return CpuBackend(workshop)


@pytest.fixture
def cuda(workshop: Workshop) -> CudaBackend:
    if find_nvcc(os.environ) is None:
        pytest.skip("no nvcc on this machine")
    return CudaBackend(workshop)
