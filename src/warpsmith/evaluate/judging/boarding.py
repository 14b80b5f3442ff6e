"""Getting a candidate aboard: its library loaded (or its file imported), its workspace given, its arguments bound.

A workspace is memory of the judge's, wiped before every call, so that nothing can be kept in it from one call
to the next. It is given back only when the host that mapped it is gone.
"""

from __future__ import annotations

import contextlib
import json
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import torch

from warpsmith.core.config import Limits
from warpsmith.core.contract import ArgumentKind, Contract, PythonCall
from warpsmith.core.evaluation import Status
from warpsmith.core.task import Task
from warpsmith.evaluate.cudadriver import CudaError, Driver
from warpsmith.evaluate.hosts.host import STREAM, WORKSPACE
from warpsmith.evaluate.judging import arena
from warpsmith.evaluate.judging.bench import Bench
from warpsmith.evaluate.judging.findings import Condemned
from warpsmith.evaluate.judging.peer import HostFailed, Peer
from warpsmith.evaluate.layout import CANARY, CPU_ALIGN
from warpsmith.evaluate.messages import Acknowledged, Bind, Import, Load, Loaded, MapWorkspace, Offer
from warpsmith.evaluate.replay.ranges import rows

_KIND_OF = {
    ArgumentKind.INPUT: "pointer",
    ArgumentKind.OUTPUT: "pointer",
    ArgumentKind.WORKSPACE: "pointer",
    ArgumentKind.STREAM: "pointer",
    ArgumentKind.TABLE: "table",
}
_HEAP_BYTES = 256 << 20  # torch takes memory in large blocks
_NUMBER_OF = {"int64_t": "int", "double": "double", "bool": "bool"}


