"""An engine that judges nothing and costs nothing, and an application over it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from warpsmith.evaluator.supervisor.evaluator import Progress
from warpsmith.hardware.device import select_device
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import ADDRESS, SEEDS, Calibration, CheckOutcome, CheckStatus
from warpsmith.model.errors import HarnessFault, TaskError, UsageError
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Status, WorkloadResult
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision, Task
from warpsmith.server.journal import Journal
from warpsmith.server.routes import verdict_app
from warpsmith.server.service import VerdictService
from warpsmith.server.task_catalogue import TaskCatalogue
from warpsmith.server.tokens import TokenHolder, TokenStore


def fake_evaluation(candidate: Candidate, task: str = "fake") -> Evaluation:
    """A verdict that follows from the text: `speed N` is N times as fast, anything else is wrong."""
    environment = Environment("fake", candidate.backend, "none", "none")
    named = re.search(r"\bspeed ([\d.]+)\b", candidate.main.text)
    if named is None:
        return Evaluation(task, candidate.id, Status.WRONG, "the text names no speed.", environment, "fp32")
    speedup = float(named[1])
    baseline = Baseline("eager", speedup, speedup, Interval(speedup, speedup), 10)
    workload = WorkloadResult("w", (), 1.0, "batched", (baseline,), 0.0, 1.0, 0.1, 1, 1, 1, "fp64")
    return Evaluation(task, candidate.id, Status.OK, "", environment, "fp32", (workload,))


class FakeEngine:
    """Judges by `fake_evaluation`; waits while `hold` is set; some texts make it fail."""

    width = 1

    def __init__(self, settings: Settings, on_progress: Callable[[Progress], None] = lambda _: None) -> None:
        self.device = select_device("cpu")
        self.settings = settings
        self.judged: list[str] = []  # ids of candidates
        self.examined = 0
        self.go = threading.Event()
        self.go.set()
        self._on_progress = on_progress

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.go.set()

    def describe(self, task: str | Path, precision: Precision | None = None) -> Task:
        raise TaskError(f"{Path(task).name} is refused.")

    def survey(self, task: str | Path, backend: str, precision: Precision | None = None) -> Problem:
        raise TaskError(f"{Path(task).name} is refused.")

    def calibrate(
        self, task: str | Path, precision: Precision | None = None, *, fresh: bool = False
    ) -> tuple[Task, Calibration]:
        raise TaskError(f"{Path(task).name} is refused.")

    def evaluate_one(
        self, task: str | Path, candidate: Candidate, precision: Precision | None = None, *, fresh: bool = False
    ) -> Evaluation:
        ((_, found),) = self.evaluate(task, [candidate], precision, fresh=fresh)
        return found

    def evaluate(
        self,
        task: str | Path,
        candidates: Sequence[Candidate],
        precision: Precision | None = None,
        *,
        fresh: bool = False,
    ) -> Iterator[tuple[int, Evaluation]]:
        if any("spoils" in each.main.text for each in candidates):
            raise UsageError("this text spoils its batch.")
        for index in reversed(range(len(candidates))):
            self._on_progress(Progress(index, "check"))
            self.go.wait(10)
            if "bug" in candidates[index].main.text:
                raise ZeroDivisionError("a bug of the engine")
            if "fault" in candidates[index].main.text:
                raise HarnessFault("a worker died.")
            self.judged.append(candidates[index].id)
            yield index, fake_evaluation(candidates[index])

    def examine(self, task: str | Path, candidate: Candidate, precision: Precision | None = None) -> list[CheckOutcome]:
        self.examined += 1
        seconds = float(self.examined)
        failed = CheckOutcome(ADDRESS, CheckStatus.FAILED, "out of bounds.", seconds=seconds)
        return [CheckOutcome(SEEDS, CheckStatus.PASSED, seconds=seconds), failed]

    def prepare(self, task: str | Path, candidates: Sequence[Candidate], precision: Precision | None = None) -> None:
        """Nothing is built."""

    def renew(self, settings: Settings | None = None) -> None:
        self.settings = settings or self.settings


class Server:
    """An application over a fake engine, with two clients."""

    def __init__(self, folder: Path, service: VerdictService, engine: FakeEngine) -> None:
        self.store = TokenStore(folder / "tokens.json")
        self.tokens = {name: self.store.create(TokenHolder(name, pending=40)) for name in ("ada", "bob")}
        self.service = service
        self.engine = engine
        self.app: FastAPI = verdict_app(service, self.store)

    def talk(self, conversation: Callable[[httpx.AsyncClient], Awaitable[None]], client: str = "ada") -> None:
        """Have a conversation with the application as one of its clients."""

        async def run() -> None:
            async with self.connection(client) as connection:
                await conversation(connection)

        asyncio.run(run())

    def connection(self, client: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.tokens[client]}"}
        transport = httpx.ASGITransport(self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://here", headers=headers, timeout=10)


@contextmanager
def fake_server(folder: Path, *, uploads: bool = False, tasks: Sequence[str] = ()) -> Iterator[Server]:
    """A server in this process that judges with a fake engine."""
    made: list[FakeEngine] = []

    def open_engine(settings: Settings, on_progress: Callable[[Progress], None]) -> Any:
        made.append(FakeEngine(settings, on_progress))
        return made[0]

    catalogue = TaskCatalogue(tasks, folder / "state" / "uploads", allow_uploads=uploads)
    service = VerdictService(Journal(folder / "state", queue_limit=50), catalogue, open_engine)
    service.start()
    try:
        yield Server(folder, service, made[0])
    finally:
        made[0].go.set()
        service.stop()


def submission(*texts: str, task: str = "warpsmith-100/relu@small", **more: Any) -> dict[str, Any]:
    """The body of a submission of C++ texts."""
    candidates = [{"files": [["kernel.cpp", text]], "backend": "cpu"} for text in texts]
    return {"task": {"name": task}, "candidates": candidates, **more}
