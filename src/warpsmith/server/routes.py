"""The routes of `warpsmith serve`: tasks, submissions, their outcomes. All need a token; see `gate`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import TypeAdapter

from warpsmith._version import __version__
from warpsmith.hardware.device import Device
from warpsmith.server.app import create_app
from warpsmith.server.gate import HOLDER, BodyLimits
from warpsmith.server.journal import QueueFull
from warpsmith.server.messages import (
    LARGEST_SEQUENCE,
    LONGEST_WAIT_S,
    InspectionRequest,
    ResultsPage,
    ServerFacts,
    SubmissionRequest,
    SubmissionState,
    TaskEntry,
)
from warpsmith.server.service import VerdictService
from warpsmith.server.task_catalogue import UploadRefused
from warpsmith.server.tokens import TokenHolder, TokenStore
from warpsmith.system.plugins import plugins

_DEVICE = TypeAdapter(Device)
_RECENT = 100  # submissions in a list

Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for a change before answering.")]
After = Annotated[int, Query(ge=0, le=LARGEST_SEQUENCE, description="The `next` of the answer before.")]


_FULL: dict[int | str, dict[str, Any]] = {
    429: {"description": "No room; the header Retry-After says when to try again."}
}

ROUTES = APIRouter(prefix="/v1", dependencies=[Depends(HTTPBearer(auto_error=False))])


@dataclass(frozen=True)
class OwnSubmission:
    """A submission of the client that asks."""

    service: VerdictService
    id: str
    task: str


def verdict_app(
    service: VerdictService,
    tokens: TokenStore,
    *,
    limits: BodyLimits | None = None,
    routers: Sequence[APIRouter] = (),
    open_paths: Collection[str] = (),
) -> FastAPI:
    """The application over a service, which begins to judge when the application starts."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await run_in_threadpool(service.stop)

    body = limits or BodyLimits()
    app = create_app(
        tokens,
        routers=[ROUTES, *routers],
        open_paths=open_paths,
        metrics=service.metrics,
        limits=body,
        fault=lambda: service.fault,
        lifespan=lifespan,
    )
    app.state.verdicts = service
    app.state.body_bytes = body.bytes
    return app


def _service(request: Request) -> VerdictService:
    found: VerdictService = request.app.state.verdicts
    return found


def _holder(request: Request) -> TokenHolder:
    found: TokenHolder = getattr(request.state, HOLDER)
    return found


Service = Annotated[VerdictService, Depends(_service)]
Holder = Annotated[TokenHolder, Depends(_holder)]


def _owned(
    id: Annotated[str, Path(max_length=64)], request: Request, service: Service, holder: Holder
) -> OwnSubmission:
    """A submission of this client, with the name of its task. The ids of others do not exist for the client."""
    request.state.log = {"submission": id}
    task = service.journal.owned(holder.name, id)
    if task is None:
        raise HTTPException(404, "you have no submission with this id; check the id.")
    return OwnSubmission(service, id, task)


Owned = Annotated[OwnSubmission, Depends(_owned)]


@ROUTES.get("/server", tags=["server"])
def server(request: Request, service: Service, holder: Holder) -> ServerFacts:
    """What this server is, and what this client may ask of it."""
    kind = service.engine.device.kind
    return ServerFacts(
        version=__version__,
        device=_DEVICE.dump_python(service.engine.device, mode="json"),
        uploads=service.catalogue.allow_uploads,
        body_bytes=request.app.state.body_bytes,
        pending=holder.pending,
        waiting=service.journal.waiting(holder.name),
        backends={
            name: service.available(name)
            for name, backend in plugins("warpsmith.backends").items()
            if kind in backend.devices
        },
    )


@ROUTES.get("/tasks", tags=["server"])
def tasks(service: Service) -> list[TaskEntry]:
    """The tasks that can be named."""
    return service.catalogue.entries()


@ROUTES.post("/submissions", tags=["submissions"], status_code=202, responses=_FULL)
def submit(request: SubmissionRequest, service: Service, holder: Holder) -> SubmissionState:
    """Hand in candidates of one task. The same request again gives the same submission and costs nothing."""
    return _accepted(service, holder, lambda: service.submit(request, holder))


@ROUTES.post("/inspections", tags=["submissions"], status_code=202, responses=_FULL)
def inspect(request: InspectionRequest, service: Service, holder: Holder) -> SubmissionState:
    """Ask about a task. The answer is the outcome of a submission with one place."""
    return _accepted(service, holder, lambda: service.inspect(request, holder))


def _accepted(service: VerdictService, holder: TokenHolder, accept: Callable[[], str]) -> SubmissionState:
    try:
        id = accept()
    except QueueFull as full:
        service.metrics.refused()
        detail = f"{full} The queue has {full.queue} candidates."
        raise HTTPException(429, detail, headers={"Retry-After": str(full.retry_after_s)}) from None
    except UploadRefused as refused:
        raise HTTPException(403, str(refused)) from None
    return service.state(id, service.journal.owned(holder.name, id) or "")


@ROUTES.get("/submissions", tags=["submissions"])
def list_submissions(service: Service, holder: Holder) -> list[str]:
    """The ids of this client's latest submissions."""
    return service.journal.submissions(holder.name, _RECENT)


@ROUTES.get("/submissions/{id}", tags=["submissions"])
async def state(found: Owned, wait: Wait = 0.0) -> SubmissionState:
    """Where a submission stands; with `wait`, as soon as all its outcomes are there."""
    deadline = time.monotonic() + wait
    with found.service.watch(found.id) as watcher:
        while True:
            now = await run_in_threadpool(found.service.state, found.id, found.task)
            if now.finished or not await _changed(watcher.changed, deadline):
                return now


@ROUTES.get("/submissions/{id}/results", tags=["submissions"])
async def results(found: Owned, after: After = 0, wait: Wait = 0.0) -> ResultsPage:
    """Outcomes in the order in which they came, behind `after`; with `wait`, as soon as there is one."""
    deadline = time.monotonic() + wait
    with found.service.watch(found.id) as watcher:
        while True:
            page = await run_in_threadpool(found.service.results, found.id, after)
            if page.results or page.finished or not await _changed(watcher.changed, deadline):
                return page


@ROUTES.get("/submissions/{id}/events", tags=["submissions"], response_class=EventSourceResponse)
async def events(
    found: Owned, last_event_id: Annotated[str, Header(max_length=20)] = ""
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: `stage` (a candidate reached a stage), `result` (an outcome), `end`."""
    after = min(int(last_event_id), LARGEST_SEQUENCE) if last_event_id.isdecimal() else 0
    with found.service.watch(found.id) as watcher:
        while True:
            watcher.changed.clear()
            for place, stage in watcher.read_stages():
                yield ServerSentEvent(event="stage", data={"place": place, "stage": stage})
            page = await run_in_threadpool(found.service.results, found.id, after)
            for result in page.results:
                yield ServerSentEvent(event="result", data=result, id=str(result.sequence))
            after = page.next
            if page.finished:
                yield ServerSentEvent(event="end", data={})
                return
            if not page.results:
                await watcher.changed.wait()


@ROUTES.delete("/submissions/{id}", tags=["submissions"])
def cancel(found: Owned) -> SubmissionState:
    """Cancel the candidates that wait. Those that are being judged come to their end."""
    found.service.cancel(found.id)
    return found.service.state(found.id, found.task)


async def _changed(event: asyncio.Event, deadline: float) -> bool:
    """Wait for a change; False if none came in time."""
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
