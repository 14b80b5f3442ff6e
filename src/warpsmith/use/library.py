"""Kernels in C++ and CUDA: a library bound with ctypes once, called on the addresses of tensors.

Outputs and workspace are torch's own memory, from its caching allocator, and a CUDA kernel goes to the current stream:
to whoever calls it, it behaves as one of PyTorch's operators does. The caller has checked the tensors.

A kernel was never tried in two threads at once, and may keep scratch memory in a static variable: one call at a time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warpsmith.core.build import Target
from warpsmith.core.contract import Argument, ArgumentKind, Contract
from warpsmith.core.errors import CandidateError
from warpsmith.core.task import ScalarKind, Task
from warpsmith.hardware.device import arch_of
from warpsmith.tasks.program import DTYPES
from warpsmith.use.floating import Mode, keep, put_back

ALIGNMENT_BYTES = {"cpu": 64, "cuda": 256}
"""What a contract promises of every pointer."""

_SCALARS: Mapping[str, Any] = {
    ScalarKind.INT.value: ctypes.c_int64,
    ScalarKind.FLOAT.value: ctypes.c_double,
    ScalarKind.BOOL.value: ctypes.c_bool,
}
# By the handle of the library: loaded twice, it is one library with one set of static variables. Reentrant, because a
# signal's handler may call the kernel between two steps of a call.
_LOCKS: dict[int, threading.RLock] = {}


@dataclass(frozen=True)
class Plan:
    """All that is the same in every call at one set of shapes."""

    outputs: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]  # shape and strides
    values: tuple[object, ...]  # of all arguments; those that differ from call to call are None
    workspace_bytes: int


class _Bound:
    """One loaded library."""

    def __init__(self, path: Path, contract: Contract, kind: str) -> None:
        mode = Mode()
        keep(mode)
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as refused:
            raise CandidateError(f"the built kernel {path} cannot be loaded: {refused}.") from None
        finally:
            put_back(mode)
        self._lock = _LOCKS.setdefault(self._library._handle, threading.RLock())
        self._cpu = kind == "cpu"
        self.launch: Any = getattr(self._library, contract.entry)
        self.launch.argtypes = [_ctype(argument) for argument in contract.arguments]
        self.launch.restype = ctypes.c_int
        self._ask: Any = None
        with suppress(AttributeError):
            self._ask = self._library.workspace_bytes
            self._ask.argtypes = [_ctype(argument) for argument in contract.size_arguments]
            self._ask.restype = ctypes.c_int64
        self._set_threads: Any = None
        with suppress(AttributeError):  # of the OpenMP that this library is linked with, if it is
            self._set_threads = self._library.omp_set_num_threads
            self._set_threads.argtypes = [ctypes.c_int]
            self._set_threads.restype = None
        self._thread = threading.local()

    def workspace_bytes(self, sizes: Sequence[object]) -> int:
        """What the kernel asks for; 0 where it does not ask."""
        return self.call(self._ask, sizes) if self._ask is not None else 0

    def call(self, function: Callable[..., int], values: Sequence[object]) -> int:
        """What a function of the library returns; the caller's floating-point mode stays as it is."""
        with self._lock:
            if not self._cpu:  # it only puts work in a queue
                return function(*values)
            mode = Mode()
            keep(mode)
            try:
                return function(*values)
            finally:
                put_back(mode)

    def use_threads(self, count: int) -> None:
        """As many as PyTorch uses: a kernel that takes more is not the one that was measured."""
        if self._set_threads is not None and getattr(self._thread, "count", 0) != count:
            self._set_threads(count)
            self._thread.count = count


