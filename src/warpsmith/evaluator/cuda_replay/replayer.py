"""A trusted process that repeats recorded calls: it runs the candidate's device code and never its host code.

It maps the judge's inputs read-only for kernels, loads the device images that the judge read from the candidate's file
before the candidate ran, and builds the recorded calls into graphs. So the times that it reports do not come from the
candidate. It is a new program and no fork of the candidate's parent: the candidate does not know its addresses. Each
candidate gets its own replayer, because device code can damage a CUDA context. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from warpsmith.evaluator.candidate.device_memory import CpuDevice, CudaDevice
from warpsmith.evaluator.candidate.native_host import Handler, NativeHost, serve_host
from warpsmith.evaluator.cuda_driver import CudaError
from warpsmith.evaluator.cuda_replay.call_data import MalformedCall, decode_call
from warpsmith.evaluator.cuda_replay.device_images import MalformedImage, read_image
from warpsmith.evaluator.cuda_replay.rebuild import GraphBuilder
from warpsmith.evaluator.cuda_replay.rules import MappedRegion, ReplayRules, Unreplayable
from warpsmith.evaluator.protocol.messages import (
    Acknowledged,
    AssignCalls,
    CallResult,
    CallsAssigned,
    CallTimes,
    MapWorkspace,
    Ping,
    Prepare,
    RunCall,
    SetUpReplay,
    TimeCalls,
)
from warpsmith.evaluator.protocol.wire import Channel

_BEGIN = (
    "import sys; sys.path.insert(0, {root!r}); from warpsmith.evaluator.cuda_replay.replayer import serve; serve({fds})"
)


class Replayer(NativeHost):
    """Answers the judge's requests from recorded calls."""

    def __init__(self, channel: Channel, payload: dict[str, object]) -> None:
        super().__init__(channel, payload)
        self._builder: GraphBuilder | None = None
        self._graphs: dict[int, int] = {}
        self._deliveries: dict[int, int] = {}  # graphs that copy the results of a call into the judge's buffers

    def handlers(self) -> dict[type, Handler]:
        return {
            Prepare: self._prepare,
            MapWorkspace: self._map_workspace,
            SetUpReplay: self._equip,
            AssignCalls: self._assign,
            RunCall: self._run,
            TimeCalls: self._sample,
            Ping: lambda _m, _f: Acknowledged(),
        }

    @property
    def cuda(self) -> CudaDevice:
        """The device, once it is prepared."""
        device = self.device
        assert isinstance(device, CudaDevice), "_make_device makes no other"
        return device

    def _make_device(self, message: Prepare, fds: tuple[int, ...]) -> CpuDevice | CudaDevice:
        return CudaDevice(message, fds, read_only=True)

    def _equip(self, message: SetUpReplay, fds: tuple[int, ...]) -> Acknowledged:
        images = []
        with open(fds[0], "rb") as file:
            for size in message.sizes:
                images.append(read_image(file.read(size)))
        regions = tuple(
            MappedRegion("an output" if write else "an input", start, size, bool(write))
            for start, size, write in message.regions
        )
        rules = ReplayRules(tuple(images), regions, message.most_shared_bytes)
        self._builder = GraphBuilder(self.cuda.driver, rules)
        return Acknowledged()

    def _assign(self, message: AssignCalls, _fds: tuple[int, ...]) -> CallsAssigned:
        assert self._builder is not None, "Equip comes first"
        try:
            for row in message.variables:
                name, data = json.loads(row)
                self._builder.set_variable(name, bytes.fromhex(data))
            for index, text in zip(message.indices, message.calls, strict=True):
                self._graphs[index] = self._builder.build(decode_call(text))
            for index, text in zip(message.indices, message.deliveries, strict=False):
                self._deliveries[index] = self._builder.build(decode_call(text))
        except (Unreplayable, MalformedCall, CudaError, MalformedImage) as refused:
            return CallsAssigned(False, str(refused))
        except (ValueError, TypeError) as wrong:  # malformed variables
            return CallsAssigned(False, f"its variables cannot be read ({wrong})")
        return CallsAssigned(True, "")

    def _run(self, message: RunCall, _fds: tuple[int, ...]) -> CallResult:
        done = self._replay((message.index,))
        return CallResult(0, done.device_error, done.device_text, done.elapsed_ns)

    def _sample(self, message: TimeCalls, _fds: tuple[int, ...]) -> CallTimes:
        return self._replay(message.indices)

    def _replay(self, indices: tuple[int, ...]) -> CallTimes:
        """Launch these calls as one graph, built anew for every sample, which has other sets in another order."""
        device = self.cuda
        done = self._run_chain([self._graphs[i] for i in indices], device.replay)
        delivered = [self._deliveries[i] for i in indices if i in self._deliveries]
        if delivered and not done.device_error:  # after the clock stopped, as in the candidate's own process
            told = self._run_chain(delivered, device.deliver)
            done = replace(done, device_error=told.device_error, device_text=told.device_text)
        return done

    def _run_chain(self, graphs: list[int], run: Callable[[int], CallTimes]) -> CallTimes:
        device = self.cuda
        chain = device.driver.chain(graphs, device.stream) if graphs else 0
        done = run(chain)
        with contextlib.suppress(CudaError):  # after a fault nothing can be freed
            device.driver.discard(executable=chain)
        return done


def main(payload: str, fds: list[int]) -> int:
    """Entry of the forked process: become a new program. Descriptors as for a host."""
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
    """Entry of the new program."""
    channel_fd, page_fd, note = fds
    with open(note, encoding="utf-8") as file:
        settings = json.load(file)
    serve_host(Replayer, settings, [channel_fd, page_fd])
