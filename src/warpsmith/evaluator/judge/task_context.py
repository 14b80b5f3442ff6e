"""What is the same for all candidates of one task on one device: program, peaks, buffers, reference, baselines.

Used by the judge's process only; `examiner` uses it for each candidate.
"""

from __future__ import annotations

import gc
import math
import mmap
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from warpsmith.evaluator.cuda_replay.shared_memory import GRANULE_BYTES
from warpsmith.evaluator.judge import arena as memory
from warpsmith.evaluator.judge.baselines import LONG_S, BaselineRunner, CpuBaseline, CudaBaseline, rough_time_s
from warpsmith.evaluator.judge.cpu_caches import CpuCaches
from warpsmith.evaluator.judge.memory_need import DeviceMemory, check_memory, total_bytes
from warpsmith.evaluator.judge.numerics import held_out_inputs
from warpsmith.evaluator.judge.numerics.calibration import CalibrationCache, Calibrator, baseline_unusable
from warpsmith.evaluator.judge.numerics.reference import Reference, free_bytes
from warpsmith.evaluator.judge.records import CalibrationMode, JudgeConfig, TaskFacts
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers, buffers_of_set
from warpsmith.evaluator.protocol.buffer_layout import BufferLayout, join_layouts, lay_out
from warpsmith.evaluator.protocol.messages import MOST_CALLS
from warpsmith.hardware.device import cpu_info
from warpsmith.hardware.peaks import Peaks, load_or_measure
from warpsmith.hardware.roofline import floor_ms, zone
from warpsmith.hardware.work import Work, count_work
from warpsmith.model.brief import DeviceFigures, WorkloadBound
from warpsmith.model.build import DeviceKind
from warpsmith.model.certificate import Calibration
from warpsmith.model.errors import TaskError
from warpsmith.model.task import Precision, Task, TensorRole, Workload
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.program import Program
from warpsmith.tasks.variants import OWN

_SAMPLE_NS = {"cpu": 2e6, "cuda": 4e5}  # one sample should take about this long: it decides the number of sets
_MOST_SETS = {"cpu": MOST_CALLS, "cuda": 64}
_MANY_SETS = 8
_ESTIMATE_CALLS = 8
_FEW_BYTES = 16 << 20
_FEW_FLOPS = 2e9
_SHORT_S = 0.001


