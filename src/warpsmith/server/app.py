"""The application: `create_app` puts the gate, the open pages and the routers together.

    app = create_app(TokenStore(path), routers=[...])

Everything but `/healthz`, `/metrics`, `/docs` and `/openapi.json` needs a token. FastAPI is an extra (`serve`): only
the commands that serve import this module.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from html import escape
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from warpsmith._version import __version__
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.text import one_line
from warpsmith.server.gate import LOG, BodyLimits, Gate, JsonLines
from warpsmith.server.metrics import ServerMetrics
from warpsmith.server.tokens import TokenStore

_LONGEST = 300  # characters of a message
_END_S = 10  # for requests under way at the end: the stream of an open page has no end of its own
_CONNECTIONS = 1000  # open at once; further ones are answered 503
_IDLE_S = 10.0  # that a connection may be open without a request


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # uvicorn chooses the class
    """A connection that is closed when no request has begun for some seconds.

    uvicorn alone waits without end for the head of a request: whoever opens connections and sends nothing takes all.
    """

    idle_s = _IDLE_S

    def connection_made(self, transport: asyncio.Transport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._look_again(None)

    def _look_again(self, last: object) -> None:
        self.loop.call_later(self.idle_s, self._close_if_idle, last)

    def _close_if_idle(self, last: object) -> None:
        """Close the connection if it waits for a request and the last one is the same as at the look before."""
        if self.transport.is_closing():
            return
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self.cycle is last:
            self.transport.close()
        else:
            self._look_again(self.cycle if waits else self)


def create_app(
    tokens: TokenStore,
    *,
    routers: Sequence[APIRouter] = (),  # what the application offers besides its open pages
    open_paths: Collection[str] = (),  # paths of the routers, with all below them, that need no token
    metrics: ServerMetrics | None = None,
    limits: BodyLimits | None = None,
    fault: Callable[[], str] = lambda: "",  # why the server cannot work; "" where it can
    **options: Any,  # of FastAPI, e.g. lifespan
) -> FastAPI:
    """The application with its routers."""
    counters = metrics or ServerMetrics()
    app = FastAPI(title="Warpsmith", version=__version__, docs_url=None, redoc_url=None, **options)
    app.add_middleware(
        Gate, tokens=tokens, metrics=counters, limits=limits or BodyLimits(), open_paths=tuple(open_paths)
    )
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(WarpsmithError, _refused)
    app.include_router(_open_pages(app, counters, fault))
    for router in routers:
        app.include_router(router)
    return app


def run_server(app: FastAPI, host: str, port: int) -> None:
    """Serve until Ctrl-C or SIGTERM; the log goes to standard error, one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for log in (LOG, logging.getLogger("uvicorn")):
        log.handlers[:] = [handler]
        log.setLevel(logging.INFO)
        log.propagate = False
    sys.stderr.write(f"Serving on http://{host}:{port}; what can be asked is on /docs. Ctrl-C ends it.\n")
    uvicorn.run(
        app,
        host=host,
        port=port,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_END_S,
    )


def _open_pages(app: FastAPI, metrics: ServerMetrics, fault: Callable[[], str]) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", tags=["operation"])
    def healthz(response: Response) -> dict[str, str]:
        """The server answers and can judge; 503 where it cannot judge."""
        wrong = fault()
        response.status_code = 503 if wrong else 200
        return {"status": wrong or "ok", "version": __version__}

    @router.get("/metrics", tags=["operation"], response_class=Response)
    def prometheus() -> Response:
        """Counters for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()), headers={"Content-Security-Policy": "default-src 'none'"})

    return router


async def _malformed(_: Request, fault: Exception) -> Response:
    """One sentence instead of a list that repeats the body."""
    assert isinstance(fault, RequestValidationError), "registered for this class"
    first = fault.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _sentence(422, f"{where}: {first['msg']}; see /docs for what is expected.")


async def _refused(_: Request, fault: Exception) -> Response:
    return _sentence(422, str(fault))


def _sentence(status: int, text: str) -> Response:
    return JSONResponse({"detail": one_line(text)[:_LONGEST]}, status)


def _page(schema: dict[str, Any]) -> str:
    """The OpenAPI document as a page that fetches nothing from elsewhere."""
    parts = [f"<h1>{escape(schema['info']['title'])} {escape(schema['info']['version'])}</h1>"]
    parts.append('<p>The document itself: <a href="openapi.json">openapi.json</a>.</p>')
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>")
            rows = [
                f"<li><code>{escape(each['name'])}</code> ({each['in']}): {escape(each.get('description', ''))}</li>"
                for each in operation.get("parameters", ())
            ]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if name := body.get("$ref", "").rpartition("/")[2]:
                rows.append(f'<li>body: <a href="#{escape(name)}">{escape(name)}</a></li>')
            parts.append(f"<ul>{''.join(rows)}</ul>" if rows else "")
    for name, model in schema.get("components", {}).get("schemas", {}).items():
        parts.append(
            f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3><p>{escape(model.get("description", ""))}'
        )
        parts.append("</p><ul>")
        for field, about in model.get("properties", {}).items():
            kind = about.get("type") or about.get("$ref", "").rpartition("/")[2] or "one of several"
            parts.append(
                f"<li><code>{escape(field)}</code> ({escape(str(kind))}) {escape(about.get('description', ''))}"
            )
        parts.append("</ul>")
    return f"<!doctype html><meta charset=utf-8><title>Warpsmith</title>{''.join(parts)}"
