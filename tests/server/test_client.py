"""`Client`: the methods of `Evaluator` over HTTP, with connections that drop and servers that are killed."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from tests.processes import KilledProcess
from tests.server.fake import Server, fake_server
from warpsmith.engine.engine import engine_site, open_engine
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import ADDRESS, SEEDS
from warpsmith.model.errors import HarnessFault, TaskError, ToolMissing, UsageError
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Limits, Settings
from warpsmith.server.client import TOKEN, Client
from warpsmith.server.messages import CandidateMessage, InspectionKind
from warpsmith.server.tokens import TokenHolder, TokenStore

RELU = "warpsmith-100/relu@small"


def kernel(text: str) -> Candidate:
    return Candidate((SourceFile("kernel.cpp", text),), "cpu")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server with a fake engine on a port of this machine."""
    with fake_server(tmp_path_factory.mktemp("live")) as server:
        web = uvicorn.Server(uvicorn.Config(server.app, port=0, lifespan="off", log_config=None))
        thread = threading.Thread(target=web.run)
        thread.start()
        while not web.started:
            time.sleep(0.01)
        yield server, f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
        web.should_exit = True
        thread.join()


class Dropping(httpx.HTTPTransport):
    """Drops every second connection, half of them after the server has answered."""

    count = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.count += 1
        if self.count % 4 == 1:
            raise httpx.ConnectError("refused")
        answer = super().handle_request(request)
        if self.count % 4 == 3:
            answer.close()
            raise httpx.ReadError("reset")
        return answer


def test_every_candidate_gets_its_verdict_although_connections_drop(live: tuple[Server, str]) -> None:
    server, url = live
    texts = [f"speed {number}" for number in range(1, 31)]
    before = len(server.engine.judged)
    with Client(url, token=server.tokens["ada"], transport=Dropping()) as client:
        found = dict(client.evaluate(RELU, [kernel(text) for text in texts]))
    assert [found[place].speedup() for place in range(30)] == pytest.approx([float(n) for n in range(1, 31)])
    assert len(server.engine.judged) == before + 30


