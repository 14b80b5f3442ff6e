"""Bundles of kernels that include the device library carry the headers, and are built with their own copy.

Headers of CUTLASS are not carried: the manifest names them, and where they are missing PyTorch computes.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.runtime.bundling import DOUBLE, TRIPLE, made_of, put
from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.source import backend_named
from warpsmith.kernels.collection import find_kernel
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.runtime.bundle import read_bundle
from warpsmith.runtime.load import load
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


CUTLASS = """#include <cutlass/cutlass.h>
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void* stream) { return 0; }
"""


def test_a_bundle_names_cutlass_if_its_kernel_needs_it(tmp_path: Path) -> None:
    made = made_of(tmp_path / "made", DOUBLE, CUTLASS, kernel_name="kernel.cu", device="cuda")
    judged = replace(made, environment=replace(made.environment, compiler="nvcc 13.0.88, CUTLASS 4.2.0"))
    optional = CUTLASS.replace("#include", "#if __has_include(<cutlass/cutlass.h>)\n#include", 1) + "#endif\n"
    asking = made_of(tmp_path / "asking", DOUBLE, optional, kernel_name="kernel.cu", device="cuda")

    for folder, contents, needed in (("a", made, ("CUTLASS",)), ("b", judged, ("CUTLASS 4.2.0",)), ("c", asking, ())):
        assert read_bundle(put(tmp_path / folder, contents)).manifest.requires == needed


def test_a_bundle_without_the_entry_is_read_as_before(tmp_path: Path) -> None:
    folder = put(tmp_path, made_of(tmp_path / "made", DOUBLE, TRIPLE))
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["requires"]
    (folder / "manifest.json").write_text(json.dumps(manifest))

    assert read_bundle(folder).manifest.requires == ()


def test_pytorch_computes_where_cutlass_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path, made_of(tmp_path / "made", DOUBLE, CUTLASS, kernel_name="kernel.cu", device="cuda"))

    operator = load(folder)

    x = torch.arange(32.0).reshape(4, 8)
    assert torch.equal(operator(x), 2 * x)
    assert "needs CUTLASS" in str(operator.covers(x))
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"warpsmith: {folder} is computed by PyTorch: its kernel needs CUTLASS, which is not found")
    assert "CUTLASS_PATH" in said
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ToolMissing, match="needs CUTLASS, which is not found here"):
        load(folder, strict=True)
