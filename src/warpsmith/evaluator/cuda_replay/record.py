"""Reads from a captured CUDA graph what a call launches, fills and copies.

Runs in the candidate's process, so the result is a claim. Standard library only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from warpsmith.evaluator import cuda_driver as cu
from warpsmith.evaluator.cuda_driver import CudaError, Driver
from warpsmith.evaluator.cuda_replay.call_data import (
    MOST_COPIED_BYTES,
    MOST_STEPS,
    NO_CARVEOUT,
    NO_CLUSTER,
    CallStep,
    DevicePlace,
    Edge,
    KernelLaunch,
    MemoryCopy,
    MemoryFill,
    RecordedCall,
    Size3,
)

_MOST_VARIABLE_BYTES = 256 << 10  # of all variables together
_MOST_PARAMETERS = 4096
_ATTRIBUTE_IS_MEMORY_TYPE = 2
_IN_DEVICE = 2


class Unrecordable(Exception):
    """A call consists not only of launches, fills and copies; the text completes "because it ..."."""


class CallRecorder:
    """Records the calls of one candidate."""

    def __init__(
        self, driver: Driver, stream: int, variables: Mapping[str, int], images: Mapping[int, str] | None = None
    ) -> None:
        self._driver = driver
        self._images = images or {}  # digests of the images of kernels, by the kernel's handle, if known
        self._stream = stream
        self._sizes = variables  # of the candidate's device code: sizes by name
        self._places: dict[str, tuple[int, int]] = {}  # address and size of the variables found so far
        self._modules: set[int] = set()

    def record(self, call: Callable[[], int]) -> RecordedCall:
        """Record one call, made while the stream is captured: nothing runs on the device."""
        try:
            self._driver.begin_capture(self._stream)
            returned = call()
            graph = self._driver.end_capture(self._stream)
        except CudaError as refused:
            raise Unrecordable(f"cannot be captured into a graph ({refused.text})") from None
        try:
            if returned:
                raise Unrecordable(f"returned {returned} while it was captured")
            return self.read(graph)
        except CudaError as refused:
            raise Unrecordable(f"cannot be read back from a graph ({refused})") from None
        finally:
            self._driver.discard(graph=graph)

    def variables(self) -> dict[str, bytes]:
        """The present contents of the variables of the recorded kernels' modules."""
        if sum(nbytes for _, nbytes in self._places.values()) > _MOST_VARIABLE_BYTES:
            raise Unrecordable(f"has more than {_MOST_VARIABLE_BYTES >> 10} KiB of device variables")
        return {name: self._driver.download(*place) for name, place in self._places.items()}

    # --- graphs ---

    def read(self, graph: int) -> RecordedCall:
        """The call in a captured graph; raises Unrecordable or CudaError."""
        nodes = self._nodes(graph)
        if len(nodes) > MOST_STEPS:
            raise Unrecordable(f"launches {len(nodes)} things in one call")
        edges = self._edges(graph)
        order = _sorted(nodes, [(before, after) for before, after, _ in edges])
        position = {node: index for index, node in enumerate(order)}
        for node in nodes:  # first: a fill or copy may use a variable of a later kernel's module
            if self._kind(node) == cu.KERNEL:
                self._locate(self._kernel(node)[1])
        steps = tuple(self._step(node) for node in order)
        links = (
            Edge(position[a], position[b], data.type == cu.PROGRAMMATIC, data.from_port == cu.AT_START)
            for a, b, data in edges
        )
        return RecordedCall(steps, tuple(sorted(links, key=lambda e: (e.before, e.after))))

    def _nodes(self, graph: int) -> list[int]:
        count = c_size_t()
        self._driver.call("cuGraphGetNodes", c_void_p(graph), None, byref(count))
        nodes = (c_void_p * max(1, count.value))()
        self._driver.call("cuGraphGetNodes", c_void_p(graph), nodes, byref(count))
        return [int(nodes[i] or 0) for i in range(count.value)]

    def _edges(self, graph: int) -> list[tuple[int, int, cu.EdgeData]]:
        count = c_size_t()
        self._driver.call("cuGraphGetEdges_v2", c_void_p(graph), None, None, None, byref(count))
        if not count.value:
            return []
        before, after = (c_void_p * count.value)(), (c_void_p * count.value)()
        data = (cu.EdgeData * count.value)()
        self._driver.call("cuGraphGetEdges_v2", c_void_p(graph), before, after, data, byref(count))
        return [(int(before[i] or 0), int(after[i] or 0), data[i]) for i in range(count.value)]

    def _kind(self, node: int) -> int:
        kind = c_int()
        self._driver.call("cuGraphNodeGetType", c_void_p(node), byref(kind))
        return kind.value

    def _step(self, node: int) -> CallStep:
        kind = self._kind(node)
        if kind == cu.KERNEL:
            return self._launch(node)
        if kind == cu.MEMSET:
            return self._fill(node)
        if kind == cu.MEMCPY:
            return self._copy(node)
        raise Unrecordable(f"puts something else than kernels, fills and copies on the stream (node type {kind})")

    # --- kernels ---

    def _kernel(self, node: int) -> tuple[cu.KernelNode, c_void_p]:
        given = cu.KernelNode()
        self._driver.call("cuGraphKernelNodeGetParams_v2", c_void_p(node), byref(given))
        function = c_void_p(given.function)
        if not given.function:
            self._driver.call("cuKernelGetFunction", byref(function), c_void_p(given.kernel))
        return given, function

    def _launch(self, node: int) -> KernelLaunch:
        given, function = self._kernel(node)
        name = c_char_p()
        self._driver.call("cuFuncGetName", byref(name), function)
        if any(self._attribute(node, cu.ACCESS_POLICY, 32)[8:16]):  # the size of the access policy window
            raise Unrecordable("sets a part of the cache aside for itself")
        return KernelLaunch(
            name=(name.value or b"").decode(errors="replace"),
            image=self._images.get(int(function.value or 0), ""),
            grid=_size(given.grid),
            block=_size(given.block),
            shared_bytes=int(given.shared_bytes),
            parameters=self._parameters(function, given),
            cluster=self._cluster(node),
            cooperative=any(self._attribute(node, cu.COOPERATIVE, 4)),
            carveout_percent=self._carveout(node),
        )

    def _parameters(self, function: c_void_p, given: cu.KernelNode) -> tuple[tuple[int, bytes], ...]:
        found: list[tuple[int, bytes]] = []
        while len(found) < _MOST_PARAMETERS:
            offset, size = c_size_t(), c_size_t()
            position = c_size_t(len(found))
            code = self._driver.raw("cuFuncGetParamInfo", function, position, byref(offset), byref(size))
            if code or not size.value:
                break
            if given.parameters:
                value = ctypes.string_at(given.parameters[len(found)], size.value)
            elif given.extra and given.extra[0] == 1:  # one buffer with all of them
                value = ctypes.string_at(given.extra[1] + offset.value, size.value)
            else:
                raise Unrecordable("passes parameters in a way that cannot be read back")
            found.append((offset.value, value))
        return tuple(found)

    def _attribute(self, node: int, number: int, nbytes: int) -> bytes:
        value = (ctypes.c_ubyte * cu.ATTRIBUTE_BYTES)()
        if self._driver.raw("cuGraphKernelNodeGetAttribute", c_void_p(node), c_int(number), byref(value)):
            return bytes(nbytes)
        return bytes(value)[:nbytes]

    def _cluster(self, node: int) -> Size3:
        raw = self._attribute(node, cu.CLUSTER, 12)
        x, y, z = (int.from_bytes(raw[i : i + 4], "little") for i in (0, 4, 8))
        return (x, y, z) if x and y and z else NO_CLUSTER

    def _carveout(self, node: int) -> int:
        percent = int.from_bytes(self._attribute(node, cu.CARVEOUT, 4), "little", signed=True)
        return percent if 0 < percent <= 100 else NO_CARVEOUT

    def _locate(self, function: c_void_p) -> None:
        """Find the addresses of the variables of a kernel's module."""
        module = c_void_p()
        if not self._sizes or self._driver.raw("cuFuncGetModule", byref(module), function):
            return
        if int(module.value or 0) in self._modules:
            return
        self._modules.add(int(module.value or 0))
        for name in self._sizes:
            address, nbytes = c_ulonglong(), c_size_t()
            where = (byref(address), byref(nbytes), module, c_char_p(name.encode()))
            if name not in self._places and not self._driver.raw("cuModuleGetGlobal_v2", *where):
                self._places[name] = (int(address.value), int(nbytes.value))

    # --- memory ---

    def _fill(self, node: int) -> MemoryFill:
        given = cu.MemsetNode()
        self._driver.call("cuGraphMemsetNodeGetParams", c_void_p(node), byref(given))
        rows = max(1, int(given.height))
        pitch = int(given.pitch) if rows > 1 else 0
        place, size = self._place(int(given.target)), int(given.element_bytes)
        return MemoryFill(place, int(given.value), size, int(given.width), rows, pitch)

    def _copy(self, node: int) -> MemoryCopy:
        given = cu.MemcpyNode()
        self._driver.call("cuGraphMemcpyNodeGetParams", c_void_p(node), byref(given))
        if max(given.height, 1) * max(given.depth, 1) != 1 or cu.ARRAY in (given.source.kind, given.target.kind):
            raise Unrecordable("copies more than one row at a time")
        nbytes = int(given.width)
        if given.target.kind == cu.HOST_MEMORY:
            raise Unrecordable("copies to host memory")
        target = self._place(int(given.target.device or 0) + int(given.target.x))
        origin = int((given.source.host if given.source.kind == cu.HOST_MEMORY else given.source.device) or 0)
        origin += int(given.source.x)
        if given.source.kind == cu.HOST_MEMORY or not self._on_device(origin):
            if nbytes > MOST_COPIED_BYTES:
                raise Unrecordable(f"copies {nbytes} bytes from host memory")
            return MemoryCopy(target, ctypes.string_at(origin, nbytes), nbytes)
        return MemoryCopy(target, self._place(origin), nbytes)

    def _on_device(self, address: int) -> bool:
        kind = c_uint()
        asked = (byref(kind), c_int(_ATTRIBUTE_IS_MEMORY_TYPE), c_ulonglong(address))
        return self._driver.raw("cuPointerGetAttribute", *asked) == 0 and kind.value == _IN_DEVICE

    def _place(self, address: int) -> DevicePlace:
        for name, (start, nbytes) in self._places.items():
            if start <= address < start + nbytes:
                return DevicePlace(address - start, name)
        return DevicePlace(address)


def _size(three: Sequence[int]) -> Size3:
    x, y, z = three
    return int(x), int(y), int(z)


def _sorted(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[int]:
    """The nodes in an order in which each comes after those it waits for."""
    waits = {node: {before for before, after in edges if after == node} for node in nodes}
    order: list[int] = []
    while waits:
        free = next((node for node, before in waits.items() if not before), None)
        if free is None:
            raise Unrecordable("has a graph that waits for itself")
        order.append(free)
        del waits[free]
        for before in waits.values():
            before.discard(free)
    return order
