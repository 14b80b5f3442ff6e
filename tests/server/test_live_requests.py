"""What the live page answers to whom, without a browser: hosts, sites, tokens, names, streams."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.report.benches import make_bench
from tests.report.synthetic import Maker, make_run
from tests.server.live_runs import go_on, open_session
from warpsmith.experiments.results import RESULTS, write_results
from warpsmith.report.document import to_json
from warpsmith.report.page import LIVE_POLICY
from warpsmith.report.run_page import run_page
from warpsmith.run_log.log import RunLog
from warpsmith.search.stop_request import NAME as STOP
from warpsmith.server import served_runs
from warpsmith.server.app import create_app
from warpsmith.server.live_page import LivePage, create_dashboard, live_router
from warpsmith.server.served_runs import PREFIX, ServedRun, ServedRuns
from warpsmith.server.tokens import TokenHolder, TokenStore

TOKEN = "a-token"
HOME = "http://127.0.0.1:8323"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "runs"
    make_run(folder / "one", 6, Maker(lines=4))
    return folder


@pytest.fixture
def page(runs: Path) -> LivePage:
    return LivePage(ServedRuns([runs]), TOKEN, ("127.0.0.1",))


def ask(app: FastAPI, method: str, path: str, *, base: str = HOME, **more: Any) -> httpx.Response:
    async def one() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, path, **more)

    return asyncio.run(one())


def test_another_name_for_this_machine_is_refused(page: LivePage) -> None:
    app = create_dashboard(page)
    codes = [
        ask(app, "GET", PREFIX, base=f"http://{host}").status_code
        for host in (
            "127.0.0.1:8323",
            "localhost:1",
            "[::1]:8323",
            "192.168.1.9",
            "evil.example",
            "localhost.evil.example",
        )
    ]
    assert codes == [200, 200, 200, 200, 421, 421]


def test_other_sites_can_neither_change_nor_read(page: LivePage, runs: Path) -> None:
    app = create_dashboard(page)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert ask(app, "POST", f"{PREFIX}/stop/runs/one", headers={**bearer, **headers}).status_code == 403
    assert ask(app, "GET", f"{PREFIX}/events", headers={"Origin": "https://evil.example"}).status_code == 403
    assert "access-control-allow-origin" not in ask(app, "GET", PREFIX).headers
    assert not (runs / "one" / STOP).exists()


def test_headers_that_cannot_be_read_are_refused_like_wrong_ones(page: LivePage) -> None:
    app, stop = create_dashboard(page), f"{PREFIX}/stop/runs/one"
    for broken in ("[", "[::1", "[x]"):
        assert ask(app, "GET", PREFIX, headers={"Host": broken}).status_code == 421
        assert ask(app, "GET", PREFIX, headers={"Origin": f"http://{broken}"}).status_code == 403
    assert ask(app, "POST", stop, headers={b"Authorization": b"Bearer \xe9"}).status_code == 401


def test_stop_and_resume_need_the_token(page: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_dashboard(page)
    asked: list[tuple[str, int]] = []

    def resumed(_: LivePage, name: str, trials: int) -> str:
        asked.append((name, trials))
        return "gone on"

    monkeypatch.setattr(LivePage, "resume", resumed)
    path = f"{PREFIX}/resume/runs/one?trials=9"
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": TOKEN}):
        assert ask(app, "POST", path, headers=headers).status_code == 401
    own = {"Authorization": f"Bearer {TOKEN}", "Origin": HOME}
    assert ask(app, "POST", path, headers=own).json() == {"detail": "gone on"}
    assert asked == [("runs/one", 9)]
    nobody = ask(app, "POST", f"{PREFIX}/stop/runs/one", headers=own)
    assert (nobody.status_code, nobody.json()["detail"]) == (409, "no process works on this run.")
    # Without a token of its own, the page takes no empty one.
    page.token = ""
    assert ask(app, "POST", path, headers={"Authorization": "Bearer "}).status_code == 401


def test_resume_is_a_process_of_its_own_and_says_why_it_cannot_begin(
    page: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused:
        def __init__(self, command: list[str], **options: Any) -> None:
            started.append(command)
            options["stderr"].write(b"something\nwarpsmith: all trials are spent; give more.\n")

        def wait(self, seconds: float) -> int:
            return 2

        def poll(self) -> int:
            return 2

    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", Refused)
    answer = ask(
        create_dashboard(page), "POST", f"{PREFIX}/resume/runs/one", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    assert answer.json()["detail"] == "all trials are spent; give more."
    assert started[0][1:6] == ["-P", "-m", "warpsmith", "optimize", "--resume"]


def test_every_answer_has_the_policy_and_nothing_inline(page: LivePage) -> None:
    app = create_dashboard(page)
    for path in (PREFIX, f"{PREFIX}/runs/runs/one", f"{PREFIX}/assets/run.js", f"{PREFIX}/assets/page.css"):
        answer = ask(app, "GET", path)
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"] == LIVE_POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "<style" not in answer.text
    assert "unsafe" not in LIVE_POLICY


@pytest.mark.parametrize(
    "path",
    ["/runs/runs/two", "/runs/../one", "/runs/%2e%2e/one", "/runs//etc", "/assets/dom.py", "/assets/..%2fpage.html"],
)
def test_only_what_was_found_below_the_folder_is_served(page: LivePage, path: str) -> None:
    assert ask(create_dashboard(page), "GET", f"{PREFIX}{path}").status_code == 404


def test_links_out_of_the_folder_are_not_followed(runs: Path, tmp_path: Path) -> None:
    root = tmp_path / "mine"
    root.mkdir()
    (root / "stranger").symlink_to(runs / "one")
    (root / "damaged").mkdir()
    (root / "damaged" / "run.db").write_bytes(b"no log of a run")

    served = ServedRuns([root])
    assert served.rows() == ()
    (said,) = served.faults()
    assert "cannot be read" in said


def test_texts_belong_to_one_instance_of_the_server(page: LivePage) -> None:
    app = create_dashboard(page)
    run = page.served.run("runs/one")
    number = json.loads(run.trial(1))["reply"]
    path = f"{PREFIX}/texts/runs/one"
    answer = ask(app, "GET", path, params={"instance": run.instance, "n": f"0,{number}"})
    assert answer.json()["0"] == ""
    assert "code:" in answer.json()[str(number)]
    assert ask(app, "GET", path, params={"instance": "other", "n": "1"}).status_code == 409
    assert ask(app, "GET", path, params={"instance": run.instance, "n": "999999"}).status_code == 409


def test_the_page_of_a_server_is_the_page_of_the_file(page: LivePage, runs: Path) -> None:
    run = page.served.run("runs/one")
    live = json.loads(run.document())
    file, _ = run_page(runs / "one")
    wanted = {"instance": run.instance, "n": ",".join(str(trial.number) for trial in file.trials)}
    full = ask(create_dashboard(page), "GET", f"{PREFIX}/trials/runs/one", params=wanted).json()
    assert full == json.loads(to_json(file))["trials"]
    # The page begins with rows: they say the same, and less.
    assert [row | more for row, more in zip(live["trials"], full, strict=True)] == full
    assert not {"prompt", "shown", "workloads", "files"} & set(live["trials"][0])
    for wrong in ({"instance": "other", "n": "1"}, {"instance": run.instance, "n": "7"}):
        assert ask(create_dashboard(page), "GET", f"{PREFIX}/trials/runs/one", params=wrong).status_code == 409
    assert live["steps"] == [{"trial": step.trial, "speedup": pytest.approx(step.speedup)} for step in file.steps]
    assert live["best"] == file.best


def test_the_list_and_the_page_read_a_log_once(page: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Counted(RunLog):
        @classmethod
        def read(cls, folder: Path) -> RunLog:
            read.append(folder.name)
            return RunLog.read(folder)

    monkeypatch.setattr(served_runs, "RunLog", Counted)
    app = create_dashboard(page)
    assert ask(app, "GET", PREFIX).status_code == 200
    assert ask(app, "GET", f"{PREFIX}/runs/runs/one").status_code == 200
    assert read == ["one"]


def test_the_row_of_a_run_is_the_same_with_a_page_and_without(tmp_path: Path) -> None:
    with open_session(tmp_path / "one", 30) as session:
        go_on(session, 4)
        run = ServedRun("one", tmp_path / "one")
        run.update()
        go_on(session, 9)
        assert run.row() == served_runs._Summary("one", tmp_path / "one").row()
        # The row has read on; the page is made anew for the same events.
        assert len(json.loads(run.document())["trials"]) == 9


def test_a_browser_keeps_style_and_script_as_long_as_they_are_the_same(page: LivePage) -> None:
    app = create_dashboard(page)
    text = ask(app, "GET", f"{PREFIX}/runs/runs/one").text
    named = re.findall(rf'"({PREFIX}/assets/[^"]+)"', text)
    assert len(named) == 2
    for path in named:
        assert "immutable" in ask(app, "GET", path).headers["cache-control"]
        assert ask(app, "GET", f"{path}0").headers["cache-control"] == "no-store"


def test_a_stream_begins_after_the_event_that_the_page_has(tmp_path: Path) -> None:
    page = LivePage(ServedRuns([tmp_path]))

    async def next_patch(stream: AsyncIterator[str]) -> dict[str, Any]:
        lines = (await anext(stream)).splitlines()
        assert lines[0] == "event: patch"
        found: dict[str, Any] = json.loads(lines[2].removeprefix("data: "))
        return found

    async def watch() -> None:
        with open_session(tmp_path / "one", 30) as session:
            go_on(session, 5)
            run = ServedRun("one", tmp_path / "one")
            stream = page.run_stream(run, run.update())
            first = await next_patch(stream)
            assert first["trials"] == []
            assert set(first) == {"trials", "live"}
            go_on(session, 7)
            second = await next_patch(stream)
            assert {6, 7} <= {trial["number"] for trial in second["trials"]}
            assert 1 not in {trial["number"] for trial in second["trials"]}
            everything = await next_patch(page.run_stream(run, 0))
            assert len(everything["trials"]) == 7
            page.ending.set()
            assert [each async for each in stream] == []

    asyncio.run(watch())


def test_a_patched_page_equals_a_new_one_after_every_event(tmp_path: Path) -> None:
    with open_session(tmp_path / "one", 8, "cupilot") as session:
        watched = ServedRun("one", tmp_path / "one")
        document = json.loads(watched.document())
        for upto in range(1, 9):
            since = watched._maker.history.seq
            go_on(session, upto)
            watched.update()
            patch = json.loads(watched.patch(since))
            known = {trial["number"]: trial for trial in document["trials"]}
            known |= {trial["number"]: trial for trial in patch.pop("trials")}
            document = {**document, **patch, "trials": [known[number] for number in sorted(known)]}
    fresh = json.loads(ServedRun("one", tmp_path / "one").document())
    for field in ("figures", "steps", "totals", "roofline", "effects", "models", "limits", "best"):
        assert document[field] == fresh[field], field
    assert document["trials"] == fresh["trials"]


def test_too_many_streams_are_refused(page: LivePage) -> None:
    page.streams = 100
    assert ask(create_dashboard(page), "GET", f"{PREFIX}/events").status_code == 503


def test_the_routes_stand_in_the_application_of_serve(page: LivePage, tmp_path: Path) -> None:
    store = TokenStore(tmp_path / "tokens.json")
    token = store.create(TokenHolder("laptop"))
    page.token = ""
    app = create_app(store, routers=[live_router(page)], open_paths=[PREFIX])

    assert ask(app, "GET", PREFIX).status_code == 200
    assert ask(app, "GET", "/v1").status_code == 401
    assert ask(app, "POST", f"{PREFIX}/stop/runs/one").status_code == 401
    known = ask(app, "POST", f"{PREFIX}/stop/runs/one", headers={"Authorization": f"Bearer {token}"})
    assert known.json()["detail"] == "no process works on this run."


def test_benches_are_listed_and_have_a_page_that_leads_to_their_runs(tmp_path: Path) -> None:
    results = make_bench(("cupilot", "evoengineer-full"), repeats=1)
    folder = tmp_path / "benches" / "first"
    folder.mkdir(parents=True)
    write_results(results, folder / RESULTS)
    make_run(folder / results.cells[0].run, 3, Maker(lines=4))
    served = ServedRuns([tmp_path / "benches"])
    app = create_dashboard(LivePage(served))

    (row,) = served.bench_rows()
    assert (row.bench, row.cells, row.words) == ("benches/first", len(results.cells), "not finished")
    answer = ask(app, "GET", row.address)
    assert answer.status_code == 200
    (run,) = served.rows()
    assert run.address in answer.text
    assert ask(app, "GET", run.address).status_code == 200
    assert ask(app, "GET", f"{PREFIX}/benches/benches/second").status_code == 404
