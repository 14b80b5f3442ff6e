"""What every request passes first: the token, the size and the time of the body, the log line, the counters.

A request without a valid token is answered before its body is read. A body is read as a whole, up to a limit, before
the application sees the request. No client, and not all requests without a token together, can take all connections.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warpsmith.model.errors import UsageError
from warpsmith.server.metrics import ServerMetrics
from warpsmith.server.tokens import TokenHolder, TokenStore

LOG = logging.getLogger("warpsmith.server")
HOLDER = "holder"
"""The key of the token's holder in the state of a request."""
_DRAINED = 4  # times the longest body
OPEN = ("/healthz", "/metrics", "/docs", "/openapi.json")
"""Paths that need no token."""


@dataclass(frozen=True)
class BodyLimits:
    """What the body of a request may be, and how many requests there may be at once."""

    bytes: int = 8 << 20
    open_bytes: int = 4096  # of a request without a token: the open pages need no body
    seconds: float = 30.0  # to arrive completely
    at_once: int = 250  # requests of one client under way, or of all together that have no token


class _Refused(Exception):
    """The request is answered at once."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class Gate:
    """The middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: TokenStore,
        metrics: ServerMetrics,
        limits: BodyLimits,
        open_paths: Collection[str] = (),
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._metrics = metrics
        self._limits = limits
        self._open = (*OPEN, *open_paths)
        self._under_way: Counter[str] = Counter()  # requests, by the name of the client; "" where there is no token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        state = scope.setdefault("state", {})
        state[HOLDER] = None
        try:
            try:
                state[HOLDER] = holder = self._holder(scope)
                client = holder.name if holder else ""
                if self._under_way[client] >= self._limits.at_once:
                    raise _Refused(429, f"{self._limits.at_once} of your requests are under way; send fewer at once.")
            except _Refused as refused:
                await _answer(watched, refused)
                return
            self._under_way[client] += 1
            try:
                await self._serve(scope, receive, watched, holder)
            finally:
                self._under_way[client] -= 1
        finally:
            self._metrics.request(status)
            _log(scope, status, time.monotonic() - began)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, holder: TokenHolder | None) -> None:
        """Have the application answer a request, or say why the request is refused."""
        try:
            if holder is None and not self._is_open(scope["path"]):
                raise _Refused(401, "send a valid token in the header `Authorization: Bearer TOKEN`.")
            body = await self._body(scope, receive, self._limits.bytes if holder else self._limits.open_bytes)
        except _Refused as refused:
            await self._drain(receive, refused)
            await _answer(send, refused)
        else:
            await self._app(scope, _replayed(body, receive), send)

    def _is_open(self, path: str) -> bool:
        return any(path == each or path.startswith(f"{each}/") for each in self._open)

    def _holder(self, scope: Scope) -> TokenHolder | None:
        kind, _, token = _header(scope, b"authorization").partition(" ")
        try:
            return self._tokens.find(token.strip()) if kind.lower() == "bearer" else None
        except UsageError as unreadable:
            LOG.error("tokens", extra={"fields": {"fault": str(unreadable)}})
            raise _Refused(503, "the server cannot read its tokens; try again later.") from None

    async def _body(self, scope: Scope, receive: Receive, most: int) -> bytes:
        too_large = _Refused(413, f"the body of a request may have {most} bytes at most; send less.")
        length = _header(scope, b"content-length")
        if length.isdecimal() and int(length) > most:
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refused(400, "the connection ended before the body did; send the request again.")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise _Refused(408, f"the body must arrive within {self._limits.seconds:g} s; send it again.") from None

    async def _drain(self, receive: Receive, refused: _Refused) -> None:
        """Read what is left of a refused body, and keep nothing: a client that still sends does not see the answer."""
        left = _DRAINED * self._limits.bytes
        try:
            async with asyncio.timeout(0 if refused.status in (400, 408) else self._limits.seconds):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
        except TimeoutError:
            return


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, then whatever comes from the connection."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _answer(send: Send, refused: _Refused) -> None:
    headers = [(b"content-type", b"application/json")]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    else:
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    if refused.status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"detail": refused.sentence}).encode()})


def _header(scope: Scope, name: bytes) -> str:
    value: bytes = dict(scope["headers"]).get(name, b"")
    return value.decode("latin-1")


def _log(scope: Scope, status: int, seconds: float) -> None:
    """One line about a request; no header and no body is logged."""
    state: dict[str, Any] = scope.get("state", {})
    holder: TokenHolder | None = state.get(HOLDER)
    fields = {
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": status,
        "ms": round(1000 * seconds, 1),
        "client": holder.name if holder else "",
        **state.get("log", {}),
    }
    LOG.info("request", extra={"fields": fields})


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["fault"] = self.formatException(record.exc_info)
        return json.dumps(fields)
