"""A trusted process that makes a candidate's calls from data: its device code runs here, its host code never does.

It maps the judge's inputs so that kernels can read them only, loads the device images that the judge read from the
candidate's file before anything of it ran, and builds the recorded calls into graphs. What it says about times is
not the candidate's word. It is a new program and no fork of the candidate's parent: nobody knows its addresses. Each
candidate gets its own, since device code can spoil whatever a context holds. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from warpsmith.evaluate.cudadriver import CudaError
from warpsmith.evaluate.hosts.host import Handler, Host
from warpsmith.evaluate.hosts.sides import CpuSide, CudaSide
from warpsmith.evaluate.messages import (
    Acknowledged,
    Assign,
    Assigned,
    Equip,
    MapWorkspace,
    Ping,
    Prepare,
    Ran,
    Run,
    Sample,
    Sampled,
)
from warpsmith.evaluate.replay.admission import Inadmissible, Realm, Region
from warpsmith.evaluate.replay.callgraph import Misrecorded, decode
from warpsmith.evaluate.replay.fatbin import MalformedImage, read_image
from warpsmith.evaluate.replay.rebuilding import Rebuilder
from warpsmith.evaluate.wire import Channel

_BEGIN = "import sys; sys.path.insert(0, {root!r}); from warpsmith.evaluate.replay.replayer import serve; serve({fds})"


class Replayer(Host):
    """Answers the judge's requests from recorded calls."""

    def __init__(self, channel: Channel, payload: dict[str, object]) -> None:
        super().__init__(channel, payload)
        self._rebuilder: Rebuilder | None = None
        self._graphs: dict[int, int] = {}
        self._deliveries: dict[int, int] = {}  # what copies the results of a call into the judge's buffers

    def handlers(self) -> dict[type, Handler]:
        return {
            Prepare: self._prepare,
            MapWorkspace: self._map_workspace,
            Equip: self._equip,
            Assign: self._assign,
            Run: self._run,
            Sample: self._sample,
            Ping: lambda _m, _f: Acknowledged(),
        }

    @property
    def cuda(self) -> CudaSide:
        """The prepared device side."""
        side = self.side
        assert isinstance(side, CudaSide), "_make_side makes no other"
        return side

    def _make_side(self, message: Prepare, fds: tuple[int, ...]) -> CpuSide | CudaSide:
        return CudaSide(message, fds, read_only=True)

    def _equip(self, message: Equip, fds: tuple[int, ...]) -> Acknowledged:
        images = []
        with open(fds[0], "rb") as file:
            for size in message.sizes:
                images.append(read_image(file.read(size)))
        regions = tuple(
            Region("an output" if write else "an input", start, size, bool(write))
            for start, size, write in message.regions
        )
        realm = Realm(tuple(images), regions, message.most_shared_bytes)
        self._rebuilder = Rebuilder(self.cuda.driver, realm)
        return Acknowledged()

    def _assign(self, message: Assign, _fds: tuple[int, ...]) -> Assigned:
        assert self._rebuilder is not None, "Equip comes first"
        try:
            for row in message.variables:
                name, data = json.loads(row)
                self._rebuilder.stock(name, bytes.fromhex(data))
            for index, text in zip(message.indices, message.calls, strict=True):
                self._graphs[index] = self._rebuilder.build(decode(text))
            for index, text in zip(message.indices, message.deliveries, strict=False):
                self._deliveries[index] = self._rebuilder.build(decode(text))
        except (Inadmissible, Misrecorded, CudaError, MalformedImage) as refused:
            return Assigned(False, str(refused))
        except (ValueError, TypeError) as wrong:  # variables that are none
            return Assigned(False, f"its variables cannot be read ({wrong})")
        return Assigned(True, "")

    def _run(self, message: Run, _fds: tuple[int, ...]) -> Ran:
        done = self._replay((message.index,))
        return Ran(0, done.device_error, done.device_text, done.elapsed_ns)

    def _sample(self, message: Sample, _fds: tuple[int, ...]) -> Sampled:
        return self._replay(message.indices)

    def _replay(self, indices: tuple[int, ...]) -> Sampled:
        """These calls, one after the other, as a graph of their own: made anew each time, so that every sample has
        other sets in another order."""
        side = self.cuda
        done = self._run_chain([self._graphs[i] for i in indices], side.replay)
        delivered = [self._deliveries[i] for i in indices if i in self._deliveries]
        if delivered and not done.device_error:  # behind the clock, as in the candidate's own process
            told = self._run_chain(delivered, side.deliver)
            done = replace(done, device_error=told.device_error, device_text=told.device_text)
        return done

    def _run_chain(self, graphs: list[int], run: Callable[[int], Sampled]) -> Sampled:
        side = self.cuda
        chain = side.driver.chain(graphs, side.stream) if graphs else 0
        done = run(chain)
        with contextlib.suppress(CudaError):  # after a fault nothing can be given back
            side.driver.discard(executable=chain)
        return done


def main(payload: str, fds: list[int]) -> int:
    """Entry of the forked process: become a program with an address space of its own. Descriptors as for a host."""
    settings = json.loads(payload)
    for fd in fds:
        os.set_inheritable(fd, True)
    note = os.memfd_create("warpsmith-replayer", 0)
    os.write(note, payload.encode())
    os.lseek(note, 0, os.SEEK_SET)
    root = str(Path(__file__).resolve().parents[3])
    program = _BEGIN.format(root=root, fds=[*fds, note])
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", program], dict(settings["environ"]))


def serve(fds: list[int]) -> None:
    """In the new program."""
    channel_fd, page_fd, note = fds
    with open(note, encoding="utf-8") as file:
        settings = json.load(file)
    settings["fault_page_fd"] = page_fd
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    Replayer(Channel(socket.socket(fileno=channel_fd)), settings).serve()
