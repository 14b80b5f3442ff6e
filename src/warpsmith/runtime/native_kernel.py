"""Kernels in C++ and CUDA: a library that ctypes calls with the addresses of tensors, which the caller has checked.

Outputs and workspace come from torch's caching allocator, and a CUDA kernel runs on the current stream, like an
operator of PyTorch. Calls are serialised: a kernel was never tested in two threads at once and may use static memory.

The floating-point mode of the calling thread (rounding, flush-to-zero, traps) is saved and restored around each call:
a kernel may change the mode, and so does loading a library that was built with -ffast-math. Without `fegetenv` and
`fesetenv` in the C library, saving and restoring do nothing.
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

from warpsmith.evaluator.candidate.c_call import CLibrary, argument_kind, pointer_table
from warpsmith.hardware.device import arch_of
from warpsmith.model.build import DeviceKind, Target
from warpsmith.model.contract import Argument, ArgumentKind, Contract
from warpsmith.model.errors import CandidateError
from warpsmith.model.task import Task
from warpsmith.tasks.program import DTYPES

FloatMode: Any = ctypes.c_uint64 * 16
"""Memory for one mode: larger than the `fenv_t` of any machine."""


def _functions() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    for name in (None, "libm.so.6"):
        with suppress(OSError, AttributeError):
            library = ctypes.PyDLL(name)  # keeps the GIL, since neither function blocks
            get, put = library.fegetenv, library.fesetenv
            get.restype = put.restype = None
            return get, put
    return _nothing, _nothing


def _nothing(_mode: Any) -> None:
    pass


save_float_mode, restore_float_mode = _functions()


ALIGNMENT_BYTES = {"cpu": 64, "cuda": 256}
"""The alignment that the contract guarantees for every pointer."""

# By the handle of the library: a library that is loaded twice has one set of static variables. Reentrant, because a
# signal handler may call the kernel during a call.
_LOCKS: dict[int, threading.RLock] = {}


@dataclass(frozen=True)
class NativeCallPlan:
    """What all calls with the same shapes share."""

    outputs: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]  # shape and strides
    values: tuple[object, ...]  # of all arguments; None for those that differ between calls
    workspace_bytes: int


class _LoadedLibrary:
    """One loaded library."""

    def __init__(self, path: Path, contract: Contract, kind: str) -> None:
        mode = FloatMode()
        save_float_mode(mode)
        try:
            kinds, size_kinds = (
                [argument_kind(a) for a in chosen] for chosen in (contract.arguments, contract.size_arguments)
            )
            self._library = CLibrary(str(path), contract.entry, kinds, size_kinds)
        except OSError as refused:
            raise CandidateError(f"the built kernel {path} cannot be loaded: {refused}.") from None
        finally:
            restore_float_mode(mode)
        self._lock = _LOCKS.setdefault(self._library.library._handle, threading.RLock())
        self._cpu = kind == "cpu"
        self.launch: Callable[..., int] = self._library.entry
        self._set_threads: Any = None
        with suppress(AttributeError):  # only a library that is linked with OpenMP has it
            self._set_threads = self._library.library.omp_set_num_threads
            self._set_threads.argtypes = [ctypes.c_int]
            self._set_threads.restype = None
        self._thread = threading.local()

    def workspace_bytes(self, sizes: Sequence[object]) -> int:
        """The workspace that the kernel asks for; 0 if it asks for none."""
        return self.call(self._library.workspace_bytes, [sizes])

    def call(self, function: Callable[..., int], values: Sequence[object]) -> int:
        """Call a function of the library; keeps the caller's floating-point mode."""
        with self._lock:
            if not self._cpu:  # a CUDA entry point only enqueues work
                return function(*values)
            mode = FloatMode()
            save_float_mode(mode)
            try:
                return function(*values)
            finally:
                restore_float_mode(mode)

    def use_threads(self, count: int) -> None:
        """Use as many OpenMP threads as PyTorch does, as in the measurement."""
        if self._set_threads is not None and getattr(self._thread, "count", 0) != count:
            self._set_threads(count)
            self._thread.count = count


