"""Submissions of clients: outcomes, events, cancelling, known results, quotas, what is refused, what survives."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from tests.server.fake import Server, fake_server, submission
from warpsmith.model.errors import TaskError, UsageError
from warpsmith.server.journal import Journal, NewSubmission, Outcome, QueueFull
from warpsmith.server.messages import JobState, SubmissionRequest
from warpsmith.server.task_catalogue import TaskCatalogue
from warpsmith.server.tokens import TokenHolder

UPLOAD = "import torch\nfrom warpsmith import normal, task\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with fake_server(tmp_path_factory.mktemp("server")) as made:
        yield made


async def outcomes(client: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Submit and wait; outcomes by place."""
    accepted = await client.post("/v1/submissions", json=body)
    assert accepted.status_code == 202, accepted.text
    found: dict[int, dict[str, Any]] = {}
    after = 0
    while True:
        page = (await client.get(f"/v1/submissions/{accepted.json()['id']}/results?wait=10&after={after}")).json()
        found |= {each["place"]: each for each in page["results"]}
        after = page["next"]
        if page["finished"]:
            return [found[place] for place in sorted(found)]


def test_each_candidate_of_a_batch_gets_its_own_verdict(server: Server) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        texts = [f"speed {number}.5" for number in range(1, 250)]
        found = await outcomes(client, submission(*texts[:30], "no", *texts[30:38]))
        speeds = [
            each["evaluation"]["workloads"][0]["baselines"][0]["speedup"]
            for each in found
            if each["evaluation"]["status"] == "ok"
        ]
        assert speeds == [number + 0.5 for number in range(1, 39)]
        assert found[30]["evaluation"]["status"] == "wrong"

    server.talk(conversation)


def test_a_repeated_candidate_costs_nothing_and_a_repeated_request_is_the_same_submission(server: Server) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        one = await outcomes(client, submission("speed 2 once", "speed 2 once"))
        before = len(server.engine.judged)
        again = await client.post("/v1/submissions", json=submission("speed 2 once", "speed 2 once"))
        assert again.json()["finished"]
        other = await outcomes(client, submission("speed 3 new", "speed 2 once"))
        assert other[1]["evaluation"] == one[0]["evaluation"]
        assert len(server.engine.judged) == before + 1
        await outcomes(client, submission("speed 2 once", fresh="a"))
        await outcomes(client, submission("speed 2 once", fresh="a"))
        assert len(server.engine.judged) == before + 2

    server.talk(conversation)


def test_submissions_of_one_client_do_not_exist_for_another(server: Server) -> None:
    ids: list[str] = []

    async def owner(client: httpx.AsyncClient) -> None:
        ids.append((await client.post("/v1/submissions", json=submission("speed 7 secret"))).json()["id"])
        assert ids[0] in (await client.get("/v1/submissions")).json()

    async def stranger(client: httpx.AsyncClient) -> None:
        for path in ("", "/results", "/events"):
            foreign = await client.get(f"/v1/submissions/{ids[0]}{path}")
            unknown = await client.get(f"/v1/submissions/{'0' * 32}{path}")
            assert foreign.status_code == 404
            assert foreign.json() == unknown.json()
        assert (await client.delete(f"/v1/submissions/{ids[0]}")).status_code == 404
        assert ids[0] not in (await client.get("/v1/submissions")).json()
        before = len(server.engine.judged)
        await outcomes(client, submission("speed 7 secret"))
        assert len(server.engine.judged) == before + 1  # judged for this client, too

    server.talk(owner)
    server.talk(stranger, "bob")


def test_one_bad_candidate_does_not_spoil_those_beside_it(server: Server) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        spoilt = await outcomes(client, submission("speed 2 a", "speed 2 spoils", "speed 3 b"))
        assert [each["state"] for each in spoilt] == ["done", "failed", "done"]
        assert "spoils" in spoilt[1]["error"]
        bug = await outcomes(client, submission("bug"))
        assert "internal error of the server (ZeroDivisionError)" in bug[0]["error"]
        assert (await outcomes(client, submission("speed 4 after")))[0]["state"] == "done"
        assert (await client.get("/healthz")).status_code == 200

    server.talk(conversation)


