"""The log: what is appended comes back, whoever writes or reads, whatever the text is."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.searching import begun, invalid, source
from warpsmith.archive import schema
from warpsmith.archive.events import Asked, Closed, Event, Judged, Noted, Opened, Proposed, Recalled, Replied
from warpsmith.archive.log import FILE, Archive
from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.errors import RunError
from warpsmith.core.method import Move
from warpsmith.core.search import Draft, Outcome, Precedent, Reply, Usage
from warpsmith.methods.loading import load

CANDIDATE = Candidate((SourceFile("k.cpp", source(2)),), "cpu", parents=("abc",), thought="why", strategy="simd")


def happenings() -> list[Event]:
    return [
        (start := begun(load("evoengineer-full"))),
        Opened("canned", start.config.budget),
        Asked(1, 0, "init", Move.INIT, 2**63 + 5, parents=(1, 2)),
        Replied(1, Reply("text", "m", Usage(1, 2, 3, None, 0.5, 2), "length")),
        Proposed(1, 1, Outcome.PENDING, CANDIDATE, "name", fingerprint="f"),
        Judged(1, invalid(CANDIDATE)),
        Noted("ü ☃ \x00"),
        Recalled((Precedent("softmax", "simd", "some CPU", 1.5, before="before", after="after"),)),
        Asked(2, 1, "cross", Move.CROSS, 7, parents=(1,), wanted=3, again=1),
        Proposed(2, 0, Outcome.WRITTEN, drafts=(Draft("simd", "why"), Draft("unroll(factor=2)"))),
        Closed("trials"),
    ]


def test_every_event_comes_back_as_it_was(tmp_path: Path) -> None:
    events = happenings()
    with Archive.create(tmp_path / "run") as archive:
        archive.append(*events[:3])
        for event in events[3:]:
            archive.append(event)
        assert [entry.event for entry in archive.entries()] == events
        assert [entry.event for entry in archive.entries(after=6)] == events[6:]
    with Archive.read(tmp_path / "run") as archive:
        read = [entry.event for entry in archive.entries()]
    assert read == events
    brought = read[4]
    assert isinstance(brought, Proposed)
    assert brought.candidate is not None
    # What does not make a candidate another one is kept too.
    assert (brought.candidate.parents, brought.candidate.thought) == (("abc",), "why")


def test_events_are_found_by_trial_and_brief(tmp_path: Path) -> None:
    with Archive.create(tmp_path / "run") as archive:
        archive.append(*happenings())
        found = archive.of_trial(1, Judged)
        assert found is not None
        assert not found.evaluation.ok
        assert archive.of_trial(2, Judged) is None
        assert archive.of_brief(1, Replied) is not None
        assert archive.begun().method.name == "evoengineer-full"


def test_text_that_is_no_unicode_does_not_lose_a_reply(tmp_path: Path) -> None:
    with Archive.create(tmp_path / "run") as archive:
        archive.append(Replied(1, Reply("before \ud800 after", "m")))
        found = archive.of_brief(1, Replied)
    assert found is not None
    assert found.reply.text == "before ? after"


def test_a_closed_run_is_one_file_that_can_be_copied(tmp_path: Path) -> None:
    with Archive.create(tmp_path / "run") as archive:
        archive.append(*happenings())
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / FILE).write_bytes((tmp_path / "run" / FILE).read_bytes())
    with Archive.read(copy) as archive:
        assert len(list(archive.entries())) == len(happenings())


def test_the_log_cannot_be_rewritten(tmp_path: Path) -> None:
    with Archive.create(tmp_path / "run") as archive:
        archive.append(*happenings())
    connection = sqlite3.connect(tmp_path / "run" / FILE)
    for statement in ("DELETE FROM events", "UPDATE events SET body = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


def test_one_process_writes_and_others_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Archive.create(folder) as archive:
        archive.append(*happenings())
        with pytest.raises(RunError, match="another process is working on"):
            Archive.open(folder)
        with Archive.read(folder) as reader:
            archive.append(Noted("later"))
            assert any(entry.event == Noted("later") for entry in reader.entries())
    with Archive.open(folder) as archive:
        assert archive.append(Noted("more"))[0].seq == len(happenings()) + 2


WRITER = """
import sys
from pathlib import Path
from warpsmith.archive.events import Replied
from warpsmith.archive.log import Archive
from warpsmith.core.search import Reply
with Archive.create(Path(sys.argv[1])) as archive:
    for number in range(1, 10**6):
        archive.append(Replied(number, Reply("x" * 2000, "m")))
        print(number, flush=True)
