"""A real HTTP server on loopback that answers requests about batches, by method and path."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class BatchServer:
    """Gives the answers of a route in turn, the last one again and again; keeps the bodies that it got."""

    answers: Mapping[str, list[object]]  # by "POST /v1/batches": a text, or what becomes JSON
    url: str = ""
    bodies: dict[str, bytes] = field(default_factory=dict)  # the latest of each route

    def reply(self, route: str, body: bytes) -> tuple[int, bytes]:
        """The status and the text for a request."""
        self.bodies[route] = body
        waiting = self.answers.get(route)
        if not waiting:
            return 404, json.dumps({"error": {"message": f"no answer to {route}"}}).encode()
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return 200, (answer if isinstance(answer, str) else json.dumps(answer)).encode()


@contextmanager
def batch_server(answers: Mapping[str, list[object]]) -> Iterator[BatchServer]:
    """A server with these answers; "{url}" in a text is the address of the server."""
    made = BatchServer({route: list(texts) for route, texts in answers.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, text = made.reply(
                f"{self.command} {self.path}", self.rfile.read(int(self.headers.get("Content-Length", 0)))
            )
            text = text.replace(b"{url}", made.url.encode())
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST

        def log_message(self, format: str, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
