"""The log: what is appended comes back, whoever writes or reads, whatever the text is."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.processes import KilledProcess
from tests.searching import invalid, run_setup, source
from warpsmith.methods.load import load
from warpsmith.model.brief import Precedent, Reply, StrategyDraft, TrialOutcome
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import RunError
from warpsmith.model.method import Move
from warpsmith.model.usage import TokenUsage
from warpsmith.run_log import log as log_module
from warpsmith.run_log.events import (
    AskAgain,
    BriefAsked,
    Event,
    NoteAdded,
    OperatorTurn,
    PrecedentsFound,
    ProposalRead,
    RepairTrial,
    ReplyReceived,
    RunClosed,
    RunOpened,
    StopReason,
    TrialJudged,
)
from warpsmith.run_log.log import LOG_FILE, SCHEMA_VERSION, RunLog

CANDIDATE = Candidate((SourceFile("k.cpp", source(2)),), "cpu", parents=("abc",), thought="why", strategy="simd")


def happenings() -> list[Event]:
    return [
        (start := run_setup(load("evoengineer-full"))),
        RunOpened("canned", start.config.budget),
        BriefAsked(1, 0, "init", Move.INIT, 2**63 + 5, RepairTrial(1), parents=(1, 2)),
        ReplyReceived(1, Reply("text", "m", TokenUsage(1, 2, 3, None, 0.5, 2), "length")),
        ProposalRead(1, 1, TrialOutcome.PENDING, CANDIDATE, "name", fingerprint="f"),
        TrialJudged(1, invalid(CANDIDATE)),
        NoteAdded("ü ☃ \x00"),
        PrecedentsFound((Precedent("softmax", "simd", "some CPU", 1.5, before="before", after="after"),)),
        BriefAsked(2, 1, "cross", Move.CROSS, 7, AskAgain(1, OperatorTurn(wanted=3)), parents=(1,)),
        ProposalRead(
            2, 0, TrialOutcome.WRITTEN, drafts=(StrategyDraft("simd", "why"), StrategyDraft("unroll(factor=2)"))
        ),
        RunClosed(StopReason.TRIALS),
    ]


def test_every_event_comes_back_as_it_was(tmp_path: Path) -> None:
    events = happenings()
    with RunLog.create(tmp_path / "run") as log:
        log.append(*events[:3])
        for event in events[3:]:
            log.append(event)
        assert [entry.event for entry in log.entries()] == events
        assert [entry.event for entry in log.entries(after=6)] == events[6:]
    with RunLog.read(tmp_path / "run") as log:
        read = [entry.event for entry in log.entries()]
    assert read == events
    brought = read[4]
    assert isinstance(brought, ProposalRead)
    assert brought.candidate is not None
    # What does not make a candidate another one is kept too.
    assert (brought.candidate.parents, brought.candidate.thought) == (("abc",), "why")


def test_events_are_found_by_trial_and_brief(tmp_path: Path) -> None:
    with RunLog.create(tmp_path / "run") as log:
        log.append(*happenings())
        found = log.of_trial(1, TrialJudged)
        assert found is not None
        assert not found.evaluation.ok
        assert log.of_trial(2, TrialJudged) is None
        assert log.of_brief(1, ReplyReceived) is not None
        assert log.setup().method.name == "evoengineer-full"


def test_text_that_is_no_unicode_does_not_lose_a_reply(tmp_path: Path) -> None:
    with RunLog.create(tmp_path / "run") as log:
        log.append(ReplyReceived(1, Reply("before \ud800 after", "m")))
        found = log.of_brief(1, ReplyReceived)
    assert found is not None
    assert found.reply.text == "before ? after"


def test_threads_that_begin_together_make_a_format_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def make(kind: object) -> object:
        time.sleep(0.02)  # in which all threads would begin to make it
        made.append(kind)
        return kind

    monkeypatch.setattr(log_module, "_ADAPTERS", {})
    monkeypatch.setattr(log_module, "TypeAdapter", make)
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(log_module._adapter, ["NoteAdded"] * 8))) == 1
    assert made == [NoteAdded]


def test_a_closed_run_is_one_file_that_can_be_copied(tmp_path: Path) -> None:
    with RunLog.create(tmp_path / "run") as log:
        log.append(*happenings())
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / LOG_FILE).write_bytes((tmp_path / "run" / LOG_FILE).read_bytes())
    with RunLog.read(copy) as log:
        assert len(list(log.entries())) == len(happenings())


def test_the_log_cannot_be_rewritten(tmp_path: Path) -> None:
    with RunLog.create(tmp_path / "run") as log:
        log.append(*happenings())
    connection = sqlite3.connect(tmp_path / "run" / LOG_FILE)
    for statement in ("DELETE FROM events", "UPDATE events SET body = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


def test_one_process_writes_and_others_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with RunLog.create(folder) as log:
        log.append(*happenings())
        with pytest.raises(RunError, match="another process is working on"):
            RunLog.open(folder)
        with RunLog.read(folder) as reader:
            log.append(NoteAdded("later"))
            assert any(entry.event == NoteAdded("later") for entry in reader.entries())
    with RunLog.open(folder) as log:
        assert log.append(NoteAdded("more"))[0].seq == len(happenings()) + 2


WRITER = """
import sys
from pathlib import Path
from warpsmith.run_log.events import ReplyReceived
from warpsmith.run_log.log import RunLog
from warpsmith.model.brief import Reply
with RunLog.create(Path(sys.argv[1])) as log:
    for number in range(1, 10**6):
        log.append(ReplyReceived(number, Reply("x" * 2000, "m")))
        print(number, flush=True)
