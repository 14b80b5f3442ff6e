"""Tests a sanitizer before its result is used: it must find a fault that was planted in a canary program.

A sanitizer that does not work (a missing runtime, an unknown driver, a sandbox it cannot run in) finds nothing, which
would look like a passed check. A successful test is stored for the same tool and machine.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith._version import __version__
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import HarnessFault
from warpsmith.model.task import Precision, ScalarKind, ScalarSpec, Task, TaskKind, TensorRole, TensorSpec, Workload
from warpsmith.system.files import put_in_place
from warpsmith.verification.standalone_run import InputFiles

_COUNT = 64
_FORMAT = 1

CANARY_TASK = Task(
    name="canary",
    source="",
    kind=TaskKind.NATIVE,
    tensors=(
        TensorSpec("x", "float32", ("n",), TensorRole.INPUT),
        TensorSpec("out", "float32", ("n",), TensorRole.OUTPUT),
    ),
    scalars=(ScalarSpec("fault", ScalarKind.INT, 0),),
    workloads=(Workload("small", (("n", _COUNT),)),),
    precision=Precision.FP32,
    digest="canary",
)

FAULTS = {
    "address_sanitizer": 1,
    "undefined_behaviour": 2,
    "memcheck": 1,
    "racecheck": 2,
    "initcheck": 3,
    "synccheck": 4,
}
"""By tool: the value of `fault` that plants the fault the tool must find."""

_CPU = """
int launch(const float* x, float* out, int64_t fault, int64_t n, void*, void*) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i];
  if (fault == 1) out[0] = x[n];
  if (fault == 2) {
    int sum = INT_MAX - 1;
    sum += static_cast<int>(n);
    out[0] = static_cast<float>(sum);
  }
  return 0;
}
"""
_CUDA = """
__global__ void outside(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x + blockDim.x]; }
__global__ void race(const float* x, float* out) {
  __shared__ float kept[64];
  kept[threadIdx.x] = x[threadIdx.x];
  out[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
__global__ void unwritten(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x] + 0.5f * out[threadIdx.x]; }
__global__ void divergent(const float* x, float* out) {
  if (threadIdx.x < 48) __syncthreads();
  out[threadIdx.x] = x[threadIdx.x];
}
int launch(const float* x, float* out, int64_t fault, int64_t n, void*, void* stream) {
  const cudaStream_t s = static_cast<cudaStream_t>(stream);
  const unsigned threads = static_cast<unsigned>(n);
  if (fault == 1) outside<<<1, threads, 0, s>>>(x, out);
  if (fault == 2) race<<<1, threads, 0, s>>>(x, out);
  if (fault == 3) unwritten<<<1, threads, 0, s>>>(x, out);
  if (fault == 4) divergent<<<1, threads, 0, s>>>(x, out);
  return static_cast<int>(cudaGetLastError());
}
"""


@dataclass(frozen=True)
class ToolProof:
    """Whether a tool found the planted fault."""

    works: bool
    confined: bool  # inside the whole sandbox; else only as another user
    detail: str = ""  # why the fault was not found


_PROOF = TypeAdapter(ToolProof)


def canary_candidate(backend: str) -> Candidate:
    """The canary program."""
    name, text = ("canary.cpp", _CPU) if backend == "cpu" else ("canary.cu", _CUDA)
    return Candidate((SourceFile(name, text),), backend)


def canary_inputs(folder: Path) -> InputFiles:
    """Write the inputs of the canary program to a folder."""
    nbytes = 4 * _COUNT
    (folder / "case0").mkdir(parents=True, exist_ok=True)
    (folder / "case0" / "x.bin").write_bytes(struct.pack(f"{_COUNT}f", *range(_COUNT)))
    return InputFiles("case0", "small", {"n": _COUNT}, {"x": nbytes}, {"out": nbytes})


class ProofCache:
    """Stored results on this machine, by tool and version."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "instruments"

    def of(self, tool: str, identity: str, prove: Callable[[], ToolProof]) -> ToolProof:
        """The stored proof of a tool, else that of `prove`; `identity` names everything the proof depends on."""
        text = "\0".join((tool, identity, __version__, str(_FORMAT)))
        path = self._folder / f"{tool}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        try:
            return _PROOF.validate_json(path.read_bytes())
        except (OSError, ValidationError):
            proof = prove()
        if proof.works:  # a tool that does not work may be repaired
            _keep(path, _PROOF.dump_json(proof))
        return proof


def _keep(path: Path, data: bytes) -> None:
    try:
        put_in_place(path, data)
    except OSError as fault:
        raise HarnessFault(f"{path.parent} cannot be written ({fault.strerror}); free some space.") from None
