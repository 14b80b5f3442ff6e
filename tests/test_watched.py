"""A test run never hangs: a process that dies and a test that does not end fail it soon, by name."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = "from tests.watched import pytest_runtest_logfinish, pytest_runtest_logstart, pytest_testnodedown\n"
OTHERS = "import time\ndef test_long():\n    time.sleep(60)\n"


def watched(folder: Path, limit_s: float, *options: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """A watched run over the test files of a folder, and how long it took."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "tests.watched", "--limit-s", str(limit_s), "-q", "-p", "no:cacheprovider"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, *options, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return done, time.monotonic() - began


def test_a_test_process_that_dies_fails_the_run_and_names_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_fault.py").write_text("import ctypes\ndef test_fault():\n    ctypes.string_at(0)\n")
    (tmp_path / "test_others.py").write_text(OTHERS.replace("60", "3"))

    done, seconds = watched(tmp_path, 60, "-n", "2", "--dist", "loadfile", "--max-worker-restart", "0")

    assert done.returncode not in (0, 124)
    assert "crashed while running 'test_fault.py::test_fault'" in done.stdout
    assert seconds < 60


def test_a_run_that_does_not_end_is_killed_and_names_what_was_running(tmp_path: Path) -> None:
    (tmp_path / "test_others.py").write_text(OTHERS)

    done, seconds = watched(tmp_path, 12)

    assert done.returncode == 124
    assert "test_others.py::test_long" in done.stderr
    assert seconds < 60
