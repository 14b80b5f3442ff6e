"""The device inside a candidate's process: maps the judge's buffers, makes calls, flushes caches and times.

Standard library only: part of the process that loads a native candidate.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from warpsmith.evaluator.cuda_driver import CudaError, Driver
from warpsmith.evaluator.cuda_replay.call_data import encode_call
from warpsmith.evaluator.cuda_replay.record import CallRecorder, Unrecordable
from warpsmith.evaluator.cuda_replay.shared_memory import SharedMemory, decode_blocks
from warpsmith.evaluator.protocol.messages import CallTimes, MapWorkspace, Prepare, RecordedCalls, TimeCalls

_GUARD_BYTES = 1 << 20
_PROMPT_NS = 100_000  # an empty parallel region of two awake threads takes a few microseconds
_PROMPT_TIMES = 3
_MOST_PARTIAL = 4  # recorded calls that are sent although another call could not be recorded
_MOST_RECORDED_CHARS = 900_000  # of one reply
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


def map_memory(address: int | None, nbytes: int, protection: int, flags: int, fd: int, offset: int) -> int:
    """mmap(2) with a chosen address; raises OSError."""
    result = _libc.mmap(address, nbytes, protection, flags, fd, offset)
    if result is None or result == _FAILED:
        raise OSError(ctypes.get_errno(), f"cannot map {nbytes} bytes")
    return int(result)


def _map_guarded(nbytes: int, protection: int, fd: int, offset: int) -> int:
    """Map a part of a shared file between inaccessible guard pages; returns its address."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    block = map_memory(None, nbytes + 2 * _GUARD_BYTES, 0, flags, -1, 0)
    return map_memory(block + _GUARD_BYTES, nbytes, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, offset)


def repeat_until_awake(act: Callable[[], object], most_ms: int) -> None:
    """Repeat an action of all threads until it is fast several times in a row: then every processor is awake.

    A virtual processor that was idle for milliseconds can need milliseconds to come back.
    """
    prompt, end_ns = 0, time.perf_counter_ns() + 1_000_000 * most_ms
    while prompt < _PROMPT_TIMES:
        start_ns = time.perf_counter_ns()
        act()
        now_ns = time.perf_counter_ns()
        prompt = prompt + 1 if now_ns - start_ns < _PROMPT_NS else 0
        if now_ns > end_ns:
            return


