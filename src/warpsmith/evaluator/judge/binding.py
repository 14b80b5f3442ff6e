"""Loads a candidate in its host: loads the library or imports the file, maps the workspace, binds the arguments.

The workspace is memory of the judge, wiped before every call, so that a candidate can keep nothing in it from one call
to the next. It is released only when the host that mapped it has ended.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict

from warpsmith.evaluator.candidate.c_call import argument_kind
from warpsmith.evaluator.candidate.native_host import STREAM, WORKSPACE
from warpsmith.evaluator.cuda_driver import CudaError
from warpsmith.evaluator.cuda_replay.shared_memory import encode_blocks
from warpsmith.evaluator.judge import arena
from warpsmith.evaluator.judge.host_client import HostClient, HostFailed
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.judge.task_context import TaskContext
from warpsmith.evaluator.protocol.buffer_layout import CPU_ALIGN
from warpsmith.evaluator.protocol.messages import (
    Acknowledged,
    BindArguments,
    BindTensors,
    CandidateLoaded,
    ImportModule,
    LoadLibrary,
    MapWorkspace,
)
from warpsmith.model.contract import ArgumentKind, Contract, PythonCall
from warpsmith.model.evaluation import Status

_HEAP_BYTES = 256 << 20  # torch takes memory in large blocks

Numbers = Mapping[str, float | int]


class CandidateBinder:
    """Loads candidates of one task, one after the other, each in its own host."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._limits = context.settings.limits
        self._space: arena.Arena | None = None
        self.workspace: MapWorkspace | None = None  # of the present candidate

    def workspace_descriptors(self) -> tuple[int, ...]:
        """The descriptor to send with `workspace`."""
        return self._space.descriptors()[-1:] if self._space else ()

    def close(self) -> None:
        """Release the workspace."""
        if self._space is not None:
            self._space.close()
            self._space = self.workspace = None

    def bind(self, host: HostClient, library: str, contract: Contract) -> Callable[[], None]:
        """Load the candidate, map its workspace and bind all sets; returns the function that wipes the workspace."""
        self.close()  # of the last candidate, whose host has ended
        numbers: dict[str, float | int] = {s.name: s.value for s in self._context.task.scalars}
        if contract.call is not None:
            self._map_heap(host)
            self._bind_python(host, library, contract.call, numbers)
            return lambda: None
        wipe = self._map_workspace(host, self._load(host, library, contract, numbers))
        for buffers in self._context.workload_buffers:
            arguments = numbers | buffers.workload.sizes
            for number, group in zip(buffers.set_numbers, buffers.sets, strict=True):
                offsets = {slot.name: slot.start for slot in group.slots}
                host.ask(_arguments(contract, number, offsets, arguments), Acknowledged, self._limits.start_s)
        host.candidate_called = True
        return wipe

    def _bind_python(self, host: HostClient, folder: str, call: PythonCall, numbers: Numbers) -> None:
        """Import the candidate and bind all sets; it gets no workspace, since it can allocate."""
        limit_s = self._limits.start_s + self._limits.launch_s
        host.returns_tensors, host.copies_state = bool(call.returned), True
        host.stage, host.candidate_called = "being imported", True
        host.ask(ImportModule(folder, json.dumps(asdict(call))), CandidateLoaded, limit_s)
        specs = self._context.task.tensors
        for buffers in self._context.workload_buffers:
            sizes = buffers.workload.sizes
            for number, group in zip(buffers.set_numbers, buffers.sets, strict=True):
                starts = {slot.name: slot.start for slot in group.slots}
                request = BindTensors(
                    index=number,
                    names=tuple(t.name for t in specs),
                    dtypes=tuple(t.dtype for t in specs),
                    shapes=tuple(t.shape(sizes) for t in specs),
                    starts=tuple(starts[t.name] for t in specs),
                    roles=tuple("weights" if t.name in buffers.weights else t.role.value for t in specs),
                    origins=tuple(t.origin for t in specs),
                    numbers=json.dumps({**numbers, **sizes}),
                )
                host.ask(request, Acknowledged, limit_s)

    def _map_heap(self, host: HostClient) -> None:
        """Map memory for the tensors of a Python candidate while its calls are recorded: room for all results, and
        twice as much for intermediate tensors. It is optional: without it, calls that allocate are not replayed."""
        outputs = [output for b in self._context.workload_buffers for group in b.sets for output in group.outputs]
        nbytes = 3 * sum(output.numel() * output.element_size() for output in outputs) + _HEAP_BYTES
        if self._context.arena.window is None or nbytes > self._limits.workspace_bytes:
            return
        with contextlib.suppress(CudaError, HostFailed):  # the device is full
            self._map_workspace(host, nbytes)

    def _load(self, host: HostClient, library: str, contract: Contract, numbers: Numbers) -> int:
        """Load the library; returns the bytes of workspace that it asks for, over all workloads."""
        kinds = tuple(argument_kind(a) for a in contract.arguments)
        sizes = tuple(argument_kind(a) for a in contract.size_arguments)
        rows = [{**numbers, **w.sizes} for w in self._context.task.workloads]
        values = tuple(row[a.source] for row in rows for a in contract.size_arguments)
        host.stage = "being loaded"
        request = LoadLibrary(library, contract.entry, kinds, sizes, values)
        try:
            return host.ask(request, CandidateLoaded, self._limits.start_s + self._limits.launch_s).workspace_bytes
        except HostFailed as error:
            raise CandidateFailed(Status.BUILD_ERROR, f"the built library cannot be loaded: {error}") from None

    def _map_workspace(self, host: HostClient, nbytes: int) -> Callable[[], None]:
        device, limit = self._context.device, self._limits.workspace_bytes
        if nbytes < 0 or nbytes > limit:
            reason = f"workspace_bytes returned {nbytes}; between 0 and {limit} bytes can be had."
            raise CandidateFailed(Status.OUT_OF_MEMORY, reason)
        if nbytes == 0:
            return lambda: None
        padded = -(-nbytes // CPU_ALIGN) * CPU_ALIGN
        size = -(-padded // mmap.PAGESIZE) * mmap.PAGESIZE
        space = self._space = arena.workspace(size, device, self._context.driver, self._context.arena)
        start = space.memory.numel() - padded if device.type == "cpu" else 0
        self.workspace = MapWorkspace(nbytes, space.handle, start, next(iter(encode_blocks(space.pieces)), ()))
        try:
            host.ask(self.workspace, Acknowledged, self._limits.start_s, self.workspace_descriptors())
        except HostFailed as error:
            if device.type == "cuda":
                raise
            reason = f"no room for its workspace of {nbytes} bytes beside what it took when it was loaded ({error})."
            raise CandidateFailed(Status.OUT_OF_MEMORY, reason) from None

        def wipe() -> None:
            space.memory.fill_(1 + secrets.randbelow(255))  # no value that a candidate could count on

        return wipe


def _arguments(contract: Contract, number: int, offsets: Mapping[str, int], numbers: Numbers) -> BindArguments:
    """The arguments of one set: an offset for a tensor, a value for a number."""
    special = {ArgumentKind.WORKSPACE: WORKSPACE, ArgumentKind.STREAM: STREAM, ArgumentKind.TABLE: 0}
    tensors = (ArgumentKind.INPUT, ArgumentKind.OUTPUT)
    values = tuple(
        special[a.kind] if a.kind in special else offsets[a.source] if a.kind in tensors else numbers[a.source]
        for a in contract.arguments
    )
    return BindArguments(number, values, tuple(offsets[name] for name in contract.table))
