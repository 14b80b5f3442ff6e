"""The live page: a router with the list of runs, the page of a run that follows its log, and stop and resume.

Reading needs no token; stop and resume do. Every answer says that nothing but this server's own script may run in the
page. A request is refused if it names another host (DNS rebinding) or, where it changes something, comes from another
site. FastAPI is an extra (`serve`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Annotated
from urllib.parse import SplitResult, quote, urlsplit

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse
from starlette.background import BackgroundTask

from warpsmith.model.errors import RunError, UsageError, WarpsmithError
from warpsmith.model.text import one_line
from warpsmith.report.bench_page import bench_page
from warpsmith.report.document import RunsPage, plain
from warpsmith.report.page import LIVE_POLICY, SCRIPTS, asset, live_html, script_of, version_of
from warpsmith.search.stop_request import request_stop
from warpsmith.server.app import Connection
from warpsmith.server.gate import HOLDER
from warpsmith.server.served_runs import PREFIX, ServedRun, ServedRuns, rows_json
from warpsmith.system.locks import is_locked

_POLL_S = 0.2  # between two looks at the log of a run
_LIST_POLL_S = 1.0  # between two looks at the list of runs
_PING_S = 15.0  # a stream without news says that it is there
_MOST_STREAMS = 100
_FIRST_ROWS_S = 0.5  # the list of runs is drawn with what could be read by then
_REFUSED_S = 4.0  # a resumed run that cannot begin says so by then
_END_S = 3.0  # for requests under way when the server ends
_DIGITS = 20  # of the number of an event
_LONGEST = 4000  # texts or trials asked for at once, characters of their numbers
_HEADERS = {
    "Content-Security-Policy": LIVE_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass
class LivePage:
    """What the router serves, and who may change something."""

    served: ServedRuns
    token: str = ""  # for stop and resume; "": only holders of a token of the server around the router
    hosts: Collection[str] = ()  # names of this machine, besides its addresses and "localhost"
    ending: threading.Event = field(default_factory=threading.Event)  # set: open streams end
    streams: int = 0
    _resumed: list[subprocess.Popen[bytes]] = field(default_factory=list)

    # --- who asks ---

    def check_host(self, request: Request) -> None:
        """Refuse a request that names another host: a page elsewhere whose name was pointed here."""
        name = _split(f"//{request.headers.get('host', '')}").hostname or ""
        if name != "localhost" and name not in self.hosts and not _is_address(name):
            raise HTTPException(421, "this server is asked for by its address; name the host with --host.")
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.method != "GET":
            raise HTTPException(403, "stop and resume come from this server's own page.")
        origin = request.headers.get("origin")
        if origin is not None and _split(origin).netloc != request.headers.get("host"):
            raise HTTPException(403, "requests come from this server's own page.")

    def check_token(self, request: Request, authorization: Annotated[str, Header()] = "") -> None:
        """Refuse a request without a token."""
        kind, _, token = authorization.partition(" ")
        given, wanted = token.strip().encode(), self.token.encode()  # strings are compared if they are ASCII only
        own = kind.lower() == "bearer" and bool(wanted) and secrets.compare_digest(given, wanted)
        if not own and getattr(request.state, HOLDER, None) is None:
            raise HTTPException(401, "stop and resume need the token that `warpsmith dashboard` printed.")

    # --- what changes something ---

    def resume(self, name: str, trials: int) -> str:
        """Continue a run in a process of its own."""
        folder = self.served.folder(name)
        if is_locked(folder):
            raise UsageError("a process works on this run already.")
        command = [sys.executable, "-P", "-m", "warpsmith", "optimize", "--resume", str(folder)]
        command += ["--trials", str(trials)] if trials else []
        self._resumed = [each for each in self._resumed if each.poll() is None]
        with tempfile.TemporaryFile() as said:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
            )
            self._resumed.append(started)
            try:
                status = started.wait(_REFUSED_S)
            except subprocess.TimeoutExpired:
                return "The run goes on."
            if status == 2:
                raise RunError(_last_line(said) or "the run could not be continued.")
        return "The run went on and has ended."

    # --- streams ---

    async def run_stream(self, run: ServedRun, since: int) -> AsyncIterator[str]:
        """What happens in a run after an event, as server-sent events."""
        quiet, live = 0.0, ""
        while not self.ending.is_set():
            try:
                seq = await asyncio.to_thread(run.update)
                now = await asyncio.to_thread(run.live)
            except WarpsmithError as fault:
                yield _message("fault", json.dumps(str(fault)))
                return
            if seq > since or now != live:
                data = await asyncio.to_thread(run.patch, since)
                yield _message("patch", data, f"{run.instance}:{seq}")
                since, live, quiet = seq, now, 0.0
            elif quiet >= _PING_S:
                yield ": still here\n\n"
                quiet = 0.0
            quiet += _POLL_S
            await asyncio.sleep(_POLL_S)

    async def list_stream(self) -> AsyncIterator[str]:
        """Rows of runs and benches that changed, as server-sent events; all of them first."""
        sent: dict[str, str] = {}
        quiet = 0.0
        while not self.ending.is_set():
            runs = rows_json(await asyncio.to_thread(self.served.rows, 1.0))
            benches = rows_json(await asyncio.to_thread(self.served.bench_rows))
            now = {**{f"run {name}": text for name, text in runs}, **{f"bench {name}": text for name, text in benches}}
            if now != sent:
                changed = [text for name, text in runs if sent.get(f"run {name}") != text]
                gone = [name.partition(" ")[2] for name in sent if name not in now]
                rows = ",".join(text for _, text in benches)
                yield _message(
                    "rows",
                    f'{{"runs":[{",".join(changed)}],"benches":[{rows}],"gone":{json.dumps(gone)},'
                    f'"remarks":{json.dumps(self.served.faults())}}}',
                )
                sent, quiet = now, 0.0
            elif quiet >= _PING_S:
                yield ": still here\n\n"
                quiet = 0.0
            quiet += _LIST_POLL_S
            for _ in range(int(_LIST_POLL_S / _POLL_S)):
                if not self.ending.is_set():
                    await asyncio.sleep(_POLL_S)

    async def counted(self, stream: AsyncIterator[str]) -> AsyncIterator[str]:
        """The same stream, counted while it is open."""
        self.streams += 1
        try:
            async for each in stream:
                yield each
        finally:
            self.streams -= 1


def live_router(page: LivePage) -> APIRouter:
    """The routes of the live page; all are below `PREFIX` and need no token of the server around them."""
    router = APIRouter(prefix=PREFIX, dependencies=[Depends(page.check_host)], include_in_schema=False)
    served = page.served

    @router.get("")
    def runs() -> Response:
        rows, benches = served.rows(_FIRST_ROWS_S), served.bench_rows()
        where = ", ".join(str(root) for root in served.roots)
        document = RunsPage("Runs", where, (), served.faults(), rows, benches)
        page = _page("runs", document.title, where, json.dumps(plain(document), ensure_ascii=False))
        page.background = BackgroundTask(served.read_ahead)
        return page

    @router.get("/runs/{name:path}")
    def run(name: str) -> Response:
        found = served.run(name)
        document = found.document()
        title, subtitle = found.headline
        return _page("run", title, f"{name}: {subtitle}", document)

    @router.get("/benches/{name:path}")
    def bench(name: str) -> Response:
        results = served.bench(name)
        reports = {cell.run: f"{PREFIX}/runs/{quote(f'{name}/{cell.run}')}" for cell in results.cells}
        document = bench_page(results, reports)
        return _page("bench", document.title, document.subtitle, json.dumps(plain(document), ensure_ascii=False))

    @router.get("/assets/{name}")
    def assets(name: str, v: str = "") -> Response:
        kind, _, ending = name.partition(".")
        if name != "page.css" and (ending != "js" or kind not in SCRIPTS):
            raise HTTPException(404, "there is no such file; load the page again.")
        text, media = (asset(name), "css") if ending == "css" else (script_of(kind, live=True), "javascript")
        kept = {"Cache-Control": "max-age=31536000, immutable"} if v == version_of(text) else {}
        return Response(text, media_type=f"text/{media}", headers={**_HEADERS, **kept})

    @router.get("/texts/{name:path}")
    def texts(name: str, instance: str, n: str) -> Response:
        found, wanted = asked_for(name, instance, n)
        return JSONResponse({each: found.text(each) for each in wanted}, headers=_HEADERS)

    @router.get("/trials/{name:path}")
    def trials(name: str, instance: str, n: str) -> Response:
        found, wanted = asked_for(name, instance, n)
        made = ",".join(found.trial(each) for each in wanted)
        return Response(f"[{made}]", media_type="application/json", headers=_HEADERS)

    def asked_for(name: str, instance: str, n: str) -> tuple[ServedRun, list[int]]:
        found = served.run(name)
        if instance != found.instance or len(n) > _LONGEST:
            raise HTTPException(409, "the page is out of date; load it again.")
        return found, [int(each) for each in n.split(",") if each.isdecimal()]

    @router.get("/events")
    def list_events() -> Response:
        return _stream(page, page.list_stream())

    @router.get("/events/{name:path}")
    def events(name: str, request: Request, after: str = "") -> Response:
        found = served.run(name)
        instance, _, seq = (request.headers.get("last-event-id") or after).partition(":")
        known = instance == found.instance and seq.isdecimal() and len(seq) < _DIGITS
        return _stream(page, page.run_stream(found, int(seq) if known else 0))

    @router.post("/stop/{name:path}", dependencies=[Depends(page.check_token)])
    def stop(name: str) -> Response:
        folder = served.folder(name)
        if not is_locked(folder):
            raise UsageError("no process works on this run.")
        request_stop(folder)
        return _said("The run stops as after Ctrl-C, when what is under way is done.")

    @router.post("/resume/{name:path}", dependencies=[Depends(page.check_token)])
    def resume(name: str, trials: int = 0) -> Response:
        return _said(page.resume(name, trials))

    return router


def create_dashboard(page: LivePage) -> FastAPI:
    """An application with the live page alone."""
    app = FastAPI(title="Warpsmith", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(live_router(page))
    app.add_exception_handler(WarpsmithError, _refused)

    @app.get("/", include_in_schema=False, dependencies=[Depends(page.check_host)])
    def home() -> Response:
        return RedirectResponse(PREFIX, headers=_HEADERS)

    return app


def _page(kind: str, title: str, subtitle: str, data: str) -> Response:
    return HTMLResponse(live_html(kind, title, subtitle, data, PREFIX), headers=_HEADERS)


def _stream(page: LivePage, stream: AsyncIterator[str]) -> Response:
    if page.streams >= _MOST_STREAMS:
        raise HTTPException(503, "too many pages are open; close some.")
    headers = {**_HEADERS, "X-Accel-Buffering": "no"}
    return StreamingResponse(page.counted(stream), media_type="text/event-stream", headers=headers)


def _message(kind: str, data: str, id: str = "") -> str:
    # JSON has no line breaks outside its strings, and none inside: they are escaped.
    return f"event: {kind}\n" + (f"id: {id}\n" if id else "") + f"data: {data}\n\n"


def _said(sentence: str) -> Response:
    return JSONResponse({"detail": sentence}, headers=_HEADERS)


async def _refused(_: Request, fault: Exception) -> Response:
    status = 404 if isinstance(fault, RunError) else 409
    return JSONResponse({"detail": one_line(str(fault))[:300]}, status, headers=_HEADERS)


def _split(address: str) -> SplitResult:
    """The parts of an address; none where it is no address."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _last_line(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("warpsmith: ") if lines else ""


def names_of(host: str) -> tuple[str, ...]:
    """The names by which a server that listens on a host may be asked for."""
    return (host, *((socket.gethostname(),) if host in ("0.0.0.0", "::") else ()))


@contextmanager
def serving(page: LivePage, host: str, port: int) -> Iterator[int]:
    """Serve the live page in a thread while the block runs; gives the port, a free one where 0 is asked for."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as refused:
            raise UsageError(
                f"{host}:{port} cannot be listened on ({refused.strerror}); choose another --port, or 0 for a free one."
            ) from None
        settings = uvicorn.Config(
            create_dashboard(page), http=Connection, ws="none", log_level="error", access_log=False, lifespan="off"
        )
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="dashboard", daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            page.ending.set()
            server.should_exit = True
            thread.join(_END_S)
