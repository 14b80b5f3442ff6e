"""Evaluators that share a device: what waits holds no memory, what does not fit now waits, what never fits is
refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from warpsmith.evaluator.cuda_driver import CudaError
from warpsmith.evaluator.judge.memory_need import DeviceMemory, check_memory, lacking_bytes
from warpsmith.evaluator.supervisor.device_lock import DeviceLock, DeviceUsers
from warpsmith.evaluator.supervisor.device_turns import DeviceTurns
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import HarnessFault, TaskError, TooLittleMemory
from warpsmith.model.evaluation import Status
from warpsmith.tasks.load import load_task

GIB = 1 << 30
TOTAL = 140 * GIB


class FakeGpu:
    """Counts the memory of a device that exists on paper."""

    def __init__(self, total: int = TOTAL) -> None:
        self.total = total
        self.held: dict[object, int] = {}
        self._guard = threading.Lock()

    @property
    def free(self) -> int:
        return self.total - sum(self.held.values())

    def allocate(self, who: object, nbytes: int) -> None:
        with self._guard:
            if nbytes > self.free:
                raise TooLittleMemory("too little memory.", nbytes)
            self.held[who] = nbytes

    def release(self, who: object) -> None:
        with self._guard:
            self.held.pop(who, None)


class FakeEvaluator:
    """Has turns on the device, each with buffers that stay until they are released."""

    def __init__(self, folder: Path, gpu: FakeGpu, nbytes: int, messages: list[str] | None = None) -> None:
        self.gpu, self.nbytes = gpu, nbytes
        self.turns = DeviceTurns(
            DeviceLock(folder, "gpu"),
            DeviceUsers(folder, "gpu"),
            lambda: gpu.release(self),
            free_bytes=lambda: gpu.free,
            on_message=(messages if messages is not None else []).append,
            look_s=0.01,
        )

    def judge_many(self, count: int) -> None:
        for _ in range(count):
            self.judge()

    def judge(self) -> None:
        while True:
            try:
                with self.turns.turn():
                    if self not in self.gpu.held:
                        self.gpu.allocate(self, self.nbytes)
                    return
            except TooLittleMemory as short:
                self.turns.wait_for_memory(short)


@contextmanager
def closing(*evaluators: FakeEvaluator) -> Iterator[None]:
    try:
        yield
    finally:
        for each in evaluators:
            each.turns.close()


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10.0
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_an_evaluator_that_is_alone_keeps_its_buffers(tmp_path: Path) -> None:
    gpu = FakeGpu()
    alone = FakeEvaluator(tmp_path, gpu, 60 * GIB)
    with closing(alone):
        alone.judge()
        time.sleep(0.1)
        assert gpu.held == {alone: 60 * GIB}


def test_an_idle_evaluator_releases_its_buffers_when_another_one_comes(tmp_path: Path) -> None:
    gpu = FakeGpu()
    first, second = FakeEvaluator(tmp_path, gpu, 100 * GIB), FakeEvaluator(tmp_path, gpu, 100 * GIB)
    with closing(first, second):
        first.judge()
        second.judge()  # does not fit beside the first, which is not asked for anything more
        assert until(lambda: not gpu.held)
        second.turns.close()
        first.judge()
        assert until(lambda: gpu.held == {first: 100 * GIB})


def test_four_evaluators_whose_buffers_do_not_fit_side_by_side_all_end(tmp_path: Path) -> None:
    gpu = FakeGpu()
    four = [FakeEvaluator(tmp_path, gpu, 90 * GIB) for _ in range(4)]
    with closing(*four):
        threads = [threading.Thread(target=each.judge_many, args=(5,)) for each in four]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30.0)
        assert not any(thread.is_alive() for thread in threads)


def test_what_does_not_fit_now_waits_and_says_so(tmp_path: Path) -> None:
    gpu, messages = FakeGpu(), list[str]()
    waiting = FakeEvaluator(tmp_path, gpu, 60 * GIB, messages)
    gpu.allocate("another program", 100 * GIB)
    with closing(waiting):
        thread = threading.Thread(target=waiting.judge)
        thread.start()
        assert until(lambda: bool(messages))
        assert messages == [
            "waiting for device memory: 60.0 GiB must be free and 40.0 GiB are; the evaluation goes on when other "
            "programs release theirs."
        ]
        with DeviceLock(tmp_path, "gpu").held():  # the turn is given up meanwhile
            pass
        gpu.release("another program")
        thread.join(10.0)
        assert gpu.held == {waiting: 60 * GIB}


def test_a_wait_for_memory_ends_with_the_evaluator(tmp_path: Path) -> None:
    gpu = FakeGpu(0)
    waiting = FakeEvaluator(tmp_path, gpu, GIB)
    threading.Timer(0.05, waiting.turns.close).start()
    with pytest.raises(HarnessFault, match="closed while it waited"):
        waiting.judge()


def test_users_of_a_device_see_each_other_and_not_themselves(tmp_path: Path) -> None:
    first, second = DeviceUsers(tmp_path, "gpu"), DeviceUsers(tmp_path, "gpu")
    first.enter()
    assert not first.others()
    assert not second.others()  # does not use the device yet
    second.enter()
    assert first.others()
    assert second.others()
    second.leave()
    assert not first.others()
    first.leave()


# --- now, later, never ---


def test_a_task_that_does_not_fit_now_may_fit_later_or_never(task_file: Callable[[str], Path]) -> None:
    path = task_file("softmax")
    task = load_task(path).task
    check_memory(task, str(path), DeviceMemory(TOTAL, TOTAL))
    with pytest.raises(TooLittleMemory) as later:
        check_memory(task, str(path), DeviceMemory(10, TOTAL))
    assert 10 < later.value.needed < TOTAL
    for never in (DeviceMemory(10, 20), DeviceMemory(10, 0)):  # a small GPU, a CPU
        with pytest.raises(TaskError) as refused:
            check_memory(task, str(path), never)
        assert not isinstance(refused.value, TooLittleMemory)


@pytest.mark.parametrize(
    ("free", "error", "needed"),
    [
        (40 * GIB, torch.OutOfMemoryError("Tried to allocate 20.00 GiB."), 60 * GIB),
        (40 * GIB, torch.OutOfMemoryError("Tried to allocate 20.00 MiB."), 50 * GIB),
        (40 * GIB, CudaError("cuMemCreate", 2, "out of memory"), 50 * GIB),
        (130 * GIB, torch.OutOfMemoryError("Tried to allocate 20.00 GiB."), 0),  # nobody else held memory
        (40 * GIB, torch.OutOfMemoryError("Tried to allocate 200.00 GiB."), 0),  # more than there is
        (40 * GIB, RuntimeError("another fault"), 0),
    ],
)
def test_after_a_failed_allocation_another_attempt_is_worth_it_or_not(free: int, error: Exception, needed: int) -> None:
    assert DeviceMemory(free, TOTAL).needed_after(error) == needed


def test_only_a_lack_of_memory_is_one() -> None:
    assert lacking_bytes(CudaError("cuMemCreate", 1, "invalid value")) is None
    assert lacking_bytes(MemoryError()) == 0
    assert lacking_bytes(None) is None


# --- a judge gives its buffers back and gets them again ---


def test_a_judge_without_buffers_allocates_them_for_the_next_candidate(
    evaluator: Evaluator, kernel: Callable[[str], Candidate], task_file: Callable[[str], Path]
) -> None:
    task, candidate = task_file("relu"), kernel("relu.cpp")
    for _ in range(3):  # a busy machine may cost the judge, which is then another one
        evaluator.describe(task)
        (judge,) = evaluator._judges.values()
        judge.release_memory(more_than=0)
        assert not judge._holds_buffers
        assert evaluator.evaluate_one(task, candidate, fresh=True).status is Status.OK
        if list(evaluator._judges.values()) == [judge]:
            break
    assert list(evaluator._judges.values()) == [judge]
    assert judge._holds_buffers
