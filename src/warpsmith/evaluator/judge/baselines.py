"""The baselines: PyTorch on the same sets of buffers, timed like a candidate. Runs in the judge's process."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from warpsmith.evaluator.candidate.device_memory import repeat_until_awake
from warpsmith.evaluator.cuda_driver import Driver
from warpsmith.evaluator.judge.timing.cpu_affinity import CpuAffinity
from warpsmith.evaluator.judge.timing.process_usage import ProcessUsage

LONG_S = 0.05  # one call is a good enough estimate of a baseline this slow
CPU_SETTLE_S = 0.003  # OpenMP threads of the side that ran last spin for a while before they sleep
_WAKE_MS = 10
_WAKE_ELEMENTS = 1 << 16
UNDISTURBED_SHARE = 0.05  # of a sample, for which a thread may have waited for a CPU
_ATTEMPTS = 5

Call = Callable[[], tuple[torch.Tensor, ...]]


def wait_for_device(device: torch.device) -> None:
    """Wait until a GPU works for the judge: work that a candidate's process has left on it comes first, even if the
    process says that it has finished. Part of every time that the judge's clock takes."""
    if device.type == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)


class Flush(Protocol):
    """Pushes data out of the caches: all of it, or that of the buffers and of these results."""

    def __call__(self, results: Iterable[torch.Tensor] = ()) -> None: ...


class BaselineRunner(Protocol):
    """Runs one baseline on the sets of one workload."""

    name: str
    flush: Flush

    def sample(self, graph: bool, sets: Sequence[int]) -> int:
        """Flush the caches, make one call on each of these sets, as a graph if possible; the time in nanoseconds."""
        ...

    def outputs(self) -> Sequence[tuple[torch.Tensor, ...]]:
        """The results of the last sample, in the order of its sets."""
        ...

    def capture(self) -> bool:
        """Capture graphs of all sets; False if that is not possible."""
        ...


class CpuBaseline:
    """A PyTorch callable per set on the CPU."""

    def __init__(
        self,
        name: str,
        calls: Sequence[Call],
        flush: Flush,
        threads: Callable[[], AbstractContextManager[None]],
        usage: ProcessUsage | None = None,
    ) -> None:
        self.name = name
        self.flush = flush
        self._calls = calls
        self._threads = threads  # gives torch all the threads it may use
        self._affinity, self._usage = CpuAffinity(), usage or ProcessUsage(os.getpid())
        self._waker = torch.zeros(_WAKE_ELEMENTS)  # enough for an operation on all threads
        self._outputs: list[tuple[torch.Tensor, ...]] = []

    def sample(self, graph: bool, sets: Sequence[int]) -> int:
        # Other work on the machine costs the baseline more than a candidate: the candidate's process has slept before,
        # and the scheduler prefers such a process. So disturbed samples of the baseline are repeated.
        least = math.inf, 0
        for _ in range(_ATTEMPTS):
            taken_ns, waited_ns = self._attempt(sets)
            least = min(least, (waited_ns, taken_ns))
            if waited_ns < UNDISTURBED_SHARE * taken_ns:
                break
        return least[1]

    def _attempt(self, sets: Sequence[int]) -> tuple[int, int]:
        """The time of one attempt, and the longest time that one of its threads waited for a CPU."""
        self.flush(tensor for outputs in self._outputs for tensor in outputs)  # their memory is used again
        self._outputs.clear()  # the last results are freed before the clock starts
        time.sleep(CPU_SETTLE_S)
        with self._threads():
            self._waker.add_(1.0)  # starts all threads
            with self._affinity.own_threads_pinned(self._usage.read().threads_ns):
                repeat_until_awake(lambda: self._waker.add_(1.0), _WAKE_MS)  # as in the host: threads awake, data cold
                before = self._usage.read()
                start = time.perf_counter_ns()
                for index in sets:
                    self._outputs.append(self._calls[index]())
                taken_ns = time.perf_counter_ns() - start
                return taken_ns, self._usage.read().waited_since(before)

    def outputs(self) -> Sequence[tuple[torch.Tensor, ...]]:
        return self._outputs

    def capture(self) -> bool:
        return False


def rough_time_s(call: Callable[[], object]) -> float:
    """A rough time of one call on the CPU, in seconds.

    With all threads or with one, whichever is shorter: on a busy machine, threads wait for each other a thousand times
    as long as a short call takes.
    """
    threads, several_s = torch.get_num_threads(), _shortest_s(call)
    if several_s > LONG_S or threads == 1:
        return several_s
    torch.set_num_threads(1)
    try:
        return min(several_s, _shortest_s(call))
    finally:
        torch.set_num_threads(threads)


def _shortest_s(call: Callable[[], object]) -> float:
    best, begun = math.inf, time.perf_counter()
    for tries in range(20):  # on a busy machine most of them are disturbed
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        if (tries >= 3 and time.perf_counter() - begun > 2 * LONG_S) or best > LONG_S:
            break
    return best


class CudaBaseline:
    """A PyTorch callable per set on a GPU, run as a chain of graphs where they can be captured."""

    def __init__(self, name: str, calls: Sequence[Call], flush: Flush, driver: Driver) -> None:
        self.name = name
        self.flush = flush
        self._calls = calls
        self._driver = driver
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._captured: list[tuple[torch.Tensor, ...]] = []
        self._outputs: list[tuple[torch.Tensor, ...]] = []
        self._start = torch.cuda.Event(enable_timing=True)
        self._stop = torch.cuda.Event(enable_timing=True)

    def capture(self) -> bool:
        if self._graphs:
            return True
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for call in self._calls:  # libraries create their handles outside the capture
                call()
        torch.cuda.current_stream().wait_stream(side_stream)
        torch.cuda.synchronize()
        pool = torch.cuda.graph_pool_handle()  # one for all graphs: they never run at the same time
        try:
            for call in self._calls:
                graph = torch.cuda.CUDAGraph(keep_graph=True)
                with torch.cuda.graph(graph, pool=pool):
                    self._captured.append(call())
                self._graphs.append(graph)
        except (RuntimeError, TypeError):  # a call that synchronises, or a torch too old for keep_graph
            torch.cuda.synchronize()
            self._graphs.clear()
            self._captured.clear()
            return False
        return True

    def sample(self, graph: bool, sets: Sequence[int]) -> int:
        self._outputs.clear()
        stream = torch.cuda.current_stream().cuda_stream
        chain = 0
        if graph and self._graphs:
            chain = self._driver.chain([self._graphs[index].raw_cuda_graph() for index in sets], stream)
        self.flush()
        self._start.record()
        if chain:
            self._driver.replay(chain, stream)
            self._outputs.extend(self._captured[index] for index in sets)
        else:
            self._outputs.extend(self._calls[index]() for index in sets)
        self._stop.record()
        torch.cuda.synchronize()
        self._driver.discard(executable=chain)
        return round(float(self._start.elapsed_time(self._stop)) * 1e6)

    def outputs(self) -> Sequence[tuple[torch.Tensor, ...]]:
        return self._outputs
