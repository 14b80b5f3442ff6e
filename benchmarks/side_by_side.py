"""Runs work that takes no times in several processes on one GPU, as its memory allows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.util import Finalize
from typing import TypeVar

from warpsmith.evaluator.judge.memory_need import needed_bytes
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import Device
from warpsmith.tasks.load import load_task

Work = TypeVar("Work")
Result = TypeVar("Result")

_ALL_BYTES = 125 << 30  # of an H200, for the tensors of everything that runs at once
_REFERENCES = 1.8  # times the least memory to judge a task: fp64 inputs and what PyTorch needs in between

_evaluators: list[Evaluator] = []  # in a process of `side_by_side`: its evaluator


def evaluator() -> Evaluator:
    """The evaluator of this process of `side_by_side`."""
    return _evaluators[0]


def task_bytes(spec: str) -> int:
    """The memory of the device that all checks of a task may take."""
    return round(_REFERENCES * needed_bytes(load_task(spec).task))


def side_by_side(
    do: Callable[[Work], Result], works: Mapping[str, tuple[Work, int]], device: Device, at_once: int, end: float
) -> Iterator[tuple[str, Result | None]]:
    """The result of each work, by its name, as they come; None if its process was killed.

    `works`: with the memory that each needs. `end`: when `time.monotonic()` reaches it, processes are ended, and what
    they were doing has no result.
    """
    pids: SimpleQueue[int] = get_context("spawn").SimpleQueue()
    pending, running = dict(works), dict[Future[Result], tuple[str, int]]()
    with ProcessPoolExecutor(
        max(1, min(at_once, len(works))), get_context("spawn"), _open_evaluator, (device, pids)
    ) as processes:
        while (pending or running) and time.monotonic() < end:
            for name in admitted({name: need for name, (_, need) in pending.items()}, running.values(), at_once):
                work, need = pending.pop(name)
                try:
                    running[processes.submit(do, work)] = (name, need)
                except BrokenExecutor:
                    yield name, None
            for each in wait(running, max(0.0, end - time.monotonic()), FIRST_COMPLETED).done:
                name, _ = running.pop(each)
                yield name, None if isinstance(each.exception(), BrokenExecutor) else each.result()
        while running and not pids.empty():
            with suppress(ProcessLookupError):
                os.kill(pids.get(), signal.SIGKILL)


def admitted(pending: Mapping[str, int], running: Collection[tuple[str, int]], at_once: int) -> list[str]:
    """Which of the pending works begin now: as many as fit beside the running ones, and always one."""
    chosen: list[str] = []
    used, places = sum(need for _, need in running), at_once - len(running)
    for name, need in pending.items():
        if len(chosen) < places and (used + need <= _ALL_BYTES or (not running and not chosen)):
            chosen.append(name)
            used += need
    return chosen


def _open_evaluator(device: Device, pids: SimpleQueue[int]) -> None:
    """Open the evaluator of a process: its fork servers start once for all that the process does."""
    pids.put(os.getpid())
    _evaluators.append(Evaluator(device, shared=True))
    Finalize(None, _evaluators[0].close, exitpriority=10)  # at the end of the process