class CpuDevice:
    """The CPU: buffers between guard pages, plain calls, a monotonic clock."""

    def __init__(self, prepare: Prepare, fds: Sequence[int]) -> None:
        read_only, read_write = fds
        self.bases: list[int] = []  # where each slot's region begins in this process
        self._regions = [tuple(slot) for slot in prepare.slots]
        for start, end, writable in self._regions:
            size = end - start
            # Inputs come through a read-only descriptor: no mprotect can make them writable.
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            self.bases.append(_map_guarded(size, protection, read_write if writable else read_only, start))
        for fd in (read_only, read_write):
            os.close(fd)
        self._flush = ctypes.create_string_buffer(prepare.flush_bytes) if prepare.flush_bytes else None
        self.workspace = 0  # its address; 0 if there is none
        self.stream = 0
        self._team = _openmp_team()

    def wake(self, most_ms: int) -> None:
        """Wake OpenMP's threads, which slept while the baseline ran. Above all in virtual machines, waking takes a time
        that says nothing about the kernel. Only empty parallel regions run, no code of the candidate."""
        if self._team is not None:
            repeat_until_awake(self._team, most_ms)

    def address(self, offset: int) -> int:
        """The address of an arena offset."""
        for (start, end, _), base in zip(self._regions, self.bases, strict=True):
            if start <= offset < end:
                return base + offset - start
        raise ValueError(f"no slot at {offset}")

    def map_workspace(self, message: MapWorkspace, fds: Sequence[int]) -> None:
        """Scratch memory, ending at a guard page."""
        size = -(-message.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        base = _map_guarded(size, mmap.PROT_READ | mmap.PROT_WRITE, fds[0], 0)
        os.close(fds[0])
        self.workspace = base + message.region_start

    def synchronize(self, _library: Any) -> tuple[int, str]:
        """Nothing is asynchronous here."""
        return 0, ""

    def record(self, _calls: Sequence[Callable[[], int]], _variables: Mapping[str, int]) -> RecordedCalls:
        """There is no device code on the CPU."""
        return not_recorded("it runs on the CPU")

    def flush(self) -> None:
        """Write more than the caches hold. Not part of a sample: the judge's clock must show the sample only."""
        if self._flush is not None:
            ctypes.memset(self._flush, 0x5A, len(self._flush))

    def sample(self, _calls: Sequence[Callable[[], int]], _message: TimeCalls, _library: Any) -> CallTimes:
        """On the CPU the judge times calls (`CallSets`)."""
        raise ValueError("calls on the CPU are timed by the judge")


class CudaDevice:
    """A GPU: the judge's memory at the judge's addresses (or opened by IPC handle), one stream, events and graphs."""

    def __init__(self, prepare: Prepare, fds: Sequence[int], *, read_only: bool = False) -> None:
        self.driver = Driver(prepare.device)
        self._shared: SharedMemory | None = None
        if prepare.blocks:  # before anything else takes addresses
            self._shared = SharedMemory(self.driver, prepare.address, prepare.shared_bytes)
            for block, fd in zip(decode_blocks(prepare.blocks), fds, strict=True):
                self._shared.open(block, fd, read_only=read_only and not block.writable)
        self._base = self._shared.address if self._shared else self.driver.open(prepare.ipc_handle)
        self.bases = [self._base]
        self.stream = self.driver.stream()
        self._start, self._stop = self.driver.event(), self.driver.event()
        self._flush_bytes = prepare.flush_bytes
        self._flush = self.driver.allocate(self._flush_bytes) if self._flush_bytes else 0
        self.workspace = 0
        self.images: Mapping[int, str] = {}  # digests of device images by the handles of their kernels, if known

    def address(self, offset: int) -> int:
        """The address of an arena offset."""
        return self._base + offset

    def map_workspace(self, message: MapWorkspace, fds: Sequence[int]) -> None:
        """Map scratch memory of the judge."""
        if self._shared is not None:
            (block,) = decode_blocks([message.block])
            self._shared.open(block, fds[0])
            self.workspace = self._shared.address + block.start + message.region_start
        else:
            self.workspace = self.driver.open(message.ipc_handle) + message.region_start

    def synchronize(self, library: Any) -> tuple[int, str]:
        """Wait for the whole device; returns the fault of a kernel, else the error of the last launch, else (0, "")."""
        code, text = _last_runtime_error(library)
        fault, fault_text = self.driver.synchronize()
        return (fault, fault_text) if fault else (code, text)

    def record(self, calls: Sequence[Callable[[], int]], variables: Mapping[str, int]) -> RecordedCalls:
        """Record what the calls launch. `variables` are those of the candidate's device code, with their sizes."""
        recording = self.recording(variables)
        found: list[str] = []
        try:
            for call in calls:
                found.append(encode_call(recording.record(call)))
            held = encode_variables(recording)
        except (Unrecordable, CudaError) as refused:
            return replace(not_recorded(f"it {refused}"), calls=tuple(found[:_MOST_PARTIAL]))
        return calls_recorded(tuple(found), (), held)

    def recording(self, variables: Mapping[str, int]) -> CallRecorder:
        """A recorder for calls on this device."""
        return CallRecorder(self.driver, self.stream, variables, self.images)

    def replay(self, chain: int) -> CallTimes:
        """Flush, then time the launch of an executable graph (0: none)."""

        def launch() -> int:
            if chain:
                self.driver.replay(chain, self.stream)
            return 0

        return self._time([launch], flush=True, library=None)

    def deliver(self, chain: int) -> CallTimes:
        """Launch an executable graph, untimed."""
        self.driver.replay(chain, self.stream)
        code, text = self.driver.synchronize()
        return CallTimes(0, 0, code, text)

    def flush(self) -> None:
        """Nothing: the flush is part of each sample."""

    def wake(self, most_ms: int) -> None:
        """Nothing sleeps on a GPU."""

    def sample(self, calls: Sequence[Callable[[], int]], message: TimeCalls, library: Any) -> CallTimes:
        """Flush, then time the calls. The flush runs while the launches are queued, so no launch gap is timed."""
        return self._time(calls, flush=message.flush, library=library)

    def _time(self, calls: Sequence[Callable[[], int]], *, flush: bool, library: Any) -> CallTimes:
        driver, returned = self.driver, 0
        driver.forget_persisting_lines()
        if self._flush and flush:
            driver.fill_async(self._flush, 0x5A, self._flush_bytes, self.stream)
        driver.record(self._start, self.stream)
        for call in calls:
            returned |= call()
        driver.record(self._stop, self.stream)
        code, text = self.synchronize(library)
        elapsed = 0 if code else driver.elapsed_ns(self._start, self._stop)
        return CallTimes(elapsed, returned, code, text)


def calls_recorded(calls: tuple[str, ...], deliveries: tuple[str, ...], variables: tuple[str, ...]) -> RecordedCalls:
    """The answer to RecordCalls, if it is short enough for a message."""
    if sum(map(len, (*calls, *deliveries, *variables))) > _MOST_RECORDED_CHARS:
        return not_recorded("it launches more than can be said in one message")
    return RecordedCalls(calls, deliveries, variables, "")


def not_recorded(text: str) -> RecordedCalls:
    """The answer to RecordCalls if the calls cannot be replayed."""
    return RecordedCalls((), (), (), text)


def encode_variables(recording: CallRecorder) -> tuple[str, ...]:
    """The contents of device variables, encoded for a message."""
    return tuple(json.dumps([name, data.hex()]) for name, data in recording.variables().items())


def _openmp_team() -> Callable[[], None] | None:
    """An empty parallel region of the OpenMP runtime that candidates link; None if there is none."""
    try:
        runtime = ctypes.CDLL("libgomp.so.1")
    except OSError:
        return None
    begin, nothing = runtime.GOMP_parallel, _libc.getpid  # any harmless function
    return lambda: begin(nothing, None, 0, 0)


def _last_runtime_error(library: Any) -> tuple[int, str]:
    """The last error of the CUDA runtime: only there does a refused launch configuration show."""
    if library is None:
        return 0, ""
    try:
        get, describe = library.cudaGetLastError, library.cudaGetErrorString
    except AttributeError:
        return 0, ""
    code = int(get())
    describe.restype = ctypes.c_char_p
    return code, (describe(code) or b"").decode(errors="replace") if code else ""
