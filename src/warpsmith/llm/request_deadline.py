"""A hard time limit for every HTTP request of an SDK client, and the counts of its requests.

The time limits of the SDKs count from one byte to the next: a server that sends a byte now and then never exceeds
them. Here a timer shuts down the socket of a request when its time is over; the SDK sees a lost connection and repeats
the request. The socket comes from the `trace` extension of the HTTP client, which reports each connection that it
opens; so every request opens its own connection (`Connection: close`).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from warpsmith.llm.prices import Tokens

_CLOSE_S = 5.0  # for calls to notice that the client was closed


class ClientClosed(Exception):
    """The client is closed: no request may be sent."""


class HttpRequest(Protocol):
    """The part of an HTTP client's request that is used here."""

    extensions: dict[str, object]


class Call:
    """One call of an SDK: all requests until it returns."""

    def __init__(self) -> None:
        self.requests = 0
        self.tokens: Tokens | None = None  # of all responses that reported any
        self.timed_out = False  # the latest request
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def begin(self, limit_s: float) -> None:
        """Start the time limit of a request that is about to be sent."""
        self.end()
        self.requests += 1
        with self._lock:
            self.timed_out, self._socket = False, None
        self._timer = threading.Timer(limit_s, self.cut)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def trace(self, event: str, info: Mapping[str, object]) -> None:
        """Called by the HTTP client at each step; a step that returns a stream has opened or wrapped a connection."""
        ask = getattr(info.get("return_value"), "get_extra_info", None)
        found = ask("socket") if ask is not None else None
        if isinstance(found, socket.socket):
            with self._lock:
                self._socket = found
            if self.timed_out:
                self.cut()

    def cut(self) -> None:
        """Shut the connection down; the thread that reads from it sees it end."""
        with self._lock:
            self.timed_out = True
            held = self._socket
        if held is not None:
            # Not `SSLSocket.shutdown`: that removes the TLS layer while another thread reads from it.
            with suppress(OSError):
                socket.socket.shutdown(held, socket.SHUT_RDWR)


class RequestDeadlines:
    """The calls in progress on one client. `on_request` is a request hook of that client."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.closed = False
        self._current = threading.local()
        self._calls: set[Call] = set()
        self._changed = threading.Condition()

    @contextmanager
    def call(self) -> Iterator[Call]:
        """Requests of this thread belong to one call until the block ends."""
        call = Call()
        with self._changed:
            self._calls.add(call)
        self._current.call = call
        try:
            yield call
        finally:
            call.end()
            self._current.call = None
            with self._changed:
                self._calls.discard(call)
                self._changed.notify_all()

    def on_request(self, request: HttpRequest) -> None:
        """Start the time limit of a request that is about to be sent."""
        if self.closed:
            raise ClientClosed
        call: Call | None = getattr(self._current, "call", None)
        if call is not None:
            call.begin(self.limit_s)
            request.extensions = {**request.extensions, "trace": call.trace}

    def add_tokens(self, tokens: Tokens | None) -> None:
        """Count the tokens that a response reports for the call of this thread."""
        call: Call | None = getattr(self._current, "call", None)
        if call is not None and tokens is not None:
            call.tokens = tokens if call.tokens is None else call.tokens + tokens

    def close(self) -> None:
        """End all calls, and refuse further ones. A call that waits to repeat a request ends after its wait."""
        self.closed = True
        with self._changed:
            for call in self._calls:
                call.cut()
            self._changed.wait_for(lambda: not self._calls, _CLOSE_S)
