"""The process of a native candidate: maps the judge's buffers, enters the sandbox, loads one library, calls it.

Untrusted from the moment the library is loaded. It holds no reference, no expected value, no seed and no verdict; the
judge checks its replies against the buffers and its own clock. Standard library only. Every module that it needs is
imported before it enters the sandbox.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import shutil
import socket
import threading  # noqa: F401  (imported before the sandbox: ctypes callbacks may need it)
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from warpsmith.evaluator.candidate.c_call import CallLoop, CLibrary, pointer_table
from warpsmith.evaluator.candidate.cupti import CudaCallTracer
from warpsmith.evaluator.candidate.device_memory import CpuDevice, CudaDevice, map_memory
from warpsmith.evaluator.cuda_driver import CudaError
from warpsmith.evaluator.cuda_replay.device_images import MalformedImage, read_images
from warpsmith.evaluator.protocol.messages import (
    MOST_CALLS,
    Acknowledged,
    BindArguments,
    CallResult,
    CallSets,
    CallsMade,
    CallTimes,
    CandidateLoaded,
    FlushCaches,
    HostReady,
    LoadLibrary,
    MapWorkspace,
    Ping,
    Prepare,
    PythonFailed,
    RecordCalls,
    RecordedCalls,
    RequestFailed,
    RunCall,
    StartTrace,
    StopTrace,
    TimeCalls,
    TraceReport,
    WakeThreads,
)
from warpsmith.evaluator.protocol.wire import Channel, WireClosed
from warpsmith.evaluator.sandbox import policy as sandbox

Handler = Callable[[Any, tuple[int, ...]], Any]
WORKSPACE = -1  # in BindArguments.values: the address of the workspace
_LINKED = (
    *("libstdc++.so.6", "libm.so.6", "libmvec.so.1", "libgcc_s.so.1", "libatomic.so.1"),
    *("libgomp.so.1", "libomp.so.5", "libomp.so"),
)
STREAM = -2  # in BindArguments.values: the stream


def load_common_libraries() -> None:
    """Load the libraries that compilers link: inside the sandbox they cannot be opened."""
    for name in _LINKED:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)


class NativeHost:
    """Answers the judge's requests, one at a time."""

    calls_in_c = True  # the calls of one request are made in C, if the library for that could be built

    def __init__(self, channel: Channel, payload: dict[str, Any]) -> None:
        self._channel = channel
        # Loaded now: the sandbox does not allow reading the cache folder.
        self._faults = ctypes.CDLL(payload["faults"]) if payload["faults"] else None
        self._loop = CallLoop(payload["calls"]) if self.calls_in_c and payload.get("calls") else None
        self._fault_page = payload["fault_page_fd"]
        self._device: CpuDevice | CudaDevice | None = None
        self._library: Any = None
        self._candidate: CLibrary | None = None
        self._kinds: tuple[str, ...] = ()
        self._threaded = True  # whether the candidate uses OpenMP; assumed until it is loaded
        self._variables: Mapping[str, int] = {}  # of its device code, with their sizes
        self._calls: dict[int, Callable[[], int]] = dict.fromkeys(range(-MOST_CALLS, 0), _no_call)
        self._rows: dict[int, bytes] = {}  # the same calls for the loop in C
        if self._loop is not None:
            self._rows = dict.fromkeys(range(-MOST_CALLS, 0), self._loop.no_call)
        self._keep: list[Any] = []  # pointer tables, which must outlive their calls
        self._recorder: CudaCallTracer | None = None
        self._operators: tuple[str, ...] = ()  # of torch, in the traced call of a Python candidate
        self._operators_ns = 0
        self._untraced: tuple[int, Callable[[], int]] | None = None  # the traced call before it was wrapped

    @property
    def device(self) -> CpuDevice | CudaDevice:
        """The device, once it is prepared."""
        assert self._device is not None, "Prepare comes first"
        return self._device

    def handlers(self) -> dict[type, Handler]:
        """The function that answers each request."""
        return {
            Prepare: self._prepare,
            LoadLibrary: self._load,
            MapWorkspace: self._map_workspace,
            BindArguments: self._bind,
            RunCall: self._run,
            RecordCalls: self._record,
            WakeThreads: self._wake,
            CallSets: self._call_sets,
            TimeCalls: self._sample,
            FlushCaches: self._flush,
            StartTrace: self._trace_on,
            StopTrace: self._trace_off,
            Ping: lambda _m, _f: Acknowledged(),
        }

    def serve(self) -> None:
        """Answer requests until the judge closes the channel."""
        handlers = self.handlers()
        while True:
            try:
                message, fds = self._channel.receive(handlers)
            except WireClosed:
                return
            try:
                reply = handlers[type(message)](message, fds)
            except (OSError, CudaError, ValueError) as error:
                reply = RequestFailed(str(error))
            self._channel.send(reply, tag=self._channel.tag)

    def _is_closed(self, message: Prepare) -> bool:
        """True if the candidate may read no file but itself: on the CPU, where the usual libraries are loaded already.
        Then it cannot open other libraries, above all a BLAS."""
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

    def _make_device(self, message: Prepare, fds: tuple[int, ...]) -> CpuDevice | CudaDevice:
        return CudaDevice(message, fds) if message.kind == "cuda" else CpuDevice(message, fds)

    def _prepare(self, message: Prepare, fds: tuple[int, ...]) -> HostReady:
        if self._is_closed(message):
            load_common_libraries()
        policy = self._policy(message)
        # Restrictions made before the driver starts its threads apply to these threads too.
        early = sandbox.isolate_early(policy)
        self._device = self._make_device(message, fds)
        if message.kind == "cuda":
            self._recorder = CudaCallTracer(message.cupti, self._device.stream)
        self._install_fault_report()
        os.chdir(message.scratch)
        return HostReady(sandbox.enter(policy, early=early), tuple(self._device.bases))

    def _install_fault_report(self) -> None:
        page = map_memory(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self._fault_page, 0)
        os.close(self._fault_page)
        if self._faults is not None:
            self._faults.warpsmith_report_faults(ctypes.c_void_p(page))

    def _load(self, message: LoadLibrary, _fds: tuple[int, ...]) -> CandidateLoaded | RequestFailed:
        try:
            data = Path(message.library).read_bytes()
            self._threaded = b"GOMP_" in data
            self._variables = device_variables(data) if isinstance(self._device, CudaDevice) else {}
            self._candidate = CLibrary(message.library, message.entry, message.kinds, message.sizes)
        except (OSError, AttributeError) as error:
            return RequestFailed(str(error))
        self._library, self._kinds = self._candidate.library, message.kinds
        # Sizes may differ between workloads: the largest answer serves all.
        width = len(message.sizes)
        rows = [message.size_values[i : i + width] for i in range(0, len(message.size_values), width or 1)] or [()]
        return CandidateLoaded(max(self._candidate.workspace_bytes(row) for row in rows))

    def _map_workspace(self, message: MapWorkspace, fds: tuple[int, ...]) -> Acknowledged:
        self.device.map_workspace(message, fds)
        return Acknowledged()

    def _record(self, message: RecordCalls, _fds: tuple[int, ...]) -> RecordedCalls | PythonFailed:
        said = self.device.record([self._calls[i] for i in message.indices], self._variables)
        self.device.synchronize(self._library)  # clears the error of a call that cannot be captured
        return said

    def _wake(self, message: WakeThreads, _fds: tuple[int, ...]) -> Acknowledged:
        if self._threaded:
            self.device.wake(message.most_ms)
        return Acknowledged()

    def _call_sets(self, message: CallSets, _fds: tuple[int, ...]) -> CallsMade | PythonFailed:
        start, returned = time.perf_counter_ns(), 0
        if self._loop is not None and self._rows.keys() >= set(message.indices):
            returned = self._loop.call([self._rows[i] for i in message.indices])
        else:
            for call in [self._calls[i] for i in message.indices]:
                returned |= call()
        return CallsMade(time.perf_counter_ns() - start, returned)

    def _sample(self, message: TimeCalls, _fds: tuple[int, ...]) -> CallTimes | PythonFailed:
        calls = [self._calls[i] for i in message.indices]
        return self.device.sample(calls, message, self._library)

    def _flush(self, _message: FlushCaches, _fds: tuple[int, ...]) -> Acknowledged:
        self.device.flush()
        return Acknowledged()

    def _bind(self, message: BindArguments, _fds: tuple[int, ...]) -> Acknowledged:
        assert self._candidate is not None, "LoadLibrary comes first"
        device, values = self.device, list[Any]()
        for kind, value in zip(self._kinds, message.values, strict=True):
            if kind == "table":
                table = pointer_table([device.address(offset) for offset in message.table])
                self._keep.append(table)
                values.append(ctypes.addressof(table))
            elif kind == "pointer":
                special = {WORKSPACE: device.workspace, STREAM: device.stream}
                values.append(special[int(value)] if int(value) in special else device.address(int(value)))
            else:
                values.append(value)
        self._calls[message.index] = self._candidate.bind(values)
        row = self._candidate.row(values)
        if row is not None:
            self._rows[message.index] = row
        return Acknowledged()

    def _run(self, message: RunCall, _fds: tuple[int, ...]) -> CallResult | PythonFailed:
        start = time.perf_counter_ns()
        returned = self._calls[message.index]()
        code, text = self.device.synchronize(self._library)
        return CallResult(int(returned), code, text, time.perf_counter_ns() - start)

    def _trace_on(self, message: StartTrace, _fds: tuple[int, ...]) -> Acknowledged:
        self._untraced = message.index, self._calls[message.index]
        call = self.traced(self._calls[message.index])
        if self._recorder is not None:
            self._recorder.start()
            call = self._recorder.traced(call)
        self._calls[message.index] = call
        return Acknowledged()

    def traced(self, call: Callable[[], int]) -> Callable[[], int]:
        """A call that also collects what only this kind of host can see."""
        return call

    def _trace_off(self, _message: StopTrace, _fds: tuple[int, ...]) -> TraceReport:
        recorder = self._recorder
        if self._untraced is not None:
            index, self._calls[index] = self._untraced
        if recorder is None:
            return TraceReport((), (), (), self._operators, self._operators_ns, "")
        recorder.stop()
        return TraceReport(
            calls=tuple(recorder.calls),
            kernels=tuple(recorder.kernels),
            elsewhere=tuple(recorder.elsewhere),
            operators=self._operators,
            operators_ns=self._operators_ns,
            problem=recorder.problem,
        )


def _no_call() -> int:
    """A call that does nothing: from the time that such calls take follows the cost of a request."""
    return 0


def device_variables(data: bytes) -> dict[str, int]:
    """The variables of an object's device code, with their sizes."""
    with contextlib.suppress(MalformedImage):  # the candidate is then timed without replay
        return {v.name: v.nbytes for image in read_images(data) for v in image.variables}
    return {}


def main(payload: str, fds: list[int]) -> int:
    """Entry of the forked process. Descriptors: the judge's channel, the fault page."""
    return serve_host(NativeHost, json.loads(payload), fds)


def serve_host(host: Callable[[Channel, dict[str, Any]], NativeHost], settings: dict[str, Any], fds: list[int]) -> int:
    """Serve the judge's requests until its channel is closed."""
    channel_fd, settings["fault_page_fd"] = fds
    # A candidate that prints must not fill a pipe or spoil the command's output.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.environ.clear()
    os.environ.update(settings["environ"])
    host(Channel(socket.socket(fileno=channel_fd)), settings).serve()
    return 0


# Python imports these lazily, which is not possible inside the sandbox.
_ = (shutil, b"".decode("ascii"))
