"""A test run never hangs and leaves nothing running: what dies or does not end fails it soon, by name."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
import tests.watched
from tests.watched import pytest_runtest_logreport, pytest_runtest_protocol, pytest_testnodedown
tests.watched.GRACE_S = 1.0
"""
PARALLEL = ("-n", "2", "--dist", "loadfile", "--max-worker-restart", "0")
LEAVES_A_PROCESS = """
import subprocess
from pathlib import Path
def test_leaves_a_process():
    left = subprocess.Popen(["sleep", "300"], start_new_session=True)
    Path(__file__).with_name("left").write_text(str(left.pid))
"""
OTHERS = "import time\ndef test_long():\n    time.sleep(300)\n"


def begin(folder: Path, limit_s: float, *options: str) -> subprocess.Popen[str]:
    """A watched run over the test files of a folder."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "tests.watched", "--limit-s", str(limit_s), "-q", "-p", "no:cacheprovider"]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *options, str(folder)], cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def watched(folder: Path, limit_s: float, *options: str) -> tuple[int, str]:
    """The exit status of a watched run, and what it said; it must end within a minute."""
    with begin(folder, limit_s, *options) as process:
        try:
            said, errors = process.communicate(timeout=60)
        finally:
            process.terminate()
    return process.returncode, said + errors


def left_behind(folder: Path) -> bool:
    """Whether the process that a test of the folder has left still runs."""
    try:
        left = psutil.Process(int((folder / "left").read_text()))
        return bool(left.status() != psutil.STATUS_ZOMBIE)  # where nobody waits for orphans
    except psutil.NoSuchProcess:
        return False


def test_a_test_process_that_dies_ends_the_run_and_names_its_test(tmp_path: Path) -> None:
    fault = "import ctypes, time\ndef test_fault():\n    time.sleep(2)\n    ctypes.string_at(0)\n"
    (tmp_path / "test_fault.py").write_text(fault)
    (tmp_path / "test_others.py").write_text(OTHERS)

    status, said = watched(tmp_path, 300, *PARALLEL)

    assert status == pytest.ExitCode.TESTS_FAILED
    assert "crashed while running 'test_fault.py::test_fault'" in said


@pytest.mark.parametrize("options", [(), PARALLEL], ids=["one process", "two processes"])
def test_a_test_that_hangs_in_c_code_is_killed_after_its_limit(tmp_path: Path, options: tuple[str, ...]) -> None:
    blocked = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGABRT})"
    hangs = f"import ctypes, signal\ndef test_hangs():\n    {blocked}\n    ctypes.PyDLL(None).sleep(300)\n"
    (tmp_path / "test_hang.py").write_text(hangs)

    status, said = watched(tmp_path, 300, "-o", "timeout=1", *options)

    assert status not in (0, 124)
    assert "test_hang.py::test_hangs did not end at its limit; its process is killed" in said


def test_a_run_that_does_not_end_is_killed_and_names_what_was_running(tmp_path: Path) -> None:
    (tmp_path / "test_first.py").write_text(LEAVES_A_PROCESS)
    (tmp_path / "test_others.py").write_text(OTHERS)

    status, said = watched(tmp_path, 8)

    assert status == 124
    assert "Running were:\n  test_others.py::test_long" in said
    assert not left_behind(tmp_path)


def test_a_process_that_a_test_leaves_running_is_killed_and_named(tmp_path: Path) -> None:
    (tmp_path / "test_first.py").write_text(LEAVES_A_PROCESS)

    status, said = watched(tmp_path, 60, "-W", "ignore")

    assert status == 0
    assert "left running by a test, killed: " in said
    assert "sleep 300" in said
    assert not left_behind(tmp_path)


def test_a_run_that_is_terminated_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "test_first.py").write_text(LEAVES_A_PROCESS)
    (tmp_path / "test_others.py").write_text(OTHERS)
    with begin(tmp_path, 300) as process:
        deadline = time.monotonic() + 30.0
        while not (tmp_path / "left").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.terminate()
        process.communicate(timeout=30)

    assert process.returncode == 128 + signal.SIGTERM
    assert not left_behind(tmp_path)
