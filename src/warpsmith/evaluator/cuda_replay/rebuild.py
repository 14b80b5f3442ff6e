"""Builds CUDA graphs from recorded calls: loads device images, sets variables, adds nodes.

Runs in the replayer, where no host code of a candidate ever ran. What the host claimed about a kernel must agree with
the driver of this process. Standard library only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

from warpsmith.evaluator import cuda_driver as cu
from warpsmith.evaluator.cuda_driver import CudaError, Driver
from warpsmith.evaluator.cuda_replay.call_data import (
    NO_CARVEOUT,
    NO_CLUSTER,
    CallStep,
    DevicePlace,
    Edge,
    KernelLaunch,
    MemoryCopy,
    MemoryFill,
    RecordedCall,
)
from warpsmith.evaluator.cuda_replay.device_images import DeviceImage
from warpsmith.evaluator.cuda_replay.rules import ReplayRules, Unreplayable

_PLAIN_SHARED_BYTES = 48 << 10  # above, the kernel needs an attribute
_PORTABLE_CLUSTER = 8


class _Image:
    """A device image loaded by the driver."""

    def __init__(self, driver: Driver, data: bytes) -> None:
        self._driver = driver
        self._data = ctypes.create_string_buffer(data, len(data))  # kept alive: the driver may load code lazily
        self._library = c_void_p()
        nothing = (None, None, c_uint(0), None, None, c_uint(0))
        driver.call("cuLibraryLoadData", byref(self._library), self._data, *nothing)

    def function(self, name: str) -> int:
        kernel, function = c_void_p(), c_void_p()
        self._driver.call("cuLibraryGetKernel", byref(kernel), self._library, c_char_p(name.encode()))
        self._driver.call("cuKernelGetFunction", byref(function), kernel)
        return int(function.value or 0)

    def variable(self, name: str) -> tuple[int, int]:
        address, nbytes = c_ulonglong(), c_size_t()
        self._driver.call("cuLibraryGetGlobal", byref(address), byref(nbytes), self._library, c_char_p(name.encode()))
        return int(address.value), int(nbytes.value)


class GraphBuilder:
    """Builds the graphs of one candidate's calls."""

    def __init__(self, driver: Driver, rules: ReplayRules) -> None:
        self._driver = driver
        self._rules = rules
        self._images: dict[str, _Image] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._keep: list[object] = []  # parameters and constants are read when a graph is instantiated

    def build(self, call: RecordedCall) -> int:
        """The graph of one call; raises Unreplayable or CudaError."""
        self._rules.check(call)
        graph = c_void_p()
        self._driver.call("cuGraphCreate", byref(graph), c_uint(0))
        nodes = [self._add(graph, step) for step in call.steps]
        for edge in call.edges:
            self._connect(graph, nodes, edge)
        return int(graph.value or 0)

    def set_variable(self, symbol: str, data: bytes) -> None:
        """Give a variable the contents that it had in the host."""
        image = self._rules.image_with(DevicePlace(0, symbol))
        address, nbytes = self._loaded(image).variable(symbol)
        if len(data) != nbytes:
            raise Unreplayable(f"it has {nbytes} bytes in {symbol[:80]}, and {len(data)} were recorded")
        self._driver.upload(address, data)

    def _loaded(self, image: DeviceImage) -> _Image:
        if image.digest not in self._images:
            self._images[image.digest] = _Image(self._driver, image.data)
        return self._images[image.digest]

    # --- nodes ---

    def _add(self, graph: c_void_p, step: CallStep) -> c_void_p:
        made = c_void_p()
        if isinstance(step, KernelLaunch):
            given = self._kernel(step)
            self._driver.call("cuGraphAddKernelNode_v2", byref(made), graph, None, c_size_t(0), byref(given))
            self._set_attributes(made, step)
            return made
        memory, name = (self._fill(step), "Memset") if isinstance(step, MemoryFill) else (self._copy(step), "Memcpy")
        arguments = (byref(made), graph, None, c_size_t(0), byref(memory), self._driver.context)
        self._driver.call(f"cuGraphAdd{name}Node", *arguments)
        return made

    def _kernel(self, step: KernelLaunch) -> cu.KernelNode:
        function = self._function(step)
        own, given = self._layout(function), [(offset, len(value)) for offset, value in step.parameters]
        if own != given:
            raise Unreplayable("it passes parameters that its kernel does not take")
        if step.shared_bytes > _PLAIN_SHARED_BYTES:
            most = c_int(step.shared_bytes)
            self._driver.call("cuFuncSetAttribute", c_void_p(function), c_int(cu.MOST_DYNAMIC_SHARED), most)
        if step.cluster[0] * step.cluster[1] * step.cluster[2] > _PORTABLE_CLUSTER:
            self._driver.call("cuFuncSetAttribute", c_void_p(function), c_int(cu.ANY_CLUSTER), c_int(1))
        values = [ctypes.create_string_buffer(value, len(value)) for _, value in step.parameters]
        pointers = (c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        node = cu.KernelNode(function=function, shared_bytes=step.shared_bytes)
        node.grid[:], node.block[:] = step.grid, step.block
        node.parameters = ctypes.cast(pointers, ctypes.POINTER(c_void_p))
        self._keep.append((values, pointers, node))
        return node

    def _function(self, step: KernelLaunch) -> int:
        image = self._rules.image_of(step)
        key = (image.digest, step.name)
        if key not in self._functions:
            self._functions[key] = self._loaded(image).function(step.name)
        return self._functions[key]

    def _layout(self, function: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while True:
            offset, size = c_size_t(), c_size_t()
            asked = (c_void_p(function), c_size_t(len(found)), byref(offset), byref(size))
            if self._driver.raw("cuFuncGetParamInfo", *asked) or not size.value:
                return found
            found.append((offset.value, size.value))

    def _set_attributes(self, node: c_void_p, step: KernelLaunch) -> None:
        wanted: list[tuple[int, Sequence[int]]] = []
        if step.cluster != NO_CLUSTER:
            wanted.append((cu.CLUSTER, step.cluster))
        if step.cooperative:
            wanted.append((cu.COOPERATIVE, (1,)))
        if step.carveout_percent != NO_CARVEOUT:
            wanted.append((cu.CARVEOUT, (step.carveout_percent,)))
        for number, numbers in wanted:
            raw = b"".join(n.to_bytes(4, "little") for n in numbers)
            value = ctypes.create_string_buffer(raw, cu.ATTRIBUTE_BYTES)
            self._driver.call("cuGraphKernelNodeSetAttribute", node, c_int(number), value)

    def _fill(self, step: MemoryFill) -> cu.MemsetNode:
        address = self._address(step.target)
        return cu.MemsetNode(address, step.pitch_bytes, step.value, step.element_bytes, step.width, step.height)

    def _copy(self, step: MemoryCopy) -> cu.MemcpyNode:
        node = cu.MemcpyNode(width=step.nbytes, height=1, depth=1)
        for side in (node.source, node.target):
            side.kind, side.pitch, side.height = cu.DEVICE_MEMORY, step.nbytes, 1
        node.target.device = self._address(step.target)
        if isinstance(step.source, DevicePlace):
            node.source.device = self._address(step.source)
        else:
            held = ctypes.create_string_buffer(step.source, len(step.source))
            self._keep.append(held)
            node.source.kind, node.source.host = cu.HOST_MEMORY, ctypes.addressof(held)
        return node

    def _address(self, place: DevicePlace) -> int:
        if not place.symbol:
            return place.address
        return self._loaded(self._rules.image_with(place)).variable(place.symbol)[0] + place.address

    def _connect(self, graph: c_void_p, nodes: Sequence[c_void_p], edge: Edge) -> None:
        data = cu.EdgeData()
        if edge.early:
            data.type, data.from_port = cu.PROGRAMMATIC, cu.AT_START if edge.at_start else 1
        ends = (byref(nodes[edge.before]), byref(nodes[edge.after]))
        code = self._driver.raw("cuGraphAddDependencies_v2", graph, *ends, byref(data), c_size_t(1))
        if code:
            raise CudaError("cuGraphAddDependencies", code, self._driver.describe(code))
