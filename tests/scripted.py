"""A real HTTP server on loopback that speaks the OpenAI and the Anthropic protocol from a script.

    with ScriptedServer([status(429, {"retry-after": "1"}), say("hello", prompt=10, completion=2)]) as server:
        ... server.openai_url, server.anthropic_url, server.requests ...

A script is a list of steps, used in turn (the last one again and again where `repeat` is set), or a function of the
number of the request (from 1) and its decoded body that returns a step. Only POST requests use it; GET /v1/models
lists `models`.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """What the server does with one request."""

    status: int = 200
    text: str = ""  # of the completion
    prompt: int = 0  # tokens reported
    completion: int = 0
    cached: int = 0
    reasoning: str = ""  # what the model thought, apart from its text
    finish: str = "stop"  # or "length", "refusal"
    uses: tuple[tuple[str, str], ...] = ()  # calls of tools: name, arguments as JSON
    usage: bool = True  # whether tokens are reported at all
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None  # the whole body, instead of a completion or an error
    content_type: str = "application/json"
    error: str = "scripted"  # what an error says
    delay_s: float = 0.0  # before the answer
    drop: str = ""  # "before" the answer, or in the middle of the "body"
    hang: bool = False  # never answers
    whole: bool = False  # answers with one object, though a stream was asked for
    events_s: float = 0.0  # between the events of a stream
    drip_s: float = 0.0  # between single bytes of the body
    drip_head_s: float = 0.0  # between single bytes of the headers


def say(text: str, prompt: int = 100, completion: int = 20, **more: Any) -> Step:
    """A good answer."""
    return Step(text=text, prompt=prompt, completion=completion, **more)


def use(name: str, **arguments: Any) -> Step:
    """An answer that calls a tool."""
    return Step(prompt=100, completion=20, uses=((name, json.dumps(arguments)),))


def status(code: int, headers: Mapping[str, str] | None = None, error: str = "scripted", **more: Any) -> Step:
    """An error."""
    return Step(status=code, headers=tuple((headers or {}).items()), error=error, **more)


def junk(size: int = 1 << 20) -> Step:
    """A success that is none."""
    return Step(raw=b"junk " * (size // 5))


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    path: str
    headers: dict[str, str]  # names in lower case
    body: Body
    at: float = field(default_factory=time.monotonic)


Script = Sequence[Step] | Callable[[int, Body], Step]


class ScriptedServer:
    """A server of its own port, in threads; closed with all its connections at the end."""

    def __init__(self, script: Script = (), models: Sequence[str] = ("scripted",), repeat: bool = False) -> None:
        self.requests: list[Seen] = []
        self.most_at_once = 0
        self.models = tuple(models)
        self._script = script
        self._repeat = repeat
        self._now = 0
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.scripted = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()  # waits for the threads of its requests

    @property
    def url(self) -> str:
        """Of the server itself."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The base URL for the OpenAI protocol."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for the Anthropic protocol."""
        return self.url

    def take(self, seen: Seen) -> Step:
        """Record a request and say what to do with it."""
        with self._lock:
            self.requests.append(seen)
            number = len(self.requests)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            if callable(self._script):
                return self._script(number, seen.body)
            if number > len(self._script) and not self._repeat:
                return status(500, error="the script has ended")
            return self._script[min(number, len(self._script)) - 1]

    def done(self) -> None:
        """A request was answered, or not."""
        with self._lock:
            self._now -= 1

    def wait(self, seconds: float) -> bool:
        """Whether the server ended meanwhile."""
        return self._ending.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    scripted: ScriptedServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up in these tests: that is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/v1/models":
            self._send(404, b"{}", "application/json", ())
            return
        listing = {"object": "list", "data": [{"id": m, "object": "model"} for m in self.server.scripted.models]}
        self._send(200, json.dumps(listing).encode(), "application/json", ())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        seen = Seen(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        step = self.server.scripted.take(seen)
        try:
            self._play(step, body)
        finally:
            self.server.scripted.done()

    def _play(self, step: Step, body: Body) -> None:
        scripted = self.server.scripted
        if step.hang:
            scripted.wait(60)
            self.close_connection = True
            return
        if step.delay_s and scripted.wait(step.delay_s):
            return
        if step.drop == "before":
            self._reset()
            return
        anthropic = self.path.startswith("/v1/messages")
        content = step.raw if step.raw is not None else json.dumps(_content(step, body, anthropic)).encode()
        if body.get("stream") and step.raw is None and step.status < 300 and not step.whole:
            content = (_anthropic_events if anthropic else _openai_events)(json.loads(content))
            step = replace(step, content_type="text/event-stream")
        if step.events_s:
            self._send_events(step, content)
        elif step.drop or step.drip_s or step.drip_head_s:
            self._send_badly(step, content)
        else:
            self._send(step.status, content, step.content_type, step.headers)

    def _send(self, status: int, content: bytes, kind: str, headers: Sequence[tuple[str, str]]) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _send_events(self, step: Step, content: bytes) -> None:
        self.close_connection = True
        self.send_response(step.status)
        self.send_header("content-type", step.content_type)
        self.end_headers()
        with suppress(OSError):
            for event in content.split(b"\n\n"):
                self.wfile.write(event + b"\n\n")
                self.wfile.flush()
                if self.server.scripted.wait(step.events_s):
                    return

    def _send_badly(self, step: Step, content: bytes) -> None:
        head = f"HTTP/1.1 {step.status} scripted\r\ncontent-type: {step.content_type}\r\n"
        head += f"content-length: {len(content)}\r\n\r\n"
        self.close_connection = True
        if not self._drip(head.encode(), step.drip_head_s):
            return
        if step.drop:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            time.sleep(0.01)  # so that half of it arrives before the end does
            self._reset()
        else:
            self._drip(content, step.drip_s)

    def _drip(self, content: bytes, pause_s: float) -> bool:
        with suppress(OSError):
            if not pause_s:
                self.wfile.write(content)
                return True
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.scripted.wait(pause_s):
                    return False
            return True
        return False

    def _reset(self) -> None:
        """End the connection as a crash does, not as a farewell."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _content(step: Step, body: Body, anthropic: bool) -> Body:
    if step.status >= 300:
        error = {"message": step.error, "type": "scripted_error", "code": None, "param": None}
        return {"type": "error", "error": error} if anthropic else {"error": error}
    return _anthropic(step, body) if anthropic else _openai(step, body)


