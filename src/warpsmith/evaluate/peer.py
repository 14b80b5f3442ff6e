"""The judge's side of a host: typed requests with deadlines, and the wording of a host's end.

A host that stops answering, hangs up or talks nonsense is a failed candidate, never an error of ours.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from warpsmith.core.evaluation import Status
from warpsmith.evaluate.findings import Condemned
from warpsmith.evaluate.layout import Slot
from warpsmith.evaluate.messages import Failed, Prepared
from warpsmith.evaluate.wire import Channel, WireClosed, WireError, WireTimeout

Reply = TypeVar("Reply")
_RECORD = struct.Struct("qqQq")  # native/faults.c: record_t
_NEAR_BYTES = 1 << 20  # the width of the guard area on each side of a CPU buffer
_REPLY_BYTES = 1 << 20  # no honest reply is longer


class Peer:
    """One host."""

    def __init__(self, number: int, channel_fd: int, fault_fd: int) -> None:
        self.number = number
        self._channel = Channel(socket.socket(fileno=channel_fd), _REPLY_BYTES)
        self._page = mmap.mmap(fault_fd, mmap.PAGESIZE)
        os.close(fault_fd)
        self.prepared: Prepared | None = None
        self.slots: tuple[Slot, ...] = ()  # as they were sent with Prepare
        self.stage = "starting"
        self.outer_ns = 0  # our own clock around the last request

    def tell(self, request: Any, fds: Sequence[int] = ()) -> None:
        """Send a request without waiting for the reply."""
        try:
            self._channel.send(request, fds)
        except (WireClosed, WireTimeout):
            raise self._gone() from None

    def answer(self, expected: type[Reply], timeout_s: float) -> Reply:
        """Wait for the reply to what was told last."""
        try:
            reply, fds = self._channel.receive((expected, Failed), timeout_s)
        except WireTimeout:
            raise Condemned(
                Status.TIMED_OUT,
                f"no answer within {timeout_s:.3g} s while {self.stage}: an endless loop or a deadlock, "
                "or far too slow.",
            ) from None
        except WireClosed:
            raise self._gone() from None
        except WireError as error:
            raise Condemned(
                Status.REJECTED, f"result channel: the candidate's process wrote into it ({error})."
            ) from None
        for fd in fds:  # nobody sends us descriptors; do not let them pile up
            os.close(fd)
        if isinstance(reply, Failed):
            raise HostFailed(reply.text)
        kept: Reply = reply
        return kept

    def ask(self, request: Any, expected: type[Reply], timeout_s: float, fds: Sequence[int] = ()) -> Reply:
        """A request and its reply, timed from outside."""
        start = time.perf_counter_ns()
        self.tell(request, fds)
        reply = self.answer(expected, timeout_s)
        self.outer_ns = time.perf_counter_ns() - start
        return reply

    def close(self) -> None:
        """Hang up: an idle host ends itself."""
        self._channel.close()
        self._page.close()

    # --- how it ended ---

    def _gone(self) -> Condemned:
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
