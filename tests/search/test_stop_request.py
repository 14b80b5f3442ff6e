"""Another process asks a run to stop."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from warpsmith.model.errors import RunError
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
