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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from warpsmith.evaluate import sandbox
from warpsmith.evaluate.cudadriver import CudaError, Driver
from warpsmith.evaluate.messages import (
    Acknowledged,
    Bind,
    Capture,
    Captured,
    Failed,
    Flush,
    Load,
    Loaded,
    MapWorkspace,
    Ping,
    Prepare,
    Prepared,
    Ran,
    Run,
    Sample,
    Sampled,
)
from warpsmith.evaluate.wire import Channel, WireClosed

REQUESTS = (Prepare, Load, MapWorkspace, Bind, Run, Capture, Flush, Sample, Ping)
WORKSPACE = -1  # in Bind.values: the workspace's address
STREAM = -2  # in Bind.values: the stream
_GUARD_BYTES = 1 << 20
_KINDS: dict[str, Any] = {
    "pointer": ctypes.c_void_p,
    "table": ctypes.c_void_p,
    "int": ctypes.c_int64,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_FAILED = ctypes.c_void_p(-1).value


def _map(address: int | None, nbytes: int, protection: int, flags: int, fd: int, offset: int) -> int:
    result = _libc.mmap(address, nbytes, protection, flags, fd, offset)
    if result is None or result == _FAILED:
        raise OSError(ctypes.get_errno(), f"cannot map {nbytes} bytes")
    return int(result)


class CpuSide:
    """Buffers between guard pages, plain calls, a monotonic clock."""

    def __init__(self, prepare: Prepare, fds: Sequence[int]) -> None:
        read_only, read_write = fds
        self.bases: list[int] = []  # where each slot's region begins in this process
        self._regions = [tuple(slot) for slot in prepare.slots]
        for start, end, writable in self._regions:
            size = end - start
            # Reserve inaccessible space on both sides, then put the shared pages in the middle. Inputs come
            # through a read-only descriptor: no mprotect can make them writable.
            block = _map(
                None,
                size + 2 * _GUARD_BYTES,
                0,
                mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE,
                -1,
                0,
            )
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            fd = read_write if writable else read_only
            self.bases.append(_map(block + _GUARD_BYTES, size, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, start))
        for fd in (read_only, read_write):
            os.close(fd)
        self._flush = ctypes.create_string_buffer(prepare.flush_bytes) if prepare.flush_bytes else None
        self._workspace = 0
        self.stream = 0

    def address(self, offset: int) -> int:
        """The address of an arena offset."""
        for (start, end, _), base in zip(self._regions, self.bases, strict=True):
            if start <= offset < end:
                return base + offset - start
        raise ValueError(f"no slot at {offset}")

    def map_workspace(self, message: MapWorkspace, fds: Sequence[int]) -> None:
        """Scratch memory, ending at a guard page."""
        size = -(-message.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        block = _map(None, size + 2 * _GUARD_BYTES, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0)
        flags = mmap.MAP_SHARED | _MAP_FIXED
        base = _map(block + _GUARD_BYTES, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fds[0], 0)
        os.close(fds[0])
        self._workspace = base + message.region_start

    @property
    def workspace(self) -> int:
        """Its address, 0 when there is none."""
        return self._workspace

    def settle(self, _library: Any) -> tuple[int, str]:
        """Nothing is asynchronous here."""
        return 0, ""

    def capture(self, _calls: Sequence[Callable[[], int]]) -> Captured:
        """There are no graphs on the CPU."""
        return Captured(False, "no graphs on the CPU")

    def flush(self) -> None:
        """Write more than the caches hold. Not part of a sample: its time varies with the machine's load, and the
        judge's clock around a sample must show the sample."""
        if self._flush is not None:
            ctypes.memset(self._flush, 0x5A, len(self._flush))

    def sample(self, calls: Sequence[Callable[[], int]], _graph: bool, rounds: int, _library: Any) -> Sampled:
        """Time the calls."""
        returned = 0
        start = time.perf_counter_ns()
        for _ in range(rounds):
            for call in calls:
                returned |= call()
        return Sampled(time.perf_counter_ns() - start, returned, 0, "")


class CudaSide:
    """The judge's allocation opened by handle, one stream, events and graphs."""

    def __init__(self, prepare: Prepare, _fds: Sequence[int]) -> None:
        self.driver = Driver(prepare.device)
        self._base = self.driver.open(prepare.ipc_handle)
        self.bases = [self._base]
        self.stream = self.driver.stream()
        self._start, self._stop = self.driver.event(), self.driver.event()
        self._flush_bytes = prepare.flush_bytes
        self._flush = self.driver.allocate(self._flush_bytes) if self._flush_bytes else 0
        self._graph = 0
        self.workspace = 0

    def address(self, offset: int) -> int:
        """The address of an arena offset."""
        return self._base + offset

    def map_workspace(self, message: MapWorkspace, _fds: Sequence[int]) -> None:
        """Scratch memory of the judge's."""
        self.workspace = self.driver.open(message.ipc_handle) + message.region_start

    def settle(self, library: Any) -> tuple[int, str]:
        """Wait for the whole device; an error of the last launch comes first, a fault of a kernel second."""
        code, text = _last_runtime_error(library)
        fault, fault_text = self.driver.synchronize()
        return (fault, fault_text) if fault else (code, text)

    def capture(self, calls: Sequence[Callable[[], int]]) -> Captured:
        """Record the calls into a graph."""
        try:
            self.driver.begin_capture(self.stream)
            returned = 0
            for call in calls:
                returned |= call()
            self._graph = self.driver.end_capture(self.stream)
        except CudaError as error:
            return Captured(False, error.text)
        return Captured(returned == 0, "" if returned == 0 else f"the entry point returned {returned}")

    def flush(self) -> None:
        """Part of each sample, so that it runs while the launches are queued."""

    def sample(self, calls: Sequence[Callable[[], int]], graph: bool, rounds: int, library: Any) -> Sampled:
        """Flush, mark, launch, mark. The flush runs while the rest is queued, so no launch gap is timed."""
        driver, returned = self.driver, 0
        driver.forget_persisting_lines()
        if self._flush and rounds == 1:
            driver.fill_async(self._flush, 0x5A, self._flush_bytes, self.stream)
        driver.record(self._start, self.stream)
        for _ in range(rounds):
            if graph:
                driver.replay(self._graph, self.stream)
                continue
            for call in calls:
                returned |= call()
        driver.record(self._stop, self.stream)
        code, text = self.settle(library)
        elapsed = 0 if code else driver.elapsed_ns(self._start, self._stop)
        return Sampled(elapsed, returned, code, text)


def _last_runtime_error(library: Any) -> tuple[int, str]:
    """The runtime's sticky-until-read error: a refused launch configuration shows only there."""
    if library is None:
        return 0, ""
    try:
        get, describe = library.cudaGetLastError, library.cudaGetErrorString
    except AttributeError:
        return 0, ""
    code = int(get())
    describe.restype = ctypes.c_char_p
    return code, (describe(code) or b"").decode(errors="replace") if code else ""


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
        self._calls: dict[int, Callable[[], int]] = {}
        self._keep: list[Any] = []  # pointer tables must outlive their calls

    @property
    def side(self) -> CpuSide | CudaSide:
        """The prepared device side."""
        assert self._side is not None, "Prepare comes first"
        return self._side

    def serve(self) -> None:
        """Until the judge hangs up."""
        handlers: dict[type, Callable[[Any, tuple[int, ...]], Any]] = {
            Prepare: self._prepare,
            Load: self._load,
            MapWorkspace: self._map_workspace,
            Bind: self._bind,
            Run: self._run,
            Capture: lambda m, _: self.side.capture([self._calls[i] for i in m.indices]),
            Sample: self._sample,
            Flush: self._flush,
            Ping: lambda _m, _f: Acknowledged(),
        }
        while True:
            try:
                message, fds = self._channel.receive(REQUESTS)
            except WireClosed:
                return
            try:
                reply = handlers[type(message)](message, fds)
            except (OSError, CudaError, ValueError) as error:
                reply = Failed(str(error))
            self._channel.send(reply)

    def _prepare(self, message: Prepare, fds: tuple[int, ...]) -> Prepared:
        devices = tuple(Path("/dev").glob("nvidia*")) if message.kind == "cuda" else ()
        policy = sandbox.SandboxPolicy(
            scratch=Path(message.scratch),
            readable=tuple(Path(p) for p in message.readable),
            writable_devices=(*devices, Path("/dev/null")),
            memory_bytes=message.memory_bytes if message.kind == "cpu" else None,
            file_bytes=message.scratch_bytes,
            open_files=256,
            threads=4 * message.threads + 16,
            cpu_seconds=3600,
            parent_pid=os.getppid(),
        )
        # The driver starts threads of its own: what can be closed before that covers them too.
        early = sandbox.isolate_early(policy)
        self._side = CudaSide(message, fds) if message.kind == "cuda" else CpuSide(message, fds)
        self._install_fault_report()
        os.chdir(message.scratch)
        return Prepared(sandbox.enter(policy, early=early), tuple(self._side.bases))

    def _install_fault_report(self) -> None:
        page = _map(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self._fault_page, 0)
        os.close(self._fault_page)
        if self._faults is not None:
            self._faults.warpsmith_report_faults(ctypes.c_void_p(page))

    def _load(self, message: Load, _fds: tuple[int, ...]) -> Loaded | Failed:
        try:
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

    def _sample(self, message: Sample, _fds: tuple[int, ...]) -> Sampled:
        for index in message.warm_up:
            self._calls[index]()
        calls = [self._calls[i] for i in message.indices]
        return self.side.sample(calls, message.graph, message.rounds, self._library)

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

    def _run(self, message: Run, _fds: tuple[int, ...]) -> Ran:
        start = time.perf_counter_ns()
        returned = self._calls[message.index]()
        code, text = self.side.settle(self._library)
        return Ran(int(returned), code, text, time.perf_counter_ns() - start)


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
