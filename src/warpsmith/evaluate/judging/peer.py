"""The judge's side of a host: typed requests with deadlines, and the wording of a host's end.

A host that stops answering, hangs up or talks nonsense is a failed candidate, never an error of ours.
"""

from __future__ import annotations

import mmap
import os
import secrets
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Talk
from warpsmith.evaluate.judging.findings import Condemned, face
from warpsmith.evaluate.judging.leash import Leash
from warpsmith.evaluate.layout import Slot
from warpsmith.evaluate.messages import Failed, Faulted, Prepared
from warpsmith.evaluate.wire import Channel, WireClosed, WireError, WireTimeout
from warpsmith.guards.classes import title

Reply = TypeVar("Reply")
_RECORD = struct.Struct("qqQq")  # native/faults.c: record_t
_END_S = 30.0
_NEAR_BYTES = 1 << 20  # the width of the guard area on each side of a CPU buffer
_REPLY_BYTES = 1 << 20  # no honest reply is longer
_MOST_CHARS = 2000  # of a candidate's own words
_CONFESSED = {
    "import": Status.BUILD_ERROR,
    "raised": Status.LAUNCH_FAILED,
    "memory": Status.OUT_OF_MEMORY,
    "lazy": Status.REJECTED,
    "mismatch": Status.WRONG,
}


