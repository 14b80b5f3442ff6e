"""Lets torch.compile do its work ahead of the clock: many processes at once fill one cache, then a last one times.

Compiling is the CPU's work and takes seconds for each task; the device is needed for moments. So processes of their own
compile on zeros (no input's value decides what is compiled) and leave what they made in inductor's cache. Each job has
a limit, past which its process is ended and replaced. Nothing is timed here.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from warpsmith.model.task import Precision, Workload
    from warpsmith.tasks.program import BoundReference, Program

_START_S = 120.0  # importing torch in a dozen processes at once
_OWN_BYTES = 1 << 30  # a process's workspaces of libraries
_SPACIOUS = 1.5  # times the tensors of a task: what a compiled function makes on the way


@dataclass(frozen=True)
class Job:
    """One workload in one precision class."""

    task: str  # for people, and by which it is reported
    spec: str  # for the loader
    workload: str
    precision: str
    nbytes: int  # of its inputs and outputs

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from the others."""
        return self.task, self.workload, self.precision


@dataclass(frozen=True)
class Outcome:
    """What came of a job."""

    job: Job
    seconds: float
    failure: str = ""
    timed_out: bool = False  # nobody should try again


def share_cache(folder: Path) -> None:
    """Where this process and those it starts keep what was compiled. Before torch is imported."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pools of their own: our processes are the pool
    os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = "1"


# --- in the processes that compile, and in the one that times ---


def allow(precision: Precision) -> None:
    """The arithmetic that a precision class permits, as an evaluation sets it."""
    import warnings

    import torch

    tf32 = precision.value == "tf32"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases rename these switches; both still work
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32


def compiled(program: Program, sets: Sequence[Mapping[str, torch.Tensor]]) -> list[BoundReference]:
    """A compiled call for each set of inputs, for exactly these sizes; compiles now."""
    import torch
    from torch._inductor import config

    # Which of several launch configurations is best is measured where it is quiet, not kept from a dozen processes that
    # shared the device.
    config.autotune_local_cache = False
    torch.compiler.reset()  # or another workload of the same function would be compiled for any size
    wrap: Callable[[Callable[..., object]], Callable[..., object]] = cache(torch.compile)
    calls = [program.bind(inputs, wrap) for inputs in sets]
    for call in calls:
        call()
    return calls


def zeros(program: Program, workload: Workload, device: torch.device) -> dict[str, torch.Tensor]:
    """Inputs of the right shapes and types."""
    import torch

    return {
        spec.name: torch.zeros(spec.shape(workload.sizes), dtype=getattr(torch, spec.dtype), device=device)
        for spec in program.task.inputs
    }


def work(connection: Connection, device: str) -> None:
    """Compile one job after the other until the other end is closed: the main function of a process."""
    import torch  # and nothing is set: the number of threads is part of the cache's key

    connection.send("")
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(_attempt(job, torch.device(device)))


def _attempt(job: Job, device: torch.device) -> str:
    """Compile one; what went wrong."""
    import torch

    from warpsmith.model.task import Precision
    from warpsmith.tasks.load import load_task

    program = load_task(job.spec)
    workload = next(w for w in program.task.workloads if w.name == job.workload)
    allow(Precision(job.precision))
    try:
        compiled(program, [zeros(program, workload, device)])
    except RuntimeError as fault:  # torch's own, out of memory among them: the process that times tries it again
        return str(fault).strip().partition("\n")[0][:300] or type(fault).__name__
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()  # others need the memory
    return ""


# --- in the process that asks for it ---


class _Room:
    """Device memory, given out so that the jobs under way fit into it together."""

    def __init__(self, nbytes: float) -> None:
        self._all = self._free = nbytes
        self._changed = threading.Condition()

    def take(self, nbytes: float) -> float:
        wanted = min(nbytes, self._all)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= wanted)
            self._free -= wanted
        return wanted

    def give(self, nbytes: float) -> None:
        with self._changed:
            self._free += nbytes
            self._changed.notify_all()


class Compilers:
    """Processes that compile; started at once, so that they import torch while the caller does."""

    def __init__(self, count: int, device: str, memory_bytes: float, limit_s: float) -> None:
        self._device = device
        self._limit_s = limit_s
        self._room = _Room(memory_bytes)
        self._context = multiprocessing.get_context("spawn")
        self._members = [self._start() for _ in range(count)]

    def _start(self) -> tuple[SpawnProcess, Connection]:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(theirs, self._device), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def warm(self, jobs: Sequence[Job], deadline: float, told: Callable[[Outcome], None]) -> list[Outcome]:
        """Compile as many as can be until the deadline (by time.monotonic()), each reported as it ends."""
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        done: list[Outcome] = []
        mutex = threading.Lock()

        def report(outcome: Outcome) -> None:
            with mutex:
                done.append(outcome)
                told(outcome)

        threads = [
            threading.Thread(target=self._drive, args=(place, waiting, deadline, report), daemon=True)
            for place in range(len(self._members))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return done

    def _drive(
        self, place: int, waiting: queue.SimpleQueue[Job], deadline: float, report: Callable[[Outcome], None]
    ) -> None:
        """One process's work, in a thread."""
        ready = False
        while (left_s := deadline - time.monotonic()) > 0:
            process, connection = self._members[place]
            if not ready and not _answered(connection, min(_START_S, left_s)):
                return  # it does not start in time: the others go on
            ready = True
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            taken = self._room.take(_SPACIOUS * job.nbytes + _OWN_BYTES)
            outcome = self._compile(connection, job, deadline)
            if outcome is None:  # the time is up
                self._room.give(taken)
                return
            report(outcome)
            if outcome.timed_out or not process.is_alive():
                process.kill()
                process.join()
                self._members[place] = self._start()
                ready = False
            self._room.give(taken)

    def _compile(self, connection: Connection, job: Job, deadline: float) -> Outcome | None:
        began = time.monotonic()
        wait_s = min(self._limit_s, max(0.1, deadline - began))
        late = False
        try:
            connection.send(job)
            late = not connection.poll(wait_s)
            if late and wait_s < self._limit_s:
                return None
            failure = f"torch.compile took more than {wait_s:.0f} s" if late else connection.recv()
        except (EOFError, OSError):
            failure = "the process that compiled it died"
        return Outcome(job, time.monotonic() - began, failure, late)

    def close(self) -> None:
        """End them all: what they hold on the device goes back."""
        for process, connection in self._members:
            connection.close()
            process.kill()
        for process, _ in self._members:
            process.join()


def _answered(connection: Connection, seconds: float) -> bool:
    try:
        return connection.poll(seconds) and connection.recv() == ""
    except (EOFError, OSError):
        return False
