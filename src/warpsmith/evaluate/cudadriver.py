"""The few CUDA driver calls the harness needs, through ctypes on libcuda alone.

The candidate's process uses this instead of torch or a CUDA runtime: the driver's interface is the same
whatever toolkit built the candidate, and nothing but the driver is in its address space. The judge uses it
to own memory that can be shared. Handles are plain integers. Not a general binding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

_LIMIT_PERSISTING_L2 = 0x06
_CAPTURE_RELAXED = 2
_IPC_LAZY_PEER = 1
ILLEGAL_ADDRESS = 700
OUT_OF_MEMORY = 2


class CudaError(Exception):
    """A driver call failed."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.code = code
        self.text = text


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_byte * 64)]


class Driver:
    """One process's view of one device, in its primary context (the one a CUDA runtime uses too)."""

    def __init__(self, index: int) -> None:
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError("dlopen", -1, str(error)) from None
        self.call("cuInit", c_uint(0))
        device = c_int()
        self.call("cuDeviceGet", byref(device), c_int(index))
        self.index = index
        self.device = device
        self.context = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)

    def raw(self, name: str, *args: object) -> int:
        """A driver call; its error code."""
        try:
            function = getattr(self._lib, name)
        except AttributeError:
            raise CudaError(name, -1, "this driver does not have it; install a newer one") from None
        return int(function(*args))

    def call(self, name: str, *args: object) -> None:
        """A driver call that must succeed."""
        code = self.raw(name, *args)
        if code:
            raise CudaError(name, code, self.describe(code))

    def attribute(self, number: int) -> int:
        """A property of the device, by the driver's number for it."""
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), c_int(number), self.device)
        return value.value

    def describe(self, code: int) -> str:
        """The driver's words for an error code."""
        text = c_char_p()
        self._lib.cuGetErrorString(c_int(code), byref(text))
        name = c_char_p()
        self._lib.cuGetErrorName(c_int(code), byref(name))
        words = (text.value or b"unknown error").decode()
        return f"{words} ({(name.value or b'?').decode()})"

    # --- memory ---

    def allocate(self, nbytes: int) -> int:
        """Device memory of its own allocation (never a part of an allocator's pool, so it can be shared alone)."""
        pointer = c_ulonglong()
        self.call("cuMemAlloc_v2", byref(pointer), c_size_t(nbytes))
        return pointer.value

    def free(self, pointer: int) -> None:
        """Give an allocation back."""
        self.call("cuMemFree_v2", c_ulonglong(pointer))

    def export(self, pointer: int) -> str:
        """The handle by which another process opens this allocation, as hex."""
        handle = _IpcHandle()
        self.call("cuIpcGetMemHandle", byref(handle), c_ulonglong(pointer))
        return bytes(handle.reserved).hex()

    def open(self, handle_hex: str) -> int:
        """Map another process's allocation."""
        handle = _IpcHandle()
        ctypes.memmove(byref(handle), bytes.fromhex(handle_hex), 64)
        pointer = c_ulonglong()
        self.call("cuIpcOpenMemHandle_v2", byref(pointer), handle, c_uint(_IPC_LAZY_PEER))
        return pointer.value

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def upload(self, pointer: int, data: bytes) -> None:
        """Copy bytes to the device."""
        if data:
            self.call("cuMemcpyHtoD_v2", c_ulonglong(pointer), c_char_p(data), c_size_t(len(data)))

    def download(self, pointer: int, nbytes: int) -> bytes:
        """Copy bytes from the device."""
        data = ctypes.create_string_buffer(nbytes)
        if nbytes:
            self.call("cuMemcpyDtoH_v2", data, c_ulonglong(pointer), c_size_t(nbytes))
        return data.raw

    def fill_async(self, pointer: int, value: int, nbytes: int, stream: int) -> None:
        """memset on a stream."""
        self.call("cuMemsetD8Async", c_ulonglong(pointer), ctypes.c_ubyte(value), c_size_t(nbytes), c_void_p(stream))

    # --- streams, events, graphs ---

    def stream(self) -> int:
        """A stream that waits for the legacy default stream, so that a kernel launched there is still timed."""
        handle = c_void_p()
        self.call("cuStreamCreate", byref(handle), c_uint(0))
        return int(handle.value or 0)

    def event(self) -> int:
        """A timing event."""
        handle = c_void_p()
        self.call("cuEventCreate", byref(handle), c_uint(0))
        return int(handle.value or 0)

    def record(self, event: int, stream: int) -> None:
        """Mark a point on a stream."""
        self.call("cuEventRecord", c_void_p(event), c_void_p(stream))

    def elapsed_ns(self, start: int, stop: int) -> int:
        """Time between two completed events."""
        milliseconds = c_float()
        name = "cuEventElapsedTime_v2" if hasattr(self._lib, "cuEventElapsedTime_v2") else "cuEventElapsedTime"
        self.call(name, byref(milliseconds), c_void_p(start), c_void_p(stop))
        return round(milliseconds.value * 1e6)

    def synchronize(self) -> tuple[int, str]:
        """Wait for everything on the device, whatever stream it is on; the error code and text (0, "" if none)."""
        code = self.raw("cuCtxSynchronize")
        return (code, self.describe(code)) if code else (0, "")

    def begin_capture(self, stream: int) -> None:
        """Start recording a graph."""
        self.call("cuStreamBeginCapture_v2", c_void_p(stream), c_int(_CAPTURE_RELAXED))

    def end_capture(self, stream: int) -> int:
        """Stop recording; the graph."""
        graph = c_void_p()
        self.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
        if not graph.value:
            raise CudaError("cuStreamEndCapture", -1, "nothing was captured")
        nodes = c_size_t()
        self.call("cuGraphGetNodes", graph, None, byref(nodes))
        if nodes.value == 0:
            raise CudaError("cuGraphGetNodes", -1, "the entry point put no work on `stream`")
        return int(graph.value)

    def instantiate(self, graph: int) -> int:
        """An executable graph."""
        executable = c_void_p()
        self.call("cuGraphInstantiateWithFlags", byref(executable), c_void_p(graph), c_ulonglong(0))
        return int(executable.value or 0)

    def chain(self, graphs: Sequence[int], stream: int) -> int:
        """An executable graph of these graphs, one after the other, ready on the device."""
        whole, last = c_void_p(), c_void_p()
        self.call("cuGraphCreate", byref(whole), c_uint(0))
        for position, graph in enumerate(graphs):
            made = c_void_p()
            before = (byref(last), c_size_t(1)) if position else (None, c_size_t(0))
            self.call("cuGraphAddChildGraphNode", byref(made), whole, *before, c_void_p(graph))
            last = made
        try:
            executable = self.instantiate(int(whole.value or 0))
        finally:
            self.call("cuGraphDestroy", whole)
        self.call("cuGraphUpload", c_void_p(executable), c_void_p(stream))
        return executable

    def discard(self, *, graph: int = 0, executable: int = 0) -> None:
        """Give a graph back, in either form."""
        if graph:
            self.call("cuGraphDestroy", c_void_p(graph))
        if executable:
            self.call("cuGraphExecDestroy", c_void_p(executable))

    def replay(self, graph: int, stream: int) -> None:
        """Launch an executable graph."""
        self.call("cuGraphLaunch", c_void_p(graph), c_void_p(stream))

    def forget_persisting_lines(self) -> None:
        """Take back any part of the L2 cache that was set aside to survive the flush."""
        self.raw("cuCtxResetPersistingL2Cache")
        self.raw("cuCtxSetLimit", c_int(_LIMIT_PERSISTING_L2), c_size_t(0))