def _openai(step: Step, body: Body) -> Body:
    message: Body = {"role": "assistant", "content": step.text}
    if step.reasoning:
        message["reasoning_content"] = step.reasoning
    finish = "tool_calls" if step.uses else step.finish
    if step.uses:
        message["tool_calls"] = [
            {"id": f"use-{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(step.uses)
        ]
    if step.finish == "refusal":
        message |= {"content": None, "refusal": step.text}
        finish = "stop"
    content: Body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if step.usage:
        content["usage"] = {
            "prompt_tokens": step.prompt,
            "completion_tokens": step.completion,
            "total_tokens": step.prompt + step.completion,
            "prompt_tokens_details": {"cached_tokens": step.cached},
        }
    return content


def _anthropic(step: Step, body: Body) -> Body:
    blocks: list[Body] = [{"type": "thinking", "thinking": step.reasoning}] if step.reasoning else []
    reasons = {"stop": "end_turn", "length": "max_tokens"}
    content: Body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [*blocks, {"type": "text", "text": step.text}, *_tool_blocks(step)],
        "stop_reason": "tool_use" if step.uses else reasons.get(step.finish, step.finish),
        "stop_sequence": None,
    }
    if step.usage:
        content["usage"] = {
            "input_tokens": step.prompt - step.cached,
            "output_tokens": step.completion,
            "cache_read_input_tokens": step.cached,
            "cache_creation_input_tokens": 0,
        }
    return content


def _tool_blocks(step: Step) -> list[Body]:
    return [
        {"type": "tool_use", "id": f"use-{place}", "name": name, "input": json.loads(arguments)}
        for place, (name, arguments) in enumerate(step.uses)
    ]


def _events(*bodies: Body) -> bytes:
    return b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies)


def _pieces(text: str) -> list[str]:
    return [text[start : start + 4000] for start in range(0, len(text), 4000)] or [""]


def _openai_events(content: Body) -> bytes:
    """An answer as chunks: the text in pieces, the reason of its end, then what it cost."""
    choice = content["choices"][0]
    message = choice["message"]
    field = "refusal" if message.get("refusal") else "content"
    said = [{"choices": [{"index": 0, "delta": {field: piece}}]} for piece in _pieces(message[field] or "")]
    for place, called in enumerate(message.get("tool_calls", ())):
        function = called["function"]
        head = {"index": place, "id": called["id"], "type": "function", "function": {"name": function["name"]}}
        pieces = [{"index": place, "function": {"arguments": piece}} for piece in _pieces(function["arguments"])]
        said += [{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in (head, *pieces)]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    usage = [{"choices": [], "usage": content["usage"]}] if "usage" in content else []
    return _events(*said, end, *usage) + b"data: [DONE]\n\n"


def _anthropic_events(content: Body) -> bytes:
    """An answer as events of the protocol; thoughts are a block of their own."""
    usage = content.get("usage", {})
    begun = {**content, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1} if usage else {}}
    found: list[Body] = [{"type": "message_start", "message": begun}]
    for number, block in enumerate(content["content"]):
        if block["type"] == "tool_use":
            found.append({"type": "content_block_start", "index": number, "content_block": {**block, "input": {}}})
            for piece in _pieces(json.dumps(block["input"])):
                delta = {"type": "input_json_delta", "partial_json": piece}
                found.append({"type": "content_block_delta", "index": number, "delta": delta})
            found.append({"type": "content_block_stop", "index": number})
            continue
        kind = "text" if block["type"] == "text" else "thinking"
        found.append({"type": "content_block_start", "index": number, "content_block": {"type": kind, kind: ""}})
        for piece in _pieces(block[kind]):
            delta = {"type": f"{kind}_delta", kind: piece}
            found.append({"type": "content_block_delta", "index": number, "delta": delta})
        found.append({"type": "content_block_stop", "index": number})
    spent = {"output_tokens": usage["output_tokens"]} if usage else {}
    found.append({"type": "message_delta", "delta": {"stop_reason": content["stop_reason"]}, "usage": spent})
    return _events(*found, {"type": "ping"}, {"type": "message_stop"})
