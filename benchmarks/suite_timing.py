"""Times PyTorch on one task after the other, on a device that nobody else uses: the measuring part of `suite_record`.

A loop of its own, after the evaluator's manner: caches flushed before each sample, CUDA events around a graph of the
calls, several sets of buffers where one call is short. Unlike in an evaluation no candidate runs in between and inputs
are drawn once. It starts no processes and writes no files.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from benchmarks.suite_compiling import allow, compiled
from benchmarks.suite_figures import Bound, Side, TaskFigures, WorkloadFigures, level1

from warpsmith.evaluator.judge.baselines import CpuBaseline
from warpsmith.evaluator.judge.timing.statistics import median, median_interval, narrow_enough
from warpsmith.hardware.device import Device
from warpsmith.hardware.peaks import load_or_measure
from warpsmith.hardware.roofline import floor_ms, zone
from warpsmith.hardware.work import Work, count_work
from warpsmith.model.task import Precision, Workload
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import BoundReference as Call
from warpsmith.tasks.program import Program
from warpsmith.tasks.suites import SuiteTask

_SAMPLE_MS = 0.4  # a sample should take this long: a shorter call goes through several sets of buffers
_MOST_SETS = 64
_SETS_BYTES = 4 << 30
_FEWEST, _MOST = 10, 60  # samples
_FEWEST_SLOW, _SLOW_MS = 5, 30.0  # of a call that is as slow as that
_NARROW = 0.01  # the half width of the median's interval, relative: enough
_BUDGET_S = 0.25  # for one baseline, once the fewest samples are there
_EXPLAINED = 200  # characters of a fault


@dataclass(frozen=True)
class Request:
    """What is to be measured of a task."""

    entry: SuiteTask
    size: str
    precisions: tuple[Precision, ...]
    baselines: tuple[str, ...]
    too_slow: frozenset[tuple[str, str, str]]  # keys of `suite_compiling.Job`: not to be compiled here


class Stopwatch:
    """Measures tasks on one device."""

    def __init__(self, device: Device, cache: Path) -> None:
        self._cuda = device.kind == "cuda"
        self._device = torch.device("cuda", device.index) if self._cuda else torch.device("cpu")
        if self._cuda:
            torch.cuda.set_device(self._device)
        self.peaks = load_or_measure(cache, device.key, self._device)
        nbytes = 2 * self.peaks.l2_bytes
        self._waste = torch.empty(nbytes if self._cuda else 0, dtype=torch.uint8, device=self._device)
        self._waste_memory = ctypes.create_string_buffer(0 if self._cuda else nbytes)

    def described(self) -> str:
        """How it is done, in words for the record."""
        if not self._cuda:
            return "median of single calls by the system's clock, caches flushed before each sample"
        return (
            f"median of {_FEWEST} to {_MOST} samples (fewer from {_SLOW_MS:.0f} ms on) between CUDA events, "
            f"a buffer of {self._waste.numel() >> 20} MiB written before each to flush the L2 cache; calls replayed "
            f"from a CUDA graph where they can be captured, over several sets of buffers where one takes less than "
            f"{_SAMPLE_MS} ms; inputs drawn once; torch.compile with its default mode and fixed sizes"
        )

    def measure(self, request: Request) -> TaskFigures:
        """One task, all its workloads."""
        began, entry = time.monotonic(), request.entry
        program = load_task(entry.spec(request.size))
        found = tuple(self._workload(request, program, workload) for workload in program.task.workloads)
        return TaskFigures(entry.title, entry.family, level1(entry), found, round(time.monotonic() - began, 2))

    @staticmethod
    def cache_use() -> str:
        """How often torch.compile found its work done: where it did not, the clock's process had to compile."""
        from torch._dynamo.utils import counters  # a second's import, and only here

        found = counters["inductor"]
        return f"{found['fxgraph_cache_hit']} graphs were compiled ahead, {found['fxgraph_cache_miss']} were not"

    def check(self) -> None:
        """Raises where the device no longer works for us."""
        if self._cuda:
            torch.zeros(1, device=self._device).add_(1).item()

    def _workload(self, request: Request, program: Program, workload: Workload) -> WorkloadFigures:
        work = _count(program, workload)
        sides: list[Side] = []
        missing: list[str] = []
        with self._tidied():
            sets = self._draw(program, workload)
            for precision in request.precisions:
                allow(precision)
                for name in request.baselines:
                    key = (request.entry.title, workload.name, precision.value)
                    if name == "compile" and key in request.too_slow:
                        missing.append(f"compile, {precision}: not compiled within its time")
                        continue
                    with self._tidied():
                        try:
                            sides.append(self._side(name, precision, program, sets))
                        except RuntimeError as fault:  # torch's: no memory, or nothing it can compile
                            missing.append(f"{name}, {precision}: {_said(fault)}")
            del sets
            program.release()
        allow(Precision.FP32)
        return WorkloadFigures(
            workload=workload.name,
            axes=workload.axes,
            bytes=work.bytes,
            flops=work.flops,
            bounds=tuple(
                Bound(p.value, round(floor_ms(work, self.peaks, p), 6), zone(work, self.peaks, p).value)
                for p in request.precisions
            ),
            sides=tuple(sides),
            missing=tuple(missing),
        )

    def _draw(self, program: Program, workload: Workload) -> list[dict[str, torch.Tensor]]:
        """As many sets of inputs as make a sample long enough."""
        first = program.inputs(workload, seed=0, device=self._device)
        once_ms = self._once_ms(program.bind(first))
        nbytes = sum(spec.nbytes(workload.sizes) for spec in program.task.tensors)
        wanted = math.ceil(_SAMPLE_MS / max(once_ms, 1e-3))
        count = max(1, min(wanted, _MOST_SETS, _SETS_BYTES // max(1, nbytes)))
        return [first, *(program.inputs(workload, seed=seed, device=self._device) for seed in range(1, count))]

    def _once_ms(self, call: Call) -> float:
        call()
        self._settle()
        start = time.perf_counter()
        call()
        self._settle()
        return 1e3 * (time.perf_counter() - start)

    def _side(self, name: str, precision: Precision, program: Program, sets: Sequence[dict[str, torch.Tensor]]) -> Side:
        calls = compiled(program, sets) if name == "compile" else [program.bind(inputs) for inputs in sets]
        mode = "direct"
        if self._cuda:
            clock = _CudaClock(calls, self._flush)
            mode = "graph" if clock.capture() else mode
            sample_ns: Callable[[], float] = clock.sample_ns
        else:
            side = CpuBaseline(name, calls, lambda results=(): self._flush(), contextlib.nullcontext)
            sample_ns = partial(side.sample, False, range(len(calls)))
        values: list[float] = []
        sample_ns()  # not counted: the first one wakes the device up
        began = time.monotonic()
        while len(values) < _MOST:
            values.append(sample_ns() / len(calls) / 1e6)
            fewest = _FEWEST_SLOW if values[0] > _SLOW_MS else _FEWEST
            spent_s = time.monotonic() - began
            if len(values) >= fewest and (spent_s > _BUDGET_S or narrow_enough(median_interval(values), _NARROW)):
                break
        interval = median_interval(values)
        return Side(
            name=name,
            precision=precision.value,
            median_ms=round(median(values), 6),
            low_ms=round(interval.low, 6),
            high_ms=round(interval.high, 6),
            samples=len(values),
            mode=mode,
            sets=len(calls),
        )

    def _flush(self) -> None:
        if self._cuda:
            self._waste.zero_()
        else:
            ctypes.memset(self._waste_memory, 0x5A, len(self._waste_memory))

    def _settle(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()

    @contextmanager
    def _tidied(self) -> Iterator[None]:
        """What was made inside goes back to the device: the next task may need all of it."""
        try:
            yield
        finally:
            if self._cuda:
                torch.cuda.empty_cache()


class _CudaClock:
    """Calls between two events, behind a flush that is still running while they are queued: no launch gap is timed."""

    def __init__(self, calls: Sequence[Call], flush: Callable[[], None]) -> None:
        self._calls = calls
        self._flush = flush
        self._graph: torch.cuda.CUDAGraph | None = None
        self._results: list[tuple[torch.Tensor, ...]] = []  # of the graph, at addresses of their own: none is in cache
        self._start, self._stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def capture(self) -> bool:
        """Make a graph of all calls; False where they cannot be captured, because one synchronises, say."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for call in self._calls:  # libraries create their handles and workspaces outside the capture
                call()
        torch.cuda.current_stream().wait_stream(aside)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what ran aside keeps its memory there, and the graph takes its own
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._results = [call() for call in self._calls]
        except RuntimeError:
            torch.cuda.synchronize()
            self._results = []
            return False
        self._graph = graph
        return True

    def sample_ns(self) -> float:
        """All calls once."""
        self._flush()
        self._start.record()
        if self._graph is not None:
            self._graph.replay()
        else:
            for call in self._calls:
                call()
        self._stop.record()
        torch.cuda.synchronize()
        return 1e6 * float(self._start.elapsed_time(self._stop))


def _count(program: Program, workload: Workload) -> Work:
    fake = program.fake_inputs(workload)
    with fake.mode:
        return count_work(program.run, fake.tensors)


def _said(fault: RuntimeError) -> str:
    first = str(fault).strip().partition("\n")[0]
    return first[:_EXPLAINED] or type(fault).__name__
