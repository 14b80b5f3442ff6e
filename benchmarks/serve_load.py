"""A server under load: many clients, many submissions, bad ones among them, the process killed in the middle.

    python benchmarks/serve_load.py --json benchmarks/cpu_2core_serve_load.json

64 clients, each with a token of its own, send 5,000 requests to a real server process: submissions of kernels, the same
submission twice, malformed and huge bodies, hostile names and texts, wrong tokens, ids of other clients, connections
that are dropped in the middle of a request. When half of them are done, the process is killed with SIGKILL and started
again on the same state. Most kernels are judged by an engine that costs nothing (its verdict follows from the text, so
that a verdict of another kernel is noticed); a share is judged for real on the CPU, among them kernels that crash, loop
and look for files. Counted: submissions that were accepted and got no outcome (lost), outcomes that belong to another
kernel (misattributed), answers other than the expected refusal, the memory of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.server.fake import FakeEngine

from warpsmith._version import __version__
from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.server.messages import CandidateMessage
from warpsmith.server.tokens import TokenHolder, TokenStore

FAKE, REAL = "warpsmith-100/softmax@small", "warpsmith-100/relu@small"
OPTIONS = {"seeds": 1, "min_samples": 6, "max_samples": 12, "target_width": 0.2, "timing_budget_s": 0.05}
_RELU = """
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {
  BODY
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = x[i] > 0 ? x[i] : 0;
  return 0;
}
"""
KERNELS = {  # judged for real: what a kernel does, and the statuses that are right for it
    "": ("ok",),
    "out[0] = 1; return 0;": ("unwritten", "wrong"),
    "*(volatile int*)8 = 1;": ("crashed",),
    "return 7;": ("launch_failed",),
    "for (volatile int i = 0;; ++i) {}": ("timed_out",),
    'static char c[64]; FILE* f = fopen("/etc/passwd", "r"); if (f) fread(c, 1, 64, f);': ("rejected", "build_error"),
    "this is no C++": ("build_error",),
}


class MixedEngine(FakeEngine):
    """Judges one task for real on the CPU, every other at no cost."""

    def __init__(self, settings: Settings, on_progress: Callable[[Progress], None]) -> None:
        super().__init__(settings, on_progress)
        self._real = Evaluator("cpu", settings)

    def close(self) -> None:
        self._real.close()

    def renew(self, settings: Settings | None = None) -> None:
        super().renew(settings)
        self._real.renew(settings)

    def evaluate(
        self,
        task: str | Path,
        candidates: Sequence[Candidate],
        precision: Precision | None = None,
        *,
        fresh: bool = False,
    ) -> Iterator[tuple[int, Evaluation]]:
        if "relu" in str(task):
            return self._real.evaluate(task, candidates, precision, fresh=fresh)
        self.judged.clear()
        return super().evaluate(task, candidates, precision, fresh=fresh)


def serve(folder: Path, port: int) -> None:
    """The server process."""
    from warpsmith.server.app import run_server
    from warpsmith.server.journal import Journal
    from warpsmith.server.routes import verdict_app
    from warpsmith.server.service import VerdictService
    from warpsmith.server.task_catalogue import TaskCatalogue

    catalogue = TaskCatalogue((), folder / "uploads", allow_uploads=False)
    service = VerdictService(Journal(folder), catalogue, MixedEngine)
    run_server(verdict_app(service, TokenStore(folder / "tokens.json")), "127.0.0.1", port)


@dataclass
class Tally:
    """What the clients saw."""

    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    candidates: int = 0
    answered: int = 0
    reconnections: int = 0
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    done: int = 0


class LoadClient:
    """One client: sends its share of the requests, one after the other."""

    def __init__(
        self, number: int, url: str, token: str, tally: Tally, foreign: list[str], real: list[str], total: int
    ) -> None:
        self._number = number
        self._token = token
        self._random = random.Random(number)
        self._http = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=httpx.Timeout(30, read=60)
        )
        self._address = url.removeprefix("http://").split(":")
        self._tally = tally
        self._foreign = foreign  # ids of all clients
        self._real = real  # bodies of kernels that wait to be judged for real
        self._total = total  # requests of all clients
        self._last: dict[str, Any] = {}

    async def run(self, requests: int) -> None:
        """Send the requests."""
        kinds = {
            "good": 66, "again": 6, "malformed": 5, "huge": 2, "hostile": 6, "wrong token": 5, "foreign id": 4,
            "dropped": 5, "cancelled": 1,
        }  # fmt: skip
        for step in range(requests):
            kind = self._random.choices(list(kinds), list(kinds.values()))[0]
            if self._random.random() < len(self._real) / max(1, self._total - self._tally.done):  # spread evenly
                kind = "judged for real"
            self._tally.kinds[kind] += 1
            try:
                await self._send(kind, step)
            except Exception as fault:  # noqa: BLE001 - what the clients must not see is counted
                self._tally.wrong.append(f"{kind}: {type(fault).__name__}: {fault}"[:300])
            self._tally.done += 1
        await self._http.aclose()

    async def _send(self, kind: str, step: int) -> None:
        refusals: dict[str, tuple[tuple[int, ...], Callable[[], Any]]] = {
            "malformed": ((422,), lambda: self._post(content=b'{"task": {"name": "x"}, "candidates": [')),
            "huge": ((413,), lambda: self._post(content=b"x" * (9 << 20))),
            "wrong token": ((401,), lambda: self._post(json={}, headers={"Authorization": "Bearer wsk_guess"})),
            "foreign id": ((404,), self._foreign_id),
            "hostile": ((422,), lambda: self._post(json=self._hostile(step))),
        }
        if kind in refusals:
            wanted, call = refusals[kind]
            answer = await call()
            if answer is not None and answer.status_code not in wanted:
                self._tally.wrong.append(f"{kind}: status {answer.status_code}")
        elif kind == "dropped":
            await self._drop(step)
        elif kind == "judged for real":
            await self._judged_for_real()
        elif kind == "again" and self._last:
            await self._submit(self._last["body"], self._last["speeds"])
        else:
            texts = [f"// {self._number} {step} {place}" for place in range(self._random.randint(1, 4))]
            speeds = [1 + self._number + step / 1000 + place / 10 for place in range(len(texts))]
            body = _body(FAKE, [f"{text} speed {speed:.4f}\n" for text, speed in zip(texts, speeds, strict=True)])
            if kind == "cancelled":
                await self._submit(body, speeds, cancel=True)
            else:
                self._last = {"body": body, "speeds": speeds}
                await self._submit(body, speeds)

    def _hostile(self, step: int) -> dict[str, Any]:
        good = _body(FAKE, ["speed 2"])
        candidate = good["candidates"][0]
        return self._random.choice(
            [
                good | {"task": {"name": "../../etc/passwd"}},
                good | {"task": {"name": "warpsmith-100/relu.py"}},
                good | {"candidates": [candidate | {"files": [["../x.cpp", "speed 2"]]}]},
                good | {"candidates": [candidate | {"files": [["x.cpp", "a\0b"]]}]},
                good | {"candidates": [candidate | {"defines": [["A", "1; rm -rf /"]]}]},
                good | {"candidates": [candidate] * 600},
                good | {"options": {"without": ["floor"]}},
                good | {"step": step},
            ]
        )

    async def _foreign_id(self) -> httpx.Response | None:
        if not self._foreign:
            return None
        found = f"{self._random.choice(self._foreign)}{self._random.choice(['', '/results', '/events'])}"
        number, _, path = found.partition(" ")
        return None if int(number) == self._number else await self._call("GET", f"/v1/submissions/{path}")

    async def _drop(self, step: int) -> None:
        """End the connection in the middle of a request."""
        try:
            _, writer = await asyncio.open_connection(self._address[0], int(self._address[1]))
        except OSError:
            return
        body = json.dumps(_body(FAKE, [f"// dropped {self._number} {step} speed 2"]))
        head = f"POST /v1/submissions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n"
        cut = self._random.randint(0, len(body))
        writer.write(
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body[:cut]}".encode()
        )
        writer.close()

    async def _judged_for_real(self) -> None:
        does = self._real.pop()
        text = _RELU.replace("BODY", does) + f"// {self._number} {len(self._real)}\n"
        statuses = await self._submit(_body(REAL, [text]), None)
        if statuses and statuses[0] not in KERNELS[does]:
            self._tally.wrong.append(f"{does or 'a right kernel'}: {statuses[0]}")

    async def _submit(self, body: dict[str, Any], speeds: list[float] | None, *, cancel: bool = False) -> list[str]:
        """Submit and wait; every place must get the outcome of its own kernel."""
        began = time.monotonic()
        answer = await self._post(json=body)
        if answer.status_code != 202:
            self._tally.wrong.append(f"submission: status {answer.status_code} {answer.text[:200]}")
            return []
        id, count = answer.json()["id"], len(body["candidates"])
        self._tally.accepted += 1
        self._tally.candidates += count
        self._foreign.append(f"{self._number} {id}")
        del self._foreign[:-200]
        if cancel:
            await self._call("DELETE", f"/v1/submissions/{id}")
        found: dict[int, dict[str, Any]] = {}
        after = 0
        while True:
            answer = await self._call("GET", f"/v1/submissions/{id}/results?after={after}&wait=20")
            page = answer.json()
            found |= {each["place"]: each for each in page["results"]}
            after = page["next"]
            if page["finished"]:
                break
        self._tally.answered += len(found)
        if sorted(found) != list(range(count)):
            self._tally.wrong.append(f"submission: outcomes for {sorted(found)} of {count}")
        statuses = []
        for place, each in sorted(found.items()):
            self._tally.outcomes[each["state"]] += 1
            evaluation = each["evaluation"]
            if evaluation is None:
                if not (cancel and each["state"] == "cancelled") and each["state"] != "lost":
                    self._tally.wrong.append(f"{each['state']}: {each['error']}")
                continue
            statuses.append(evaluation["status"])
            self._tally.statuses[f"{'real' if speeds is None else 'free'} {evaluation['status']}"] += 1
            own = CandidateMessage(**body["candidates"][place]).candidate().id
            speed = evaluation["workloads"][0]["baselines"][0]["speedup"] if evaluation["workloads"] else 0.0
            if evaluation["candidate"] != own or (speeds is not None and abs(speed - speeds[place]) > 1e-3):
                self._tally.wrong.append("misattributed")
        self._tally.seconds.append(time.monotonic() - began)
        return statuses

    async def _post(self, **more: Any) -> httpx.Response:
        return await self._call("POST", "/v1/submissions", **more)

    async def _call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request; again where the connection fails, since the server is killed in between."""
        deadline = time.monotonic() + 180
        while True:
            try:
                answer = await self._http.request(method, path, **more)
                if answer.status_code not in (429, 503) or time.monotonic() > deadline:
                    return answer
                await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
            except httpx.TransportError:  # the server was killed
                if time.monotonic() > deadline:
                    raise
                self._tally.reconnections += 1
                await asyncio.sleep(0.2 + self._random.random())


