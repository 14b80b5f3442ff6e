"""The result channel: frames of garbage, halves, giants and strangers, to the decoder and to living sockets."""

from __future__ import annotations

import dataclasses
import inspect
import json
import mmap
import os
import socket
import struct
import typing
from typing import Any

from tests.fuzz.engine import Target
from tests.fuzz.mutate import Mutator
from warpsmith.evaluator.judge.host_client import HostClient, HostFailed
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.protocol import messages
from warpsmith.evaluator.protocol.wire import Channel, WireClosed, WireError, WireTimeout, decode

KINDS: tuple[Any, ...] = tuple(
    cls for _, cls in inspect.getmembers(messages, inspect.isclass) if dataclasses.is_dataclass(cls)
)
_HEADER = struct.Struct("!IB")  # as in `wire`: bytes in the body, descriptors that belong to it
_WAIT_S = 0.01


def _sample(hint: Any) -> Any:
    """A value of an annotated type."""
    if typing.get_origin(hint) is tuple:
        return [_sample(typing.get_args(hint)[0])] * 3
    if typing.get_args(hint):
        return _sample(typing.get_args(hint)[0])
    return {int: 7, float: 0.5, str: "text", bool: True}[hint]


def _good(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {"type": cls.__name__, "tag": 0, **{name: _sample(hint) for name, hint in hints.items()}}


GOOD = tuple(_good(cls) for cls in KINDS)
_FRAMES = tuple(_HEADER.pack(len(body), 0) + body for body in (json.dumps(each).encode() for each in GOOD))
_WORDS = (*(cls.__name__ for cls in KINDS), "type", "tag")


def feed_decode(body: bytes) -> str:
    """One frame's body."""
    try:
        decode(body, KINDS)
    except WireError as error:
        str(error).encode()  # a verdict quotes it
        return "refused"
    return "accepted"


def make_stream(mutator: Mutator) -> tuple[bytes, int, bool]:
    """What is written, how many descriptors go with it, and whether the writer then hangs up."""
    rng = mutator.rng
    kind = rng.randrange(4)
    if kind == 0:
        data = mutator.data(_FRAMES)
    elif kind == 1:
        data = b"".join(rng.choice(_FRAMES) for _ in range(rng.randint(1, 4)))
        data = data[: rng.randint(0, len(data))]
    elif kind == 2:
        claimed = rng.choice((0, 1, 1 << 16, 1 << 20, (1 << 20) + 1, 1 << 31, (1 << 32) - 1))
        data = _HEADER.pack(claimed, rng.randrange(256)) + rng.randbytes(rng.choice((0, 1, 100, 5000)))
    else:
        bodies = [mutator.document(GOOD, _WORDS) for _ in range(rng.randint(1, 3))]
        data = b"".join(_HEADER.pack(len(body), rng.choice((0, 0, 1, 3, 255))) + body for body in bodies)
    return data[:100_000], rng.choice((0, 0, 0, 1, 3, 8, 20)), rng.random() < 0.97


def _write(sock: socket.socket, data: bytes, descriptors: int, hang_up: bool) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        if data and descriptors:
            socket.send_fds(sock, [data], [null] * descriptors)
        elif data:
            sock.sendall(data)
    finally:
        os.close(null)
    if hang_up:
        sock.shutdown(socket.SHUT_WR)


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def feed_channel(given: tuple[bytes, int, bool]) -> str:
    """A reader that takes all it is given, and leaks no descriptor."""
    before = _open_descriptors()
    ours, theirs = socket.socketpair()
    channel = Channel(ours, 1 << 20)
    answer = "accepted"
    try:
        with theirs:
            _write(theirs, *given)
            while True:
                _, fds = channel.receive(KINDS, _WAIT_S)
                for fd in fds:
                    os.close(fd)
    except (WireError, WireTimeout, WireClosed) as error:
        answer = type(error).__name__
    finally:
        channel.close()
    assert _open_descriptors() == before, "a descriptor is left open"
    return answer


def feed_host(given: tuple[bytes, int, bool]) -> str:
    """The judge's side of a host that answers with this."""
    before = _open_descriptors()
    ours, theirs = socket.socketpair()
    page = os.memfd_create("fault-page")
    os.ftruncate(page, mmap.PAGESIZE)
    os.pwrite(page, given[0][:32], 0)  # a candidate can write the page that says how it died
    host = HostClient(1, ours.detach(), page, os.getpid())
    answer = "accepted"
    try:
        with theirs:
            _write(theirs, *given)
            host.ask(messages.Ping(), messages.CallTimes, _WAIT_S)
    except CandidateFailed as fate:
        answer = fate.status.value
        fate.reason.encode()
    except HostFailed as error:
        answer = "failed"
        str(error).encode()
    finally:
        host.close()
    assert _open_descriptors() == before, "a descriptor is left open"
    return answer


TARGETS = (
    Target("wire.decode", lambda m: m.document(GOOD, _WORDS), feed_decode, 0.176),
    Target("wire.channel", make_stream, feed_channel, 0.10),
    Target("host", make_stream, feed_host, 0.07),
)
