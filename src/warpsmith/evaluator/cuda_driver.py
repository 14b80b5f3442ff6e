"""The CUDA driver calls that the harness needs, through ctypes on libcuda, and the driver's structures of graph nodes.

The candidate's process uses the driver instead of torch or a CUDA runtime: its interface is the same for all toolkits,
and no other library is loaded. The judge uses it for memory that can be shared. Handles are integers. Standard library
only.
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
        """The driver's text for an error code."""
        text = c_char_p()
        self._lib.cuGetErrorString(c_int(code), byref(text))
        name = c_char_p()
        self._lib.cuGetErrorName(c_int(code), byref(name))
        words = (text.value or b"unknown error").decode()
        return f"{words} ({(name.value or b'?').decode()})"

    # --- memory ---

    def allocate(self, nbytes: int) -> int:
        """Allocate device memory that can be shared on its own, not as a part of an allocator's pool."""
        pointer = c_ulonglong()
        self.call("cuMemAlloc_v2", byref(pointer), c_size_t(nbytes))
        return pointer.value

    def free(self, pointer: int) -> None:
        """Free an allocation."""
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
        """A stream that waits for the legacy default stream, so that kernels launched there are timed too."""
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
        """Free a graph, in either form."""
        if graph:
            self.call("cuGraphDestroy", c_void_p(graph))
        if executable:
            self.call("cuGraphExecDestroy", c_void_p(executable))

    def replay(self, graph: int, stream: int) -> None:
        """Launch an executable graph."""
        self.call("cuGraphLaunch", c_void_p(graph), c_void_p(stream))

    def forget_persisting_lines(self) -> None:
        """Reset the part of the L2 cache that was reserved to survive the flush."""
        self.raw("cuCtxResetPersistingL2Cache")
        self.raw("cuCtxSetLimit", c_int(_LIMIT_PERSISTING_L2), c_size_t(0))


KERNEL, MEMCPY, MEMSET, EMPTY = 0, 1, 2, 5  # kinds of nodes
HOST_MEMORY, DEVICE_MEMORY, ARRAY = 1, 2, 3  # sides of a copy

# Attributes of a launch.
ACCESS_POLICY, COOPERATIVE, CLUSTER = 1, 2, 4
CARVEOUT = 14
ATTRIBUTE_BYTES = 64

# Attributes of a function.
MOST_DYNAMIC_SHARED, ANY_CLUSTER = 8, 14

PROGRAMMATIC = 1  # type of an edge
AT_START = 2  # its port at the first node: as soon as that has begun


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, second version."""

    _fields_ = [
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("parameters", ctypes.POINTER(c_void_p)),
        ("extra", ctypes.POINTER(c_void_p)),
        ("kernel", c_void_p),
        ("context", c_void_p),
    ]


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = [
        ("target", c_ulonglong),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element_bytes", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    ]


class Side3D(ctypes.Structure):
    """One half of CUDA_MEMCPY3D."""

    _fields_ = [
        ("x", c_size_t),
        ("y", c_size_t),
        ("z", c_size_t),
        ("level", c_size_t),
        ("kind", c_int),
        ("host", c_void_p),
        ("device", c_ulonglong),
        ("array", c_void_p),
        ("reserved", c_void_p),
        ("pitch", c_size_t),
        ("height", c_size_t),
    ]


class MemcpyNode(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [
        ("source", Side3D),
        ("target", Side3D),
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
    ]


class EdgeData(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = [
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    ]


SIZES = {KernelNode: 72, MemsetNode: 40, MemcpyNode: 200, EdgeData: 8}
"""Sizes in the driver's headers, which a test compares with the structures above."""
