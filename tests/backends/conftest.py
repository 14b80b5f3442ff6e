from __future__ import annotations

import os
from pathlib import Path

import pytest

from warpsmith.backends.builder import Builder
from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.toolchain import find_nvcc
from warpsmith.model.settings import Paths
from warpsmith.model.task import Precision, Task, TaskKind, TensorRole, TensorSpec, Workload


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
        TaskKind.NATIVE,
        tensors,
        (),
        workloads,
        Precision.FP32,
        "digest",
        "Softmax over the last axis.",
    )


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(Paths(tmp_path / "cache"))


@pytest.fixture
def cpu(builder: Builder) -> CpuBackend:
    return CpuBackend(builder)


@pytest.fixture
def cuda(builder: Builder) -> CudaBackend:
    if find_nvcc(os.environ) is None:
        pytest.skip("no nvcc on this machine")
    return CudaBackend(builder)
