"""Proves a sanitizer before it is believed: it must find a fault that was planted for it, on this very machine.

A sanitizer that does not work (a missing runtime, a driver it does not know, a sandbox it cannot live in) finds
nothing, which would look like a verification. The outcome is kept on disk for the same tools.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith._version import __version__
from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.errors import HarnessFault
from warpsmith.core.inplace import put_in_place
from warpsmith.core.task import Precision, ScalarKind, ScalarSpec, Task, TensorRole, TensorSpec, Workload
from warpsmith.evaluate.verification.solorun import Sample

_COUNT = 64
_FORMAT = 1

TASK = Task(
    name="canary",
    source="",
    kind="native",
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
"""The value of `fault` that plants what a tool must find."""

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
class Proof:
    """Whether a tool found its planted fault."""

    works: bool
    confined: bool  # inside the whole sandbox; otherwise as a user without rights only
    detail: str = ""  # why not


_PROOF = TypeAdapter(Proof)


def candidate(backend: str) -> Candidate:
    """The program with the planted faults."""
    name, text = ("canary.cpp", _CPU) if backend == "cpu" else ("canary.cu", _CUDA)
    return Candidate((SourceFile(name, text),), backend)


def sample(folder: Path) -> Sample:
    """Its inputs, written to a folder."""
    nbytes = 4 * _COUNT
    (folder / "case0").mkdir(parents=True, exist_ok=True)
    (folder / "case0" / "x.bin").write_bytes(struct.pack(f"{_COUNT}f", *range(_COUNT)))
    return Sample("case0", "small", {"n": _COUNT}, {"x": nbytes}, {"out": nbytes})


class Proofs:
    """What has been proven on this machine, by tool and version."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "instruments"

    def of(self, tool: str, identity: str, prove: Callable[[], Proof]) -> Proof:
        """The proof of a tool; made once for the same `identity`, which names all it depends on."""
        text = "\0".join((tool, identity, __version__, str(_FORMAT)))
        path = self._folder / f"{tool}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        try:
            return _PROOF.validate_json(path.read_bytes())
        except (OSError, ValidationError):
            proof = prove()
        if proof.works:  # what does not work may be repaired
            _keep(path, _PROOF.dump_json(proof))
        return proof


def _keep(path: Path, data: bytes) -> None:
    try:
        put_in_place(path, data)
    except OSError as fault:
        raise HarnessFault(f"{path.parent} cannot be written ({fault.strerror}); free some space.") from None