class Boarding:
    """Loads candidates, one after the other, each in its own host."""

    def __init__(
        self,
        task: Task,
        benches: Sequence[Bench],
        device: torch.device,
        driver: Driver | None,
        limits: Limits,
        memory: arena.Arena,
    ) -> None:
        self._task = task
        self._benches = benches
        self._device = device
        self._driver = driver
        self._limits = limits
        self._memory = memory
        self._space: arena.Arena | None = None
        self.workspace: MapWorkspace | None = None  # of the present candidate

    def workspace_descriptors(self) -> tuple[int, ...]:
        """What goes with `workspace`: the descriptor by which it can be written."""
        return self._space.descriptors()[-1:] if self._space else ()

    def board(self, peer: Peer, library: str, contract: Contract) -> Callable[[], None]:
        """Load the library, give it its workspace, bind all sets; returns what wipes the workspace."""
        if self._space is not None:  # the last candidate's; its host is gone by now
            self._space.close()
            self._space = self.workspace = None
        numbers: dict[str, float | int] = {s.name: s.value for s in self._task.scalars}
        if contract.call is not None:
            self._give_heap(peer)
            self._board_python(peer, library, contract.call, numbers)
            return lambda: None
        wipe = self._give_workspace(peer, self._load(peer, library, contract, numbers))
        for bench in self._benches:
            arguments = numbers | bench.workload.sizes
            for number, group in zip(bench.numbers, bench.sets, strict=True):
                offsets = {slot.name: slot.start for slot in group.slots}
                peer.ask(_binding(contract, number, offsets, arguments), Acknowledged, self._limits.start_s)
        return wipe

    def _board_python(self, peer: Peer, folder: str, call: PythonCall, numbers: Mapping[str, float | int]) -> None:
        """Import the candidate and offer it all sets; it gets no workspace, since it can allocate."""
        limit_s = self._limits.start_s + self._limits.launch_s
        peer.returns, peer.renews = bool(call.returned), True
        peer.stage = "being imported"
        peer.ask(Import(folder, json.dumps(asdict(call))), Loaded, limit_s)
        specs = self._task.tensors
        for bench in self._benches:
            sizes = bench.workload.sizes
            for number, group in zip(bench.numbers, bench.sets, strict=True):
                starts = {slot.name: slot.start for slot in group.slots}
                offer = Offer(
                    index=number,
                    names=tuple(t.name for t in specs),
                    dtypes=tuple(t.dtype for t in specs),
                    shapes=tuple(t.shape(sizes) for t in specs),
                    starts=tuple(starts[t.name] for t in specs),
                    roles=tuple(t.role.value for t in specs),
                    origins=tuple(t.origin for t in specs),
                    numbers=json.dumps({**numbers, **sizes}),
                )
                peer.ask(offer, Acknowledged, limit_s)

    def _give_heap(self, peer: Peer) -> None:
        """Where a Python candidate's tensors lie while its calls are recorded: room for all results, and as much again
        twice for what it computes on the way. It is optional: without it, calls that allocate are not replayed."""
        outputs = [output for bench in self._benches for group in bench.sets for output in group.outputs]
        nbytes = 3 * sum(output.numel() * output.element_size() for output in outputs) + _HEAP_BYTES
        if self._memory.window is None or nbytes > self._limits.workspace_bytes:
            return
        with contextlib.suppress(CudaError, HostFailed):  # the device is full
            self._give_workspace(peer, nbytes)

    def _load(self, peer: Peer, library: str, contract: Contract, numbers: Mapping[str, float | int]) -> int:
        """How many bytes of workspace the loaded library asks for, over all workloads."""
        kinds = tuple(_KIND_OF[a.kind] if a.kind in _KIND_OF else _NUMBER_OF[a.ctype] for a in contract.arguments)
        sizes = tuple(_NUMBER_OF[a.ctype] for a in contract.size_arguments)
        rows = [{**numbers, **w.sizes} for w in self._task.workloads]
        values = tuple(row[a.source] for row in rows for a in contract.size_arguments)
        peer.stage = "being loaded"
        request = Load(library, contract.entry, kinds, sizes, values)
        try:
            return peer.ask(request, Loaded, self._limits.start_s + self._limits.launch_s).workspace_bytes
        except HostFailed as error:
            raise Condemned(Status.BUILD_ERROR, f"the built library cannot be loaded: {error}") from None

    def _give_workspace(self, peer: Peer, nbytes: int) -> Callable[[], None]:
        limit = self._limits.workspace_bytes
        if nbytes < 0 or nbytes > limit:
            raise Condemned(
                Status.OUT_OF_MEMORY,
                f"workspace_bytes returned {nbytes}; between 0 and {limit} bytes can be had.",
            )
        if nbytes == 0:
            return lambda: None
        padded = -(-nbytes // CPU_ALIGN) * CPU_ALIGN
        size = -(-padded // mmap.PAGESIZE) * mmap.PAGESIZE
        space = arena.workspace(size, self._device, self._driver, self._memory)
        self._space = space
        start = space.memory.numel() - padded if self._device.type == "cpu" else 0
        self.workspace = MapWorkspace(nbytes, space.handle, start, next(iter(rows(space.pieces)), ()))
        try:
            peer.ask(self.workspace, Acknowledged, self._limits.start_s, self.workspace_descriptors())
        except HostFailed as error:
            if self._device.type == "cuda":
                raise
            reason = f"no room for its workspace of {nbytes} bytes beside what it took when it was loaded ({error})."
            raise Condemned(Status.OUT_OF_MEMORY, reason) from None

        def wipe() -> None:
            space.memory.fill_(CANARY)

        return wipe


def _binding(contract: Contract, number: int, offsets: dict[str, int], numbers: dict[str, float | int]) -> Bind:
    special = {ArgumentKind.WORKSPACE: WORKSPACE, ArgumentKind.STREAM: STREAM, ArgumentKind.TABLE: 0}
    tensors = (ArgumentKind.INPUT, ArgumentKind.OUTPUT)
    values = tuple(
        special[a.kind] if a.kind in special else offsets[a.source] if a.kind in tensors else numbers[a.source]
        for a in contract.arguments
    )
    return Bind(number, values, tuple(offsets[name] for name in contract.table))
