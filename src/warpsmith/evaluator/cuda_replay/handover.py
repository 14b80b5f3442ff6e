"""The judge's part of a replay: has the calls of a candidate recorded and gives them to a replayer.

If calls cannot be replayed, the candidate is timed without replay; that is never a verdict on it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from warpsmith.backends.elf import imported_symbols
from warpsmith.evaluator.cuda_driver import Driver
from warpsmith.evaluator.cuda_replay.call_data import KernelLaunch, MalformedCall, decode_call
from warpsmith.evaluator.cuda_replay.device_images import DeviceImage, MalformedImage, read_images
from warpsmith.evaluator.cuda_replay.rules import Unreplayable, check_delivery
from warpsmith.evaluator.judge.arena import Arena
from warpsmith.evaluator.judge.host_client import HostClient, HostFailed
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import (
    Acknowledged,
    AssignCalls,
    CallsAssigned,
    MapWorkspace,
    RecordCalls,
    RecordedCalls,
    SetUpReplay,
)
from warpsmith.model.errors import HarnessFault
from warpsmith.model.settings import Limits

_MOST_SHARED = 97  # device attribute: bytes of shared memory that one block can ask for
_OBJECTS = (".so", ".cubin")  # a library, extensions, and what Triton compiled
_MOST_CHARS = 12 << 20  # of recorded calls in one message
_STATELESS_CALLS = re.compile(  # CUDA functions that leave nothing behind on the device
    r"__cuda(?:RegisterFatBinary(?:End)?|UnregisterFatBinary|RegisterFunction|(?:Push|Pop)CallConfiguration"
    r"|InitModule|GetKernel|LaunchKernel)\w*"
    r"|cuda(?:LaunchKernel\w*|LaunchCooperativeKernel|GetLastError|PeekAtLastError|GetError\w+|Func[GS]etAttributes?"
    r"|Occupancy\w+|DeviceGetAttribute|GetDevice\w*|Stream(?:IsCapturing|GetCaptureInfo|Synchronize)\w*"
    r"|DeviceSynchronize|Memset\w*)"
)
OTHER_ADDRESS = "its process, or the one that replays it, got other addresses than the judge"


class Handover:
    """Gives the calls of candidates of one task to replayers."""

    def __init__(
        self, memory: Arena, driver: Driver, workload_buffers: Sequence[WorkloadBuffers], limits: Limits
    ) -> None:
        self._memory = memory
        self._workload_buffers = workload_buffers
        self._limits = limits
        self._most_shared = driver.attribute(_MOST_SHARED)
        self._images: tuple[DeviceImage, ...] = ()
        self._problem = ""
        self.stateless = False  # whether the candidate can keep nothing on the device between two calls
        self.recorded: dict[int, frozenset[str]] = {}  # by set: the kernels that the host claims to launch, mangled

    def read_device_code(self, library: str) -> None:
        """Read the device code of a candidate, before any of its code runs."""
        path = Path(library)
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in _OBJECTS and p.is_file())
        found: dict[str, DeviceImage] = {}
        self._problem, self.recorded = "", {}
        try:
            for file in files:
                found |= {image.digest: image for image in read_images(file.read_bytes())}
        except MalformedImage as broken:
            self._problem = str(broken)
        self._images = tuple(found.values())
        self.stateless = path.is_file() and not self._problem and _is_stateless(path, self._images)

    def take_over(
        self, host: HostClient, replayer: HostClient, workspace: MapWorkspace | None, descriptors: Sequence[int]
    ) -> None:
        """Have every call recorded and rebuilt; raises Unreplayable. The host is still alive afterwards."""
        shared = self._memory.window
        if shared is None or self._problem or not self._images:
            raise Unreplayable(self._problem or "it has no device code of its own")
        try:
            bases = [peer.prepared.bases[0] for peer in (host, replayer) if peer.prepared and peer.prepared.bases]
            if bases != [shared.address] * 2:
                raise Unreplayable(OTHER_ADDRESS)
            self._equip(replayer, workspace, descriptors)
            for buffers in self._workload_buffers:
                self._assign(host, replayer, buffers)
        except HostFailed as error:
            raise Unreplayable(f"it could not be taken over ({error})") from None

    def _equip(self, replayer: HostClient, workspace: MapWorkspace | None, descriptors: Sequence[int]) -> None:
        shared, blocks = self._memory.window, self._memory.pieces
        assert shared is not None, "take_over checked"
        regions = [(shared.address + b.start, b.nbytes, int(b.writable)) for b in blocks]
        try:
            if workspace is not None:
                replayer.ask(workspace, Acknowledged, self._limits.start_s, descriptors)
                start, nbytes, _ = workspace.block
                regions.append((shared.address + start, nbytes, 1))
            fd = os.memfd_create("warpsmith-images", os.MFD_CLOEXEC)
            with open(fd, "wb") as file:
                file.writelines(image.data for image in self._images)
                file.flush()
                file.seek(0)
                sizes = tuple(len(image.data) for image in self._images)
                replayer.ask(
                    SetUpReplay(sizes, self._most_shared, tuple(regions)), Acknowledged, self._limits.start_s, [fd]
                )
        except CandidateFailed as fate:
            replayer.failure = fate
            raise Unreplayable(f"the process that replays it did not answer ({fate.reason})") from None

    def _assign(self, host: HostClient, replayer: HostClient, buffers: WorkloadBuffers) -> None:
        limit_s = self._limits.start_s + self._limits.launch_s
        numbers = tuple(buffers.set_numbers)
        host.stage = "being recorded"
        said = host.ask(RecordCalls(numbers), RecordedCalls, limit_s)
        for number, call in zip(numbers, said.calls, strict=False):
            with contextlib.suppress(MalformedCall):
                self.recorded[number] = frozenset(
                    s.name for s in decode_call(call).steps if isinstance(s, KernelLaunch)
                )
        expected = (len(numbers), len(numbers) if host.returns_tensors else 0)
        if said.text or (len(said.calls), len(said.deliveries)) != expected:
            raise Unreplayable(said.text or "it recorded another number of calls than it was asked for")
        if sum(map(len, (*said.calls, *said.deliveries, *said.variables))) > _MOST_CHARS:
            raise Unreplayable("it launches more than can be said in one message")
        for delivery, group in zip(said.deliveries, buffers.sets, strict=False):
            try:
                check_delivery(decode_call(delivery), [(each.data_ptr(), each.nbytes) for each in group.outputs])
            except MalformedCall as broken:
                raise Unreplayable(str(broken)) from None
        try:
            taken = replayer.ask(
                AssignCalls(numbers, said.calls, said.deliveries, said.variables), CallsAssigned, limit_s
            )
        except CandidateFailed as fate:
            replayer.failure = fate
            raise Unreplayable(f"the process that replays it did not answer ({fate.reason})") from None
        if not taken.ok:
            raise Unreplayable(taken.text)


def _is_stateless(library: Path, images: Sequence[DeviceImage]) -> bool:
    """True if a library has no device variables and calls no function that leaves something on the device."""
    if any(image.variables or not image.legible for image in images):
        return False
    try:
        names = imported_symbols(library)
    except HarnessFault:
        return False
    return all(_STATELESS_CALLS.fullmatch(name) for name in names if name.startswith(("cu", "__cuda")))
