"""The `cuda` backend: CUDA C++17 with a plain C entry point, compiled by nvcc for one architecture.

No torch headers: they cost a minute per candidate, a plain entry point about a second. Building needs no
GPU, so a machine with nvcc alone can prepare candidates for one that has the GPU.
"""

from __future__ import annotations

import re
from dataclasses import replace

from warpsmith.backends.build import Recipe, Workshop
from warpsmith.backends.entry import Dialect, make_contract
from warpsmith.backends.headers import CUDA_NAMES, missing_headers
from warpsmith.backends.toolchain import NO_NVCC, Compiler, find_nvcc, host_compiler
from warpsmith.core.build import Artifact, Availability, BuildFailure, Target
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Limits, Paths
from warpsmith.core.contract import Contract
from warpsmith.core.errors import ToolMissing, UsageError
from warpsmith.core.protocols import Backend
from warpsmith.core.task import Task
from warpsmith.hardware.device import gpus

NO_HOST = "nvcc needs a host compiler: install g++, or set NVCC_CCBIN"

DIALECT = Dialect(
    backend="cuda",
    language="CUDA C++17",
    fence="cuda",
    ctypes={
        "float64": "double",
        "float32": "float",
        "float16": "__half",
        "bfloat16": "__nv_bfloat16",
        "float8_e4m3fn": "__nv_fp8_e4m3",
        "float8_e5m2": "__nv_fp8_e5m2",
        "int64": "int64_t",
        "int32": "int32_t",
        "int16": "int16_t",
        "int8": "int8_t",
        "uint8": "uint8_t",
        "bool": "bool",
        "complex64": "float2",
        "complex128": "double2",
    },
    includes=(
        *("cstdint", "cstddef", "cstdio", "cstdlib", "cstring", "cmath", "cfloat", "climits"),
        *("algorithm", "limits", "cuda_runtime.h"),
    ),
    type_includes={
        "float16": "cuda_fp16.h",
        "bfloat16": "cuda_bf16.h",
        "float8_e4m3fn": "cuda_fp8.h",
        "float8_e5m2": "cuda_fp8.h",
    },
    type_preludes={},
    memory="device",
    alignment_bytes=256,
    table_note="an array in HOST memory that holds device pointers: give kernels its entries, not the array",
    rules=(
        "Launch everything on `(cudaStream_t)stream`: no other stream, no legacy default stream.",
        "Do not synchronise (no cudaDeviceSynchronize, no cudaStreamSynchronize) and do not allocate: "
        "the call must be capturable into a CUDA graph.",
        "Check launches: `return (int)cudaGetLastError();` at the end. More than 48 KiB of dynamic shared "
        "memory needs cudaFuncSetAttribute first.",
        "Compiled by nvcc with `-O3 --extended-lambda --expt-relaxed-constexpr` for the device's own "
        "architecture, without `-use_fast_math`; intrinsics such as `__expf` may be used.",
    ),
    type_rules={},
)

_FLAGS = (
    *("-std=c++17", "-O3", "-shared", "-lineinfo", "--extended-lambda", "--expt-relaxed-constexpr"),
    *("-Xcompiler", "-fPIC"),
    # Shared: faster to link, and the object's imports then show what the candidate itself calls.
    *("-cudart", "shared"),
    *("-Xptxas", "-v"),
    *("-Xcudafe", "--error_limit=5"),
    # Markers for profilers, which CUB sets: they would search for a library and load it.
    "-DNVTX_DISABLE",
    # Unused variables: true, and no help to anybody.
    "-diag-suppress=177,550",
)
_LINK_FLAGS = ("-Xlinker", "--no-undefined", "-Xlinker", "-z", "-Xlinker", "now")


class CudaBackend:
    """CUDA C++ on an NVIDIA GPU."""

    name: str = "cuda"
    suffixes: tuple[str, ...] = (".cu",)
    devices: tuple[str, ...] = ("cuda",)

    def __init__(self, workshop: Workshop | None = None) -> None:
        self._workshop = workshop or Workshop()

    def placed(self, paths: Paths, limits: Limits) -> CudaBackend:
        """The same backend, keeping its builds there and within these limits."""
        return CudaBackend(replace(self._workshop, paths=paths, limits=limits))

    def available(self) -> Availability:
        """Needs nvcc and g++ to build, and a GPU to run."""
        compiler = find_nvcc(self._workshop.environ)
        seen = gpus()
        device = seen[0].name if seen else "no GPU: CUDA candidates can be built here, not run"
        if compiler is None:
            return Availability(build=False, run=bool(seen), detail=NO_NVCC)
        if host_compiler(self._workshop.environ) is None:
            return Availability(build=False, run=bool(seen), detail=NO_HOST)
        return Availability(build=True, run=bool(seen), detail=f"{compiler.name}, {device}")

    def contract(self, task: Task, entry: str = "") -> Contract:
        """The C entry point with device pointers."""
        if entry:
            raise UsageError(f"--entry is for Python and torch extensions; a {self.name} kernel defines `launch`.")
        return make_contract(task, DIALECT)

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Compile for `target.arch`, e.g. "sm_90a"; no GPU is needed."""
        arch = re.fullmatch(r"sm_(\d+[af]?)", target.arch)
        if target.kind not in self.devices or arch is None:
            raise UsageError(f"backend cuda cannot build for {target.kind} {target.arch!r}; name it like sm_90a.")
        compiler = find_nvcc(self._workshop.environ)
        if compiler is None:
            raise ToolMissing(NO_NVCC + ".")
        if host_compiler(self._workshop.environ) is None:
            raise ToolMissing(NO_HOST + ".")
        recipe = _recipe(compiler, candidate, contract, arch[1])
        return self._workshop.build(candidate, contract, recipe)


def _recipe(compiler: Compiler, candidate: Candidate, contract: Contract, arch: str) -> Recipe:
    headers = missing_headers((f.text for f in candidate.files), CUDA_NAMES)
    return Recipe(
        compiler=compiler,
        target=arch,
        flags=(*_FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}", "-x", "cu"),
        include_flags=tuple(word for header in headers for word in ("-include", header)),
        link_flags=(
            *_LINK_FLAGS,
            *(("-Xlinker", "--no-as-needed", "-Xlinker", str(compiler.stdlib)) if compiler.stdlib else ()),
            *(f"-l{name}" for name in contract.libraries),
        ),
        suffixes=CudaBackend.suffixes,
    )


PLUGIN: Backend = CudaBackend()
