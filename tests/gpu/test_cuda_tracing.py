"""Kernels and calls of a CUDA candidate are named as they run, and what is not its own work is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import select_device
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings

pytestmark = pytest.mark.gpu

PROBE = Path(__file__).parent / "tracing_probe.py"
FIND = "from warpsmith.evaluator.judge.tracing import find_cupti; print(find_cupti())"
HEAD = """
__global__ void softmax_rows(const float* x, float* out, int64_t cols) {
  const float* in = x + blockIdx.x * cols;
  float peak = in[0], sum = 0;
  for (int64_t c = 1; c < cols; ++c) peak = fmaxf(peak, in[c]);
  for (int64_t c = 0; c < cols; ++c) sum += expf(in[c] - peak);
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) out[blockIdx.x * cols + c] = expf(in[c] - peak) / sum;
}
"""
SIGNATURE = """
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
"""
# Asks the driver for a stream of its own through the runtime: nothing of that is imported.
OWN_STREAM = (
    HEAD
    + SIGNATURE
    + """
  static cudaStream_t own = nullptr;
  if (own == nullptr) {
    void* make = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuStreamCreate", &make, 12000, cudaEnableDefault, &found);
    if (reinterpret_cast<int (*)(cudaStream_t*, unsigned)>(make)(&own, 0) != 0) return 1;
  }
  cudaStreamSynchronize((cudaStream_t)stream);
  softmax_rows<<<rows, 128, 0, own>>>(x, out, cols);
  cudaStreamSynchronize(own);
  void* drop = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuStreamDestroy", &drop, 12000, cudaEnableDefault, &found);
  reinterpret_cast<int (*)(cudaStream_t)>(drop)(own);
  own = nullptr;
  return (int)cudaGetLastError();
}
"""
)
# Kernels that have no outside name, templates, device functions that stay, and a copy.
MANY_KERNELS = (
    HEAD
    + """
namespace {
template <int N> __global__ void scaled(float* out, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = N * out[i] / N;
}
}
static __global__ void touched(float* out) { out[0] = out[0]; }
"""
    + SIGNATURE
    + """
  softmax_rows<<<rows, 128, 0, (cudaStream_t)stream>>>(x, out, cols);
  scaled<2><<<1, 128, 0, (cudaStream_t)stream>>>(out, rows * cols);
  touched<<<1, 1, 0, (cudaStream_t)stream>>>(out);
  return (int)cudaGetLastError();
}
"""
)
# cuBLAS by the loader; refused by its imports, and without that filter seen in what runs. 77: it is not there.
HIDDEN_LIBRARY = """
#include <dlfcn.h>
extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void*,
                      void* stream) {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW);
  }
  if (library == nullptr) return 77;
  static void* handle = nullptr;
  if (handle == nullptr) reinterpret_cast<int (*)(void**)>(dlsym(library, "cublasCreate_v2"))(&handle);
  reinterpret_cast<int (*)(void*, void*)>(dlsym(library, "cublasSetStream_v2"))(handle, stream);
  const float one = 1.f, zero = 0.f;
  using Product = int (*)(void*, int, int, int, int, int, const float*, const float*, int, const float*, int,
                          const float*, float*, int);
  return reinterpret_cast<Product>(dlsym(library, "cublasSgemm_v2"))(handle, 0, 0, (int)n, (int)m, (int)k, &one, b,
                                                                      (int)n, a, (int)k, &zero, out, (int)n);
}
"""


@pytest.fixture(scope="module")
def unfiltered(gpu: None, gpu_settings: Settings) -> Iterator[Evaluator]:
    """What the filter of imports would stop is run."""
    with Evaluator("cuda", replace(gpu_settings, without=("imports", "background", "clock"))) as evaluator:
        yield evaluator


def candidate(folder: Path, text: str) -> Candidate:
    path = folder / "kernel.cu"
    path.write_text(text)
    return read_candidate(path)


def test_a_kernel_and_its_launch_are_named(
    gpu_evaluator: Evaluator, kernel: Callable[[str], Candidate], task_file: Callable[[str], Path]
) -> None:
    device = select_device("cuda")
    backend = backend_named("cuda")
    contract = backend.contract(gpu_evaluator.describe(task_file("softmax")))
    built = backend.build(kernel("right.cu"), contract, Target(DeviceKind.CUDA, device.arch))
    assert isinstance(built, Artifact)
    found = subprocess.run([sys.executable, "-c", FIND], capture_output=True, text=True, timeout=120, check=True)
    command = [sys.executable, str(PROBE), str(built.library), found.stdout.strip()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"\ntracing with {found.stdout.strip()}: {seen}")

    assert seen["problem"] == ""
    assert (seen["returned"], seen["error"]) == (0, "")
    assert len(seen["kernels"]) == 1
    assert seen["elsewhere"] == []
    assert seen["kernels"][0].encode() + b"\0" in built.library.read_bytes()
    assert any("LaunchKernel" in call for call in seen["calls"])
    assert not any(call.startswith("cuLaunch") for call in seen["calls"]), "what the runtime calls is not its own"


def test_kernels_without_an_outside_name_are_its_own_too(
    gpu_evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    verdict = gpu_evaluator.evaluate_one(task_file("softmax"), candidate(tmp_path, MANY_KERNELS))

    assert verdict.status is Status.OK, verdict.reason
    assert not any("not traced" in note for note in verdict.notes), verdict.notes


def test_a_stream_that_no_import_shows_is_seen(
    unfiltered: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    verdict = unfiltered.evaluate_one(task_file("softmax"), candidate(tmp_path, OWN_STREAM))

    assert verdict.status is Status.REJECTED, verdict.reason
    assert verdict.reason.startswith("other stream: the call uses cuStreamCreate"), verdict.reason


def test_a_library_that_the_loader_brings_is_seen_in_its_kernels(
    unfiltered: Evaluator, gpu_evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    made = candidate(tmp_path, HIDDEN_LIBRARY)
    filtered = gpu_evaluator.evaluate_one(task_file("matmul_fp32"), made)
    verdict = unfiltered.evaluate_one(task_file("matmul_fp32"), made)

    assert filtered.reason.startswith("library call: the object imports dlopen, dlsym"), filtered.reason
    if "returned 77" in verdict.reason:
        pytest.skip("this machine's cuBLAS cannot be read in the sandbox")
    assert verdict.status is Status.REJECTED, verdict.reason
    print(f"\n{verdict.reason}")


def test_what_tracing_costs(
    gpu: None, gpu_settings: Settings, kernel: Callable[[str], Candidate], task_file: Callable[[str], Path]
) -> None:
    spent: dict[str, list[float]] = {}
    for without in ((), ("trace",)):
        with Evaluator("cuda", replace(gpu_settings, without=without), use_cache=False) as evaluator:
            evaluator.describe(task_file("softmax"))
            for _ in range(4):
                begun = time.monotonic()
                verdict: Evaluation = evaluator.evaluate_one(task_file("softmax"), kernel("right.cu"))
                spent.setdefault(str(without), []).append(time.monotonic() - begun)
                assert verdict.status is Status.OK, verdict.reason
    best = {name: min(times) for name, times in spent.items()}
    print(f"\none evaluation, best of four: {best}")

    assert best["()"] < 2 * best["('trace',)"]
