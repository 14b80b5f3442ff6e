"""The premises of one task on one device: program, peaks, buffers, baselines, set up once and used for every candidate.

Used by the judge's process only. What is done with a candidate here is `courtroom`'s part.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from warpsmith.core.calibration import Calibration
from warpsmith.core.errors import TaskError
from warpsmith.core.search import Bound
from warpsmith.core.task import Precision, Task, Workload
from warpsmith.evaluate.correctness import heldout
from warpsmith.evaluate.correctness.calibration import CalibrationCache, Calibrator, too_far
from warpsmith.evaluate.correctness.oracle import Oracle, free_bytes
from warpsmith.evaluate.judging import arena as memory
from warpsmith.evaluate.judging.baselines import CpuBaseline, CudaBaseline, Side
from warpsmith.evaluate.judging.bench import Bench, buffers
from warpsmith.evaluate.judging.findings import Facts
from warpsmith.evaluate.judging.judge import JudgeConfig
from warpsmith.evaluate.layout import Layout, arrange, joined
from warpsmith.evaluate.replay.ranges import GRANULE_BYTES
from warpsmith.hardware.peaks import Peaks, load_or_measure
from warpsmith.hardware.roofline import floor_ms, zone
from warpsmith.hardware.work import Work, count_work
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.program import Program

_SAMPLE_NS = {"cpu": 2e6, "cuda": 4e5}  # one sample should take about this long: it sets how many sets rotate
_MOST_SETS = {"cpu": 16, "cuda": 64}
_ESTIMATE_CALLS = 8
_FEW_BYTES = 16 << 20
_FEW_FLOPS = 2e9
_SHORT_S = 0.001
_LONG_S = 0.05  # a baseline this slow needs no estimate finer than one call


class Premises:
    """Everything that is the same for all candidates of one task."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config
        self.settings = config.settings
        self.device = torch.device(config.kind, config.index) if config.kind == "cuda" else torch.device("cpu")
        _set_up_torch(self.device, config.threads)
        precision = Precision(config.precision) if config.precision else None
        self.program: Program = load_task(config.task, precision=precision)
        self.task: Task = self.program.task
        _allow_arithmetic(self.task.precision)
        self.driver = memory.driver_for(self.device)
        if config.samples:  # to verify a winner
            self.task = heldout.extended(self.program, self.device, Path(config.task.partition("::")[0]))
        self.task = _permitting(self.task, self.settings.allow)
        self.peaks: Peaks = load_or_measure(Path(config.cache), config.device_key, self.device)
        self.work = {w.name: self._count(w) for w in self.task.workloads}
        self.baseline_s = {w.name: self._time_once(w) for w in self.task.workloads}
        self._calm_threads = self._threads_between()
        torch.set_num_threads(self._calm_threads)
        unit = GRANULE_BYTES if self.driver is not None else mmap.PAGESIZE
        self._layouts, inputs, total = joined(self._plan(), unit)
        self.leave_room()
        self.slots = tuple(s for layout in self._layouts for group in layout.sets for s in group)
        self.arena = memory.allocate(
            total,
            self.device,
            self.driver,
            [(slot.region_start, slot.region_end) for slot in self.slots if slot.writable],
            input_bytes=inputs,
            room_bytes=self.settings.limits.workspace_bytes,
        )
        self.benches = self._make_benches()
        reductions = {name: work.reduction for name, work in self.work.items()}
        self.oracle = Oracle(self.program, self.device, reductions, self.settings.error_factor)
        self.calibration = None if config.samples else self._calibrate()
        reserve = self.calibration.reserve if self.calibration else ()
        self.cases = {w.name: self.oracle.cases(w, self.settings.seeds, reserve) for w in self.task.workloads}
        self.samples: heldout.Samples | None = None
        if config.samples:
            self.samples = heldout.Samples(self.program, self.task, self.oracle, Path(config.samples))
        else:
            self._check_usable()
        self._sides: dict[tuple[str, str], Side | None] = {}
        self.flush_bytes = 2 * self.peaks.l2_bytes
        self._flush_buffer: torch.Tensor | None = None
        self._flush_memory = ctypes.create_string_buffer(self.flush_bytes if self.driver is None else 0)
        self.dropped_baselines: list[str] = []

    def _threads_between(self) -> int:
        """How many threads the judge's own work on the CPU gets, between what is timed: with little to do, several
        would only wait for each other, above all on a machine that has other work."""
        most_bytes = max(heldout.total_bytes(self.task, w) for w in self.task.workloads)
        most_flops = max(work.flops for work in self.work.values())
        return 1 if most_bytes < _FEW_BYTES and most_flops < _FEW_FLOPS else self.config.threads

    @contextmanager
    def all_threads(self) -> Iterator[None]:
        """For what is timed on the CPU."""
        torch.set_num_threads(self.config.threads)
        try:
            yield
        finally:
            torch.set_num_threads(self._calm_threads)

    @property
    def facts(self) -> Facts:
        """For the environment block of every result."""
        config = self.config
        return Facts(
            torch=torch.__version__,
            device=config.device_name,
            threads=config.threads,
            notes=self.task.notes,
            calibration=self.calibration,
            bounds=tuple(self._bound(workload) for workload in self.task.workloads),
            outline=outline(self.program),
        )

    def _bound(self, workload: Workload) -> Bound:
        work, precision = self.work[workload.name], self.task.precision
        return Bound(
            workload=workload.name,
            axes=workload.axes,
            bytes=work.bytes,
            flops=work.flops,
            floor_ms=floor_ms(work, self.peaks, precision),
            zone=zone(work, self.peaks, precision),
            baseline_ms=1e3 * self.baseline_s[workload.name],
        )

    def _calibrate(self) -> Calibration:
        """Whether the task is fit to judge by: found once, then kept."""
        device = "|".join(self.config.device_key.split("|")[:2])  # kind and name: not which of several equal ones
        cache = CalibrationCache(Path(self.config.cache), device, self.settings.error_factor)
        found = None if self.config.calibrate == "again" else cache.get(self.task)
        if found is None:
            found = Calibrator(self.program, self.oracle, self.device).run()
            cache.put(self.task, found)
            self.leave_room()
        return found

    def _check_usable(self) -> None:
        """Refuse a task that nobody could be judged by, or that anybody could pass."""
        assert self.calibration is not None, "a task is calibrated before it is used"
        reason = self.calibration.reason
        for workload in self.task.workloads:
            own = (case for case in self.cases[workload.name] if case.variant == "own")
            if not reason and not any(self.oracle.truth(case) for case in own):
                reason = too_far(self.task, workload)
        if reason and not self.config.calibrate:
            raise TaskError(reason)
        self.calibration = replace(self.calibration, passed=not reason, reason=reason)

    def _count(self, workload: Workload) -> Work:
        fake = self.program.fake_inputs(workload)
        with fake.mode:
            return count_work(self.program.run, fake.tensors, structured=self.program.structured(device=self.device))

    def _time_once(self, workload: Workload) -> float:
        """A first idea of the baseline's time in seconds: how many sets rotate, how long a call may take."""
        call = self.program.bind(self.program.inputs(workload, seed=0, device=self.device))
        if self.device.type == "cuda":
            call()
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            once = time.perf_counter() - start
            if once > _LONG_S:
                return once
            count = _ESTIMATE_CALLS if once < _SHORT_S else 1  # a graph keeps the results of all its calls
            assert self.driver is not None, "on a GPU"
            side = CudaBaseline("eager", [call] * count, lambda: None, self.driver)
            graph = side.capture()
            return min(side.sample(graph, range(count)) for _ in range(3)) / 1e9 / count
        best, begun = math.inf, time.perf_counter()
        for tries in range(20):  # on a busy machine most of them are disturbed
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
            if (tries >= 3 and time.perf_counter() - begun > 2 * _LONG_S) or best > _LONG_S:
                break
        return best

    def _plan(self) -> list[Layout]:
        """How many sets of each workload fit and are worth having."""
        kind = self.device.type
        budget = (0.3 if kind == "cuda" else 0.15) * free_bytes(self.device) / len(self.task.workloads)
        layouts = []
        for workload in self.task.workloads:
            one = arrange(buffers(self.task, workload), 1, kind).total_bytes
            wanted = math.ceil(_SAMPLE_NS[kind] / 1e9 / max(self.baseline_s[workload.name], 1e-7))
            most = max(1, min(_MOST_SETS[kind], int(min(budget, 4 << 30) // one)))
            sets = max(1, min(most, max(2, wanted))) if not self.config.samples else 1
            layouts.append(arrange(buffers(self.task, workload), sets, kind))
        return layouts

    def _make_benches(self) -> list[Bench]:
        benches, first = [], 0
        for workload, layout in zip(self.task.workloads, self._layouts, strict=True):
            benches.append(Bench(self.program, workload, layout, self.arena.memory, first, self.settings.without))
            first += len(layout.sets)
        for bench in benches:
            inputs = self.program.inputs(bench.workload, seed=0, device=self.device)
            for index in range(len(bench.sets)):
                bench.put(index, inputs)
        return benches

    def flush(self) -> None:
        """Push everything out of the last cache; on a GPU with the very operation that hosts use."""
        if self.driver is None:
            ctypes.memset(self._flush_memory, 0x5A, self.flush_bytes)
            return
        if self._flush_buffer is None:
            self._flush_buffer = torch.empty(self.flush_bytes, dtype=torch.uint8, device=self.device)
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self.driver.forget_persisting_lines()
        self.driver.fill_async(self._flush_buffer.data_ptr(), 0x5A, self.flush_bytes, stream)

    def make_sides(self) -> None:
        """Every baseline on every bench; takes time once."""
        self.all_sides()

    def all_sides(self) -> list[Side | None]:
        """Every baseline on every bench, None for one that cannot be made."""
        return [self.side(bench, name) for bench in self.benches for name in self.config.settings.baselines]

    def side(self, bench: Bench, name: str) -> Side | None:
        """A baseline on a bench, made on first use; None where it cannot be made (noted once)."""
        key = (bench.workload.name, name)
        if key in self._sides:
            return self._sides[key]
        wrap = _Compiled() if name == "compile" else None
        try:
            calls = [self.program.bind(group.inputs, wrap) for group in bench.sets]
            if name == "compile":
                with self.all_threads():  # what it generates is for this many
                    for call in calls:
                        call()  # compiles here, not under the clock
        except RuntimeError as error:
            note = f"baseline {name!r} is left out: {str(error).strip().splitlines()[0]}"
            if note not in self.dropped_baselines:
                self.dropped_baselines.append(note)
            self._sides[key] = None
            return None
        if self.driver is not None:
            self._sides[key] = CudaBaseline(name, calls, self.flush, self.driver)
        else:
            self._sides[key] = CpuBaseline(name, calls, self.flush, self.all_threads)
        return self._sides[key]

    def mend(self) -> None:
        """Restore what an earlier candidate left damaged."""
        for bench in self.benches:
            bench.restore()

    def leave_room(self) -> None:
        """Give back what torch keeps for later: the arena and the hosts' contexts need memory of the device too."""
        if self.driver is not None:
            torch.cuda.empty_cache()


class _Compiled:
    """torch.compile, once per function: the sets of a bench differ in addresses only."""

    def __init__(self) -> None:
        self._known: dict[int, Callable[..., object]] = {}

    def __call__(self, function: Callable[..., object]) -> Callable[..., object]:
        if id(function) not in self._known:
            self._known[id(function)] = torch.compile(function)
        return self._known[id(function)]


def _permitting(task: Task, libraries: Collection[str]) -> Task:
    """The task with more libraries allowed, and a note that says so."""
    added = tuple(name for name in libraries if name not in task.allow)
    if not added:
        return task
    note = f"libraries allowed for this evaluation: {', '.join(added)}"
    return replace(task, allow=(*task.allow, *added), notes=(*task.notes, note))


def _set_up_torch(device: torch.device, threads: int) -> None:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _allow_arithmetic(precision: Precision) -> None:
    """The baseline gets exactly the arithmetic the class permits."""
    tf32 = precision is Precision.TF32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases rename these switches; both still work
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
