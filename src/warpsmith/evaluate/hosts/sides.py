"""A device as a candidate's process sees it: the judge's buffers mapped, calls made, flushed and timed.

Standard library only: it is part of the process that loads a native candidate.
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

from warpsmith.evaluate.cudadriver import CudaError, Driver
from warpsmith.evaluate.messages import MapWorkspace, Prepare, Recorded, Sample, Sampled
from warpsmith.evaluate.replay.callgraph import encode
from warpsmith.evaluate.replay.ranges import Window, pieces_of
from warpsmith.evaluate.replay.recording import Recording, Unrecordable

_GUARD_BYTES = 1 << 20
_PROMPT_NS = 100_000  # an empty region of two awake threads takes a few microseconds
_PROMPT_TIMES = 3
_MOST_PARTIAL = 4  # calls that are said although another one could not be recorded
_MOST_RECORDED_CHARS = 900_000  # a reply has an end
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
    """mmap(2) at an address of our choice; raises OSError."""
    result = _libc.mmap(address, nbytes, protection, flags, fd, offset)
    if result is None or result == _FAILED:
        raise OSError(ctypes.get_errno(), f"cannot map {nbytes} bytes")
    return int(result)


def until_prompt(act: Callable[[], object], most_ms: int) -> None:
    """Do something on all threads until it is done at once, several times in a row: then every processor is awake.

    One that was idle for milliseconds can take milliseconds to come back, where a hypervisor has given it away.
    """
    prompt, end_ns = 0, time.perf_counter_ns() + 1_000_000 * most_ms
    while prompt < _PROMPT_TIMES:
        start_ns = time.perf_counter_ns()
        act()
        now_ns = time.perf_counter_ns()
        prompt = prompt + 1 if now_ns - start_ns < _PROMPT_NS else 0
        if now_ns > end_ns:
            return


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
            block = map_memory(
                None,
                size + 2 * _GUARD_BYTES,
                0,
                mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE,
                -1,
                0,
            )
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            fd = read_write if writable else read_only
            self.bases.append(
                map_memory(block + _GUARD_BYTES, size, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, start)
            )
        for fd in (read_only, read_write):
            os.close(fd)
        self._flush = ctypes.create_string_buffer(prepare.flush_bytes) if prepare.flush_bytes else None
        self._workspace = 0
        self.stream = 0
        self._team = _openmp_team()

    def wake(self, most_ms: int) -> None:
        """Wake OpenMP's threads, which sleep while the other side runs: in a virtual machine above all that takes a
        time that says nothing about the kernel. With empty regions of our own, so that no code of the candidate
        has a chance to prepare anything before the clock starts."""
        if self._team is not None:
            until_prompt(self._team, most_ms)

    def address(self, offset: int) -> int:
        """The address of an arena offset."""
        for (start, end, _), base in zip(self._regions, self.bases, strict=True):
            if start <= offset < end:
                return base + offset - start
        raise ValueError(f"no slot at {offset}")

    def map_workspace(self, message: MapWorkspace, fds: Sequence[int]) -> None:
        """Scratch memory, ending at a guard page."""
        size = -(-message.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        block = map_memory(
            None, size + 2 * _GUARD_BYTES, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0
        )
        flags = mmap.MAP_SHARED | _MAP_FIXED
        base = map_memory(block + _GUARD_BYTES, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fds[0], 0)
        os.close(fds[0])
        self._workspace = base + message.region_start

    @property
    def workspace(self) -> int:
        """Its address, 0 when there is none."""
        return self._workspace

    def settle(self, _library: Any) -> tuple[int, str]:
        """Nothing is asynchronous here."""
        return 0, ""

    def record(self, _calls: Sequence[Callable[[], int]], _variables: Mapping[str, int]) -> Recorded:
        """There is no device code on the CPU."""
        return unrecorded("it runs on the CPU")

    def flush(self) -> None:
        """Write more than the caches hold. Not part of a sample: its time varies with the machine's load, and the
        judge's clock around a sample must show the sample."""
        if self._flush is not None:
            ctypes.memset(self._flush, 0x5A, len(self._flush))

    def sample(self, calls: Sequence[Callable[[], int]], _message: Sample, _library: Any) -> Sampled:
        """Time the calls."""
        returned = 0
        start = time.perf_counter_ns()
        for call in calls:
            returned |= call()
        return Sampled(time.perf_counter_ns() - start, returned, 0, "")


