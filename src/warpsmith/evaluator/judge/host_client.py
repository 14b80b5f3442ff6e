"""The judge's side of a host: typed requests with deadlines, pausing, and the reason why a host ended.

A host that stops answering, closes its channel or sends malformed messages is a failed candidate, never an error of the
judge.

`ProcessPause` stops a candidate's process whenever it has no request to answer. A process that runs only between a
request and its reply can do nothing outside the judge's clock: neither work ahead on data that is already there, nor
finish work after its reply, nor take a CPU from the baseline. The kernel stops it, which nothing inside the process can
refuse; `seccomp` refuses the timers that could make it continue. A stop takes effect when a thread leaves the kernel,
and a long system call, for example a large read, goes on until then: the judge waits until all threads stand still, and
this wait is the candidate's time. Queued device work goes on: hosts wait for the device before they reply.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import random
import secrets
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

from warpsmith.evaluator.guards.attack_classes import title
from warpsmith.evaluator.judge.records import CandidateFailed, check_guards
from warpsmith.evaluator.judge.timing.process_usage import ProcessUsage
from warpsmith.evaluator.protocol.buffer_layout import BufferSlot
from warpsmith.evaluator.protocol.messages import HostReady, PythonFailed, RequestFailed
from warpsmith.evaluator.protocol.wire import Channel, WireClosed, WireError, WireTimeout
from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import UnexpectedOutput

Reply = TypeVar("Reply")
_RECORD = struct.Struct("qqQq")  # native/faults.c: record_t
_END_S = 30.0
_STANDSTILL_S = 5.0  # a thread that leaves the kernel later than this never does
_STOPPING_NS = 500_000  # stopping a process that computes or sleeps takes a tenth of this
_SPIN_NS, _POLL_S = 300_000, 0.0001
_ASLEEP = "S"  # a state of proc(5); a sleeping thread stops when another has begun to
_NEAR_BYTES = 1 << 20  # the width of the guard area on each side of a CPU buffer
_REPLY_BYTES = 1 << 20  # no honest reply is longer
_MOST_CHARS = 2000  # of text that a candidate's process sends
_STATUS_OF_FAILURE = {
    "import": Status.BUILD_ERROR,
    "raised": Status.LAUNCH_FAILED,
    "memory": Status.OUT_OF_MEMORY,
    "lazy": Status.REJECTED,
    "mismatch": Status.WRONG,
}


class HostFailed(Exception):
    """The host replied that it could not do what was asked."""


class ProcessPause:
    """Pauses one process, by a descriptor: the process id may belong to another process once this one has ended."""

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)
        self._usage = ProcessUsage(pid)

    def pause(self, timeout_s: float = _STANDSTILL_S) -> int:
        """Stop all threads of the process and wait until they stand still.

        Returns for how many nanoseconds one of them was seen to go on, less the time for which this thread waited for a
        CPU in order to stop; 0 if that is no longer than usual. Raises CandidateFailed after the timeout.
        """
        self._send(signal.SIGSTOP)
        start_ns = time.perf_counter_ns()
        states = self._usage.moving()
        waited_ns = {thread: self._usage.waited_ns(thread) for thread in states}
        active_ns = dict.fromkeys(states, 0)  # for how long each thread was neither stopped nor asleep
        while states:
            passed_ns, before = time.perf_counter_ns() - start_ns, states
            if passed_ns > 1e9 * timeout_s:
                reason = f"its threads went on for {passed_ns / 1e9:.3g} s in the kernel after an answer."
                raise CandidateFailed(Status.TIMED_OUT, f"{title(6)}: {reason}")
            if passed_ns > _SPIN_NS:
                time.sleep(_POLL_S)
            seen_ns, states = time.perf_counter_ns() - start_ns, self._usage.moving()
            for thread in states.keys() & before.keys():
                if _ASLEEP not in (states[thread], before[thread]):
                    active_ns[thread] += seen_ns - passed_ns
        late_ns = max((ns - self._waited_since(t, waited_ns) for t, ns in active_ns.items()), default=0)
        return late_ns if late_ns > _STOPPING_NS else 0

    def _waited_since(self, thread: str, before_ns: Mapping[str, int]) -> int:
        return self._usage.waited_ns(thread) - before_ns.get(thread, 0)

    def resume(self) -> None:
        """Let all threads continue."""
        self._send(signal.SIGCONT)

    def close(self) -> None:
        """Resume the process for good; safe to call twice."""
        if self._fd >= 0:
            self.resume()
            os.close(self._fd)
            self._fd = -1

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # the process has ended: the next request reports that
            signal.pidfd_send_signal(self._fd, number)


class HostClient:
    """The judge's connection to one host."""

    def __init__(self, number: int, channel_fd: int, fault_fd: int, pid: int, *, trusted: bool = False) -> None:
        self.number = number
        self.pid = pid
        self.trusted = trusted  # a replayer: no host code of a candidate runs in it
        self.prepared: HostReady | None = None
        self.failure: CandidateFailed | HostFailed | None = None  # why the host cannot be used any more
        self.slots: tuple[BufferSlot, ...] = ()  # as they were sent with Prepare
        self.stage = "starting"
        self.candidate_called = False  # whether code of the candidate has run
        self.published: bool | None = None  # what the published rule says of the candidate; None: not asked
        self.returns_tensors = False  # the candidate returns tensors, which the host copies into the judge's buffers
        self.copies_state = False  # the host must copy new state before it is timed
        self.round_trip_ns = 0  # of the last request, by the judge's clock
        self.late_ns: list[int] = []  # for how long threads went on after each reply; 0: no longer than usual
        self.waited_s = 0.0  # for all replies: the candidate's part of the judging time
        self._channel = Channel(socket.socket(fileno=channel_fd), _REPLY_BYTES)
        self._fault_page = mmap.mmap(fault_fd, mmap.PAGESIZE)
        os.close(fault_fd)
        self._replied_ns = 0  # when the last reply arrived
        self._tag = 0  # a secret number of the last request, which the reply must carry
        self._pause: ProcessPause | None = None

    def wait_ready(self, timeout_s: float) -> HostReady:
        """Wait until the host is set up; a host that failed to start raises the same failure every time."""
        if self.failure is not None:
            raise self.failure
        if self.prepared is None:
            try:
                self.prepared = self.receive(HostReady, timeout_s)
            except (CandidateFailed, HostFailed) as failure:
                self.failure = failure
                raise
        return self.prepared

    def end(self) -> None:
        """Kill the process and wait until it has ended, with everything that it had on a device."""
        process = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            poll = select.poll()
            poll.register(process, select.POLLIN)
            if not poll.poll(1e3 * _END_S):
                raise CandidateFailed(Status.NOT_JUDGED, "its process could not be ended.")
        except ProcessLookupError:
            pass
        finally:
            os.close(process)

    def pause_between_requests(self) -> None:
        """From now on the process runs only while it has a request to answer."""
        self._pause = ProcessPause(self.pid)
        self._pause.pause()

    @contextmanager
    def while_running(self) -> Iterator[None]:
        """Let the process run without a request, to see what it does when it should be idle."""
        if self._pause is None:
            yield
            return
        self._pause.resume()
        try:
            yield
        finally:
            self._pause.pause()

    def send(self, request: Any, fds: Sequence[int] = ()) -> None:
        """Send a request without waiting for the reply."""
        try:
            self._tag = secrets.randbits(62)
            self._channel.send(request, fds, tag=self._tag)
        except (WireClosed, WireTimeout):
            raise self._process_ended() from None
        if self._pause is not None:
            self._pause.resume()

    def receive(self, expected: type[Reply], timeout_s: float) -> Reply:
        """Wait for the reply to the last request."""
        try:
            reply, fds = self._receive((expected, RequestFailed, PythonFailed), timeout_s)
        except WireTimeout:
            raise CandidateFailed(
                Status.TIMED_OUT,
                f"no answer within {timeout_s:.3g} s while {self.stage}: an endless loop or a deadlock, "
                "or far too slow.",
            ) from None
        except WireClosed:
            raise self._process_ended() from None
        except WireError as error:
            check_guards(UnexpectedOutput(str(error)))
            raise  # not reached: the guard of the channel always objects
        for fd in fds:  # no honest host sends descriptors
            os.close(fd)
        if self._channel.tag != self._tag:
            check_guards(UnexpectedOutput("an answer to a question that was not asked"))
        reply = _shortened(reply)
        if isinstance(reply, RequestFailed):
            raise HostFailed(reply.text)
        if isinstance(reply, PythonFailed):
            raise self._python_failure(reply)
        kept: Reply = reply
        return kept

    def _receive(self, expected: Sequence[type[Any]], timeout_s: float) -> tuple[Any, tuple[int, ...]]:
        """The next message; the process is paused as soon as the message has begun to arrive."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._channel.wait(deadline - time.monotonic())
            self._replied_ns = time.perf_counter_ns()
            if self._pause is None:
                return self._channel.receive(expected, deadline - time.monotonic())
            late_ns = self._pause.pause(deadline - time.monotonic() + _STANDSTILL_S)
            self.late_ns.append(late_ns)
            self._replied_ns += late_ns
            try:
                return self._channel.receive(expected, 0.0)
            except WireTimeout:  # only a part of the message is there
                self._pause.resume()

    def ask(self, request: Any, expected: type[Reply], timeout_s: float, fds: Sequence[int] = ()) -> Reply:
        """Send a request and wait for its reply, timed by the judge's clock."""
        start = time.perf_counter_ns()
        self.send(request, fds)
        try:
            reply = self.receive(expected, timeout_s)
        finally:
            self.waited_s += (time.perf_counter_ns() - start) / 1e9
        self.round_trip_ns = self._replied_ns - start
        return reply

    def ask_watched(
        self,
        request: Any,
        expected: type[Reply],
        timeout_s: float,
        look: Callable[[], None],
        every_s: float,
        most: float = math.inf,
    ) -> Reply:
        """Send a request and stop the process at random moments until it replies, in order to look at it.

        `every_s` is CPU time of the process, from look to look: on a busy machine, a process that is stopped by the
        clock on the wall would be found where it was stopped before.
        """
        deadline, usage = time.monotonic() + timeout_s, ProcessUsage(self.pid)
        self.send(request)
        next_ns = usage.total_ns() + round(random.uniform(0.1, 1.9) * 1e9 * every_s)
        while self._pause is not None and most > 0 and time.monotonic() < deadline:
            with contextlib.suppress(WireTimeout):
                self._channel.wait(_POLL_S)
                break
            if usage.total_ns() >= next_ns:
                self._pause.pause()
                look()
                most -= 1
                next_ns = usage.total_ns() + round(random.uniform(0.1, 1.9) * 1e9 * every_s)
                self._pause.resume()
        return self.receive(expected, deadline - time.monotonic())

    def close(self) -> None:
        """Close the channel: an idle host then ends itself."""
        self._channel.close()
        if self._pause is not None:
            self._pause.close()
        self._fault_page.close()

    # --- why a host failed ---

    def _python_failure(self, failed: PythonFailed) -> CandidateFailed:
        """The failure that a Python candidate's process reports."""
        status = _STATUS_OF_FAILURE.get(failed.kind, Status.LAUNCH_FAILED)
        text = failed.text.strip()[:_MOST_CHARS] or "it gave no reason"
        attack = f"{title(7)}: " if status is Status.REJECTED else ""
        where = "" if status is Status.BUILD_ERROR else f" (while {self.stage})"
        return CandidateFailed(status, f"{attack}{text}{where}")

    def _process_ended(self) -> CandidateFailed:
        """The failure of a host that has ended, from the record that its signal handler left."""
        if self.trusted:
            return CandidateFailed(Status.NOT_JUDGED, "the process that replays calls ended by itself.")
        number, _code, address, write = _RECORD.unpack_from(self._fault_page)
        if number == 0:
            return CandidateFailed(Status.CRASHED, "", died=True)
        verb = {1: "wrote to", 0: "read"}.get(write, "touched")
        at_address = number in (signal.SIGSEGV, signal.SIGBUS)
        if at_address and self.prepared is not None:
            found = self._find_slot(address)
            if found is not None:
                return _memory_fault(*found, verb, write == 1)
        try:
            name = signal.strsignal(number) or signal.Signals(number).name
        except (ValueError, OverflowError):  # the candidate can write this page
            name = f"signal {number}"
        null = " (a null pointer)" if address < 4096 else ""
        did = f": the candidate {verb} memory at address {address:#x}{null}" if at_address else ""
        return CandidateFailed(Status.CRASHED, f"{name}{did} while {self.stage}.", died=True)

    def _find_slot(self, address: int) -> tuple[BufferSlot, int] | None:
        """The buffer in or near which an address lies, and the address relative to the start of its data."""
        assert self.prepared is not None
        if len(self.prepared.bases) != len(self.slots):
            return None
        for slot, base in zip(self.slots, self.prepared.bases, strict=True):
            size = slot.region_end - slot.region_start
            if base - _NEAR_BYTES <= address < base + size + _NEAR_BYTES:
                return slot, address - base - (slot.start - slot.region_start)
        return None


def _shortened(reply: Any) -> Any:
    """The reply with its texts cut: a reason may quote them, and a host may send a megabyte."""
    texts = {f.name: t[:_MOST_CHARS] for f in fields(reply) if isinstance(t := getattr(reply, f.name), str)}
    return replace(reply, **texts) if texts else reply


def _memory_fault(slot: BufferSlot, position: int, verb: str, wrote: bool) -> CandidateFailed:
    """The failure of a candidate that faulted at or near one of the judge's buffers."""
    if 0 <= position < slot.nbytes:
        if wrote and not slot.writable:
            return CandidateFailed(
                Status.INPUT_MODIFIED,
                f"the candidate wrote to the input {slot.name!r} (byte {position} of {slot.nbytes}); inputs are "
                "read-only.",
            )
        return CandidateFailed(Status.CRASHED, f"the candidate faulted inside {slot.name!r} at byte {position}.")
    side = f"{position - slot.nbytes} bytes past the end" if position >= slot.nbytes else f"{-position} bytes before"
    return CandidateFailed(
        Status.OUT_OF_BOUNDS,
        f"the candidate {verb} memory {side} of {slot.name!r} ({slot.nbytes} bytes): an index is out of range.",
    )
