"""A paused process does not run: with a real process that counts as fast as it can."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from tests.processes import KilledProcess

from warpsmith.evaluator.judge.host_client import ProcessPause
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.judge.timing.process_usage import ProcessUsage

_COUNTS = """
import mmap, struct, sys, threading
page = mmap.mmap(int(sys.argv[1]), mmap.PAGESIZE)
def count(at):
    number = 0
    while True:
        number += 1
        struct.pack_into("q", page, at, number)
threading.Thread(target=count, args=(8,), daemon=True).start()
count(0)
"""


@pytest.fixture
def counting() -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], tuple[int, int]]]]:
    """A process with two threads that count, and what they have counted to."""
    fd = os.memfd_create("counters")
    os.ftruncate(fd, mmap.PAGESIZE)
    process: subprocess.Popen[bytes] = KilledProcess([sys.executable, "-c", _COUNTS, str(fd)], pass_fds=[fd])
    with process, mmap.mmap(fd, mmap.PAGESIZE) as page:
        yield process, lambda: struct.unpack_from("qq", page)
    os.close(fd)


_READS = """
import os, sys, threading
memory = os.memfd_create("memory")
os.ftruncate(memory, 1 << 20)
whole = bytearray(1 << 20)
parts = [whole] * int(sys.argv[1])
os.truncate(memory, len(parts) << 20)
def read():
    os.write(1, b"x")
    while True:
        os.preadv(memory, parts, 0)
threading.Thread(target=read, daemon=True).start()
threading.Event().wait()
"""


@pytest.fixture
def reading() -> Iterator[int]:
    """A process with a thread that the kernel copies 512 MiB for, again and again."""
    with KilledProcess([sys.executable, "-c", _READS, "512"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        yield process.pid


def test_a_pause_waits_for_a_thread_that_the_kernel_works_for(reading: int) -> None:
    """A large read is not interrupted by a stop: what is still done then is reported, and over when `pause` returns."""
    pause, usage, late_ns, deadline = ProcessPause(reading), ProcessUsage(reading), 0, time.monotonic() + 60.0
    while late_ns < 5_000_000 and time.monotonic() < deadline:  # where in its read the thread is stopped is chance
        time.sleep(0.02)
        late_ns = pause.pause(30.0)
        assert not usage.moving()
        pause.resume()
    assert late_ns >= 5_000_000
    with pytest.raises(CandidateFailed, match="background work: its threads went on"):
        _pause_often(pause)


def _pause_often(pause: ProcessPause) -> None:
    for _ in range(50):
        pause.pause(0.0)
        pause.resume()


def _moves(read: Callable[[], tuple[int, int]], within_s: float) -> bool:
    """Whether both threads make progress."""
    before, deadline = read(), time.monotonic() + within_s
    while time.monotonic() < deadline:
        if all(now > then for now, then in zip(read(), before, strict=True)):
            return True
        time.sleep(0.005)
    return False


def test_a_paused_process_stops_and_goes_on_when_resumed(
    counting: tuple[subprocess.Popen[bytes], Callable[[], tuple[int, int]]],
) -> None:
    process, read = counting
    assert _moves(read, 30.0)
    pause = ProcessPause(process.pid)

    pause.pause()
    standing = read()
    time.sleep(0.2)
    assert read() == standing

    pause.resume()
    assert _moves(read, 30.0)
    pause.close()


def test_closing_the_pause_resumes_the_process(
    counting: tuple[subprocess.Popen[bytes], Callable[[], tuple[int, int]]],
) -> None:
    process, read = counting
    assert _moves(read, 30.0)
    pause = ProcessPause(process.pid)
    pause.pause()
    pause.close()
    pause.close()

    assert _moves(read, 30.0)


def test_a_process_that_is_gone_is_no_error(
    counting: tuple[subprocess.Popen[bytes], Callable[[], tuple[int, int]]],
) -> None:
    process, _ = counting
    pause = ProcessPause(process.pid)
    process.kill()
    process.wait()

    pause.pause()
    pause.resume()
    pause.close()