class CudaSide:
    """The judge's memory mapped where the judge has it (or opened by handle), one stream, events and graphs."""

    def __init__(self, prepare: Prepare, fds: Sequence[int], *, read_only: bool = False) -> None:
        self.driver = Driver(prepare.device)
        self._window: Window | None = None
        if prepare.pieces:  # before anything else takes addresses
            self._window = Window(self.driver, prepare.address, prepare.window_bytes)
            for piece, fd in zip(pieces_of(prepare.pieces), fds, strict=True):
                self._window.open(piece, fd, read_only=read_only and not piece.writable)
        self._base = self._window.address if self._window else self.driver.open(prepare.ipc_handle)
        self.bases = [self._base]
        self.stream = self.driver.stream()
        self._start, self._stop = self.driver.event(), self.driver.event()
        self._flush_bytes = prepare.flush_bytes
        self._flush = self.driver.allocate(self._flush_bytes) if self._flush_bytes else 0
        self.workspace = 0
        self.images: Mapping[int, str] = {}  # digests of device images by the handles of their kernels, where known

    def address(self, offset: int) -> int:
        """The address of an arena offset."""
        return self._base + offset

    def map_workspace(self, message: MapWorkspace, fds: Sequence[int]) -> None:
        """Scratch memory of the judge's."""
        if self._window is not None:
            (piece,) = pieces_of([message.piece])
            self._window.open(piece, fds[0])
            self.workspace = self._window.address + piece.start + message.region_start
        else:
            self.workspace = self.driver.open(message.ipc_handle) + message.region_start

    def settle(self, library: Any) -> tuple[int, str]:
        """Wait for the whole device; an error of the last launch comes first, a fault of a kernel second."""
        code, text = _last_runtime_error(library)
        fault, fault_text = self.driver.synchronize()
        return (fault, fault_text) if fault else (code, text)

    def record(self, calls: Sequence[Callable[[], int]], variables: Mapping[str, int]) -> Recorded:
        """Say what the calls launch. `variables` are those of the candidate's device code, with their bytes."""
        recording = self.recording(variables)
        found: list[str] = []
        try:
            for call in calls:
                found.append(encode(recording.record(call)))
            held = variables_said(recording)
        except (Unrecordable, CudaError) as refused:
            return replace(unrecorded(f"it {refused}"), calls=tuple(found[:_MOST_PARTIAL]))
        return recorded(tuple(found), (), held)

    def recording(self, variables: Mapping[str, int]) -> Recording:
        """What records calls on this device."""
        return Recording(self.driver, self.stream, variables, self.images)

    def replay(self, chain: int) -> Sampled:
        """Flush, mark, launch an executable graph (0: none), mark."""
        driver = self.driver
        driver.forget_persisting_lines()
        if self._flush:
            driver.fill_async(self._flush, 0x5A, self._flush_bytes, self.stream)
        driver.record(self._start, self.stream)
        if chain:
            driver.replay(chain, self.stream)
        driver.record(self._stop, self.stream)
        code, text = driver.synchronize()
        return Sampled(0 if code else driver.elapsed_ns(self._start, self._stop), 0, code, text)

    def deliver(self, chain: int) -> Sampled:
        """Launch an executable graph, untimed."""
        self.driver.replay(chain, self.stream)
        code, text = self.driver.synchronize()
        return Sampled(0, 0, code, text)

    def flush(self) -> None:
        """Part of each sample, so that it runs while the launches are queued."""

    def wake(self, most_ms: int) -> None:
        """Nothing sleeps on a GPU."""

    def sample(self, calls: Sequence[Callable[[], int]], message: Sample, library: Any) -> Sampled:
        """Flush, mark, launch, mark. The flush runs while the rest is queued, so no launch gap is timed."""
        driver, returned = self.driver, 0
        driver.forget_persisting_lines()
        if self._flush and message.flush:
            driver.fill_async(self._flush, 0x5A, self._flush_bytes, self.stream)
        driver.record(self._start, self.stream)
        for call in calls:
            returned |= call()
        driver.record(self._stop, self.stream)
        code, text = self.settle(library)
        elapsed = 0 if code else driver.elapsed_ns(self._start, self._stop)
        return Sampled(elapsed, returned, code, text)


def recorded(calls: tuple[str, ...], deliveries: tuple[str, ...], variables: tuple[str, ...]) -> Recorded:
    """The answer to a request to record, if it is short enough for one."""
    if sum(map(len, (*calls, *deliveries, *variables))) > _MOST_RECORDED_CHARS:
        return unrecorded("it launches more than can be said in one message")
    return Recorded(calls, deliveries, variables, "")


def unrecorded(text: str) -> Recorded:
    """The answer where there is nothing to replay."""
    return Recorded((), (), (), text)


def variables_said(recording: Recording) -> tuple[str, ...]:
    """Variables of the device code as a message holds them."""
    return tuple(json.dumps([name, data.hex()]) for name, data in recording.variables().items())


def _openmp_team() -> Callable[[], None] | None:
    """An empty parallel region of the OpenMP runtime that candidates link; None where there is none."""
    try:
        runtime = ctypes.CDLL("libgomp.so.1")
    except OSError:
        return None
    begin, nothing = runtime.GOMP_parallel, _libc.getpid  # any function that may be called in every thread
    return lambda: begin(nothing, None, 0, 0)


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