class LibraryKernel:
    """A kernel with a C entry point."""

    def __init__(self, task: Task, contract: Contract, kind: str, build: Callable[[Target], Path]) -> None:
        self._task = task
        self._contract = contract
        self._kind = kind
        self._build = build
        self._bound: dict[int, _Bound] = {}  # by the device's number
        self._built: dict[str, _Bound] = {}  # by architecture
        self._lock = threading.Lock()
        self._alignment = ALIGNMENT_BYTES[kind]
        places = {spec.name: index for index, spec in enumerate(task.inputs)}
        self._read = self._positions(ArgumentKind.INPUT, places)
        self._write = self._positions(ArgumentKind.OUTPUT, {s.name: i for i, s in enumerate(task.outputs)})
        self._table = tuple(places[name] for name in contract.table)
        self._table_at = self._position(ArgumentKind.TABLE)
        self._workspace_at = self._position(ArgumentKind.WORKSPACE)
        self._stream_at = self._position(ArgumentKind.STREAM)

    def prepare(self) -> None:
        """Build and bind ahead of the first call; nothing happens where its device is missing."""
        if self._kind == "cpu":
            self._of(0)
        elif torch.cuda.is_available():
            self._of(torch.cuda.current_device())

    def plan(self, sizes: Mapping[str, int], device: torch.device) -> Plan | None:
        """What calls at these sizes have in common; None where the kernel asks for a senseless workspace."""
        scalars = {scalar.name: scalar.value for scalar in self._task.scalars}
        values = tuple(_constant(argument, sizes, scalars) for argument in self._contract.arguments)
        asked = [_constant(argument, sizes, scalars) for argument in self._contract.size_arguments]
        workspace = self._of(device.index or 0).workspace_bytes(asked)
        if workspace < 0:
            return None
        shapes = [spec.shape(sizes) for spec in self._task.outputs]
        outputs = tuple(
            (shape, _strides(shape), DTYPES[spec.dtype]) for shape, spec in zip(shapes, self._task.outputs, strict=True)
        )
        return Plan(outputs, values, workspace)

    def run(self, tensors: Sequence[Tensor], plan: Plan) -> list[Tensor] | None:
        """The outputs; None where the kernel says that it cannot."""
        device = tensors[0].device
        if self._kind == "cpu":
            bound = self._of(0)
            bound.use_threads(torch.get_num_threads())
            return self._launch(bound, tensors, plan, device, None)
        index = device.index
        bound = self._of(index)
        if torch.cuda.current_device() != index:
            with torch.cuda.device(index):
                return self._launch(bound, tensors, plan, device, torch.cuda.current_stream(index).cuda_stream)
        return self._launch(bound, tensors, plan, device, torch.cuda.current_stream(index).cuda_stream)

    def _launch(
        self, bound: _Bound, tensors: Sequence[Tensor], plan: Plan, device: torch.device, stream: int | None
    ) -> list[Tensor] | None:
        alignment = self._alignment
        values = list(plan.values)
        # With strides it takes a shorter way through torch than `torch.empty` does.
        outputs = [torch.empty_strided(shape, strides, dtype=t, device=device) for shape, strides, t in plan.outputs]
        kept: list[object] = []  # until the call is made
        addresses = []
        for tensor in tensors:
            address = tensor.data_ptr()
            if address % alignment:
                tensor = tensor.clone()
                kept.append(tensor)
                address = tensor.data_ptr()
            addresses.append(address)
        for position, place in self._read:
            values[position] = addresses[place]
        for position, place in self._write:
            values[position] = outputs[place].data_ptr()
        if self._table_at >= 0:
            table = (ctypes.c_void_p * len(self._table))(*(addresses[place] for place in self._table))
            kept.append(table)
            values[self._table_at] = ctypes.addressof(table)
        if plan.workspace_bytes:
            workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=device)
            kept.append(workspace)
            values[self._workspace_at] = workspace.data_ptr()
        values[self._stream_at] = stream
        return outputs if bound.call(bound.launch, values) == 0 else None

    def _of(self, index: int) -> _Bound:
        known = self._bound.get(index)
        if known is not None:
            return known
        with self._lock:
            arch = "native" if self._kind == "cpu" else arch_of(torch.cuda.get_device_capability(index))
            if arch not in self._built:
                self._built[arch] = _Bound(self._build(Target(self._kind, arch)), self._contract, self._kind)
            return self._bound.setdefault(index, self._built[arch])

    def _positions(self, kind: ArgumentKind, places: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
        arguments = enumerate(self._contract.arguments)
        return tuple((position, places[a.source]) for position, a in arguments if a.kind is kind)

    def _position(self, kind: ArgumentKind) -> int:
        return next((position for position, a in enumerate(self._contract.arguments) if a.kind is kind), -1)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a dense row-major tensor."""
    return tuple(prod(max(extent, 1) for extent in shape[place + 1 :]) for place in range(len(shape)))


def _ctype(argument: Argument) -> Any:
    if argument.kind is ArgumentKind.AXIS:
        return ctypes.c_int64
    return _SCALARS[argument.ctype] if argument.kind is ArgumentKind.SCALAR else ctypes.c_void_p


def _constant(argument: Argument, sizes: Mapping[str, int], scalars: Mapping[str, int | float | bool]) -> object:
    if argument.kind is ArgumentKind.AXIS:
        return sizes[argument.source]
    return scalars[argument.source] if argument.kind is ArgumentKind.SCALAR else None
