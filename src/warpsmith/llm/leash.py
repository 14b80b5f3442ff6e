"""Ends a request on time, whatever the server does: hangs, drips a byte at a time, or never finishes its headers.

The time limits of HTTP clients count from one byte to the next, so a server that drips is never late. A leash holds
the socket of one request and shuts it down when its time is over; the client then sees the connection end. The socket
comes from the client's `trace` extension, which reports each connection it opens; for that, every request opens its
own (`Connection: close`), which costs nothing beside the time a model takes. Not for processes: see
`propose.command` for those.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol


class Request(Protocol):
    """As much of an HTTP client's request as is needed here."""

    extensions: dict[str, object]


class Leash:
    """Of one request."""

    def __init__(self) -> None:
        self.cut = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def trace(self, event: str, info: Mapping[str, object]) -> None:
        """Called by the client at each step: a step that ends with a stream has opened or wrapped a connection."""
        ask = getattr(info.get("return_value"), "get_extra_info", None)
        found = ask("socket") if ask is not None else None
        if isinstance(found, socket.socket):
            with self._lock:
                self._socket = found
                late = self.cut
            if late:
                self.end()

    def end(self) -> None:
        """Shut the connection down; whoever reads from it sees it end."""
        with self._lock:
            self.cut = True
            held = self._socket
        if held is not None:
            # Not `SSLSocket.shutdown`: that takes the TLS layer away under a thread that reads from it.
            with suppress(OSError):
                socket.socket.shutdown(held, socket.SHUT_RDWR)


class Leashes:
    """All requests under way on one client. Its `attach` is a request hook of that client."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._held: set[Leash] = set()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def held(self, limit_s: float) -> Iterator[Leash]:
        """Requests of this thread end after that many seconds."""
        leash = Leash()
        timer = threading.Timer(limit_s, leash.end)
        timer.daemon = True
        with self._lock:
            self._held.add(leash)
            if self._closed:
                leash.cut = True
        self._here.leash = leash
        timer.start()
        try:
            yield leash
        finally:
            timer.cancel()
            self._here.leash = None
            with self._lock:
                self._held.discard(leash)

    def attach(self, request: Request) -> None:
        """Hold a request that is about to be sent."""
        leash: Leash | None = getattr(self._here, "leash", None)
        if leash is not None:
            request.extensions = {**request.extensions, "trace": leash.trace}

    def close(self) -> None:
        """End all of them, and those to come."""
        with self._lock:
            self._closed = True
            held = list(self._held)
        for leash in held:
            leash.end()