class TaskContext:
    """Everything that is the same for all candidates of one task."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config
        self.settings = config.settings
        self.device = torch.device(config.kind, config.index) if config.kind == "cuda" else torch.device("cpu")
        _set_up_torch(self.device, config.threads)
        precision = Precision(config.precision) if config.precision else None
        self.program: Program = load_task(config.task, precision=precision)
        self.task: Task = self.program.task
        self.check_memory()
        _allow_arithmetic(self.task.precision)
        self.driver = memory.driver_for(self.device)
        if config.inputs_folder:  # to verify a winner
            self.task = held_out_inputs.add_held_out_workloads(
                self.program, self.device, Path(config.task.partition("::")[0])
            )
        self.task = _with_libraries(self.task, self.settings.allow)
        self.peaks: Peaks = load_or_measure(Path(config.cache), config.device_key, self.device)
        self.peaks_questioned = False  # whether a result that beat its floor has had them measured again
        self.work = {w.name: self._count(w) for w in self.task.workloads}
        self.baseline_s = {w.name: self._time_once(w) for w in self.task.workloads}
        self._untimed_threads = self._count_untimed_threads()
        torch.set_num_threads(self._untimed_threads)
        unit = GRANULE_BYTES if self.driver is not None else mmap.PAGESIZE
        self._layouts, self._input_bytes, self._arena_bytes = join_layouts(self._lay_out(), unit)
        self.slots = tuple(s for layout in self._layouts for group in layout.sets for s in group)
        self._allocate_buffers()
        reductions = {name: work.reduction for name, work in self.work.items()}
        self.reference = Reference(self.program, self.device, reductions, self.settings.error_factor)
        self.calibration = None if config.inputs_folder else self._calibrate()
        reserve = self.calibration.reserve if self.calibration else ()
        self.cases = {w.name: self.reference.cases(w, self.settings.seeds, reserve) for w in self.task.workloads}
        self.input_files: held_out_inputs.WrittenInputs | None = None
        if config.inputs_folder:
            self.input_files = held_out_inputs.WrittenInputs(
                self.program, self.task, self.reference, Path(config.inputs_folder)
            )
        else:
            self._check_usable()
        self._runners: dict[tuple[str, str], BaselineRunner | None] = {}
        self._compiled = _Compiled()
        self.flush_bytes = 2 * self.peaks.l2_bytes
        self._flush_buffer: torch.Tensor | None = None
        self._caches = CpuCaches(self.peaks.l2_bytes, config.lines_library) if self.driver is None else None
        self.dropped_baselines: list[str] = []

    def check_memory(self) -> None:
        """Raise if the task does not fit into the free memory of the device."""
        check_memory(self.task, self.config.task, DeviceMemory(free_bytes(self.device), total_bytes(self.device)))

    def _allocate_buffers(self) -> None:
        self.release_cached_memory()
        self.arena: memory.Arena = memory.allocate(
            self._arena_bytes,
            self.device,
            self.driver,
            [(slot.region_start, slot.region_end) for slot in self.slots if slot.writable],
            input_bytes=self._input_bytes,
            room_bytes=self.settings.limits.workspace_bytes,
        )
        self.workload_buffers = self._make_workload_buffers()

    @property
    def held_bytes(self) -> int:
        """The memory of the device in buffers, references and baselines."""
        kept = torch.cuda.memory_reserved(self.device) if self.driver is not None else 0
        return kept + self.arena.memory.numel()

    def release_buffers(self) -> None:
        """Release all memory of the device that can be had again: no host may use the buffers any more."""
        self._runners.clear()
        self.reference.release_results()
        self._flush_buffer = None
        self.workload_buffers = []
        self.arena.close()
        gc.collect()
        self.release_cached_memory()

    def restore_buffers(self) -> None:
        """Allocate the buffers again; raises TooLittleMemory if they do not fit now."""
        self.check_memory()
        self._allocate_buffers()

    def _count_untimed_threads(self) -> int:
        """How many threads the judge's untimed work on the CPU gets: with little to do several threads would only wait
        for each other, above all on a busy machine."""
        most_bytes = max(held_out_inputs.total_bytes(self.task, w) for w in self.task.workloads)
        most_flops = max(work.flops for work in self.work.values())
        return 1 if most_bytes < _FEW_BYTES and most_flops < _FEW_FLOPS else self.config.threads

    @contextmanager
    def all_threads(self) -> Iterator[None]:
        """Give torch all threads, for work that is timed on the CPU."""
        torch.set_num_threads(self.config.threads)
        try:
            yield
        finally:
            torch.set_num_threads(self._untimed_threads)

    @property
    def facts(self) -> TaskFacts:
        """What the supervisor and proposers have to know of the task and the device."""
        config = self.config
        return TaskFacts(
            torch=torch.__version__,
            device=config.device_name,
            threads=config.threads,
            notes=(*self.task.notes, *self._busy_note()),
            calibration=self.calibration,
            bounds=tuple(self._bound(workload) for workload in self.task.workloads),
            outline=outline(self.program),
            figures=DeviceFigures(
                units=self.peaks.sms,
                cache_bytes=self.peaks.l2_bytes,
                bandwidth_bytes_s=self.peaks.bandwidth_bytes_s,
                flops_s=self.peaks.flops,
                launch_s=self.peaks.launch_overhead_s,
                instructions=cpu_info().instructions if self.peaks.kind is DeviceKind.CPU else "",
            ),
        )

    def _busy_note(self) -> tuple[str, ...]:
        """A note if the machine was busy when the peaks were measured: the peaks may be too low."""
        if self.peaks.steady:
            return ()
        return (
            f"the machine was busy when the peaks of the device were measured (load {self.peaks.load:.0%}, spread "
            f"{self.peaks.spread:.0%}): shares of the roofline may be too high; they are measured again later.",
        )

    def _bound(self, workload: Workload) -> WorkloadBound:
        work, precision = self.work[workload.name], self.task.precision
        return WorkloadBound(
            workload=workload.name,
            axes=workload.axes,
            bytes=work.bytes,
            flops=work.flops,
            floor_ms=floor_ms(work, self.peaks, precision),
            zone=zone(work, self.peaks, precision),
            baseline_ms=1e3 * self.baseline_s[workload.name],
        )

    def _calibrate(self) -> Calibration:
        """Whether wrong results fail the task: computed once, then cached."""
        device = "|".join(self.config.device_key.split("|")[:2])  # kind and name: equal devices share a calibration
        cache = CalibrationCache(Path(self.config.cache), device, self.settings.error_factor)
        found = None if self.config.calibration is CalibrationMode.REPORT_AGAIN else cache.get(self.task)
        if found is None:
            found = Calibrator(self.program, self.reference, self.device).run()
            cache.put(self.task, found)
            self.release_cached_memory()
        return found

    def _check_usable(self) -> None:
        """Refuse a task on which PyTorch's own result is unusable. A task that wrong results pass is judged: its
        evaluations say which."""
        assert self.calibration is not None, "a task is calibrated before it is used"
        for workload in self.task.workloads:
            own = (case for case in self.cases[workload.name] if case.variant == OWN)
            if not any(self.reference.result_for(case) for case in own):
                reason = self.calibration.reason or baseline_unusable(self.task, workload)
                if self.config.calibration is CalibrationMode.JUDGE:
                    raise TaskError(reason)
                self.calibration = replace(self.calibration, passed=False, reason=reason)

    def _count(self, workload: Workload) -> Work:
        fake = self.program.fake_inputs(workload)
        with fake.mode:
            return count_work(self.program.run, fake.tensors, structured=self.program.structured(device=self.device))

    def _time_once(self, workload: Workload) -> float:
        """A rough time of one call of the baseline in seconds, from which follow the number of sets and time limits."""
        call = self.program.bind(self.program.inputs(workload, seed=0, device=self.device))
        if self.device.type == "cuda":
            call()
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            once = time.perf_counter() - start
            if once > LONG_S:
                return once
            count = _ESTIMATE_CALLS if once < _SHORT_S else 1  # a graph keeps the results of all its calls
            assert self.driver is not None, "on a GPU"
            runner = CudaBaseline("eager", [call] * count, lambda results=(): None, self.driver)
            graph = runner.capture()
            return min(runner.sample(graph, range(count)) for _ in range(3)) / 1e9 / count
        return rough_time_s(call)

    def _lay_out(self) -> list[BufferLayout]:
        """The layout of each workload, with as many sets as fit and as one sample needs."""
        kind = self.device.type
        budget = (0.3 if kind == "cuda" else 0.15) * free_bytes(self.device) / len(self.task.workloads)
        layouts = []
        for workload in self.task.workloads:
            one = lay_out(buffers_of_set(self.task, workload), 1, kind).total_bytes
            wanted = math.ceil(_SAMPLE_NS[kind] / 1e9 / max(self.baseline_s[workload.name], 1e-7))
            most = max(1, min(_MOST_SETS[kind], int(min(budget, 4 << 30) // one)))
            sets = max(1, min(most, max(2, wanted))) if not self.config.inputs_folder else 1
            layouts.append(lay_out(buffers_of_set(self.task, workload), sets, kind))
        return layouts

    def _make_workload_buffers(self) -> list[WorkloadBuffers]:
        workload_buffers, first = [], 0
        for workload, layout in zip(self.task.workloads, self._layouts, strict=True):
            workload_buffers.append(
                WorkloadBuffers(self.program, workload, layout, self.arena.memory, first, self.settings.without)
            )
            first += len(layout.sets)
        for buffers in workload_buffers:
            inputs = self.program.inputs(buffers.workload, seed=0, device=self.device)
            for index in range(len(buffers.sets)):
                buffers.write_inputs(index, inputs)
        return workload_buffers

    def flush(self, results: Iterable[torch.Tensor] = ()) -> None:
        """Push all data out of the last cache; on a GPU with the same operation as hosts use.

        Of short tasks on the CPU only the buffers and these results of a baseline, which is what both sides begin
        with: their samples consist of many calls, which find the rest as the call before has left it.
        """
        if self._caches is not None:
            if self._short_calls() and self._caches.drops_lines(self.arena.memory.numel()):
                self._caches.drop((self.arena.memory, *results))
            else:
                self._caches.overwrite()
            return
        assert self.driver is not None, "on a GPU"
        if self._flush_buffer is None:
            self._flush_buffer = torch.empty(self.flush_bytes, dtype=torch.uint8, device=self.device)
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self.driver.forget_persisting_lines()
        self.driver.fill_async(self._flush_buffer.data_ptr(), 0x5A, self.flush_bytes, stream)

    def _short_calls(self) -> bool:
        """Whether a sample of every workload consists of many calls. Hosts copy state into memory of their own."""
        stateless = all(tensor.role is not TensorRole.STATE for tensor in self.task.tensors)
        return stateless and all(len(layout.sets) >= _MANY_SETS for layout in self._layouts)

    def baseline_runners(self) -> list[BaselineRunner]:
        """Every baseline on every workload that can run; making them takes time once."""
        names = self.settings.baselines
        found = [self.baseline_runner(buffers, name) for buffers in self.workload_buffers for name in names]
        return [runner for runner in found if runner is not None]

    def baseline_runner(self, buffers: WorkloadBuffers, name: str) -> BaselineRunner | None:
        """A baseline on one workload, made on first use; None if it cannot be made (noted once)."""
        key = (buffers.workload.name, name)
        if key not in self._runners:
            self._runners[key] = self._make_runner(buffers, name)
        return self._runners[key]

    def _make_runner(self, buffers: WorkloadBuffers, name: str) -> BaselineRunner | None:
        wrap = self._compiled if name == "compile" else None
        try:
            calls = [self.program.bind(group.inputs, wrap) for group in buffers.sets]
            if name == "compile":
                with self.all_threads():  # the generated code is for this number of threads
                    for call in calls:
                        call()  # compiles now, not while it is timed
        except RuntimeError as error:
            note = f"baseline {name!r} is left out: {str(error).strip().splitlines()[0]}"
            if note not in self.dropped_baselines:
                self.dropped_baselines.append(note)
            return None
        if self.driver is not None:
            return CudaBaseline(name, calls, self.flush, self.driver)
        return CpuBaseline(name, calls, self.flush, self.all_threads)

    def release_cached_memory(self) -> None:
        """Release memory that torch caches: the arena and the hosts' contexts need memory of the device too."""
        if self.driver is not None:
            torch.cuda.empty_cache()


class _Compiled:
    """torch.compile, once per function: the sets of a workload differ in addresses only."""

    def __init__(self) -> None:
        self._known: dict[int, Callable[..., object]] = {}

    def __call__(self, function: Callable[..., object]) -> Callable[..., object]:
        if id(function) not in self._known:
            self._known[id(function)] = torch.compile(function)
        return self._known[id(function)]


def _with_libraries(task: Task, libraries: Collection[str]) -> Task:
    """The task with more libraries allowed, and a note about them."""
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
    """Permit the baseline exactly the arithmetic of the task's precision."""
    tf32 = precision is Precision.TF32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases rename these switches; both still work
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
