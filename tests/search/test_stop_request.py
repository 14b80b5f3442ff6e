"""Another process asks a run to stop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.searching import CannedJudge, CannedProposer, invalid, new_session, reply_text
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import RunError
from warpsmith.proposers.choose import ChosenProposer
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search import open_run
from warpsmith.search.active_run import ActiveRun
from warpsmith.search.loop import SearchObserver
from warpsmith.search.stop_request import NAME, listening, request_stop
from warpsmith.system.locks import is_locked, lock_folder


def test_a_request_acts_once_and_ends_with_the_search(tmp_path: Path) -> None:
    stopped, calls = threading.Event(), []

    def stop() -> None:
        calls.append(1)
        stopped.set()

    with listening(tmp_path, stop):
        assert not stopped.is_set()
        request_stop(tmp_path)
        assert stopped.wait(30)
    assert calls == [1]
    assert not (tmp_path / NAME).exists()


def test_a_request_of_an_earlier_search_is_void(tmp_path: Path) -> None:
    request_stop(tmp_path)
    with listening(tmp_path, lambda: pytest.fail("stopped")):
        assert not (tmp_path / NAME).exists()


def test_a_request_is_no_way_to_write_elsewhere(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="Ctrl-C"):
        request_stop(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_looking_whether_a_folder_is_in_use_disturbs_nobody(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    handle = lock_folder(tmp_path)
    assert is_locked(tmp_path)
    os.close(handle)
    assert not is_locked(tmp_path)
    os.close(lock_folder(tmp_path))


def test_a_search_stops_when_another_process_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Judge(CannedJudge):
        def prepare(self, candidates: Sequence[Candidate]) -> None:
            """Nothing is built."""

    def reply(brief: Brief) -> str:
        if brief.number == 3:
            request_stop(tmp_path / "run")
        time.sleep(0.01)  # the search goes on for long, unless it is stopped
        return reply_text(brief.number)

    monkeypatch.setattr(open_run, "task_evaluator", lambda *_: Judge(lambda each: invalid(each)))
    chosen = ChosenProposer("canned", "", lambda: CannedProposer(reply))
    with new_session(tmp_path / "run", load("evoengineer-free"), budget=Budget(trials=100_000)) as session:
        evaluator = cast(Evaluator, SimpleNamespace(width=1))
        ending = ActiveRun(session, evaluator, chosen, profile=False, tune=False).search(SearchObserver())
    assert ending.reason is StopReason.INTERRUPTED
    assert not (tmp_path / "run" / NAME).exists()