def _body(task: str, texts: Sequence[str]) -> dict[str, Any]:
    candidates = [{"files": [["kernel.cpp", text]], "backend": "cpu"} for text in texts]
    return {"task": {"name": task}, "candidates": candidates, "options": OPTIONS}


class ServerProcess:
    """The server, which can be killed and started again."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self.start()

    def start(self) -> None:
        words = [sys.executable, __file__, "--serve", str(self._folder), "--port", str(self._port)]
        with (self._folder / "log.jsonl").open("a") as log:
            cache = {"WARPSMITH_CACHE": str(self._folder / "cache")}  # a lock of its own on the CPU
            self.process = subprocess.Popen(words, stderr=log, env=os.environ | cache)
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{self._port}/healthz", timeout=1)
                return
            except httpx.TransportError:
                time.sleep(0.1)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def memory_mib(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / (1 << 20)


async def attack(
    url: str, folder: Path, server: ServerProcess, clients: int, requests: int, real: int
) -> dict[str, Any]:
    """All clients at once; the server is killed when half of the requests are done."""
    store, tally = TokenStore(folder / "tokens.json"), Tally()
    tokens = [store.create(TokenHolder(f"client-{number}")) for number in range(clients)]
    foreign: list[str] = []
    waiting = [list(KERNELS)[number % len(KERNELS)] for number in range(real)]
    each = [requests // clients + (number < requests % clients) for number in range(clients)]
    began = time.monotonic()
    work = [
        asyncio.create_task(
            LoadClient(number, url, tokens[number], tally, foreign, waiting, requests).run(each[number])
        )
        for number in range(clients)
    ]
    memory: list[tuple[int, float]] = []
    killed_s = 0.0
    while not all(task.done() for task in work):
        await asyncio.sleep(1)
        memory.append((tally.done, round(server.memory_mib(), 1)))
        sys.stderr.write(f"\r{tally.done} of {requests}, {memory[-1][1]:.0f} MiB, {len(tally.wrong)} wrong ")
        if not killed_s and tally.done >= requests // 2:
            server.kill()
            since = time.monotonic()
            await asyncio.to_thread(server.start)
            killed_s = time.monotonic() - since
            memory.append((tally.done, round(server.memory_mib(), 1)))
    wall_s = time.monotonic() - began
    after_restart = [mib for done, mib in memory if done >= requests * 0.6]
    quarter = max(1, len(after_restart) // 4)
    seconds = sorted(tally.seconds)
    metrics = httpx.get(f"{url}/metrics").text
    return {
        "clients": clients,
        "requests": requests,
        "kinds": dict(tally.kinds),
        "accepted_submissions": tally.accepted,
        "accepted_candidates": tally.candidates,
        "outcomes": dict(tally.outcomes),
        "statuses": dict(sorted(tally.statuses.items())),
        "lost": tally.candidates - tally.answered,
        "misattributed": tally.wrong.count("misattributed"),
        "unexpected": [each for each in tally.wrong if each != "misattributed"],
        "reconnections_of_clients": tally.reconnections,
        "wall_s": round(wall_s, 1),
        "requests_per_s": round(requests / wall_s, 1),
        "submission_s": {"median": seconds[len(seconds) // 2], "99 %": seconds[int(len(seconds) * 0.99)]},
        "down_after_kill_s": round(killed_s, 1),
        "memory_mib": {
            "at the kill": max(mib for done, mib in memory if done <= requests // 2 + clients),
            "after the restart, first quarter": round(sum(after_restart[:quarter]) / quarter, 1),
            "after the restart, last quarter": round(sum(after_restart[-quarter:]) / quarter, 1),
            "samples": memory[:: max(1, len(memory) // 40)],
        },
        "waiting_at_the_end": next(line for line in metrics.splitlines() if line.startswith("warpsmith_waiting ")),
        "journal_bytes": (folder / "journal.db").stat().st_size,
    }


def main() -> None:
    """Run the load and write the record."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--requests", type=int, default=5000)
    options.add_argument("--real", type=int, default=42, help="kernels that are judged for real")
    options.add_argument("--json", default="")
    options.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        serve(Path(given.serve), given.port)
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = ServerProcess(folder, port)
        try:
            found = asyncio.run(
                attack(f"http://127.0.0.1:{port}", folder, server, given.clients, given.requests, given.real)
            )
        finally:
            server.process.terminate()
            server.process.wait()
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}",
        "versions": {
            "warpsmith": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("fastapi", "uvicorn", "httpx", "pydantic")},
        },
        **found,
    }
    text = json.dumps(record, indent=1) + "\n"
    sys.stdout.write(text)
    if given.json:
        Path(given.json).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
