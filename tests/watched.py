"""Runs pytest under time limits: `python -m tests.watched [--limit-s N] [PYTEST OPTIONS]`.

A test run never hangs and leaves no process behind:
- When a test process dies, the run ends at once and names the test.
- A test that is still running `GRACE_S` after its own limit hangs where pytest-timeout cannot interrupt it, in C code
  that does not return: its process is killed, with the stacks of its threads where it can still write them.
- At the limit of the whole run every process is killed, and the tests that were running are named.
- When the run has ended, processes that tests started and left running are killed and named.

The hooks for pytest, which `conftest.py` imports, write the name and the deadline of the test that each process is
running into the folder that the variable `RUNNING_TESTS` names. The variable also marks the processes of the run.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psutil
import pytest

FOLDER_VARIABLE = "RUNNING_TESTS"
LIMIT_S = 2400.0  # four times what the tests take on two cores: a run that hangs ends, a slow machine passes
GRACE_S = 30.0  # for a test that pytest-timeout has interrupted to clean up
KILLED = 124  # the exit status at the limit, as of the command `timeout`


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record the test that this process runs, and until when it may run. Does nothing outside a watched run."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return (yield)
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker else item.config.getini("timeout") or math.inf)
    note = Path(folder, str(os.getpid()))
    note.write_text(f"{time.monotonic() + limit_s + GRACE_S} {item.nodeid}", encoding="utf-8")
    try:
        return (yield)
    finally:
        note.unlink(missing_ok=True)  # the test may have removed the folder's files


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Start no further test when a test process dies, whether it was running a test or not."""
    if error:
        node.config.pluginmanager.getplugin("dsession").shouldstop = "a test process died"


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """End the run when a test process died in a test: the tests of the other processes may take minutes."""
    if str(report.when) == "???":  # as pytest-xdist reports a test whose process died
        pytest.exit("a test process died", returncode=pytest.ExitCode.TESTS_FAILED)


def _running(folder: Path) -> Iterator[tuple[int, float, str]]:
    """The tests that are running: process, deadline, name."""
    for path in sorted(folder.iterdir()):
        with suppress(FileNotFoundError, ValueError):  # ended meanwhile, or being written
            deadline, test = path.read_text(encoding="utf-8").split(" ", 1)
            yield int(path.name), float(deadline), test


def _end_overdue(folder: Path, named: set[str]) -> None:
    """Kill the processes whose test hangs and name each once; on the first signal Python writes all threads' stacks."""
    for pid, deadline, test in _running(folder):
        late_s = time.monotonic() - deadline
        if late_s > 0:
            if test not in named:
                sys.stderr.write(f"\nerror: {test} did not end at its limit; its process is killed.\n")
                named.add(test)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late_s > 5 else signal.SIGABRT)


def _end_processes(folder: Path) -> list[str]:
    """Kill every process of the run that is left, in whatever session; their commands."""
    ended: list[str] = []
    for _ in range(10):  # one that is killed may have started another one just before
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # gone meanwhile, or somebody else's
                if process.pid != os.getpid() and process.environ().get(FOLDER_VARIABLE) == str(folder):
                    command = " ".join(process.cmdline())
                    process.kill()
                    found.append(process)
                    ended.append(f"{process.pid} {command[:160]}")
        if not found:
            break
        psutil.wait_procs(found, timeout=1.0)
    return ended


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def run(options: list[str], limit_s: float) -> int:
    """Run pytest with these options; its exit status, or `KILLED` at the limit."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # the run has a session of its own: it is ended by this process only
        signal.signal(number, _stop)
    with tempfile.TemporaryDirectory(prefix="running-tests-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", "pytest", *options]
        process = subprocess.Popen(command, env={**os.environ, FOLDER_VARIABLE: name}, start_new_session=True)
        deadline = time.monotonic() + limit_s
        ended_by_itself, named = False, set[str]()
        try:
            while time.monotonic() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(1.0)
                    ended_by_itself = status >= 0
                    if status < 0:
                        sys.stderr.write(f"\nerror: pytest was ended by signal {-status}.{_named(folder)}\n")
                    return status if status >= 0 else 128 - status
                _end_overdue(folder, named)
            sys.stderr.write(f"\nerror: the tests did not end within {limit_s:.0f} s.{_named(folder)}\n")
            return KILLED
        finally:
            left = _end_processes(folder)
            process.wait()
            if left and ended_by_itself:
                sys.stderr.write("".join(f"\nleft running by a test, killed: {each}" for each in left) + "\n")


def _named(folder: Path) -> str:
    return " Running were:" + ("".join(f"\n  {test}" for _, _, test in _running(folder)) or " no test")


def main() -> int:
    """The command line."""
    options, limit_s = sys.argv[1:], LIMIT_S
    if options[:1] == ["--limit-s"]:
        limit_s, options = float(options[1]), options[2:]
    return run(options, limit_s)


if __name__ == "__main__":
    sys.exit(main())
