"""Looks at a stopped process find the library in which it works, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.processes import KilledProcess

from warpsmith.evaluator.judge.executed_code import ExecutedCode
from warpsmith.evaluator.judge.host_client import ProcessPause

_COMPRESSES = "import zlib\ndata = bytes(1 << 20)\nprint(flush=True)\nwhile True: zlib.compress(data)"
_IN_A_THREAD = """
import threading, zlib
data = bytes(1 << 20)
def work():
    while True: zlib.compress(data)
threading.Thread(target=work, daemon=True).start()
print(flush=True)
threading.Event().wait()
"""
_INTERPRETED = "print(flush=True)\nwhile True: sum(range(1000))"
_SLEEPS = "import time\nprint(flush=True)\ntime.sleep(600)"


@contextmanager
def looked_at(code: str) -> Iterator[ExecutedCode]:
    """A process after forty executed."""
    with KilledProcess([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        pause, executed = ProcessPause(process.pid), ExecutedCode(process.pid, "/nowhere/candidate")
        with executed.request(calls=10):
            for _ in range(40):
                time.sleep(0.003)
                pause.pause()
                executed.look()
                pause.resume()
        yield executed
        pause.close()


@pytest.mark.parametrize("code", [_COMPRESSES, _IN_A_THREAD], ids=["main thread", "another thread"])
def test_the_library_that_works_is_found_whatever_thread_calls_it(code: str) -> None:
    with looked_at(code) as executed:
        found = executed.library()
        assert executed.count == 40
        assert any("libz" in name for name in found.files), found
        assert found.share > 0.5
        assert found.looks > 5
        assert found.call_ns > 0


@pytest.mark.parametrize("code", [_INTERPRETED, _SLEEPS], ids=["interpreter", "sleeps"])
def test_the_interpreter_is_no_library(code: str) -> None:
    with looked_at(code) as executed:
        assert executed.library().files == ()
        assert executed.library().share == 0.0


def test_a_process_that_is_gone_shows_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
        executed = ExecutedCode(process.pid, "/nowhere/candidate")
        executed.look()
        assert executed.library().files == ()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/usr/lib/libstdc++.so.6.0.30", "own"),
        ("/usr/lib/libm.so.6", "own"),
        ("/venv/torch/lib/libtorch_python.so", "own"),
        ("/usr/bin/python3.11", "own"),
        ("/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", "own"),
        ("/venv/torch/lib/libgomp-a34b3233.so.1", "idle"),
        ("/usr/lib/libc.so.6", "idle"),
        ("/venv/torch/lib/libtorch_cpu.so", "libtorch_cpu.so"),
        ("/venv/numpy.libs/libscipy_openblas64_-8fb3d286.so", "libscipy_openblas64_-8fb3d286.so"),
        ("/scratch/candidate.so", "candidate.so"),
        ("/scratch/libm.so.6", "libm.so.6"),
        ("/scratch/lib-dynload/math.so", "math.so"),
        ("/scratch/candidate/extensions/libc10.so", "libc10.so"),
        ("", "code that no file holds"),
        ("/memfd:code (deleted)", "memfd:code (deleted)"),
    ],
)
def test_the_kind_of_code_follows_from_its_file(path: str, kind: str) -> None:
    found = ExecutedCode(os.getpid(), "/scratch/candidate")._kind_of(path)
    assert (found or "own") == kind


def test_only_the_extensions_that_were_built_are_its_own(tmp_path: Path) -> None:
    """A copy of a library in a folder that the candidate can write to is no extension, whatever its name."""
    code = ExecutedCode(os.getpid(), str(tmp_path / "candidate"))
    built, kept = tmp_path / "candidate" / "extensions" / "own.so", tmp_path / "candidate" / "extensions" / "own.json"
    outside = tmp_path / "own.so"
    built.parent.mkdir(parents=True)
    for path in (built, kept, outside):
        path.touch()
    assert code._kind_of(str(built)) == ""
    assert code._kind_of(str(kept)) == "own.json"
    assert code._kind_of(str(outside)) == "own.so"
    if os.geteuid() == 0:
        os.chown(built, 65534, 65534)  # put there by the candidate
        assert code._kind_of(str(built)) == "own.so"
