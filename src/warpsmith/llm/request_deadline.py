"""A hard time limit for every HTTP request of an SDK client, and the counts of its requests.

The time limits of the SDKs count from one byte to the next: a server that sends a byte now and then never exceeds
them. Here a timer shuts down the socket of a request when its time is over; the SDK sees a lost connection and repeats
the request. A reply that is being streamed gets the same time again and again, a bounded number of times, while its
text comes in. The socket comes from the `trace` extension of the HTTP client, which reports each connection that it
opens; so every request opens its own connection (`Connection: close`).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from warpsmith.llm.prices import Tokens

_LEAST_BYTES = 200  # of a stream in the time of a request, for it to go on: far below the text of the slowest model
_MOST_TIMES = 12  # the time of a request that a stream may take
_CLOSE_S = 5.0  # for calls to notice that the client was closed


class ClientClosed(Exception):
    """The client is closed: no request may be sent."""


class HttpRequest(Protocol):
    """The part of an HTTP client's request that is used here."""

    extensions: dict[str, object]


class ResponseBody(Protocol):
    """The part of an HTTP client's response that is used here."""

    @property
    def num_bytes_downloaded(self) -> int: ...


class Call:
    """One call of an SDK: all requests until it returns."""

    def __init__(self) -> None:
        self.requests = 0
        self.tokens: Tokens | None = None  # of all responses that reported any
        self.timed_out = False  # the latest request
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._limit_s = 0.0
        self._ended = False
        self._body: ResponseBody | None = None  # being read
        self._read_bytes = 0  # of it when the timer was started
        self._times = 0  # that the timer was started for this request

    def begin(self, limit_s: float) -> None:
        """Start the time limit of a request that is about to be sent."""
        self.end()
        self.requests += 1
        with self._lock:
            self.timed_out, self._socket = False, None
        self._limit_s, self._body, self._read_bytes, self._times, self._ended = limit_s, None, 0, 0, False
        self._start_timer()

    def watch(self, body: ResponseBody) -> None:
        """The body of the response is about to be read."""
        self._body = body

    def _start_timer(self) -> None:
        self._times += 1
        self._timer = threading.Timer(self._limit_s, self._expire, (self.requests,))
        self._timer.daemon = True
        self._timer.start()

    def _expire(self, request: int) -> None:
        """The time is over: cut the connection, unless a stream has gone on meanwhile."""
        if self._ended or request != self.requests:
            return
        read = self._body.num_bytes_downloaded if self._body is not None else 0
        if read - self._read_bytes >= _LEAST_BYTES and self._times < _MOST_TIMES:
            self._read_bytes = read
            self._start_timer()
        else:
            self.cut()

    def end(self) -> None:
        """Stop the timer."""
        self._ended = True
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

    def on_body(self, body: ResponseBody) -> None:
        """The body of a response to this thread is about to be read."""
        call: Call | None = getattr(self._current, "call", None)
        if call is not None:
            call.watch(body)

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
