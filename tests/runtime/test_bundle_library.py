"""Bundles of kernels that include the device library carry the headers, and are built with their own copy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.runtime.bundling import DOUBLE, TRIPLE, made_of, put
from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.source import backend_named
from warpsmith.kernels.collection import find_kernel
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.errors import UsageError
from warpsmith.runtime.bundle import read_bundle
from warpsmith.tasks.load import load_task


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """The collection's kernel for running sums, as a bundle."""
    kernel = find_kernel("cumsum")
    task = kernel.task.path.read_text()
    return put(tmp_path, made_of(tmp_path / "made", task, kernel.source, kernel_name="cumsum.cu", device="cuda"))


def test_a_bundle_carries_the_headers_that_its_kernel_includes(bundle: Path) -> None:
    carried = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*.cuh")}
    read = read_bundle(bundle)

    assert carried == {"kernel/include/warpsmith/packs.cuh", "kernel/include/warpsmith/scan.cuh"}
    assert read.library == bundle / "kernel/include"
    assert carried <= read.manifest.sha256.keys()
    (bundle / "kernel/include/warpsmith/packs.cuh").write_text("// changed\n")
    with pytest.raises(UsageError, match=r"packs\.cuh is not the file in its manifest"):
        read_bundle(bundle)


def test_a_kernel_that_includes_nothing_of_it_carries_nothing(tmp_path: Path) -> None:
    kernel = find_kernel("matvec")
    task = kernel.task.path.read_text()
    folder = put(tmp_path, made_of(tmp_path / "made", task, kernel.source, kernel_name="matvec.cu", device="cuda"))

    assert not (folder / "kernel/include").exists()
    assert read_bundle(folder).library is None


@pytest.mark.nvcc
def test_the_source_compiles_with_the_bundle_alone(bundle: Path) -> None:
    flags = ["-std=c++17", "-arch=sm_90a", "--extended-lambda", "--expt-relaxed-constexpr", "-cubin"]
    folder = bundle / "kernel"
    command = ["nvcc", *flags, "-Iinclude", "cumsum.cu", "-o", "cumsum.cubin"]

    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@pytest.mark.nvcc
def test_a_loaded_kernel_is_built_with_the_headers_of_its_bundle(bundle: Path, tmp_path: Path) -> None:
    """Also where the installed library has changed."""
    read = read_bundle(bundle)
    contract = backend_named("cuda").contract(load_task(read.task_spec).task)
    target = Target(DeviceKind.CUDA, "sm_90a")
    broken = tmp_path / "broken"
    (broken / "warpsmith").mkdir(parents=True)
    (broken / "warpsmith" / "scan.cuh").write_text("#error another library\n")
    assert read.library is not None

    made = CudaBackend(library=broken).with_library(read.library).build(read.candidate, contract, target)

    assert isinstance(made, Artifact), made.reason
    assert not isinstance(CudaBackend(library=broken).build(read.candidate, contract, target), Artifact)


def test_a_kernel_for_the_cpu_is_built_with_the_headers_of_its_bundle(tmp_path: Path) -> None:
    source = f"#include <warpsmith/cpu/convolution.h>\n{TRIPLE}"
    folder = put(tmp_path, made_of(tmp_path / "made", DOUBLE, source))
    read = read_bundle(folder)
    contract = backend_named("cpu").contract(load_task(read.task_spec).task)
    target = Target(DeviceKind.CPU)
    broken = tmp_path / "broken"
    (broken / "warpsmith" / "cpu").mkdir(parents=True)
    (broken / "warpsmith" / "cpu" / "convolution.h").write_text("#error another library\n")

    assert read.library == folder / "kernel/include"
    made = CpuBackend(library=broken).with_library(read.library).build(read.candidate, contract, target)
    assert isinstance(made, Artifact), made.reason
    assert not isinstance(CpuBackend(library=broken).build(read.candidate, contract, target), Artifact)
