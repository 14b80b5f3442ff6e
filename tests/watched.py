"""Runs pytest under one time limit: `python -m tests.watched [--limit-s N] [PYTEST OPTIONS]`.

A test run never hangs: at the limit every process of the run is killed, and the tests that were running are named.
The hooks for pytest, which `conftest.py` imports, write the name of the test that each process is running into the
folder that the variable `RUNNING_TESTS` names.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

FOLDER_VARIABLE = "RUNNING_TESTS"
LIMIT_S = 2400.0  # four times what the tests take on two cores: a run that hangs ends, a slow machine passes
KILLED = 124  # the exit status at the limit, as of the command `timeout`


def _note_running(test: str) -> None:
    """Record the test that this process runs now; "" when it runs none. Does nothing outside a watched run."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        Path(folder, str(os.getpid())).write_text(test, encoding="utf-8")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say which test this process runs, so that a run that is killed can name it."""
    _note_running(nodeid)


def pytest_runtest_logfinish() -> None:
    """This process runs no test now."""
    _note_running("")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """End the run when a test process dies: its test is reported as failed, and no other process is waited for."""
    if error:
        node.config.pluginmanager.getplugin("dsession").shouldstop = "a test process died"


def run(options: list[str], limit_s: float) -> int:
    """Run pytest with these options; its exit status, or `KILLED` at the limit."""
    with tempfile.TemporaryDirectory(prefix="running-tests-") as folder:
        environ = {**os.environ, FOLDER_VARIABLE: folder}
        command = [sys.executable, "-m", "pytest", *options]
        process = subprocess.Popen(command, env=environ, start_new_session=True)
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            running = sorted(filter(None, (path.read_text(encoding="utf-8") for path in Path(folder).iterdir())))
            named = "".join(f"\n  {test}" for test in running) or " no test had begun"
            sys.stderr.write(f"\nerror: the tests did not end within {limit_s:.0f} s. Running were:{named}\n")
            return KILLED
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main() -> int:
    """The command line."""
    options, limit_s = sys.argv[1:], LIMIT_S
    if options[:1] == ["--limit-s"]:
        limit_s, options = float(options[1]), options[2:]
    return run(options, limit_s)


if __name__ == "__main__":
    sys.exit(main())
