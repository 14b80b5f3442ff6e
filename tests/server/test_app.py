"""The application around its routers: tokens, limits of a body, open pages, the command that creates tokens."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import APIRouter, FastAPI
from typer.testing import CliRunner

from warpsmith.cli.main import app as commands
from warpsmith.cli.serve import check_installed
from warpsmith.model.errors import ToolMissing
from warpsmith.server.app import Connection, create_app
from warpsmith.server.client import Client
from warpsmith.server.gate import BodyLimits
from warpsmith.server.tokens import TokenHolder, TokenStore


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "tokens.json")


def echo() -> APIRouter:
    router = APIRouter()

    @router.post("/v1/echo")
    def echoed(body: dict[str, int]) -> dict[str, int]:
        return body

    return router


def ask(app: FastAPI, *calls: Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]) -> list[httpx.Response]:
    async def all_calls() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return [await call(client) for call in calls]

    return asyncio.run(all_calls())


def post(token: str, **more: Any) -> Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return lambda client: client.post("/v1/echo", headers=headers, **more)


def test_only_a_valid_token_opens_what_is_not_an_open_page(store: TokenStore) -> None:
    token = store.create(TokenHolder("laptop"))
    app = create_app(store, routers=[echo()])
    body = {"json": {"a": 1}}

    codes = [r.status_code for r in ask(app, *(post(each, **body) for each in (token, "", f"{token}x", "wsk_")))]
    assert codes == [200, 401, 401, 401]
    pages = ask(app, *(lambda c, p=p: c.get(p) for p in ("/healthz", "/metrics", "/docs", "/openapi.json", "/v1")))
    assert [page.status_code for page in pages] == [200, 200, 200, 200, 401]
    assert b"laptop" not in b"".join(page.content for page in pages)
    assert "/v1/echo" in pages[2].text
    store.revoke("laptop")
    assert ask(app, post(token, **body))[0].status_code == 401


def test_the_file_of_tokens_holds_no_token_and_is_readable_by_its_owner_only(store: TokenStore) -> None:
    first = store.create(TokenHolder("laptop"))
    second = store.create(TokenHolder("laptop", pending=7))

    assert first.removeprefix("wsk_") not in store.path.read_text()
    assert store.path.stat().st_mode & 0o077 == 0
    assert store.find(first) is None
    assert store.find(second) == TokenHolder("laptop", pending=7)


def test_a_body_that_is_too_large_malformed_or_too_slow_is_refused(store: TokenStore) -> None:
    token = store.create(TokenHolder("laptop"))
    app = create_app(store, routers=[echo()], limits=BodyLimits(bytes=1000, seconds=0.05))

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(10)
        yield b"}"

    found = ask(
        app,
        post(token, content=b"x" * 1001),
        post(token, content=parts()),
        post(token, content=slow()),
        post(token, content=b"{"),
        post(token, json={"a": "x"}),
        post(token, json={"a": 2}),
    )
    assert [each.status_code for each in found] == [413, 413, 408, 422, 422, 200]
    assert all(len(each.json()["detail"]) < 310 for each in found[:5])


def test_an_open_page_takes_no_large_body(store: TokenStore) -> None:
    """A body is kept in memory: without a token nobody may send a large one."""
    app = create_app(store, routers=[echo()])
    calls = [lambda c, n=n: c.post("/docs", content=b"x" * n) for n in (4096, 4097, 1 << 20)]
    assert [answer.status_code for answer in ask(app, *calls)] == [405, 413, 413]


def test_a_client_cannot_have_all_requests_under_way(store: TokenStore) -> None:
    ada, bob = (store.create(TokenHolder(name)) for name in ("ada", "bob"))
    router, go = APIRouter(), asyncio.Event()

    @router.get("/v1/slow")
    async def slow() -> None:
        await go.wait()

    app = create_app(store, routers=[router], limits=BodyLimits(at_once=3))

    async def talk() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:

            def get(token: str) -> Awaitable[httpx.Response]:
                return client.get("/v1/slow", headers={"Authorization": f"Bearer {token}"})

            held = [asyncio.ensure_future(get(ada)) for _ in range(3)]
            await asyncio.sleep(0.1)
            refused = await get(ada)
            assert refused.status_code == 429
            assert refused.headers["Retry-After"] == "1"
            assert (await client.get("/healthz")).status_code == 200
            other = asyncio.ensure_future(get(bob))
            await asyncio.sleep(0.1)
            go.set()
            assert [(await each).status_code for each in (*held, other)] == [200] * 4
            assert (await get(ada)).status_code == 200

    asyncio.run(talk())


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """The application on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, http=Connection, log_level="error", timeout_keep_alive=60))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def test_a_connection_without_a_request_is_closed(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first request, in the middle of a head, and after an answer; not while a request is under way."""
    monkeypatch.setattr(Connection, "idle_s", 0.3)
    request = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
    router = APIRouter()

    @router.get("/healthz/slow")
    async def slow() -> str:
        await asyncio.sleep(1.5)
        return "done"

    with listening(create_app(store, routers=[router])) as port:
        for sent in (b"", b"GET /healthz HTTP/1.1\r\nHo", request, request + b"G"):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
                link.sendall(sent)
                while link.recv(65536):
                    pass  # ends when the server closes the connection
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert client.get("/healthz/slow").text == '"done"'
            for _ in range(8):  # used again and again, the connection stays
                assert client.get("/healthz").status_code == 200
                time.sleep(0.1)


def test_a_token_is_printed_once_and_can_be_revoked(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"

    def call(*words: str) -> str:
        done = CliRunner().invoke(commands, ["serve", *words, "--tokens", str(file)])
        assert done.exit_code == 0, done.output
        return done.output

    token = call("token", "laptop", "--hourly", "5").strip()
    assert TokenStore(file).find(token) == TokenHolder("laptop", hourly=5)
    assert "laptop" in call("tokens")
    call("token", "laptop", "--revoke")
    assert TokenStore(file).holders == ()
    refused = CliRunner().invoke(commands, ["serve", "--tokens", str(file)])
    assert refused.exit_code == 2
    assert json.loads(file.read_text()) == []


def test_the_engine_of_a_server_uses_no_build_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the stages and the time of an answer say that another client has had the same kernel built."""
    served: list[FastAPI] = []
    monkeypatch.setattr("warpsmith.server.app.run_server", lambda app, host, port: served.append(app))
    file = tmp_path / "tokens.json"
    TokenStore(file).create(TokenHolder("laptop"))
    words = ["serve", "--device", "cpu", "--tokens", str(file), "--state", str(tmp_path / "state")]
    assert CliRunner().invoke(commands, words).exit_code == 0
    service = served[0].state.verdicts
    try:
        assert not service.engine._paths.reuse_builds
        assert not service._paths.reuse_builds
    finally:
        service.stop()


def test_without_its_libraries_server_and_client_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ToolMissing, match=r"warpsmith\[serve\]"):
        check_installed("warpsmith serve")
    with pytest.raises(ToolMissing, match=r"warpsmith\[serve\]"):
        Client("http://127.0.0.1:1", token="wsk_x")