def test_events_are_streamed_and_can_be_resumed(server: Server) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        id = (await client.post("/v1/submissions", json=submission("speed 2 x", "speed 2 y"))).json()["id"]
        text = (await client.get(f"/v1/submissions/{id}/events")).text
        lines = [line for line in text.splitlines() if line.startswith("event: ")]
        assert lines.count("event: result") == 2
        assert lines[-1] == "event: end"
        first = next(line for line in text.splitlines() if line.startswith("id: "))
        rest = await client.get(f"/v1/submissions/{id}/events", headers={"Last-Event-ID": first[4:]})
        assert rest.text.count("event: result") == 1

    server.talk(conversation)


def test_what_waits_can_be_cancelled_and_the_queue_has_limits(server: Server) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        server.engine.go.clear()
        held = (await client.post("/v1/submissions", json=submission("speed 2 held"))).json()
        while not (await client.get(f"/v1/submissions/{held['id']}")).json()["counts"].get("running"):
            time.sleep(0.01)
        many = (await client.post("/v1/submissions", json=submission(*(f"speed 1 {n}" for n in range(30))))).json()
        assert many["queue"] == 30
        full = await client.post("/v1/submissions", json=submission(*(f"speed 5 {n}" for n in range(20))))
        assert full.status_code == 429
        assert int(full.headers["Retry-After"]) >= 1
        assert "30 of your candidates wait, and 40 may wait" in full.json()["detail"]
        async with server.connection("bob") as other:
            crowded = await other.post("/v1/submissions", json=submission(*(f"speed 5 {n}" for n in range(25))))
            assert crowded.status_code == 429
            assert "the queue takes 50" in crowded.json()["detail"]
        cancelled = (await client.delete(f"/v1/submissions/{many['id']}")).json()
        assert cancelled["counts"] == {"cancelled": 30}
        assert cancelled["finished"]
        server.engine.go.set()
        again = await outcomes(client, submission(*(f"speed 1 {n}" for n in range(30))))
        assert {each["state"] for each in again} == {"done"}

    try:
        server.talk(conversation)
    finally:
        server.engine.go.set()


@pytest.mark.parametrize(
    "name",
    [
        *("../../etc/passwd", "/etc/passwd", "warpsmith-100/../warpsmith-100/relu", "warpsmith-100/relu.py", "relu"),
        *("warpsmith-100/relu::relu", "kernelbench:/tmp/level1/1", "warpsmith-100/relu@../x", "~/task.py", ""),
        *("warpsmith-100/relu\0", "file:///etc/passwd", "WARPSMITH-100/RELU"),
    ],
)
def test_a_name_that_is_not_in_the_list_of_tasks_is_refused(server: Server, name: str) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        refused = await client.post("/v1/submissions", json=submission("speed 2", task=name))
        assert refused.status_code == 422
        assert "passwd" not in refused.text

    server.talk(conversation)


