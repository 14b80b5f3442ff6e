"""The judge's part: from a candidate's process, which is then killed, to a replayer that makes its calls.

Whatever speaks against replaying is a reason to time the candidate in another way, never a verdict on it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from warpsmith.backends.elf import imported_symbols
from warpsmith.core.config import Limits
from warpsmith.core.errors import HarnessFault
from warpsmith.evaluate.cudadriver import Driver
from warpsmith.evaluate.judging.arena import Arena
from warpsmith.evaluate.judging.bench import Bench
from warpsmith.evaluate.judging.findings import Condemned
from warpsmith.evaluate.judging.peer import HostFailed, Peer
from warpsmith.evaluate.messages import Acknowledged, Assign, Assigned, Equip, MapWorkspace, Record, Recorded
from warpsmith.evaluate.replay.callgraph import Launch, Misrecorded, decode
from warpsmith.evaluate.replay.fatbin import DeviceImage, MalformedImage, read_images

_MOST_SHARED = 97  # device attribute: bytes of shared memory that one block can ask for
_OBJECTS = (".so", ".cubin")  # a library, extensions, and what Triton compiled
_MOST_CHARS = 12 << 20  # of recorded calls in one message
_LEAVES_NOTHING = re.compile(  # what a call may use of CUDA and have no more of it afterwards
    r"__cuda(?:RegisterFatBinary(?:End)?|UnregisterFatBinary|RegisterFunction|(?:Push|Pop)CallConfiguration"
    r"|InitModule|GetKernel|LaunchKernel)\w*"
    r"|cuda(?:LaunchKernel\w*|LaunchCooperativeKernel|GetLastError|PeekAtLastError|GetError\w+|Func[GS]etAttributes?"
    r"|Occupancy\w+|DeviceGetAttribute|GetDevice\w*|Stream(?:IsCapturing|GetCaptureInfo|Synchronize)\w*"
    r"|DeviceSynchronize|Memset\w*)"
)
OTHER_ADDRESS = "its process, or the one that replays it, got other addresses than the judge"


class Unreplayable(Exception):
    """This candidate must be timed in another way; the text completes "because ..."."""


class Stand:
    """Hands candidates of one task over to replayers."""

    def __init__(self, memory: Arena, driver: Driver, benches: Sequence[Bench], limits: Limits) -> None:
        self._memory = memory
        self._benches = benches
        self._limits = limits
        self._most_shared = driver.attribute(_MOST_SHARED)
        self._images: tuple[DeviceImage, ...] = ()
        self._problem = ""
        self.stateless = False  # whether the candidate has nowhere to keep anything on the device between two calls
        self.recorded: dict[int, frozenset[str]] = {}  # kernels that it said it launches on a set, mangled

    def remember(self, library: str) -> None:
        """Read a candidate's device code, before any of its code runs."""
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
        self.stateless = path.is_file() and not self._problem and _keeps_nothing(path, self._images)

    def take_over(self, host: Peer, replayer: Peer, workspace: MapWorkspace | None, descriptors: Sequence[int]) -> None:
        """Have every call recorded and rebuilt; raises Unreplayable. The host still runs afterwards."""
        window = self._memory.window
        if window is None or self._problem or not self._images:
            raise Unreplayable(self._problem or "it has no device code of its own")
        try:
            bases = [peer.prepared.bases[0] for peer in (host, replayer) if peer.prepared and peer.prepared.bases]
            if bases != [window.address] * 2:
                raise Unreplayable(OTHER_ADDRESS)
            self._equip(replayer, workspace, descriptors)
            for bench in self._benches:
                self._assign(host, replayer, tuple(bench.numbers))
        except HostFailed as error:
            raise Unreplayable(f"it could not be taken over ({error})") from None

    def _equip(self, replayer: Peer, workspace: MapWorkspace | None, descriptors: Sequence[int]) -> None:
        window, pieces = self._memory.window, self._memory.pieces
        assert window is not None, "take_over looked"
        regions = [(window.address + p.start, p.nbytes, int(p.writable)) for p in pieces]
        try:
            if workspace is not None:
                replayer.ask(workspace, Acknowledged, self._limits.start_s, descriptors)
                start, nbytes, _ = workspace.piece
                regions.append((window.address + start, nbytes, 1))
            fd = os.memfd_create("warpsmith-images", os.MFD_CLOEXEC)
            with open(fd, "wb") as file:
                file.writelines(image.data for image in self._images)
                file.flush()
                file.seek(0)
                sizes = tuple(len(image.data) for image in self._images)
                replayer.ask(Equip(sizes, self._most_shared, tuple(regions)), Acknowledged, self._limits.start_s, [fd])
        except Condemned as fate:
            replayer.useless = fate
            raise Unreplayable(f"the process that replays it did not answer ({fate.reason})") from None

    def _assign(self, host: Peer, replayer: Peer, numbers: tuple[int, ...]) -> None:
        limit_s = self._limits.start_s + self._limits.launch_s
        host.stage = "being recorded"
        said = host.ask(Record(numbers), Recorded, limit_s)
        for number, call in zip(numbers, said.calls, strict=False):
            with contextlib.suppress(Misrecorded):
                self.recorded[number] = frozenset(s.name for s in decode(call).steps if isinstance(s, Launch))
        counts = {len(said.calls), len(said.deliveries) if host.returns else len(numbers)}
        if said.text or counts != {len(numbers)}:
            raise Unreplayable(said.text or "it recorded another number of calls than it was asked for")
        if sum(map(len, (*said.calls, *said.deliveries, *said.variables))) > _MOST_CHARS:
            raise Unreplayable("it launches more than can be said in one message")
        try:
            taken = replayer.ask(Assign(numbers, said.calls, said.deliveries, said.variables), Assigned, limit_s)
        except Condemned as fate:
            replayer.useless = fate
            raise Unreplayable(f"the process that replays it did not answer ({fate.reason})") from None
        if not taken.ok:
            raise Unreplayable(taken.text)


def _keeps_nothing(library: Path, images: Sequence[DeviceImage]) -> bool:
    """Whether a library has no device variables and calls nothing that leaves something on the device."""
    if any(image.variables or not image.legible for image in images):
        return False
    try:
        names = imported_symbols(library)
    except HarnessFault:
        return False
    return all(_LEAVES_NOTHING.fullmatch(name) for name in names if name.startswith(("cu", "__cuda")))
