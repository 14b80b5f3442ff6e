"""One task on one device, set up once, where candidate after candidate is examined.

Holds the program, the measured peaks, the shared arena with its benches and the baselines. Used by the
judge's process only; `judge` speaks to the supervisor, this module decides.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from warpsmith.core.contract import Contract
from warpsmith.core.errors import TaskError
from warpsmith.core.evaluation import Status, WorkloadResult
from warpsmith.core.task import Precision, Task, Workload
from warpsmith.evaluate import arena as memory
from warpsmith.evaluate.bench import Bench, buffers
from warpsmith.evaluate.boarding import Boarding
from warpsmith.evaluate.check import Checker, Measured
from warpsmith.evaluate.contest import Contest, CpuBaseline, CudaBaseline, Side, Timing, warm_up_sets
from warpsmith.evaluate.findings import Condemned, Facts, Findings
from warpsmith.evaluate.judge import JudgeConfig
from warpsmith.evaluate.layout import Layout, arrange, moved
from warpsmith.evaluate.messages import (
    Prepare,
    Prepared,
    Sample,
    Sampled,
)
from warpsmith.evaluate.oracle import Oracle, free_bytes
from warpsmith.evaluate.peer import Peer
from warpsmith.hardware.peaks import Peaks, improve, load_or_measure
from warpsmith.hardware.roofline import floor_ms, reject_below_ms
from warpsmith.hardware.work import Work, count_work
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

_IDLE_SAMPLES = 3
_SAMPLE_NS = {"cpu": 2e6, "cuda": 4e5}  # one sample should take about this long: it sets how many sets rotate
_MOST_SETS = {"cpu": 16, "cuda": 64}
_ESTIMATE_CALLS = 8
_ROOM_BYTES = 4 << 30  # for contexts and flush buffers of the hosts that start next
_SHORT_S = 0.001
_LONG_S = 0.05  # a baseline this slow needs no estimate finer than one call


class Courtroom:
    """Everything that is the same for all candidates of one task."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._settings = config.settings
        self.device = torch.device(config.kind, config.index) if config.kind == "cuda" else torch.device("cpu")
        _set_up_torch(self.device, config.threads)
        precision = Precision(config.precision) if config.precision else None
        self.program: Program = load_task(config.task, precision=precision)
        self.task: Task = self.program.task
        _allow_arithmetic(self.task.precision)
        self._driver = memory.driver_for(self.device)
        self.peaks: Peaks = load_or_measure(Path(config.cache), config.device_key, self.device)
        self._work = {w.name: self._count(w) for w in self.task.workloads}
        self._baseline_s = {w.name: self._time_once(w) for w in self.task.workloads}
        self._layouts = self._plan()
        self._leave_room()
        self._arena = memory.allocate(sum(layout.total_bytes for layout in self._layouts), self.device, self._driver)
        self._benches = self._make_benches()
        self._boarding = Boarding(self.task, self._benches, self.device, self._driver, self._settings.limits)
        self._slots = tuple(s for layout in self._layouts for group in layout.sets for s in group)
        reductions = {name: work.reduction for name, work in self._work.items()}
        self._oracle = Oracle(self.program, self.device, reductions, self._settings.error_factor)
        self._cases = {w.name: self._oracle.cases(w, self._settings.seeds) for w in self.task.workloads}
        self._check_usable()
        self._sides: dict[tuple[str, str], Side] = {}
        self._flush_bytes = 2 * self.peaks.l2_bytes
        self._flush_buffer: torch.Tensor | None = None
        self._dropped_baselines: list[str] = []

    # --- setting up ---

    @property
    def facts(self) -> Facts:
        """For the environment block of every result."""
        return Facts(torch.__version__, self._config.device_name, self._config.threads, self.task.notes)

    def _check_usable(self) -> None:
        """Refuse a task that nobody could be judged by."""
        for workload in self.task.workloads:
            if not any(self._oracle.truth(case) for case in self._cases[workload.name] if case.variant == "own"):
                raise TaskError(
                    f"{self.task.name}: PyTorch's own {self.task.precision} result on workload {workload.name!r} is "
                    "too far from its fp64 result to judge others by; choose inputs or an operator that are better "
                    "conditioned, or another precision."
                )

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
            side = CudaBaseline("eager", [call] * count, lambda: None)
            graph = side.capture()
            return min(side.sample(graph) for _ in range(3)) / 1e9 / count
        best = math.inf
        for _ in range(4):
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
            if best > _LONG_S:
                break
        return best

    def _plan(self) -> list[Layout]:
        """How many sets of each workload fit and are worth having."""
        kind = self.device.type
        budget = (0.3 if kind == "cuda" else 0.15) * free_bytes(self.device) / len(self.task.workloads)
        layouts, offset = [], 0
        for workload in self.task.workloads:
            one = arrange(buffers(self.task, workload), 1, kind).total_bytes
            wanted = math.ceil(_SAMPLE_NS[kind] / 1e9 / max(self._baseline_s[workload.name], 1e-7))
            most = max(1, min(_MOST_SETS[kind], int(min(budget, 4 << 30) // one)))
            sets = max(1, min(most, max(2, wanted + warm_up_sets(2, kind))))
            layout = moved(arrange(buffers(self.task, workload), sets, kind), offset)
            layouts.append(layout)
            offset += layout.total_bytes
        return layouts

    def _make_benches(self) -> list[Bench]:
        benches, first = [], 0
        for workload, layout in zip(self.task.workloads, self._layouts, strict=True):
            benches.append(Bench(self.program, workload, layout, self._arena.memory, first))
            first += len(layout.sets)
        for bench in benches:
            inputs = self.program.inputs(bench.workload, seed=0, device=self.device)
            for index in range(len(bench.sets)):
                bench.put(index, inputs)
        return benches

    def _flush(self) -> None:
        """Push everything out of the L2 cache, with the very operation that hosts use."""
        assert self._driver is not None, "only a GPU is flushed this way"
        if self._flush_buffer is None:
            self._flush_buffer = torch.empty(self._flush_bytes, dtype=torch.uint8, device=self.device)
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self._driver.forget_persisting_lines()
        self._driver.fill_async(self._flush_buffer.data_ptr(), 0x5A, self._flush_bytes, stream)

    def _side(self, bench: Bench, name: str) -> Side | None:
        """A baseline on a bench, made on first use; None where it cannot be made (noted once)."""
        key = (bench.workload.name, name)
        if key in self._sides:
            return self._sides[key]
        wrap = _Compiled() if name == "compile" else None
        try:
            calls = [self.program.bind(group.inputs, wrap) for group in bench.sets]
            if name == "compile":
                for call in calls:
                    call()  # compiles here, not under the clock
        except RuntimeError as error:
            note = f"baseline {name!r} is left out: {str(error).strip().splitlines()[0]}"
            if note not in self._dropped_baselines:
                self._dropped_baselines.append(note)
            return None
        if self.device.type == "cuda":
            self._sides[key] = CudaBaseline(name, calls, self._flush)
        else:
            self._sides[key] = CpuBaseline(name, calls, self._flush_bytes, warm_up_sets(len(calls), self.device.type))
        return self._sides[key]

    # --- one candidate ---

    def _leave_room(self) -> None:
        """Give back what torch keeps for later: the arena and the hosts' contexts need memory of the device too."""
        if self._driver is not None:
            torch.cuda.empty_cache()

    def prepare(self, peer: Peer, scratch: str) -> None:
        """Let a host set itself up; does not wait for it."""
        if self._driver is not None and self._driver.memory()[0] < _ROOM_BYTES:
            self._leave_room()
        config, limits = self._config, self._settings.limits
        on_cpu = self.device.type == "cpu"
        peer.slots = self._slots if on_cpu else ()
        peer.stage = "starting"
        request = Prepare(
            kind=config.kind,
            device=config.index,
            arena_bytes=self._arena.memory.numel(),
            ipc_handle=self._arena.handle,
            slots=tuple((s.region_start, s.region_end, int(s.writable)) for s in peer.slots),
            flush_bytes=self._flush_bytes,
            scratch=scratch,
            readable=(*config.readable, scratch),
            memory_bytes=limits.memory_bytes,
            scratch_bytes=limits.scratch_bytes,
            threads=config.threads,
        )
        peer.tell(request, self._arena.descriptors())

    def _await(self, peer: Peer) -> Prepared:
        if peer.prepared is None:
            peer.prepared = peer.answer(Prepared, self._settings.limits.start_s)
        return peer.prepared

    def examine(
        self,
        peer: Peer,
        library: str,
        contract: Contract,
        waiting: Sequence[Peer],
        report: Callable[[str], None],
    ) -> Findings:
        """The verdict on one candidate; raises Condemned for a failed one."""
        deadline = time.monotonic() + self._settings.limits.total_s
        layers = self._await(peer).layers
        idle_ns = self._idle(peer)
        taken_before = self._taken_bytes()
        report("load")
        wipe = self._boarding.board(peer, library, contract)
        checker = Checker(self._oracle, self._settings, wipe, deadline)
        measured: dict[str, Measured] = {}
        for bench in self._benches:
            report("check")
            limit_s = self._call_limit_s(bench.workload)
            measured[bench.workload.name] = checker.examine(peer, bench, self._cases[bench.workload.name], limit_s)
            self._check_memory(taken_before)
        for other in waiting:  # a host that is still starting would disturb the clock
            if other.prepared is None:
                try:
                    self._await(other)
                except Condemned:
                    continue  # it will be told when its turn comes
        results = []
        for bench in self._benches:
            report("time")
            results.append(self._measure(peer, bench, measured[bench.workload.name], checker, wipe, idle_ns, deadline))
        notes = (*self._notes(), *self._dropped_baselines)
        return Findings(Status.OK, "", tuple(results), notes, layers)

    def _idle(self, peer: Peer) -> int:
        """What an empty request costs by our clock, before any code of the candidate is there."""
        costs = []
        for _ in range(_IDLE_SAMPLES):
            if self.device.type == "cuda":  # so that the device changes hands, as it does between samples
                self._flush()
                torch.cuda.synchronize()
            reply = peer.ask(Sample((), False, 1, ()), Sampled, self._settings.limits.start_s)
            costs.append(peer.outer_ns - reply.elapsed_ns)
        return max(costs)

    def _call_limit_s(self, workload: Workload) -> float:
        return self._settings.limits.launch_s + 100 * self._baseline_s[workload.name]

    def _taken_bytes(self) -> int:
        """Device memory that is in use, but not by this process's torch."""
        if self._driver is None:
            return 0
        free, total = self._driver.memory()
        return total - free - torch.cuda.memory_reserved(self.device)

    def _check_memory(self, taken_before: int) -> None:
        """On a GPU, what the candidate took for itself shows in what is left."""
        held = self._taken_bytes() - taken_before
        limit = self._settings.limits.memory_bytes + self._settings.limits.workspace_bytes
        if held > limit:
            raise Condemned(
                Status.OUT_OF_MEMORY,
                f"the candidate holds {held / 1e9:.1f} GB of device memory; the limit is {limit / 1e9:.1f} GB.",
            )

    def _measure(
        self,
        peer: Peer,
        bench: Bench,
        measured: Measured,
        checker: Checker,
        wipe: Callable[[], None],
        idle_ns: int,
        deadline: float,
    ) -> WorkloadResult:
        workload, work = bench.workload, self._work[bench.workload.name]
        timings: list[Timing] = []
        for name in self._settings.baselines:
            side = self._side(bench, name)
            if side is None:
                continue
            contest = Contest(
                peer,
                bench,
                side,
                self._settings,
                call_limit_s=self._call_limit_s(workload),
                deadline=deadline,
                idle_ns=idle_ns,
                verify=lambda indices, outputs: checker.verify_timed(bench, indices, outputs),
                wipe_workspace=wipe,
            )
            timings.append(contest.run())
        if not timings:
            raise RuntimeError("no baseline could be run")
        latency_ms = timings[0].latency_ms
        least_ms = reject_below_ms(work, self.peaks, self.task.precision)
        if latency_ms < least_ms:  # before calling anybody a cheat: were the peaks measured on a busy machine?
            self.peaks = improve(self.peaks, Path(self._config.cache), self.device)
            least_ms = reject_below_ms(work, self.peaks, self.task.precision)
        if latency_ms < least_ms:
            raise Condemned(
                Status.BELOW_FLOOR,
                f"{latency_ms:.4g} ms on workload {workload.name!r} is less than the {least_ms:.4g} ms that this "
                "device needs to move the data or do the arithmetic: some of the work is not done.",
            )
        return WorkloadResult(
            workload=workload.name,
            axes=workload.axes,
            latency_ms=latency_ms,
            timing=timings[0].mode,
            baselines=tuple(t.baseline for t in timings),
            error=measured.error,
            error_limit=measured.limit,
            floor_ms=floor_ms(work, self.peaks, self.task.precision),
            bytes=work.read_bytes + work.written_bytes,
            flops=work.flops,
            checks=measured.checks,
            reference=measured.reference,
        )

    def _notes(self) -> tuple[str, ...]:
        dropped = sorted(set(self._oracle.dropped))
        if not dropped:
            return ()
        return (f"input variants left out because PyTorch's own result is unusable on them: {', '.join(dropped)}",)


class _Compiled:
    """torch.compile, once per function: the sets of a bench differ in addresses only."""

    def __init__(self) -> None:
        self._known: dict[int, Callable[..., object]] = {}

    def __call__(self, function: Callable[..., object]) -> Callable[..., object]:
        if id(function) not in self._known:
            self._known[id(function)] = torch.compile(function)
        return self._known[id(function)]


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