def test_candidates_are_spread_over_several_requests_where_one_is_too_small(
    live: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = live
    with Client(url, token=server.tokens["ada"]) as client:
        client.facts = client.facts.model_copy(update={"candidates": 2, "body_bytes": 5000})
        found = dict(client.evaluate(RELU, [kernel(f"speed 2 part {number}") for number in range(5)], fresh=True))
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert all(each.ok for each in found.values())


def test_what_a_server_cannot_judge_is_raised_as_on_this_machine(live: tuple[Server, str], tmp_path: Path) -> None:
    server, url = live
    mine = tmp_path / "mine.py"
    mine.write_text("x = 1\n")
    with Client(url, token=server.tokens["ada"]) as client:
        with pytest.raises(TaskError, match="is refused"):
            client.describe(RELU)
        with pytest.raises(UsageError, match="spoils"):
            client.evaluate_one(RELU, kernel("spoils"))
        with pytest.raises(TaskError, match="accepts none"):
            client.evaluate_one(mine, kernel("speed 2"))
        assert client.evaluate_one(RELU, kernel("fault")).status is Status.NOT_JUDGED
        with pytest.raises(UsageError, match="decides about limits itself"):
            client.renew(replace(Settings(), limits=Limits(launch_s=99)))


def test_a_verification_is_made_where_the_device_is(live: tuple[Server, str]) -> None:
    server, url = live
    with Client(url, token=server.tokens["ada"]) as client:
        first, again = (client.examine(RELU, kernel("speed 2")) for _ in range(2))
        with pytest.raises(UsageError, match="examine has a candidate"):
            client._inspect(InspectionKind.EXAMINE, RELU, None)
    assert [(check.name, check.outcome) for check in first] == [(SEEDS, "passed"), (ADDRESS, "failed")]
    assert [check.seconds for check in (*first, *again)] == [1.0, 1.0, 2.0, 2.0]  # each was made, not remembered


def test_a_task_file_that_the_server_has_is_not_uploaded(live: tuple[Server, str], tmp_path: Path) -> None:
    server, url = live
    path = next(t.path for n, t in server.service.catalogue._tasks.items() if n == "warpsmith-100/relu")
    copy = tmp_path / "task.py"
    copy.write_bytes(path.read_bytes())
    with Client(url, token=server.tokens["ada"]) as client:
        assert client.evaluate_one(f"{copy}::relu@small", kernel("speed 9 copy")).speedup() == pytest.approx(9)


def test_an_abandoned_evaluation_is_cancelled(live: tuple[Server, str]) -> None:
    server, url = live
    with Client(url, token=server.tokens["bob"]) as client:
        for _ in client.evaluate(RELU, [kernel(f"speed 2 abandoned {number}") for number in range(40)]):
            server.engine.go.clear()
            break
        else:
            pytest.fail("no verdict came")
        try:
            assert server.service.journal.waiting("bob") == 0
        finally:
            server.engine.go.set()


def test_the_token_comes_from_the_environment_and_is_in_no_message(
    live: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = live
    monkeypatch.delenv(TOKEN, raising=False)
    with pytest.raises(UsageError, match=f"set {TOKEN}"):
        Client(url)
    monkeypatch.setenv(TOKEN, "wsk_wrong")
    with pytest.raises(UsageError, match="does not accept the token") as refused:
        with Client(url) as client:
            client.describe(RELU)
    assert "wsk_wrong" not in str(refused.value)
    monkeypatch.setenv(TOKEN, server.tokens["ada"])
    site = engine_site(url)
    assert site.select("auto").kind == "cpu"
    assert not site.available("cuda").build
    with pytest.raises(ToolMissing, match="judges on cpu"):
        site.select("cuda")
    with open_engine(url, "auto") as engine:
        assert engine.evaluate_one(RELU, kernel("speed 3 engine")).speedup() == pytest.approx(3)
    with pytest.raises(UsageError, match="http://HOST:PORT"):
        Client("http://user:secret@host")


def test_a_client_that_sends_too_much_sees_why_it_is_refused(live: tuple[Server, str]) -> None:
    server, url = live
    for token, wanted in ((server.tokens["ada"], 413), ("wsk_wrong", 401)):
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.post(f"{url}/v1/submissions", content=b"x" * (12 << 20), headers=headers)
        assert answer.status_code == wanted


def test_an_unreachable_server_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", token="wsk_x", patience_s=0.3) as client:
        with pytest.raises(HarnessFault, match="does not answer"):
            client.describe(RELU)


def hostile(answers: dict[str, Any]) -> httpx.MockTransport:
    """A server that knows the task and answers some paths in a way that no server does."""
    facts = {"version": "1", "device": {}, "uploads": True, "body_bytes": 1 << 20, "pending": 1, "waiting": 0}
    usual: dict[str, Any] = {
        "/v1/server": facts | {"backends": {}},
        "/v1/tasks": [{"name": RELU.partition("@")[0], "sha256": "", "sizes": [], "precisions": [], "description": ""}],
        "/v1/submissions": {"id": "a", "task": "t", "finished": False, "counts": {}, "ahead": 0, "queue": 0},
        "/v1/submissions/a/results": {"results": [], "next": 0, "finished": True},
    }

    def answer(request: httpx.Request) -> httpx.Response:
        found = (usual | answers).get(request.url.path, {})
        return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)

    return httpx.MockTransport(answer)


def _bomb() -> httpx.Response:
    return httpx.Response(
        200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(gzip.compress(bytes(200 << 20)))
    )


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("/v1/tasks", _bomb, "more than 67108864 bytes"),
        ("/v1/tasks", lambda: httpx.Response(200, content=b"[" * 200_000), "no server of Warpsmith"),
        ("/v1/tasks", lambda: httpx.Response(403, content=b"[" * 200_000), "status 403"),
        ("/v1/submissions", lambda: {"id": "../../x?\x1b"}, "form that this version does not know"),
        ("/v1/submissions/a/results", lambda: {"place": 9}, "a candidate that it does not have"),
        ("/v1/submissions/a/results", lambda: {"place": -1}, "form that this version does not know"),
    ],
)
def test_what_no_server_answers_is_one_sentence(path: str, answer: Callable[[], Any], said: str) -> None:
    found = answer()
    if path.endswith("/results"):
        found = {"results": [{"sequence": 1, "state": "done"} | found], "next": 1, "finished": True}
    if path.endswith("/submissions"):
        found = {"task": "t", "finished": False, "counts": {}, "ahead": 0, "queue": 0} | found
    with Client("http://127.0.0.1:1", token="wsk_x", transport=hostile({path: found})) as client:
        with pytest.raises((HarnessFault, UsageError), match=said):
            list(client.evaluate(RELU, [kernel("x")]))


# --- a real process ---


@contextmanager
def served(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """`warpsmith serve` in a process of its own."""
    words = [sys.executable, "-m", "warpsmith", "serve", "--device", "cpu", "--port", str(port)]
    words += ["--state", str(folder / "state"), "--tokens", str(folder / "tokens.json")]
    with (folder / "log.jsonl").open("a") as log:
        process = KilledProcess(words, stderr=log, text=True)
    with process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


@pytest.mark.slow
def test_a_killed_server_finishes_what_it_had_accepted(tmp_path: Path, quick_settings: Settings) -> None:
    """One process is killed when it has accepted a submission; the next one, on the same state, gives the verdicts."""
    token = TokenStore(tmp_path / "tokens.json").create(TokenHolder("ada"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    right = """
    extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {
      for (int64_t i = 0; i < rows * cols; ++i) out[i] = x[i] > 0 ? x[i] : 0;
      return 0;
    }
    """
    candidates = [kernel(text) for text in (right, right.replace("x[i] > 0", "true"), "this is no C++")]
    settings = replace(quick_settings, limits=Limits())
    with Client(f"http://127.0.0.1:{port}", token=token, settings=settings, patience_s=150) as client:
        with served(tmp_path, port) as process:
            body = client._request(RELU, None, fresh=False)
            id = client._submit("/v1/submissions", body | {"candidates": [*map(CandidateMessage.of, candidates)]})
            os.kill(process.pid, signal.SIGKILL)
        with served(tmp_path, port):
            verdicts = {place: evaluation.status for place, evaluation in client.evaluate(RELU, candidates)}
            assert client._ask("GET", "/v1/submissions") == [id]
    assert verdicts == {0: Status.OK, 1: Status.WRONG, 2: Status.BUILD_ERROR}
    log = (tmp_path / "log.jsonl").read_text()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert len([line for line in lines if line["event"] == "judged"]) == 3
    assert token not in log
