from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.processes import KilledProcess

from warpsmith.evaluator.supervisor.device_lock import DeviceLock, lock_folder
from warpsmith.model.errors import HarnessFault
from warpsmith.system.processes import stoppable

HOLDER = """
import sys
from pathlib import Path
from warpsmith.evaluator.supervisor.device_lock import DeviceLock
with DeviceLock(Path(sys.argv[1]), sys.argv[2]).held(lambda: print("waiting", flush=True)):
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""


class Holder:
    """Another process that takes the lock, and keeps it until told otherwise."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def let_go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def other_process(cache: Path, key: str) -> Iterator[Holder]:
    command = [sys.executable, "-c", HOLDER, str(cache), key]
    with KilledProcess(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Holder(process)


class Waiter:
    """A thread of ours that wants the lock."""

    def __init__(self, lock: DeviceLock) -> None:
        self.asked = threading.Event()  # it was told that somebody else has it
        self.got = threading.Event()
        self.calls = 0
        self._lock = lock
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._lock.held(self._waits):
            self.got.set()

    def _waits(self) -> None:
        self.calls += 1
        self.asked.set()


def test_a_free_device_is_had_at_once(tmp_path: Path) -> None:
    waits: list[bool] = []
    with DeviceLock(tmp_path / "new", "gpu").held(lambda: waits.append(True)):
        pass
    with DeviceLock(tmp_path / "new", "gpu").held(lambda: waits.append(True)):
        pass

    assert waits == []


def test_two_processes_take_turns(tmp_path: Path) -> None:
    with other_process(tmp_path, "gpu") as holder:
        assert holder.says() == "held"
        waiter = Waiter(DeviceLock(tmp_path, "gpu"))
        assert waiter.asked.wait(10.0)
        assert not waiter.got.wait(0.2)
        holder.let_go()

        assert waiter.got.wait(10.0)
        assert waiter.calls == 1
        assert holder.says() == "released"


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    with other_process(tmp_path, "gpu") as holder:
        assert holder.says() == "held"
        waiter = Waiter(DeviceLock(tmp_path, "gpu"))
        assert waiter.asked.wait(10.0)
        holder.process.kill()

        assert waiter.got.wait(10.0)


def test_the_other_process_waits_for_us_too(tmp_path: Path) -> None:
    with DeviceLock(tmp_path, "gpu").held(), other_process(tmp_path, "gpu") as holder:
        assert holder.says() == "waiting"
        time.sleep(0.1)
        assert holder.process.poll() is None


def test_devices_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with DeviceLock(tmp_path, "cuda:0").held(), other_process(tmp_path, "cuda:1") as holder:
        assert holder.says() == "held"


def test_two_evaluators_of_one_process_take_turns(tmp_path: Path) -> None:
    with DeviceLock(tmp_path, "gpu").held():
        waiter = Waiter(DeviceLock(tmp_path, "gpu"))
        assert waiter.asked.wait(10.0)
        assert not waiter.got.is_set()

    assert waiter.got.wait(10.0)


def test_threads_that_share_a_lock_take_turns_in_silence(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path, "gpu")
    with lock.held():
        waiter = Waiter(lock)
        assert not waiter.got.wait(0.3)
        assert not waiter.asked.is_set()
    assert waiter.got.wait(10.0)


def test_who_waits_again_and_again_is_told_once(tmp_path: Path) -> None:
    lock, told = DeviceLock(tmp_path, "gpu"), 0
    for _ in range(3):
        with DeviceLock(tmp_path, "gpu").held():
            waiter = Waiter(lock)
            assert not waiter.got.wait(0.2)
        assert waiter.got.wait(10.0)
        told += waiter.calls
    assert told == 1


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="inside"), DeviceLock(tmp_path, "gpu").held():
        raise RuntimeError("inside")

    assert Waiter(DeviceLock(tmp_path, "gpu")).got.wait(10.0)


def test_a_program_started_meanwhile_does_not_keep_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "input()"]
    with DeviceLock(tmp_path, "gpu").held():
        child = subprocess.Popen(command, stdin=subprocess.PIPE, close_fds=False)
    try:
        assert Waiter(DeviceLock(tmp_path, "gpu")).got.wait(10.0)
    finally:
        child.kill()
        child.communicate()


def test_a_wait_can_be_called_off(tmp_path: Path) -> None:
    stop, ended = threading.Event(), threading.Event()
    waiting = threading.Event()

    def wait() -> None:
        with stoppable(stop):
            try:
                with DeviceLock(tmp_path, "gpu").held(waiting.set):
                    pass
            except HarnessFault:
                ended.set()

    with DeviceLock(tmp_path, "gpu").held():
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert waiting.wait(10.0)
        assert not ended.wait(0.1)
        stop.set()
        assert ended.wait(10.0)


def test_a_wait_that_can_be_called_off_ends_with_the_lock_as_well(tmp_path: Path) -> None:
    with other_process(tmp_path, "gpu") as holder:
        assert holder.says() == "held"
        got, waiting = threading.Event(), threading.Event()

        def wait() -> None:
            with stoppable(threading.Event()), DeviceLock(tmp_path, "gpu").held(waiting.set):
                got.set()

        threading.Thread(target=wait, daemon=True).start()
        assert waiting.wait(10.0)
        holder.process.kill()
        assert got.wait(10.0)


def test_users_of_one_gpu_meet_wherever_their_caches_are(tmp_path: Path) -> None:
    assert lock_folder("cuda", tmp_path / "mine") == lock_folder("cuda", tmp_path / "yours")
    assert lock_folder("cpu", tmp_path / "mine") != lock_folder("cpu", tmp_path / "yours")


def test_a_lock_that_cannot_be_made_is_our_own_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessFault, match="cannot be opened"), DeviceLock(tmp_path / "file", "gpu").held():
        pass
