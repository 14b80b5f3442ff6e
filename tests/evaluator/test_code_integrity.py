"""Changes of code in another process, seen from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.processes import KilledProcess

from warpsmith.evaluator.judge.code_integrity import CodePages

PROGRAM = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
entry = ctypes.cast(libc.getpid, ctypes.c_void_p).value
page = entry & -mmap.PAGESIZE

def rights(which):
    assert libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, which) == 0

def rewrite():
    rights(7)
    ctypes.memmove(entry, ctypes.string_at(entry, 1), 1)
    rights(5)

def unprotect():
    rights(7)

def cover():
    code = ctypes.string_at(page, mmap.PAGESIZE)
    where = libc.mmap(ctypes.c_void_p(page), mmap.PAGESIZE, 7, 0x32, -1, 0)  # private, fixed, anonymous
    assert where == page, ctypes.get_errno()
    ctypes.memmove(page, code, len(code))
    rights(5)

def nothing():
    import decimal, xml.parsers.expat
    kept = [bytes(1000) for _ in range(10000)]

print("ready", flush=True)
globals()[sys.stdin.readline().strip()]()
print("done", flush=True)
sys.stdin.readline()
"""


@contextmanager
def started() -> Iterator[tuple[CodePages, Callable[[str], None]]]:
    """A process that waits to be told what to do, watched from before it does that."""
    with KilledProcess([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdin
        assert p.stdout
        assert p.stdout.readline() == "ready\n"

        def do(what: str) -> None:
            assert p.stdin
            assert p.stdout
            p.stdin.write(f"{what}\n")
            p.stdin.flush()
            assert p.stdout.readline() == "done\n"

        yield CodePages(p.pid), do


@pytest.fixture(autouse=True)
def _can_be_seen() -> None:
    if not Path("/proc/self/pagemap").exists():
        pytest.skip("this kernel has no /proc/PID/pagemap")


@pytest.mark.parametrize("what", ["rewrite", "unprotect", "cover"])
def test_changed_code_is_named(what: str) -> None:
    with started() as (code, do):
        assert code.changed_file() == ""
        do(what)
        assert "libc" in code.changed_file()


def test_new_libraries_and_written_data_are_no_change() -> None:
    with started() as (code, do):
        do("nothing")
        assert code.changed_file() == ""


def test_of_a_process_that_has_ended_nothing_is_said() -> None:
    child = subprocess.Popen(["sleep", "60"])
    code = CodePages(child.pid)
    child.kill()
    child.wait()
    assert code.changed_file() == ""


def test_without_the_right_to_look_nothing_is_said() -> None:
    if os.geteuid() == 0:
        pytest.skip("root may look at everything")
    assert CodePages(1).changed_file() == ""
