"""The idle check, with real processes that sleep, spin and start threads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from warpsmith.evaluator.judge.idle_check import IdleCheck
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.model.evaluation import Status

QUIET = "import sys\nprint(flush=True)\nsys.stdin.read(1)\nprint(flush=True)\nsys.stdin.read()"
SPINS_A_WHILE = """
import sys, time
print(flush=True); sys.stdin.read(1)
end = time.perf_counter() + 0.03  # as OpenMP's threads do after a region
print(flush=True)
while time.perf_counter() < end: pass
sys.stdin.read()
"""
WORKS_ON = """
import sys, threading, time
def work():
    end = time.perf_counter() + 20
    while time.perf_counter() < end: pass
print(flush=True); sys.stdin.read(1)
threading.Thread(target=work, daemon=True).start()
print(flush=True)
sys.stdin.read()
"""
SLEEPING_THREAD = WORKS_ON.replace("while time.perf_counter() < end: pass", "time.sleep(20)")


@contextmanager
def watched(code: str, backend: str, without: tuple[str, ...] = ()) -> Iterator[IdleCheck]:
    """A process with an idle check that began before the process did anything; yields when it has acted."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdout.readline()
        idle_check = IdleCheck(process.pid, backend, without)
        process.stdin.write("x")
        process.stdin.flush()
        process.stdout.readline()
        yield idle_check
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("code", [QUIET, SPINS_A_WHILE], ids=["quiet", "spins a while"])
def test_an_idle_process_is_left_alone(code: str) -> None:
    with watched(code, "cpu") as idle_check:
        idle_check.check()


def test_work_that_goes_on_is_seen() -> None:
    with watched(WORKS_ON, "cpu") as idle_check:
        with pytest.raises(CandidateFailed, match="background work") as failed:
            idle_check.check()
    assert failed.value.status is Status.REJECTED


def test_on_a_gpu_a_sleeping_thread_is_one_too_many() -> None:
    with watched(SLEEPING_THREAD, "cuda") as idle_check:
        with pytest.raises(CandidateFailed, match="1 host thread"):
            idle_check.check()
    with watched(SLEEPING_THREAD, "cpu") as idle_check:
        idle_check.check()


def test_it_can_be_left_out_and_does_not_mind_a_process_that_is_gone() -> None:
    with watched(WORKS_ON, "cpu", ("background",)) as idle_check:
        idle_check.check()
    idle_check = IdleCheck(2**22 - 1, "cpu")
    idle_check.check()


def test_work_in_the_kernel_after_many_replies_is_background_work() -> None:
    late, usual = [40_000_000] * 6, [0] * 40
    with watched(QUIET, "cpu") as idle_check:
        idle_check.check([*late[:4], *usual])  # too few
        idle_check.check([*late, *usual, *usual])  # too rare: a hypervisor does that
        with pytest.raises(CandidateFailed, match=r"background work: .* 240 ms of processor time"):
            idle_check.check([*late, *usual])
    with watched(QUIET, "cpu", without=("background",)) as idle_check:
        idle_check.check(late)