class NativeKernel:
    """A kernel with a C entry point."""

    def __init__(self, task: Task, contract: Contract, kind: str, build: Callable[[Target], Path]) -> None:
        self._task = task
        self._contract = contract
        self._kind = kind
        self._build = build
        self._libraries: dict[int, _LoadedLibrary] = {}  # by the device's number
        self._built: dict[str, _LoadedLibrary] = {}  # by architecture
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
        """Build and load the library before the first call; does nothing without the device."""
        if self._kind == "cpu":
            self._library_for(0)
        elif torch.cuda.is_available():
            self._library_for(torch.cuda.current_device())

    def plan(self, sizes: Mapping[str, int], device: torch.device) -> NativeCallPlan | None:
        """What calls with these sizes share; None if the kernel asks for a negative workspace."""
        scalars = {scalar.name: scalar.value for scalar in self._task.scalars}
        values = tuple(_constant(argument, sizes, scalars) for argument in self._contract.arguments)
        asked = [_constant(argument, sizes, scalars) for argument in self._contract.size_arguments]
        workspace = self._library_for(device.index or 0).workspace_bytes(asked)
        if workspace < 0:
            return None
        shapes = [spec.shape(sizes) for spec in self._task.outputs]
        outputs = tuple(
            (shape, _strides(shape), DTYPES[spec.dtype]) for shape, spec in zip(shapes, self._task.outputs, strict=True)
        )
        return NativeCallPlan(outputs, values, workspace)

    def run(self, tensors: Sequence[Tensor], plan: NativeCallPlan) -> list[Tensor] | None:
        """The outputs; None if the kernel returns an error."""
        device = tensors[0].device
        if self._kind == "cpu":
            library = self._library_for(0)
            library.use_threads(torch.get_num_threads())
            return self._launch(library, tensors, plan, device, None)
        index = device.index
        library = self._library_for(index)
        if torch.cuda.current_device() != index:
            with torch.cuda.device(index):
                return self._launch(library, tensors, plan, device, torch.cuda.current_stream(index).cuda_stream)
        return self._launch(library, tensors, plan, device, torch.cuda.current_stream(index).cuda_stream)

    def _launch(
        self,
        library: _LoadedLibrary,
        tensors: Sequence[Tensor],
        plan: NativeCallPlan,
        device: torch.device,
        stream: int | None,
    ) -> list[Tensor] | None:
        alignment = self._alignment
        values = list(plan.values)
        # `empty_strided` is faster than `torch.empty`.
        outputs = [torch.empty_strided(shape, strides, dtype=t, device=device) for shape, strides, t in plan.outputs]
        kept: list[object] = []  # alive until the call is made
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
            table = pointer_table([addresses[place] for place in self._table])
            kept.append(table)
            values[self._table_at] = ctypes.addressof(table)
        if plan.workspace_bytes:
            workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=device)
            kept.append(workspace)
            values[self._workspace_at] = workspace.data_ptr()
        values[self._stream_at] = stream
        return outputs if library.call(library.launch, values) == 0 else None

    def _library_for(self, index: int) -> _LoadedLibrary:
        known = self._libraries.get(index)
        if known is not None:
            return known
        with self._lock:
            arch = "native" if self._kind == "cpu" else arch_of(torch.cuda.get_device_capability(index))
            if arch not in self._built:
                self._built[arch] = _LoadedLibrary(
                    self._build(Target(DeviceKind(self._kind), arch)), self._contract, self._kind
                )
            return self._libraries.setdefault(index, self._built[arch])

    def _positions(self, kind: ArgumentKind, places: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
        arguments = enumerate(self._contract.arguments)
        return tuple((position, places[a.source]) for position, a in arguments if a.kind is kind)

    def _position(self, kind: ArgumentKind) -> int:
        return next((position for position, a in enumerate(self._contract.arguments) if a.kind is kind), -1)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense row-major tensor."""
    return tuple(prod(max(extent, 1) for extent in shape[place + 1 :]) for place in range(len(shape)))


def _constant(argument: Argument, sizes: Mapping[str, int], scalars: Mapping[str, int | float | bool]) -> object:
    if argument.kind is ArgumentKind.AXIS:
        return sizes[argument.source]
    return scalars[argument.source] if argument.kind is ArgumentKind.SCALAR else None
