"""Sends and receives messages between processes: one bounded JSON object per frame, with file descriptors.

Every message is a frozen dataclass. The receiver lists the messages that it accepts; any other frame, or one whose
fields have other types, is a `WireError`. Nothing is unpickled. Standard library only: part of the candidate's process.

A `NumbersMessage` consists of integers alone and is sent as such: with cold caches, JSON takes several times as long,
and these messages are sent while the judge's clock runs.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any, ClassVar

MAX_FRAME_BYTES = 16 << 20
MAX_FDS = 8
_MAX_WAITING_FDS = 64
_INTEGERS = range(-(1 << 63), 1 << 63)  # beyond, arithmetic with floats raises
_HEADER = struct.Struct("!IB")  # bytes in the body, descriptors that belong to it


class WireError(Exception):
    """The other side sent something that is not a message."""


class WireTimeout(Exception):
    """The other side did not answer in time."""


class WireClosed(Exception):
    """The other side is gone."""


class NumbersMessage:
    """Base of a message whose fields are integers; the last field may be a tuple of integers."""

    CODE: ClassVar[int]  # the first byte of its frames: below 0x20, where no JSON begins
    LISTED: ClassVar[bool] = False  # whether the last field is a tuple


class Channel:
    """A duplex stream of messages over a Unix socket."""

    def __init__(self, sock: socket.socket, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._sock = sock
        self._limit = max_frame_bytes
        self._pending = bytearray()
        self._fds: list[int] = []
        self.tag = 0  # of the message received last: an answer carries the tag of its question

    def fileno(self) -> int:
        """For select and poll."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close the socket and the descriptors that were not taken; safe to call twice."""
        self._sock.close()
        _close_all(self._fds)
        self._fds = []

    def send(self, message: Any, fds: Sequence[int] = (), timeout_s: float = 30.0, *, tag: int = 0) -> None:
        """Send one dataclass message, with file descriptors if any."""
        body = encode(message, tag)
        if len(body) > self._limit:
            raise WireError(f"message of {len(body)} bytes is larger than {self._limit}")
        frame = _HEADER.pack(len(body), len(fds)) + body
        deadline = time.monotonic() + timeout_s
        try:
            self._sock.settimeout(timeout_s)
            sent = socket.send_fds(self._sock, [frame], list(fds)) if fds else self._sock.send(frame)
            while sent < len(frame):
                self._sock.settimeout(max(0.001, deadline - time.monotonic()))
                sent += self._sock.send(frame[sent : sent + (1 << 20)])
        except TimeoutError:
            raise WireTimeout(f"the other side did not take a message within {timeout_s:g} s") from None
        except OSError as error:
            raise WireClosed(str(error)) from None

    def wait(self, timeout_s: float) -> None:
        """Wait until at least a part of a message has arrived; raises WireTimeout."""
        if timeout_s <= 0 or not (self.buffered or self._readable(timeout_s)):
            raise WireTimeout("no answer in time")

    def receive(self, expected: Iterable[type[Any]], timeout_s: float | None = None) -> tuple[Any, tuple[int, ...]]:
        """The next message, which must be one of the expected types, and the descriptors that came with it."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.buffered:
            self._fill(deadline)
        size, count = _HEADER.unpack_from(self._pending)
        body = bytes(self._pending[_HEADER.size : _HEADER.size + size])
        del self._pending[: _HEADER.size + size]
        fds, self._fds = tuple(self._fds[:count]), self._fds[count:]
        try:
            message, self.tag = decode(body, expected)
            return message, fds
        except WireError:
            _close_all(fds)
            raise

    @property
    def buffered(self) -> bool:
        """True if a whole message has been read already, which select would not report."""
        if len(self._pending) < _HEADER.size:
            return False
        size, _ = _HEADER.unpack_from(self._pending)
        if size > self._limit:
            raise WireError(f"frame of {size} bytes is larger than {self._limit}")
        return len(self._pending) >= _HEADER.size + int(size)

    def _readable(self, timeout_s: float | None) -> bool:
        poll = select.poll()  # select cannot take descriptors above 1023
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else max(0.0, 1e3 * timeout_s)))

    def _fill(self, deadline: float | None) -> None:
        if not self._readable(None if deadline is None else deadline - time.monotonic()):
            raise WireTimeout("no answer in time")
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, 1 << 18, MAX_FDS)
        except OSError as error:
            raise WireClosed(str(error)) from None
        self._fds.extend(fds)
        if not data:
            raise WireClosed("end of stream")
        self._pending += data
        if len(self._fds) > _MAX_WAITING_FDS:  # from frames that do not announce them
            raise WireError("more descriptors than messages could claim")


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def encode(message: Any, tag: int) -> bytes:
    """The body of a frame: one message and its tag."""
    if not isinstance(message, NumbersMessage):
        return json.dumps({"type": type(message).__name__, "tag": tag, **asdict(message)}).encode()
    numbers: list[int] = [tag]
    for value in vars(message).values():
        numbers.extend(value) if isinstance(value, tuple) else numbers.append(value)
    return struct.pack(f"!B{len(numbers)}q", message.CODE, *numbers)


def _decode_numbers(body: bytes, expected: Iterable[type[Any]]) -> tuple[Any, int]:
    known: dict[int, Any] = {cls.CODE: cls for cls in expected if issubclass(cls, NumbersMessage)}
    cls = known.get(body[0])
    if cls is None or len(body) % 8 != 1:
        raise WireError("expected another message")
    tag, *numbers = struct.unpack(f"!{len(body) // 8}q", body[1:])
    plain = len(fields(cls)) - cls.LISTED
    if len(numbers) < plain or (len(numbers) > plain and not cls.LISTED):
        raise WireError(f"{cls.__name__} has another number of fields")
    return cls(*numbers[:plain], *([tuple(numbers[plain:])] if cls.LISTED else [])), tag


_PLAIN: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "bool": (bool,),
}


def decode(body: bytes, expected: Iterable[type[Any]]) -> tuple[Any, int]:
    """One message out of a frame, and its tag; anything unexpected is a WireError, never another exception."""
    if len(body) > 8 and body[0] < 0x20:
        return _decode_numbers(body, expected)
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from None
    known = {cls.__name__: cls for cls in expected}
    if not isinstance(data, dict) or not isinstance(data.get("type"), str) or data["type"] not in known:
        raise WireError(f"expected one of {', '.join(known)}")
    cls = known[data.pop("type")]
    tag = data.pop("tag", None)
    if not _fits(tag, "int"):
        raise WireError(f"{cls.__name__} has no tag")
    spec = {f.name: str(f.type) for f in fields(cls)}
    if set(data) != set(spec):
        raise WireError(f"{cls.__name__} has fields {', '.join(spec)}")
    for name, annotation in spec.items():
        data[name] = _checked(cls.__name__, name, annotation, data[name])
    return cls(**data), tag


def _checked(owner: str, name: str, annotation: str, value: object) -> object:
    """Check one field against its annotation: plain types, optional plain types, and lists of them."""
    if annotation.startswith("tuple["):
        if isinstance(value, list):
            inner = annotation.removeprefix("tuple[").removesuffix("]").removesuffix(", ...")
            return tuple(_checked(owner, name, inner, item) for item in value)
    elif any(_fits(value, option.strip()) for option in annotation.split("|")):
        return value
    raise WireError(f"{owner}.{name} is not {annotation}")


def _fits(value: object, option: str) -> bool:
    if option == "None":
        return value is None
    if isinstance(value, str) and not _writable(value):
        return False
    if isinstance(value, int) and value not in _INTEGERS:
        return False
    return isinstance(value, _PLAIN[option]) and (option == "bool" or not isinstance(value, bool))


def _writable(text: str) -> bool:
    """True if the text can be encoded: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
