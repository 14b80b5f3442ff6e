"""The candidate's process: maps the judge's buffers, enters the sandbox, loads one library, calls it.

Untrusted from the moment the library is loaded. It holds no reference, no expected value, no seed and no
verdict; its replies are claims that the judge checks against the buffers and its own clock. Standard
library only, and every module it needs is imported before the sandbox closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import shutil
import socket
import threading  # noqa: F401  (imported before the sandbox closes: ctypes callbacks may want it)
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warpsmith.evaluate.confinement import sandbox
from warpsmith.evaluate.cudadriver import CudaError
from warpsmith.evaluate.hosts.cupti import Recorder
from warpsmith.evaluate.hosts.sides import CpuSide, CudaSide, map_memory
from warpsmith.evaluate.messages import (
    Acknowledged,
    Bind,
    Failed,
    Faulted,
    Flush,
    Load,
    Loaded,
    MapWorkspace,
    Ping,
    Prepare,
    Prepared,
    Ran,
    Record,
    Recorded,
    Run,
    Sample,
    Sampled,
    TraceOff,
    TraceOn,
    TraceReport,
)
from warpsmith.evaluate.replay.fatbin import MalformedImage, read_images
from warpsmith.evaluate.wire import Channel, WireClosed

Handler = Callable[[Any, tuple[int, ...]], Any]
WORKSPACE = -1  # in Bind.values: the workspace's address
_LINKED = (
    *("libstdc++.so.6", "libm.so.6", "libmvec.so.1", "libgcc_s.so.1", "libatomic.so.1"),
    *("libgomp.so.1", "libomp.so.5", "libomp.so"),
)
STREAM = -2  # in Bind.values: the stream
_KINDS: dict[str, Any] = {
    "pointer": ctypes.c_void_p,
    "table": ctypes.c_void_p,
    "int": ctypes.c_int64,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}


def load_linked() -> None:
    """What compilers link, so that it need not be opened later."""
    for name in _LINKED:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)


class Host:
    """Answers the judge's requests, one at a time."""

    def __init__(self, channel: Channel, payload: dict[str, Any]) -> None:
        self._channel = channel
        # Loaded first: the sandbox does not let it read the cache folder.
        self._faults = ctypes.CDLL(payload["faults"]) if payload["faults"] else None
        self._fault_page = payload["fault_page_fd"]
        self._side: CpuSide | CudaSide | None = None
        self._library: Any = None
        self._function: Any = None
        self._kinds: tuple[str, ...] = ()
        self._threaded = True  # whether the candidate uses OpenMP; until it is loaded, the dearer case
        self._variables: Mapping[str, int] = {}  # of its device code: their bytes
        self._calls: dict[int, Callable[[], int]] = {}
        self._keep: list[Any] = []  # pointer tables must outlive their calls
        self._recorder: Recorder | None = None
        self._operators: tuple[str, ...] = ()  # of torch, in the traced call of a Python candidate
        self._untraced: tuple[int, Callable[[], int]] | None = None  # the call that is traced, as it was

    @property
    def side(self) -> CpuSide | CudaSide:
        """The prepared device side."""
        assert self._side is not None, "Prepare comes first"
        return self._side

    def handlers(self) -> dict[type, Handler]:
        """What answers each request."""
        return {
            Prepare: self._prepare,
            Load: self._load,
            MapWorkspace: self._map_workspace,
            Bind: self._bind,
            Run: self._run,
            Record: self._record,
            Sample: self._sample,
            Flush: self._flush,
            TraceOn: self._trace_on,
            TraceOff: self._trace_off,
            Ping: lambda _m, _f: Acknowledged(),
        }

    def serve(self) -> None:
        """Until the judge hangs up."""
        handlers = self.handlers()
        while True:
            try:
                message, fds = self._channel.receive(handlers)
            except WireClosed:
                return
            try:
                reply = handlers[type(message)](message, fds)
            except (OSError, CudaError, ValueError) as error:
                reply = Failed(str(error))
            self._channel.send(reply, tag=self._channel.tag)

    def _is_closed(self, message: Prepare) -> bool:
        """Whether the candidate needs no file but itself: on the CPU, where what compilers link is loaded already. The
        libraries that lie about, a BLAS above all, are then not there for it to find."""
        return message.kind == "cpu" and not message.links

    def _policy(self, message: Prepare) -> sandbox.SandboxPolicy:
        devices = tuple(Path("/dev").glob("nvidia*")) if message.kind == "cuda" else ()
        closed = self._is_closed(message)
        return sandbox.SandboxPolicy(
            scratch=Path(message.scratch),
            readable=() if closed else tuple(Path(p) for p in message.readable),
            writable_devices=(*devices, Path("/dev/null")),
            memory_bytes=message.memory_bytes if message.kind == "cpu" else None,
            file_bytes=0 if closed else message.scratch_bytes,
            open_files=256,
            threads=4 * message.threads + 16,
            cpu_seconds=3600,
            parent_pid=os.getppid(),
        )

    def _make_side(self, message: Prepare, fds: tuple[int, ...]) -> CpuSide | CudaSide:
        return CudaSide(message, fds) if message.kind == "cuda" else CpuSide(message, fds)

    def _prepare(self, message: Prepare, fds: tuple[int, ...]) -> Prepared:
        if self._is_closed(message):
            load_linked()
        policy = self._policy(message)
        # The driver starts threads of its own: what can be closed before that covers them too.
        early = sandbox.isolate_early(policy)
        self._side = self._make_side(message, fds)
        if message.kind == "cuda":
            self._recorder = Recorder(message.cupti, self._side.stream)
        self._install_fault_report()
        os.chdir(message.scratch)
        return Prepared(sandbox.enter(policy, early=early), tuple(self._side.bases))

    def _install_fault_report(self) -> None:
        page = map_memory(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self._fault_page, 0)
        os.close(self._fault_page)
        if self._faults is not None:
            self._faults.warpsmith_report_faults(ctypes.c_void_p(page))

    def _load(self, message: Load, _fds: tuple[int, ...]) -> Loaded | Failed:
        try:
            data = Path(message.library).read_bytes()
            self._threaded = b"GOMP_" in data
            self._variables = variables_of(data) if isinstance(self._side, CudaSide) else {}
            self._library = ctypes.CDLL(message.library)
            self._function = getattr(self._library, message.entry)
        except (OSError, AttributeError) as error:
            return Failed(str(error))
        self._kinds = message.kinds
        self._function.argtypes = [_KINDS[k] for k in message.kinds]
        self._function.restype = ctypes.c_int
        asked = 0
        with contextlib.suppress(AttributeError):
            ask = self._library.workspace_bytes
            ask.argtypes = [_KINDS[k] for k in message.sizes]
            ask.restype = ctypes.c_int64
            # Sizes may differ between workloads: the largest answer serves all.
            width = len(message.sizes)
            rows = [message.size_values[i : i + width] for i in range(0, len(message.size_values), width or 1)] or [()]
            asked = max(int(ask(*_cast(message.sizes, row))) for row in rows)
        return Loaded(asked)

    def _map_workspace(self, message: MapWorkspace, fds: tuple[int, ...]) -> Acknowledged:
        self.side.map_workspace(message, fds)
        return Acknowledged()

    def _record(self, message: Record, _fds: tuple[int, ...]) -> Recorded | Faulted:
        said = self.side.record([self._calls[i] for i in message.indices], self._variables)
        self.side.settle(self._library)  # a call that cannot be captured leaves an error for the next one to find
        return said

    def _sample(self, message: Sample, _fds: tuple[int, ...]) -> Sampled | Faulted:
        if message.wake_ms and self._threaded:
            self.side.wake(message.wake_ms)
        calls = [self._calls[i] for i in message.indices]
        return self.side.sample(calls, message, self._library)

    def _flush(self, _message: Flush, _fds: tuple[int, ...]) -> Acknowledged:
        self.side.flush()
        return Acknowledged()

    def _bind(self, message: Bind, _fds: tuple[int, ...]) -> Acknowledged:
        side, values = self.side, []
        for kind, value in zip(self._kinds, message.values, strict=True):
            if kind == "table":
                table = (ctypes.c_void_p * len(message.table))(*(side.address(o) for o in message.table))
                self._keep.append(table)
                values.append(ctypes.addressof(table))
            elif kind == "pointer":
                special = {WORKSPACE: side.workspace, STREAM: side.stream}
                values.append(special[int(value)] if int(value) in special else side.address(int(value)))
            else:
                values.extend(_cast((kind,), (value,)))
        function = self._function
        arguments = [_KINDS[k](v) for k, v in zip(self._kinds, values, strict=True)]
        self._calls[message.index] = lambda: function(*arguments)
        return Acknowledged()

    def _run(self, message: Run, _fds: tuple[int, ...]) -> Ran | Faulted:
        start = time.perf_counter_ns()
        returned = self._calls[message.index]()
        code, text = self.side.settle(self._library)
        return Ran(int(returned), code, text, time.perf_counter_ns() - start)

    def _trace_on(self, message: TraceOn, _fds: tuple[int, ...]) -> Acknowledged:
        self._untraced = message.index, self._calls[message.index]
        call = self.traced(self._calls[message.index])
        if self._recorder is not None:
            self._recorder.start()
            call = self._recorder.around(call)
        self._calls[message.index] = call
        return Acknowledged()

    def traced(self, call: Callable[[], int]) -> Callable[[], int]:
        """A call that also notes what only this kind of host can see."""
        return call

    def _trace_off(self, _message: TraceOff, _fds: tuple[int, ...]) -> TraceReport:
        recorder = self._recorder
        if self._untraced is not None:
            index, self._calls[index] = self._untraced
        if recorder is None:
            return TraceReport((), (), (), self._operators, "")
        recorder.stop()
        return TraceReport(
            calls=tuple(recorder.calls),
            kernels=tuple(recorder.kernels),
            elsewhere=tuple(recorder.elsewhere),
            operators=self._operators,
            problem=recorder.problem,
        )


def variables_of(data: bytes) -> dict[str, int]:
    """The variables of an object's device code, with their bytes."""
    with contextlib.suppress(MalformedImage):  # it is then timed in another way
        return {v.name: v.nbytes for image in read_images(data) for v in image.variables}
    return {}


def _cast(kinds: Sequence[str], values: Sequence[float]) -> list[Any]:
    kept = {"int": int, "double": float, "bool": bool}
    return [kept[kind](value) for kind, value in zip(kinds, values, strict=True)]


def main(payload: str, fds: list[int]) -> int:
    """Entry of the forked process. Descriptors: the judge's channel, the fault page."""
    settings = json.loads(payload)
    channel_fd, settings["fault_page_fd"] = fds
    # A candidate that prints must not fill anybody's pipe or spoil the command's output.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.environ.clear()
    os.environ.update(settings["environ"])
    Host(Channel(socket.socket(fileno=channel_fd)), settings).serve()
    return 0


# Python imports these lazily in places; after the sandbox closes it could not.
_ = (shutil, b"".decode("ascii"))
