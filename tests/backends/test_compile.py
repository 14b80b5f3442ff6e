"""One compiler command: its limits, its end with ours, and being cancelled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from tests.processes import KilledProcess

from warpsmith.backends.builder import CompilerRun, run_compiler
from warpsmith.model.errors import HarnessFault
from warpsmith.system.processes import OUTPUT_BYTES, stoppable

# Like a compiler: a driver with a stage of its own, which says where it works.
STAGED = ("sh", "-c", "sleep 300 & wait")
ALONE = """
import os, sys
from pathlib import Path
from warpsmith.backends.builder import run_compiler
here = Path(sys.argv[1])
print("begun", flush=True)
run_compiler(("sh", "-c", "sleep 300 & wait"), folder=here, scratch=here, environ=os.environ, limit_s=300)
"""


def run(command: tuple[str, ...], folder: Path, limit_s: float = 60.0) -> CompilerRun:
    return run_compiler(command, folder=folder, scratch=folder, environ=os.environ, limit_s=limit_s)


def working_in(folder: Path) -> list[psutil.Process]:
    """Processes whose folder for temporary files this is."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def nobody_works_in(folder: Path) -> bool:
    deadline = time.monotonic() + 10.0
    while working_in(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not working_in(folder)


@pytest.mark.parametrize("status", [0, 1, 77])
def test_the_exit_status_and_the_words_come_through(status: int, tmp_path: Path) -> None:
    ended = run(("sh", "-c", f"echo out; echo err >&2; exit {status}"), tmp_path)
    assert (ended.status, ended.timed_out, ended.killed) == (status, False, False)
    assert ended.log == "out\nerr\n"


def test_a_command_that_dies_by_a_signal_was_killed(tmp_path: Path) -> None:
    assert run(("sh", "-c", "kill -9 $$"), tmp_path).killed


def test_standard_input_is_empty(tmp_path: Path) -> None:
    assert run(("cat",), tmp_path, limit_s=20.0).status == 0


def test_past_its_time_the_whole_group_ends(tmp_path: Path) -> None:
    assert run(STAGED, tmp_path, limit_s=0.3).timed_out
    assert nobody_works_in(tmp_path)


def test_a_stage_left_behind_ends_with_the_command(tmp_path: Path) -> None:
    assert run(("sh", "-c", "sleep 300 & exit 0"), tmp_path).status == 0
    assert nobody_works_in(tmp_path)


def test_a_build_that_is_called_off_ends_soon(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    begun = time.monotonic()
    with stoppable(stop), pytest.raises(HarnessFault, match="cancelled"):
        run(STAGED, tmp_path)
    assert time.monotonic() - begun < 10.0
    assert nobody_works_in(tmp_path)


def test_no_stage_outlives_whoever_started_the_command(tmp_path: Path) -> None:
    with KilledProcess([sys.executable, "-c", ALONE, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "begun\n"
        deadline = time.monotonic() + 20.0
        while not any(p.name() == "sleep" for p in working_in(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert working_in(tmp_path)
    assert nobody_works_in(tmp_path)


def test_a_log_is_cut_in_length_and_in_width(tmp_path: Path) -> None:
    assert len(run(("sh", "-c", "yes | head -c 3000000"), tmp_path).log) <= OUTPUT_BYTES
    wide = run((sys.executable, "-c", "print('x' * 100_000); print('y')"), tmp_path).log
    assert max(map(len, wide.splitlines())) <= 4000
    assert wide.endswith("\ny\n")
