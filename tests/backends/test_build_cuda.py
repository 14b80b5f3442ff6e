from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.backends.builder import Builder
from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.elf import read_symbols
from warpsmith.model.build import Artifact, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.model.settings import Paths
from warpsmith.model.task import Task

LAUNCH = "int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream)"
HOPPER = Target(DeviceKind.CUDA, "sm_90a")

KERNEL = f"""
template <int Block>
__global__ void copy_rows(const float* x, float* out, int64_t n) {{
  __shared__ float tile[Block];
  const int64_t i = blockIdx.x * int64_t{{Block}} + threadIdx.x;
  if (i < n) tile[threadIdx.x] = __half2float(__float2half(x[i]));
  __syncthreads();
  if (i < n) out[i] = tile[Block - 1 - threadIdx.x] + task::cols;
}}
{LAUNCH} {{
  copy_rows<256><<<(rows * cols + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, rows * cols);
  return (int)cudaGetLastError();
}}
"""


def cuda_candidate(text: str) -> Candidate:
    return Candidate((SourceFile("candidate.cu", text),), "cuda")


@pytest.mark.nvcc
def test_a_kernel_builds_without_a_gpu_and_its_resources_are_read(cuda: CudaBackend, softmax: Task) -> None:
    """Also without `extern "C"` and without the header of half precision."""
    contract = cuda.contract(softmax)
    first = cuda.build(cuda_candidate(KERNEL), contract, HOPPER)
    assert isinstance(first, Artifact), first
    (kernel,) = first.resources
    assert kernel.kernel == "copy_rows<256>"
    assert kernel.registers > 0
    assert kernel.shared_bytes == 1024
    symbols = read_symbols(first.library)
    assert "launch" in symbols.functions
    assert "cudaGetLastError" in symbols.imports
    assert any(name.startswith("libcudart.so") for name in symbols.needed)
    again = cuda.build(cuda_candidate(KERNEL), contract, HOPPER)
    assert isinstance(again, Artifact)
    assert again.cached
    assert again.resources == first.resources


@pytest.mark.nvcc
def test_errors_of_nvcc_are_trimmed(cuda: CudaBackend, softmax: Task, tmp_path: Path) -> None:
    broken = "__global__ void k(float* o) { o[0] = undeclared_thing; }\n" + KERNEL
    outcome = cuda.build(cuda_candidate(broken), cuda.contract(softmax), HOPPER)
    assert isinstance(outcome, BuildFailure)
    lines = outcome.reason.splitlines()
    assert lines[0] == 'candidate.cu:1: error: identifier "undeclared_thing" is undefined'
    assert "undeclared_thing" in lines[1]
    assert lines[2].strip() == "^"
    assert len(lines) == 3


@pytest.mark.nvcc
def test_a_wrong_signature_is_told_the_right_one(cuda: CudaBackend, softmax: Task) -> None:
    text = f'extern "C" void {LAUNCH.removeprefix("int ")} {{}}'
    outcome = cuda.build(cuda_candidate(text), cuda.contract(softmax), HOPPER)
    assert isinstance(outcome, BuildFailure)
    assert f'expected: extern "C" {LAUNCH};' in outcome.reason


@pytest.mark.nvcc
def test_errors_of_ptxas_name_the_kernel(cuda: CudaBackend, softmax: Task) -> None:
    text = f"""
__global__ void hungry(float* out) {{
  __shared__ float s[1 << 20];
  s[threadIdx.x] = out[0];
  __syncthreads();
  out[threadIdx.x] = s[7];
}}
{LAUNCH} {{ hungry<<<1, 32>>>(out); return 0; }}
"""
    outcome = cuda.build(cuda_candidate(text), cuda.contract(softmax), HOPPER)
    assert isinstance(outcome, BuildFailure)
    assert outcome.reason.startswith("ptxas error: Entry function 'hungry' uses too much shared data")


@pytest.mark.nvcc
def test_an_architecture_that_nvcc_does_not_know_is_the_toolkits_fault(cuda: CudaBackend, softmax: Task) -> None:
    with pytest.raises(ToolMissing, match=r"cannot build for compute_999; install a newer CUDA toolkit"):
        cuda.build(cuda_candidate(KERNEL), cuda.contract(softmax), Target(DeviceKind.CUDA, "sm_999"))


def test_a_target_that_is_no_architecture_is_refused(softmax: Task, builder: Builder) -> None:
    backend = CudaBackend(builder)
    with pytest.raises(UsageError, match="name it like sm_90a"):
        backend.build(cuda_candidate(KERNEL), backend.contract(softmax), Target(DeviceKind.CUDA, "native; rm"))


def test_no_host_compiler_is_a_clear_state(softmax: Task, tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    nvcc.chmod(0o755)
    environ = {"CUDA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    backend = CudaBackend(Builder(Paths(tmp_path / "cache"), environment=environ))
    assert not backend.available().build
    assert "install g++" in backend.available().detail
    with pytest.raises(ToolMissing, match="host compiler"):
        backend.build(cuda_candidate(KERNEL), backend.contract(softmax), HOPPER)