class Peer:
    """One host."""

    def __init__(self, number: int, channel_fd: int, fault_fd: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self._channel = Channel(socket.socket(fileno=channel_fd), _REPLY_BYTES)
        self._page = mmap.mmap(fault_fd, mmap.PAGESIZE)
        os.close(fault_fd)
        self.prepared: Prepared | None = None
        self.useless: Condemned | HostFailed | None = None  # why, once that is known
        self.slots: tuple[Slot, ...] = ()  # as they were sent with Prepare
        self.stage = "starting"
        self.returns = False  # whether its candidate returns tensors, which it then carries into our buffers
        self.renews = False  # whether it must copy its state anew before it is timed
        self.outer_ns = 0  # our own clock around the last request
        self.waited_s = 0.0  # for its answers in all: what of the time of judging is its own
        self._answered_ns = 0  # by the same clock: when the last answer was there
        self._tag = 0  # a secret number of the last request, which its answer must carry
        self._leash: Leash | None = None
        self.trusted = False  # whether no host code of a candidate runs in it

    def end(self) -> None:
        """Kill it and wait until it is gone, and everything that it had on a device with it."""
        process = os.pidfd_open(self.pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            poll = select.poll()
            poll.register(process, select.POLLIN)
            if not poll.poll(1e3 * _END_S):
                raise Condemned(Status.NOT_JUDGED, "its process could not be ended.")
        except ProcessLookupError:
            pass
        finally:
            os.close(process)

    def restrain(self) -> None:
        """From here on its process runs only while it is asked for something."""
        self._leash = Leash(self.pid)
        self._leash.hold()

    @contextmanager
    def at_large(self) -> Iterator[None]:
        """Let it run, to see what it does when it should be idle."""
        if self._leash is None:
            yield
            return
        self._leash.release()
        try:
            yield
        finally:
            self._leash.hold()

    def tell(self, request: Any, fds: Sequence[int] = ()) -> None:
        """Send a request without waiting for the reply."""
        try:
            self._tag = secrets.randbits(62)
            self._channel.send(request, fds, tag=self._tag)
        except (WireClosed, WireTimeout):
            raise self._gone() from None
        if self._leash is not None:
            self._leash.release()

    def answer(self, expected: type[Reply], timeout_s: float) -> Reply:
        """Wait for the reply to what was told last."""
        try:
            reply, fds = self._receive((expected, Failed, Faulted), timeout_s)
        except WireTimeout:
            raise Condemned(
                Status.TIMED_OUT,
                f"no answer within {timeout_s:.3g} s while {self.stage}: an endless loop or a deadlock, "
                "or far too slow.",
            ) from None
        except WireClosed:
            raise self._gone() from None
        except WireError as error:
            face(Talk(str(error)))
            raise  # not reached: the guard of the channel always objects
        for fd in fds:  # nobody sends us descriptors; do not let them pile up
            os.close(fd)
        if self._channel.tag != self._tag:
            face(Talk("an answer to a question that was not asked"))
        reply = _shortened(reply)
        if isinstance(reply, Failed):
            raise HostFailed(reply.text)
        if isinstance(reply, Faulted):
            raise self._confessed(reply)
        kept: Reply = reply
        return kept

    def _receive(self, expected: Sequence[type[Any]], timeout_s: float) -> tuple[Any, tuple[int, ...]]:
        """The next message; its sender is stopped as soon as it has begun to arrive."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._channel.wait(deadline - time.monotonic())
            self._answered_ns = time.perf_counter_ns()
            if self._leash is None:
                return self._channel.receive(expected, deadline - time.monotonic())
            self._leash.hold()
            try:
                return self._channel.receive(expected, 0.0)
            except WireTimeout:  # a part of it
                self._leash.release()

    def ask(self, request: Any, expected: type[Reply], timeout_s: float, fds: Sequence[int] = ()) -> Reply:
        """A request and its reply, timed from outside."""
        start = time.perf_counter_ns()
        self.tell(request, fds)
        try:
            reply = self.answer(expected, timeout_s)
        finally:
            self.waited_s += (time.perf_counter_ns() - start) / 1e9
        self.outer_ns = self._answered_ns - start
        return reply

    def close(self) -> None:
        """Hang up: an idle host ends itself."""
        self._channel.close()
        if self._leash is not None:
            self._leash.close()
        self._page.close()

    def _confessed(self, fault: Faulted) -> Condemned:
        """What a Python candidate's process says against the candidate."""
        status = _CONFESSED.get(fault.kind, Status.LAUNCH_FAILED)
        text = fault.text.strip()[:_MOST_CHARS] or "it gave no reason"
        named = f"{title(7)}: " if status is Status.REJECTED else ""
        where = "" if status is Status.BUILD_ERROR else f" (while {self.stage})"
        return Condemned(status, f"{named}{text}{where}")

    # --- how it ended ---

    def _gone(self) -> Condemned:
        if self.trusted:
            return Condemned(Status.NOT_JUDGED, "the process that replays calls ended by itself.")
        number, _code, address, write = _RECORD.unpack_from(self._page)
        if number == 0:
            return Condemned(Status.CRASHED, "", died=True)
        act = {1: "wrote to", 0: "read"}.get(write, "touched")
        if number in (signal.SIGSEGV, signal.SIGBUS) and self.prepared is not None:
            placed = self._place(address)
            if placed is not None:
                slot, position = placed
                return _trespass(slot, position, act, write == 1)
        where = f" at address {address:#x}" if number in (signal.SIGSEGV, signal.SIGBUS) else ""
        null = " (a null pointer)" if where and address < 4096 else ""
        try:
            name = signal.strsignal(number) or signal.Signals(number).name
        except (ValueError, OverflowError):  # the candidate can write this page
            name = f"signal {number}"
        doing = f" while {self.stage}"
        return Condemned(Status.CRASHED, f"{name}: the candidate {act} memory{where}{null}{doing}." if where
                         else f"{name}{doing}.", died=True)  # fmt: skip

    def _place(self, address: int) -> tuple[Slot, int] | None:
        """Which buffer a faulting address belongs to, and its position relative to the data's start."""
        assert self.prepared is not None
        if len(self.prepared.bases) != len(self.slots):
            return None
        for slot, base in zip(self.slots, self.prepared.bases, strict=True):
            size = slot.region_end - slot.region_start
            if base - _NEAR_BYTES <= address < base + size + _NEAR_BYTES:
                return slot, address - base - (slot.start - slot.region_start)
        return None


def _shortened(reply: Any) -> Any:
    """A verdict may quote what a host says, and a host may say a megabyte."""
    long = {f.name: t[:_MOST_CHARS] for f in fields(reply) if isinstance(t := getattr(reply, f.name), str)}
    return replace(reply, **long) if long else reply


def _trespass(slot: Slot, position: int, act: str, wrote: bool) -> Condemned:
    """The reason for a fault at or near one of the harness's buffers."""
    if 0 <= position < slot.nbytes:
        if wrote and not slot.writable:
            return Condemned(
                Status.INPUT_MODIFIED,
                f"the candidate wrote to the input {slot.name!r} (byte {position} of {slot.nbytes}); inputs are "
                "read-only.",
            )
        return Condemned(Status.CRASHED, f"the candidate faulted inside {slot.name!r} at byte {position}.")
    side = f"{position - slot.nbytes} bytes past the end" if position >= slot.nbytes else f"{-position} bytes before"
    return Condemned(
        Status.OUT_OF_BOUNDS,
        f"the candidate {act} memory {side} of {slot.name!r} ({slot.nbytes} bytes): an index is out of range.",
    )


class HostFailed(Exception):
    """The host said that it could not do what was asked."""