def test_uploads_are_refused_unless_the_owner_allows_them(server: Server, tmp_path: Path) -> None:
    body = submission("speed 2") | {"task": {"text": UPLOAD, "entry": "mine"}}

    async def refused(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/submissions", json=body)
        assert answer.status_code == 403
        assert "accepts no task files" in answer.json()["detail"]
        assert not list((server.service.journal.folder / "uploads").glob("*"))

    async def allowed(client: httpx.AsyncClient) -> None:
        assert (await outcomes(client, body))[0]["state"] == "done"
        for modules in ({"../x.py": ""}, {"/x.py": ""}, {"a/../../x.py": ""}, {"x.so": ""}, {".x.py": ""}):
            wrong = await client.post("/v1/submissions", json=body | {"task": {"text": UPLOAD, "modules": modules}})
            assert wrong.status_code == 422
        broken = await client.post("/v1/submissions", json=body | {"task": {"text": "def ("}})
        assert broken.status_code == 422
        assert str(tmp_path) not in broken.text

    server.talk(refused)
    with fake_server(tmp_path, uploads=True) as open_server:
        open_server.talk(allowed)
        (folder,) = (tmp_path / "state" / "uploads").iterdir()
        assert (folder / "task.py").read_text() == UPLOAD


def test_an_error_does_not_say_where_the_server_keeps_a_task(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[str] = []

    def refused(task: str, _precision: object = None) -> None:
        specs.append(task)
        raise TaskError(f"{task.partition('::')[0]}:3: executing it raised NameError.")

    monkeypatch.setattr(server.engine, "describe", refused)

    async def conversation(client: httpx.AsyncClient) -> None:
        body = {"kind": "describe", "task": {"name": "warpsmith-100/relu@small"}}
        id = (await client.post("/v1/inspections", json=body)).json()["id"]
        (outcome,) = (await client.get(f"/v1/submissions/{id}/results?wait=10")).json()["results"]
        assert Path(specs[0]).is_absolute()
        assert outcome["error"].endswith(".py:3: executing it raised NameError.")
        assert "/" not in outcome["error"]

    server.talk(conversation)


def test_tasks_of_a_folder_can_be_named_and_names_are_not_ambiguous(tmp_path: Path) -> None:
    for name in ("mine", "other/mine"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "own.py").write_text("@task(workloads=[{}])\ndef own(x):\n    return x\n")

    async def conversation(client: httpx.AsyncClient) -> None:
        listed = {each["name"]: each for each in (await client.get("/v1/tasks")).json()}
        assert listed["mine/own"]["sizes"] == ["full"]
        assert listed["warpsmith-100/relu"]["sizes"] == ["full", "small"]
        assert str(tmp_path) not in json.dumps(listed)
        assert (await outcomes(client, submission("speed 2", task="mine/own")))[0]["state"] == "done"

    with fake_server(tmp_path, tasks=[str(tmp_path / "mine")]) as server:
        server.talk(conversation)
    with pytest.raises(UsageError, match="two folders of tasks offer mine/own"):
        TaskCatalogue([str(tmp_path / "mine"), str(tmp_path / "other/mine")], tmp_path, allow_uploads=False)


def test_a_journal_that_cannot_be_written_for_a_while_loses_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpsmith.server.service._FAULT_S", 0.01)
    take = server.service.journal.take
    faults: list[str] = []

    def failing(batch: str, most: int) -> Any:
        if len(faults) < 3:
            faults.append(batch)
            raise sqlite3.OperationalError("database or disk is full")
        return take(batch, most)

    monkeypatch.setattr(server.service.journal, "take", failing)

    async def conversation(client: httpx.AsyncClient) -> None:
        assert (await outcomes(client, submission("speed 2 after a full disk")))[0]["state"] == "done"
        assert len(faults) == 3

    server.talk(conversation)


def _wrong_bodies() -> dict[str, Any]:
    good = submission("speed 2")
    candidate = good["candidates"][0]
    return {
        "no candidates": good | {"candidates": []},
        "too many": good | {"candidates": [candidate] * 513},
        "unknown field": good | {"device": "cuda"},
        "folder in a file name": good | {"candidates": [candidate | {"files": [["../kernel.cpp", "x"]]}]},
        "two files of one name": good | {"candidates": [candidate | {"files": [["a.cpp", "x"], ["a.cpp", "y"]]}]},
        "empty source": good | {"candidates": [candidate | {"files": [["a.cpp", "  "]]}]},
        "NUL": good | {"candidates": [candidate | {"files": [["a.cpp", "x\0y"]]}]},
        "large source": good | {"candidates": [candidate | {"files": [["a.cpp", "x" * (1 << 20) + "y"]]}]},
        "unknown backend": good | {"candidates": [candidate | {"backend": "fortran"}]},
        "another device": good | {"candidates": [candidate | {"backend": "cuda"}]},
        "option of a compiler": good | {"candidates": [candidate | {"defines": [["A", "1 -o /x"]]}]},
        "guards left out": good | {"options": {"without": ["floor"]}},
        "long timing": good | {"options": {"timing_budget_s": 1e9}},
        "not a number": good | {"options": {"seeds": "many"}},
        "a list": [good],
    }


@pytest.mark.parametrize("what", _wrong_bodies())
def test_malformed_submissions_are_refused_in_one_sentence(server: Server, what: str) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        refused = await client.post("/v1/submissions", json=_wrong_bodies()[what])
        assert refused.status_code == 422
        assert len(refused.json()["detail"]) <= 300

    server.talk(conversation)


def _swollen_bodies(many: int) -> dict[str, Any]:
    """Bodies with many entries each of which is wrong, in every place that takes a table or a list."""
    good = submission("speed 2")
    candidate = good["candidates"][0]
    table: dict[str, Any] = dict.fromkeys(map(str, range(many)), 0)
    entries: list[Any] = [[]] * many
    return {
        "fields": good | table,
        "fields of the task": good | {"task": good["task"] | table},
        "modules": good | {"task": {"text": UPLOAD, "modules": table}},
        "fields of a candidate": good | {"candidates": [candidate | table]},
        "fields of the options": good | {"options": table},
        "candidates": good | {"candidates": entries},
        "files": good | {"candidates": [candidate | {"files": entries}]},
        "a file": good | {"candidates": [candidate | {"files": [entries]}]},
        "tunables": good | {"candidates": [candidate | {"defines": entries}]},
        "baselines": good | {"options": {"baselines": entries}},
        "libraries": good | {"options": {"allow": entries}},
    }


@pytest.mark.parametrize("what", _swollen_bodies(0))
def test_a_body_of_many_mistakes_is_refused_at_the_first(what: str) -> None:
    """Else 8 MiB of them keep the server busy for 18 s and take 4 GB."""
    with pytest.raises(ValidationError) as refused:
        SubmissionRequest.model_validate(_swollen_bodies(20_000)[what])
    assert refused.value.error_count() < 10


def test_a_position_beyond_all_results_is_no_fault(server: Server) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        id = (await client.post("/v1/submissions", json=submission("speed 2 beyond"))).json()["id"]
        assert (await client.get(f"/v1/submissions/{id}?wait=10")).json()["finished"]
        for position in (2**63 - 1, 2**63, 10**19):
            page = await client.get(f"/v1/submissions/{id}/results?after={position}")
            assert page.status_code == (200 if position < 2**63 else 422)
            stream = await client.get(f"/v1/submissions/{id}/events", headers={"Last-Event-ID": str(position)})
            assert stream.text.startswith("event: end")

    server.talk(conversation)


def test_half_of_a_surrogate_pair_is_refused(server: Server) -> None:
    async def conversation(client: httpx.AsyncClient) -> None:
        body = json.dumps(submission("speed 2 X")).replace("X", "\\ud800")
        refused = await client.post("/v1/submissions", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 422

    server.talk(conversation)


# --- the journal ---


def new(id: str, *keys: str, client: str = "ada", batch: str = "b") -> NewSubmission:
    jobs = tuple((key, "{}") for key in keys)
    return NewSubmission(id, client, "evaluate", "t", "t.py", "", "{}", "", batch, jobs, fresh=False)


def test_what_was_accepted_is_judged_after_a_crash_or_answered_as_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.accept(new("one", "a", "b"), TokenHolder("ada"))
    for crash in range(3):
        (job,) = journal.take("", 1)
        assert job.place == 0
        journal.close()
        journal = Journal(tmp_path)
        assert journal.counts("one")[JobState.QUEUED] == (2 if crash < 2 else 1)
    assert journal.counts("one") == {JobState.LOST: 1, JobState.QUEUED: 1}
    ((_, place, state, _, error, _),) = journal.results("one", 0, 10)
    assert (place, state) == (0, JobState.LOST)
    assert "submit it again" in error
    journal.accept(new("one", "a", "b"), TokenHolder("ada"))
    assert journal.counts("one") == {JobState.QUEUED: 2}
    journal.close()


def test_clients_take_turns(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.accept(new("many", *map(str, range(50)), batch="x"), TokenHolder("ada"))
    journal.accept(new("few", "k", client="bob", batch="y"), TokenHolder("bob"))
    taken = [journal.take("", 5)[0].client for _ in range(3)]
    assert taken == ["ada", "bob", "ada"]
    journal.close()


def test_a_quota_of_an_hour_counts_what_was_accepted(tmp_path: Path) -> None:
    now = [1000.0]
    journal = Journal(tmp_path, clock=lambda: now[0])
    holder = TokenHolder("ada", hourly=3)
    journal.accept(new("one", "a", "b"), holder)
    now[0] += 100
    with pytest.raises(Exception, match="the quota is 3") as full:
        journal.accept(new("two", "c", "d"), holder)
    assert full.value.retry_after_s == 3500  # type: ignore[attr-defined]
    now[0] += 3501
    journal.accept(new("two", "c", "d"), holder)
    journal.close()


def test_a_job_that_is_queued_again_counts_again(tmp_path: Path) -> None:
    """Else a quota does not limit how often candidates that fail or are cancelled are judged."""
    now = [1000.0]
    journal = Journal(tmp_path, clock=lambda: now[0])
    holder = TokenHolder("ada", hourly=3)
    for _ in range(3):
        journal.accept(new("one", "a"), holder)
        journal.cancel("one")
    with pytest.raises(QueueFull, match="3 of your candidates were accepted in the last hour"):
        journal.accept(new("one", "a"), holder)
    now[0] += 3601
    journal.accept(new("one", "a"), holder)
    journal.accept(new("two", "b", "c"), holder)
    with pytest.raises(QueueFull):
        journal.accept(new("three", "d"), holder)
    journal.close()


def test_a_client_cannot_fill_the_disk_with_known_results(tmp_path: Path) -> None:
    """Known results cost nothing and are written down again for each submission."""
    journal = Journal(tmp_path, most_kept=20)
    journal.accept(new("first", "a"), TokenHolder("ada"))
    journal.accept(new("other", "a", client="bob"), TokenHolder("bob"))
    while jobs := journal.take("", 1):
        journal.finish(jobs[0], Outcome(JobState.DONE, "{}", reusable=True))
    journal.accept(new("waits", "b"), TokenHolder("ada"))
    for number in range(40):
        journal.accept(new(f"again {number}", *"aaaa"), TokenHolder("ada"))
        journal.close()
        journal = Journal(tmp_path, most_kept=20)
    kept = journal.submissions("ada", 100)
    assert len(kept) <= 6
    assert {"again 39", "waits"} < set(kept)
    assert journal.counts("again 39") == {JobState.DONE: 4}
    assert journal.submissions("bob", 100) == ["other"]
    journal.close()


def test_the_journal_is_readable_by_its_owner_only_and_no_link(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    journal = Journal(folder)
    journal.accept(new("one", "a"), TokenHolder("ada"))
    files = list(folder.glob("journal.db*"))
    assert len(files) == 3
    assert [file.stat().st_mode & 0o077 for file in files] == [0, 0, 0]
    journal.close()
    for file in files:
        file.unlink(missing_ok=True)
    (folder / "journal.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="cannot be written"):
        Journal(folder)
    assert not (tmp_path / "elsewhere").exists()


def test_sources_are_not_kept_behind_their_verdicts_and_old_submissions_go(tmp_path: Path) -> None:
    now = [1000.0]
    journal = Journal(tmp_path, clock=lambda: now[0])
    journal.accept(new("one", "a"), TokenHolder("ada"))
    journal.cancel("one")
    assert sqlite3.connect(tmp_path / "journal.db").execute("SELECT candidate FROM jobs").fetchall() == [("",)]
    journal.accept(new("two", "b"), TokenHolder("ada"))
    now[0] += 100
    assert journal.prune(50) == {"t.py"}
    assert journal.submissions("ada", 10) == ["two"]  # it waits
    journal.close()
