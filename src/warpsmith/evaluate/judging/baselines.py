"""The other side of a contest: PyTorch on the same sets of buffers, timed the way a candidate is.

Runs in the judge's process and is trusted; `contest` decides when it runs and what its times are worth.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from warpsmith.evaluate.cudadriver import Driver
from warpsmith.evaluate.hosts.sides import until_prompt
from warpsmith.evaluate.judging.meter import Meter
from warpsmith.evaluate.judging.seats import Seats

CPU_SETTLE_S = 0.003  # OpenMP threads of the side that ran last spin for a while before they sleep
_WAKE_MS = 10
_WAKE_ELEMENTS = 1 << 16
_UNDISTURBED_SHARE = 0.05  # of a sample, for which a thread of it may have had no processor
_ATTEMPTS = 5


def take_back(device: torch.device) -> None:
    """Wait until the device works for us: what a candidate's process has left on it, though it says that it is done,
    comes first. Part of every time that our own clock takes."""
    if device.type == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)


class Side(Protocol):
    """A baseline, runnable on all sets of a bench."""

    name: str
    flush: Callable[[], None]  # pushes everything out of the caches

    def sample(self, graph: bool, sets: Sequence[int]) -> int:
        """Flush, run these sets once, with a graph if it can, and give the time in nanoseconds."""
        ...

    def begin(self) -> None:
        """Forget the last sample: single calls follow."""
        ...

    def call(self, index: int) -> tuple[torch.Tensor, ...]:
        """One call on one set, untimed, not waited for; its results are among the outputs."""
        ...

    def outputs(self) -> Sequence[tuple[torch.Tensor, ...]]:
        """What was computed since the last beginning, in the order of its sets."""
        ...

    def capture(self) -> bool:
        """Prepare graphs of all sets; False where that is not possible."""
        ...


class CpuBaseline:
    """A PyTorch callable per set on the CPU."""

    def __init__(
        self,
        name: str,
        calls: Sequence[Callable[[], tuple[torch.Tensor, ...]]],
        flush: Callable[[], None],
        threads: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.name = name
        self.flush = flush
        self._calls = calls
        self._threads = threads  # gives torch all the threads it may use
        self._seats, self._meter = Seats(), Meter(os.getpid())
        self._waker = torch.zeros(_WAKE_ELEMENTS)  # enough for an operation on all threads
        self._outputs: list[tuple[torch.Tensor, ...]] = []

    def begin(self) -> None:
        self._outputs.clear()  # the allocations of the last round go back before the clock starts

    def call(self, index: int) -> tuple[torch.Tensor, ...]:
        self._outputs.append(self._calls[index]())
        return self._outputs[-1]

    def sample(self, graph: bool, sets: Sequence[int]) -> int:
        # Where others use the machine they cost us more than a candidate: its process has slept before, and then the
        # scheduler prefers it. So whatever is disturbed is done again; a candidate's samples, which it could make look
        # disturbed to be rid of them, are not.
        least = math.inf, 0
        for _ in range(_ATTEMPTS):
            taken_ns, waited_ns = self._attempt(sets)
            least = min(least, (waited_ns, taken_ns))
            if waited_ns < _UNDISTURBED_SHARE * taken_ns:
                break
        return least[1]

    def _attempt(self, sets: Sequence[int]) -> tuple[int, int]:
        """How long it took, and the longest that a thread of it had no processor."""
        self.begin()
        self.flush()
        time.sleep(CPU_SETTLE_S)
        with self._threads():
            self._waker.add_(1.0)  # all threads are there
            with self._seats.taken(self._meter.glance().threads_ns):
                until_prompt(lambda: self._waker.add_(1.0), _WAKE_MS)  # as the host does: threads awake, data cold
                before = self._meter.glance()
                start = time.perf_counter_ns()
                for index in sets:
                    self.call(index)
                taken_ns = time.perf_counter_ns() - start
                return taken_ns, self._meter.glance().waited_since(before)

    def outputs(self) -> Sequence[tuple[torch.Tensor, ...]]:
        return self._outputs

    def capture(self) -> bool:
        return False


class CudaBaseline:
    """The same on a GPU, as a chain of graphs, one for each set, where they can be captured."""

    def __init__(
        self,
        name: str,
        calls: Sequence[Callable[[], tuple[torch.Tensor, ...]]],
        flush: Callable[[], None],
        driver: Driver,
    ) -> None:
        self.name = name
        self._calls = calls
        self.flush = flush
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
        pool = torch.cuda.graph_pool_handle()  # one for all: they never run at the same time
        try:
            for call in self._calls:
                graph = torch.cuda.CUDAGraph(keep_graph=True)
                with torch.cuda.graph(graph, pool=pool):
                    self._captured.append(call())
                self._graphs.append(graph)
        except (RuntimeError, TypeError):  # it synchronises, say; or torch is too old to hand its graphs out
            torch.cuda.synchronize()
            self._graphs.clear()
            self._captured.clear()
            return False
        return True

    def begin(self) -> None:
        self._outputs.clear()

    def call(self, index: int) -> tuple[torch.Tensor, ...]:
        self._outputs.append(self._calls[index]())
        return self._outputs[-1]

    def sample(self, graph: bool, sets: Sequence[int]) -> int:
        self.begin()
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
            for index in sets:
                self.call(index)
        self._stop.record()
        torch.cuda.synchronize()
        self._driver.discard(executable=chain)
        return round(float(self._start.elapsed_time(self._stop)) * 1e6)

    def outputs(self) -> Sequence[tuple[torch.Tensor, ...]]:
        return self._outputs
