"""The device inside the process of a Python candidate: the judge's buffers as torch tensors.

Runs in the candidate's own process, so its measurements are claims.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from warpsmith.evaluator.candidate.device_memory import CpuDevice, CudaDevice, repeat_until_awake
from warpsmith.evaluator.cuda_replay.call_data import RecordedCall
from warpsmith.evaluator.cuda_replay.record import CallRecorder, Unrecordable
from warpsmith.evaluator.protocol.messages import MapWorkspace, Prepare

_WAKE_ELEMENTS = 1 << 16


class PythonCpuDevice(CpuDevice):
    """The judge's buffers as torch tensors on the CPU."""

    def __init__(self, prepare: Prepare, fds: Sequence[int]) -> None:
        super().__init__(prepare, fds)
        torch.set_num_threads(prepare.threads)
        self.torch_device = torch.device("cpu")
        self._waker = torch.zeros(_WAKE_ELEMENTS)  # enough for an operation on all threads

    def wake(self, most_ms: int) -> None:
        """Wake torch's threads with a small operation."""
        repeat_until_awake(lambda: self._waker.add_(1.0), most_ms)

    def tensor(self, start: int, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
        """A view of the arena; the pages of inputs are read-only."""
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        if nbytes == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        memory = (ctypes.c_char * nbytes).from_address(self.address(start))
        return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(tuple(shape))


class _DeviceBytes:
    """A raw device pointer for `torch.as_tensor`."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


class PythonCudaDevice(CudaDevice):
    """The judge's buffers as torch tensors on a GPU; torch works on the harness's stream."""

    def __init__(self, prepare: Prepare, fds: Sequence[int], heap: str = "") -> None:
        torch.cuda.init()
        super().__init__(prepare, fds)
        self._heap = heap  # the library that allocates in the workspace, loaded already; "" if there is none
        self._pool: Any = None
        self._kept: list[torch.cuda.CUDAGraph] = []  # a captured graph owns the memory that it uses
        self.torch_device = torch.device("cuda", prepare.device)
        torch.cuda.set_device(self.torch_device)
        self._torch_stream = torch.cuda.ExternalStream(self.stream, device=self.torch_device)
        torch.cuda.set_stream(self._torch_stream)
        torch.zeros(1, device=self.torch_device).add_(1.0)  # torch loads its libraries while files can be read
        self.runtime = _cuda_runtime()

    def map_workspace(self, message: MapWorkspace, fds: Sequence[int]) -> None:
        """Have torch allocate in the workspace while calls are recorded."""
        super().map_workspace(message, fds)
        if not self._heap:
            return
        ctypes.CDLL(self._heap).warpsmith_heap(ctypes.c_void_p(self.workspace), ctypes.c_size_t(message.nbytes))
        names = ("warpsmith_allocate", "warpsmith_release")
        allocator = torch.cuda.memory.CUDAPluggableAllocator(self._heap, *names)
        self._pool = torch.cuda.MemPool(allocator.allocator())

    def captured(self, recording: CallRecorder, call: Callable[[], int]) -> RecordedCall:
        """Record one call that allocates through torch; its results are kept."""
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
            return torch.empty(tuple(shape), dtype=dtype, device=self.torch_device)
        raw = torch.as_tensor(_DeviceBytes(self.address(start), nbytes), device=self.torch_device)
        return raw.view(dtype).view(tuple(shape))


def _cuda_runtime() -> ctypes.CDLL | None:
    """The CUDA runtime that torch has loaded: only there does a refused launch of an extension show."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.partition("/")[2]
        if "/libcudart" in f"/{path}":
            return ctypes.CDLL(f"/{path}")
    return None