"""


def test_what_was_appended_survives_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "run")]
    with KilledProcess(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(20)]
        time.sleep(0.05)
        writer.kill()
        said += writer.stdout.readlines()
    with RunLog.open(tmp_path / "run") as log:
        kept = [entry.event.brief for entry in log.entries() if isinstance(entry.event, ReplyReceived)]
    acknowledged = [int(line) for line in said if line.endswith("\n")]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) <= len(acknowledged) + 1


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda folder: None, "there is no folder"),
        (lambda folder: folder.mkdir(), "there is no run.db in"),
        (
            lambda folder: (folder.mkdir(), (folder / LOG_FILE).write_text("not a database " * 99)),
            "cannot be read as a run",
        ),
        (lambda folder: (folder.mkdir(), (folder / LOG_FILE).write_bytes(b"")), "ended before it began"),
    ],
)
def test_what_is_no_run_is_refused_in_a_sentence(tmp_path: Path, prepare: object, said: str) -> None:
    folder = tmp_path / "run"
    assert callable(prepare)
    prepare(folder)
    with pytest.raises(RunError, match=said):
        RunLog.read(folder).setup()


def test_a_second_run_does_not_overwrite_the_first(tmp_path: Path) -> None:
    RunLog.create(tmp_path / "run").close()
    with pytest.raises(RunError, match="--resume"):
        RunLog.create(tmp_path / "run")


@pytest.mark.parametrize(("version", "words"), [(1, "earlier version"), (SCHEMA_VERSION + 1, "newer Warpsmith")])
def test_a_log_of_another_version_is_refused(tmp_path: Path, version: int, words: str) -> None:
    folder = tmp_path / "run"
    with RunLog.create(folder) as log:
        log.append(*happenings())
    connection = sqlite3.connect(folder / LOG_FILE)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    for opened in (RunLog.open, RunLog.read):
        with pytest.raises(RunError, match=words):
            opened(folder)


def test_an_unknown_event_is_a_newer_releases(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    RunLog.create(folder).close()
    connection = sqlite3.connect(folder / LOG_FILE)
    with connection:
        connection.execute("INSERT INTO events (at, kind, body) VALUES (1.0, 'dreamt', '{}')")
    connection.close()
    with RunLog.read(folder) as log, pytest.raises(RunError, match=r"'dreamt'.*update Warpsmith"):
        list(log.entries())
