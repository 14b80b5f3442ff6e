"""A device as the process of a Python candidate sees it: the judge's buffers as torch tensors, torch's own graphs.

Used in the candidate's own process; what it measures is a claim.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from warpsmith.evaluate.hosts.sides import CpuSide, CudaSide, until_prompt
from warpsmith.evaluate.messages import MapWorkspace, Prepare, Sample, Sampled
from warpsmith.evaluate.replay.callgraph import Call
from warpsmith.evaluate.replay.recording import Recording, Unrecordable

_WAKE_ELEMENTS = 1 << 16


class PythonCpuSide(CpuSide):
    """The judge's buffers as torch tensors on the CPU."""

    def __init__(self, prepare: Prepare, fds: Sequence[int]) -> None:
        super().__init__(prepare, fds)
        torch.set_num_threads(prepare.threads)
        self.device = torch.device("cpu")
        self._waker = torch.zeros(_WAKE_ELEMENTS)  # enough for an operation on all threads

    def wake(self, most_ms: int) -> None:
        """Wake torch's own threads, with an operation of ours."""
        until_prompt(lambda: self._waker.add_(1.0), most_ms)

    def tensor(self, start: int, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
        """A view of the arena; what it shows of an input cannot be written, whatever torch thinks."""
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        if nbytes == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        memory = (ctypes.c_char * nbytes).from_address(self.address(start))
        return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(tuple(shape))


class _DeviceBytes:
    """Presents a raw device pointer to torch."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


class PythonCudaSide(CudaSide):
    """The judge's buffers as torch tensors on a GPU; torch works on the harness's stream."""

    def __init__(self, prepare: Prepare, fds: Sequence[int], heap: str = "") -> None:
        torch.cuda.init()
        super().__init__(prepare, fds)
        self._heap = heap  # the library that allocates in the workspace; it is loaded already
        self._pool: Any = None
        self._kept: list[torch.cuda.CUDAGraph] = []  # what was captured owns the memory that it works on
        self.device = torch.device("cuda", prepare.device)
        torch.cuda.set_device(self.device)
        self._torch_stream = torch.cuda.ExternalStream(self.stream, device=self.device)
        torch.cuda.set_stream(self._torch_stream)
        torch.zeros(1, device=self.device).add_(1.0)  # loads what torch needs, while files can be read
        self.runtime = _cuda_runtime()

    def map_workspace(self, message: MapWorkspace, fds: Sequence[int]) -> None:
        """For a Python candidate that is where torch allocates while its calls are recorded."""
        super().map_workspace(message, fds)
        if not self._heap:
            return
        ctypes.CDLL(self._heap).warpsmith_heap(ctypes.c_void_p(self.workspace), ctypes.c_size_t(message.nbytes))
        names = ("warpsmith_allocate", "warpsmith_release")
        allocator = torch.cuda.memory.CUDAPluggableAllocator(self._heap, *names)
        self._pool = torch.cuda.MemPool(allocator.allocator())

    def captured(self, recording: Recording, call: Callable[[], int]) -> Call:
        """One call that allocates through torch, as data; its results stay where they are."""
        if self._pool is None:
            raise Unrecordable("works on tensors that torch allocates")
        try:
            graph = torch.cuda.CUDAGraph(keep_graph=True)
        except TypeError:
            raise Unrecordable("needs a newer torch (2.8) to be recorded") from None
        graph.capture_begin(pool=self._pool.id, capture_error_mode="relaxed")
        try:
            call()
        finally:
            graph.capture_end()
        self._kept.append(graph)
        return recording.read(graph.raw_cuda_graph())

    def tensor(self, start: int, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
        """A view of the arena."""
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        if nbytes == 0:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        raw = torch.as_tensor(_DeviceBytes(self.address(start), nbytes), device=self.device)
        return raw.view(dtype).view(tuple(shape))

    def sample(self, calls: Sequence[Callable[[], int]], message: Sample, library: Any) -> Sampled:
        """As for a native candidate, whose calls return a number."""
        driver = self.driver
        driver.forget_persisting_lines()
        if self._flush and message.flush:
            driver.fill_async(self._flush, 0x5A, self._flush_bytes, self.stream)
        driver.record(self._start, self.stream)
        for call in calls:
            call()
        driver.record(self._stop, self.stream)
        code, text = self.settle(library)
        return Sampled(0 if code else driver.elapsed_ns(self._start, self._stop), 0, code, text)


def _cuda_runtime() -> ctypes.CDLL | None:
    """The CUDA runtime that torch has loaded: an extension's refused launch shows only there."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.partition("/")[2]
        if "/libcudart" in f"/{path}":
            return ctypes.CDLL(f"/{path}")
    return None
