"""Serves the tools of one step on a Unix socket, for the agent that works on it.

A request is a line of JSON, `{"token": ..., "tool": "evaluate", "arguments": {...}}`; the answer is a line with
`result` or `error`. The socket lies in a folder that only this user can reach, and closes with the step. Everything is
bounded: connections, requests, the length of a request. A client that breaks a rule loses its connection.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from warpsmith.backends.source import MAX_SOURCE_BYTES
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.proposers.step import AgentStep, Document

SOCKET_VARIABLE = "WARPSMITH_STEP_SOCKET"
TOKEN_VARIABLE = "WARPSMITH_STEP_TOKEN"
_MOST_CONNECTIONS = 4
_MOST_REQUESTS = 500  # of one step
_LONGEST_LINE = 2 * MAX_SOURCE_BYTES
_IDLE_S = 3600.0
_TOOLS: Mapping[str, Mapping[str, type]] = {"evaluate": {"source": str}, "profile": {"trial": int}, "read_run": {}}
_OPTIONAL: Mapping[str, Mapping[str, type]] = {"read_run": {"trial": int}}


class StepServer:
    """A socket for one step, served by threads until the block ends."""

    def __init__(self, step: AgentStep, path: Path) -> None:
        self.path = path
        self.token = secrets.token_urlsafe(24)
        self._step = step
        self._requests = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen(_MOST_CONNECTIONS)

    @property
    def variables(self) -> dict[str, str]:
        """The environment by which a client finds the socket."""
        return {SOCKET_VARIABLE: str(self.path), TOKEN_VARIABLE: self.token}

    def __enter__(self) -> StepServer:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for each in (self._listening, *self._open):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._listening.close()

    @staticmethod
    def _start(work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="step", daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                with self._lock:
                    full = len(self._open) >= _MOST_CONNECTIONS
                    if not full:
                        self._open.add(client)
                if full:
                    client.close()
                else:
                    client.settimeout(_IDLE_S)
                    self._start(lambda client=client: self._serve(client))  # type: ignore[misc]

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, client.makefile("rb") as lines, suppress(OSError):
                while line := lines.readline(_LONGEST_LINE + 1):
                    if len(line) > _LONGEST_LINE:
                        client.sendall(_line({"error": "the request is too long; send a shorter kernel."}))
                        return
                    answer = self._answer(line)
                    client.sendall(_line(answer))
                    if "fatal" in answer:
                        return
        finally:
            with self._lock:
                self._open.discard(client)

    def _answer(self, line: bytes) -> Document:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict) or not hmac.compare_digest(
            str(request.get("token")).encode("utf-8", "replace"), self.token.encode()
        ):
            return {"error": f"send JSON with the token in {TOKEN_VARIABLE}.", "fatal": True}
        with self._lock:
            self._requests += 1
            spent = self._requests > _MOST_REQUESTS
        if spent:
            return {"error": f"this step has sent {_MOST_REQUESTS} requests; end now.", "fatal": True}
        try:
            return {"result": self._call(request.get("tool"), request.get("arguments"))}
        except WarpsmithError as refused:
            return {"error": str(refused)}

    def _call(self, tool: object, arguments: object) -> Document:
        if not isinstance(tool, str) or tool not in _TOOLS:
            raise UsageError(f"there is no such tool; the tools are {', '.join(_TOOLS)}.")
        needed, known = _TOOLS[tool], {**_TOOLS[tool], **_OPTIONAL.get(tool, {})}
        given = arguments if isinstance(arguments, dict) else {}
        fits = set(needed) <= set(given) <= set(known) and all(type(given[name]) is known[name] for name in given)
        if not fits:
            wanted = ", ".join(f"{name} ({kind.__name__})" for name, kind in known.items())
            raise UsageError(f"{tool} takes {wanted}; correct the arguments.")
        call: Callable[..., Document] = getattr(self._step, tool)
        return call(**given)


def _line(document: Document) -> bytes:
    return json.dumps(document).encode() + b"\n"