"""


def test_what_was_appended_survives_a_kill(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(20)]
    time.sleep(0.05)
    os.kill(writer.pid, signal.SIGKILL)
    said += writer.stdout.readlines()
    writer.wait()
    writer.stdout.close()
    with Archive.open(tmp_path / "run") as archive:
        kept = [entry.event.brief for entry in archive.entries() if isinstance(entry.event, Replied)]
    acknowledged = [int(line) for line in said if line.endswith("\n")]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) <= len(acknowledged) + 1


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda folder: None, "there is no folder"),
        (lambda folder: folder.mkdir(), "there is no run.db in"),
        (
            lambda folder: (folder.mkdir(), (folder / FILE).write_text("not a database " * 99)),
            "cannot be read as a run",
        ),
        (lambda folder: (folder.mkdir(), (folder / FILE).write_bytes(b"")), "ended before it began"),
    ],
)
def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path, prepare: object, said: str) -> None:
    folder = tmp_path / "run"
    assert callable(prepare)
    prepare(folder)
    with pytest.raises(RunError, match=said):
        Archive.read(folder).begun()


def test_a_second_run_does_not_overwrite_the_first(tmp_path: Path) -> None:
    Archive.create(tmp_path / "run").close()
    with pytest.raises(RunError, match="--resume"):
        Archive.create(tmp_path / "run")


def test_a_newer_layout_is_refused_and_an_older_one_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with Archive.create(folder) as archive:
        archive.append(*happenings())
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, "CREATE TABLE extra (x INTEGER) STRICT;"))
    with Archive.open(folder) as archive:
        assert len(list(archive.entries())) == len(happenings())
    monkeypatch.undo()
    with pytest.raises(RunError, match="newer Warpsmith"):
        Archive.open(folder)


def test_an_unknown_event_is_a_newer_releases(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Archive.create(folder).close()
    connection = sqlite3.connect(folder / FILE)
    with connection:
        connection.execute("INSERT INTO events (at, kind, body) VALUES (1.0, 'dreamt', '{}')")
    connection.close()
    with Archive.read(folder) as archive, pytest.raises(RunError, match=r"'dreamt'.*update Warpsmith"):
        list(archive.entries())


def test_a_run_of_an_older_release_is_read(tmp_path: Path) -> None:
    """Before there were roles, an operator had no product and nothing followed on it."""
    added = {
        "wording": {"role", "product", "yields", "then"},  # of an operator
        "stages": {"revise", "tries"},  # of a method
        "retrieved": {"idea", "subject", "wanted", "again"},  # of a question
        "fingerprint": {"drafts"},  # of a proposal
    }

    def older(value: object) -> object:
        if isinstance(value, dict):
            gone = {key for mark, keys in added.items() if mark in value for key in keys}
            assert gone <= set(value)
            return {key: older(each) for key, each in value.items() if key not in gone}
        return [older(each) for each in value] if isinstance(value, list) else value

    with Archive.create(tmp_path / "run") as archive:
        archive.append(*happenings()[:7])
    with sqlite3.connect(tmp_path / "run" / FILE) as connection:
        rows = connection.execute("SELECT seq, body FROM events").fetchall()
        connection.executescript("DROP TRIGGER events_stay;")
        changed = [(json.dumps(older(json.loads(body))), seq) for seq, body in rows]
        connection.executemany("UPDATE events SET body = ? WHERE seq = ?", changed)
    connection.close()
    with Archive.read(tmp_path / "run") as archive:
        assert [entry.event for entry in archive.entries()] == happenings()[:7]
