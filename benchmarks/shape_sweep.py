"""Checks and times the collection's kernels on sizes that no suite task has (`sweep_shapes.py` lists them).

    python -m benchmarks.shape_sweep --limit-s 540
    python -m benchmarks.shape_sweep --only product,convolution --again
    python -m benchmarks.shape_sweep --compile-only --json /tmp/sweep.json

Every kernel is called in one process without the evaluator, which is meant for kernels of strangers: here the kernels
are the package's own, and an entry takes about a second. References, error limits and input variants are the
evaluator's. Both sides are timed as the evaluator times them: graphs over several sets of data, a flushed L2 cache.

The record is written after every entry. What the record has already is left out, unless the kernel's source or a header
that the source includes has changed: run the script again until nothing is left.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import torch
from benchmarks.collection_record import ARCH, file_name
from benchmarks.suite_sitting import versions
from benchmarks.sweep_entries import GROUPS, Entry
from benchmarks.sweep_shapes import entries

from warpsmith import kernel_templates
from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.candidate.c_call import CLibrary, argument_kind, pointer_table
from warpsmith.evaluator.judge.numerics.reference import Case, Reference, ReferenceResult, compare_output
from warpsmith.hardware.device import select_device
from warpsmith.hardware.work import count_work
from warpsmith.kernel_templates.in_parts import in_parts
from warpsmith.kernels.collection import SOURCES
from warpsmith.kernels.facts import identity
from warpsmith.kernels.form_file import STRUCTURED
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.brief import Problem
from warpsmith.model.build import BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import ArgumentKind, Contract
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings
from warpsmith.model.task import Task
from warpsmith.strategies import plan_space
from warpsmith.system.files import put_in_place
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.program import DTYPES, Program

HERE = Path(__file__).resolve().parent
RIGHT, WRONG, NOT_CLAIMED, BUILD_ERROR, FAILED = "right", "wrong", "not claimed", "build error", "failed"
VARIANTS = ("own", "large", "spike")  # of the inputs; a task has those that suit its domain
PROCESSES: Any = multiprocessing.get_context("spawn")  # a forked process may not use the GPU
TEMPLATE, ONE_TASK = "template", "kernel of the suite's task"

_WARM_UPS, _SAMPLES = 3, 15
_TIMING_S = 1.5  # of one entry
_SAMPLE_MS = 0.4  # one sample takes about this long: it decides the number of sets
_MOST_SETS, _MOST_BYTES = 16, 8 << 30
_GUARD = 1024  # elements before and after an output that a kernel must not write
_SILENT_S = 90.0  # a measuring process that says nothing for so long is ended
_NEARLY_RIGHT = 1000.0  # times its limit, as in the evaluator


@dataclass(frozen=True)
class Prepared:
    """The kernel of one entry, written and compiled."""

    name: str
    status: str  # "" if the kernel can be measured, else NOT_CLAIMED or BUILD_ERROR
    form: str = ""
    candidate: str = ""  # `identity` of the kernel
    reason: str = ""
    library: str = ""
    seconds: float = 0.0  # of compiling


@dataclass(frozen=True)
class Measured:
    """What is known of one entry."""

    name: str
    group: str
    shape: str
    form: str
    candidate: str
    status: str
    reason: str = ""
    error: float | None = None  # the largest over its limit
    variants: tuple[str, ...] = ()  # of the inputs that were checked
    kernel_ms: float | None = None
    eager_ms: float | None = None
    speedup: float | None = None  # over PyTorch eager


@dataclass(frozen=True)
class Kernel:
    """A kernel for the task of an entry."""

    form: str
    candidate: Candidate


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the record  [default: benchmarks/NAME-OF-THE-GPU/shape_sweep.json]")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit-s", type=float, default=540.0, help="no entry is begun after that")
    parser.add_argument("--only", default="", help="groups or parts of names, separated by commas")
    parser.add_argument("--again", action="store_true", help="measure also what the record has")
    parser.add_argument("--compile-only", action="store_true", help="write and compile the kernels; needs no GPU")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile at the same time")
    options = parser.parse_args()
    began = time.monotonic()
    if options.compile_only and not options.json:
        parser.error("--compile-only needs --json FILE: without a GPU there is no name for the record.")
    device = None if options.compile_only else select_device(options.device)
    path = options.json or HERE / file_name(device.name if device else "") / "shape_sweep.json"
    known = read_record(path)
    chosen = selected(options.only)
    with tempfile.TemporaryDirectory() as folder:
        skip = {} if options.again else known
        prepared = prepare(chosen, Path(folder), options.processes, skip)
        seconds = [each.seconds for each in prepared.values() if each.seconds]
        print(
            f"{len(prepared)} entries ready after {time.monotonic() - began:.0f} s; compiled {len(seconds)} sources, "
            f"{sum(seconds):.0f} s in all, {max(seconds, default=0):.0f} s the longest",
            flush=True,
        )
        details = {"device": device.name, "versions": versions(device)} if device else {}
        left: list[tuple[Entry, Prepared]] = []
        for entry in chosen:
            made = prepared[entry.name]
            if made.status:
                known[entry.name] = _measured(entry, made, made.status, made.reason)
                print(f"{entry.name:45} {made.status}: {made.reason[:200]}", flush=True)
            elif not _is_known(skip.get(entry.name), made):
                left.append((entry, made))
        write_record(path, known, details)
        if not options.compile_only:
            for found in measure_all(left, Path(folder), began + options.limit_s):
                known[found.name] = found
                write_record(path, known, details)
                print(line_of(found), flush=True)
    for text in summary(known[entry.name] for entry in chosen if entry.name in known):
        print(text)


def selected(only: str) -> list[Entry]:
    """The entries of these groups, or with these parts in their names; all for ""."""
    wanted = [part for part in only.split(",") if part]
    found = [e for e in entries() if not wanted or any(part == e.group or part in e.name for part in wanted)]
    if not found:
        raise UsageError(f"no entry is called {only!r}; the groups are {', '.join(GROUPS)}.")
    return found


def _is_known(measured: Measured | None, made: Prepared) -> bool:
    return measured is not None and measured.status in (RIGHT, WRONG) and measured.candidate == made.candidate


def _measured(entry: Entry, made: Prepared, status: str, reason: str = "") -> Measured:
    return Measured(entry.name, entry.group, entry.shape, made.form, made.candidate, status, reason[:500])


# --- the record ---


def read_record(path: Path) -> dict[str, Measured]:
    """The entries of a record; none if there is no file."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["entries"]
    return {row["name"]: Measured(**{**row, "variants": tuple(row["variants"])}) for row in rows}


def write_record(path: Path, known: dict[str, Measured], details: dict[str, Any]) -> None:
    """Write the whole record."""
    rows = [asdict(known[entry.name]) for entry in entries() if entry.name in known]
    record = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **details, "entries": rows}
    put_in_place(path, (json.dumps(record, indent=1) + "\n").encode(), 0o644)


def line_of(found: Measured) -> str:
    """One entry for the terminal."""
    if found.speedup is None:
        return f"{found.name:45} {found.status:8} {found.reason[:200]}"
    error = "" if found.error is None else f"error {found.error:.2f} of its limit"
    times = f"{found.kernel_ms:.4f} ms, eager {found.eager_ms:.4f} ms"
    return f"{found.name:45} {found.status:8} {found.speedup:6.2f}x  {times}  {error}  {found.reason[:200]}"


def summary(found: Iterator[Measured]) -> Iterator[str]:
    """The table: one row per group."""
    rows = list(found)
    yield f"{'group':12} {'right':>10} {'wrong':>6} {'failed':>7} {'not claimed':>12} {'mean':>7} {'lowest':>7}"
    for group in GROUPS:
        ours = [each for each in rows if each.group == group]
        if not ours:
            continue
        count = {status: sum(each.status == status for each in ours) for status in (RIGHT, WRONG, NOT_CLAIMED)}
        failed = sum(each.status in (FAILED, BUILD_ERROR) for each in ours)
        timed = [each for each in ours if each.status == RIGHT and each.speedup]
        speedups = [each.speedup for each in timed if each.speedup]
        mean = f"{math.exp(statistics.fmean(map(math.log, speedups))):.2f}x" if speedups else "-"
        lowest = min(timed, key=lambda each: each.speedup or 0.0, default=None)
        right = f"{count[RIGHT]} of {len(ours)}"
        least = f"{lowest.speedup:6.2f}x  {lowest.shape}" if lowest else ""
        yield (f"{group:12} {right:>10} {count[WRONG]:>6} {failed:>7} {count[NOT_CLAIMED]:>12} {mean:>7} {least:>7}")


# --- without a GPU ---


def write_tasks(chosen: Sequence[Entry], folder: Path) -> None:
    """Write the task file of every entry."""
    for entry in chosen:
        task_file(entry, folder).write_text(entry.text, encoding="utf-8")


def task_file(entry: Entry, folder: Path) -> Path:
    """The task file of an entry."""
    return folder / f"{entry.name}.py"


def kernel_for(entry: Entry, program: Program, contract: Contract) -> Kernel | None:
    """The kernel that a user's task gets: of a form, the file of a suite's task, in parts, or of a template."""
    own = SOURCES / f"{entry.kernel}.cu"
    if entry.kernel in STRUCTURED:
        return Kernel(ONE_TASK, read_candidate(own))
    operations = outline(program)
    written = form_kernel(program.task, contract, operations)
    if written is not None:
        return Kernel(written.form, Candidate((SourceFile("kernel.cu", written.source),), "cuda"))
    if entry.kernel and own.is_file():
        return Kernel(ONE_TASK, read_candidate(own))
    problem = Problem(program.task, contract, "cuda", ARCH, DeviceKind.CUDA, ARCH, (), operations)
    divided = in_parts(problem)
    if divided is not None:
        return Kernel(divided.form, Candidate((SourceFile("kernel.cu", divided.source),), "cuda"))
    abilities = kernel_templates.abilities(problem)
    risky = kernel_templates.risky_strategies(problem)
    plan = plan_space.initial(abilities, Random(0), (), risky=risky) if abilities else None
    if plan is None:
        return None
    return Kernel(TEMPLATE, Candidate((SourceFile("kernel.cu", kernel_templates.translate(problem, plan)),), "cuda"))


def prepare(
    chosen: Sequence[Entry], folder: Path, processes: int, known: Mapping[str, Measured]
) -> dict[str, Prepared]:
    """Write all kernels, and compile those that are not known yet, each source once."""
    write_tasks(chosen, folder)
    with ProcessPoolExecutor(processes, mp_context=PROCESSES) as pool:
        found = list(pool.map(write_kernel, chosen, [folder] * len(chosen), chunksize=4))
        sources: dict[str, Entry] = {}
        for entry, made in zip(chosen, found, strict=True):
            if not made.status and not _is_known(known.get(entry.name), made):
                sources.setdefault(made.candidate, entry)
        built = dict(zip(sources, pool.map(compile_kernel, sources.values(), [folder] * len(sources)), strict=True))
    prepared = {}
    for made in found:
        result = built.get(made.candidate)
        if result is not None:
            seconds = result.seconds if result.name == made.name else 0.0
            made = replace(made, status=result.status, reason=result.reason, library=result.library, seconds=seconds)
        prepared[made.name] = made
    return prepared


def write_kernel(entry: Entry, folder: Path) -> Prepared:
    """The kernel of an entry, not compiled yet."""
    try:
        program = load_task(task_file(entry, folder))
        kernel = kernel_for(entry, program, backend_named("cuda").contract(program.task))
    except WarpsmithError as fault:
        return Prepared(entry.name, NOT_CLAIMED, reason=str(fault))
    if kernel is None:
        return Prepared(entry.name, NOT_CLAIMED, reason="no form and no template fits")
    return Prepared(entry.name, "", kernel.form, identity(kernel.candidate))


def compile_kernel(entry: Entry, folder: Path) -> Prepared:
    """Compile the kernel of an entry into the build cache."""
    began = time.monotonic()
    try:
        program = load_task(task_file(entry, folder))
        backend = backend_named("cuda")
        contract = backend.contract(program.task)
        kernel = kernel_for(entry, program, contract)
        assert kernel is not None, "only entries with a kernel are compiled"
        made = backend.build(kernel.candidate, contract, Target(DeviceKind.CUDA, ARCH))
    except WarpsmithError as fault:
        return Prepared(entry.name, BUILD_ERROR, reason=str(fault))
    if isinstance(made, BuildFailure):
        return Prepared(entry.name, BUILD_ERROR, reason=made.reason)
    return Prepared(entry.name, "", library=str(made.library), seconds=time.monotonic() - began)


# --- on the GPU, in a process that may crash ---


def measure_all(left: Sequence[tuple[Entry, Prepared]], folder: Path, end: float) -> Iterator[Measured]:
    """Measure entries in one process after another: a new process follows one that a kernel has broken."""
    queue = list(left)
    while queue and time.monotonic() < end:
        lines = folder / f"lines_{len(queue)}.jsonl"
        lines.touch()
        process = PROCESSES.Process(target=measure_entries, args=(queue, folder, lines, end - time.monotonic()))
        process.start()
        read, heard, current = 0, time.monotonic(), ""
        while True:
            alive = process.is_alive()
            texts = lines.read_text(encoding="utf-8").split("\n")[:-1]
            for text in texts[read:]:
                heard, told = time.monotonic(), json.loads(text)
                current = told["name"]
                if "status" in told:
                    yield Measured(**{**told, "variants": tuple(told["variants"])})
                    queue = [job for job in queue if job[0].name != current]
                    current = ""
            read = len(texts)
            if not alive:
                break
            if time.monotonic() - heard > _SILENT_S:
                process.kill()
            process.join(0.1)
        if current:
            entry, made = next(job for job in queue if job[0].name == current)
            queue = [job for job in queue if job[0].name != current]
            reason = "no result in time" if process.exitcode == -9 else f"the process ended with {process.exitcode}"
            yield _measured(entry, made, FAILED, reason)
        elif process.exitcode == 0 or read == 0:
            return  # the time is over, or no process can be started


def measure_entries(jobs: Sequence[tuple[Entry, Prepared]], folder: Path, lines: Path, limit_s: float) -> None:
    """Measure entries until the time is over; writes a line before and after each."""
    end = time.monotonic() + limit_s
    set_up_torch()
    with lines.open("a", encoding="utf-8") as file:

        def tell(told: dict[str, Any]) -> None:
            file.write(json.dumps(told) + "\n")
            file.flush()

        for entry, made in jobs:
            if time.monotonic() > end:
                return
            tell({"name": entry.name})
            broken = False
            try:
                found = measure(entry, made, folder)
            except (RuntimeError, OSError, AttributeError, WarpsmithError) as fault:
                broken = "CUDA" in str(fault)  # then nothing works any more in this process
                found = _measured(entry, made, FAILED, f"{type(fault).__name__}: {fault}".partition("\n")[0])
            tell(asdict(found))
            if broken:
                file.close()
                os._exit(3)


def set_up_torch() -> None:
    """Permit PyTorch what the evaluator permits its baseline in the fp32 class."""
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def measure(entry: Entry, made: Prepared, folder: Path) -> Measured:
    """Check one kernel on several kinds of inputs, then time the kernel against PyTorch eager."""
    device = torch.device("cuda")
    program = load_task(task_file(entry, folder))
    task = program.task
    contract = backend_named("cuda").contract(task)
    workload = task.workloads[0]
    fake = program.fake_inputs(workload)
    with fake.mode:
        work = count_work(program.run, fake.tensors, structured=program.structured(device=device))
    reference = Reference(program, device, {workload.name: work.reduction}, Settings().error_factor)
    result = _measured(entry, made, RIGHT)
    shares, checked = [], []
    for variant in (each for each in VARIANTS if each in program.variants(device=device)):
        expected = reference.compute(Case(workload, variant, 2026))
        if expected is None:
            continue  # PyTorch's own result is unusable, as in the evaluator
        call = KernelCall(made.library, task, contract, expected.inputs)
        share, reason = call.check(reference, expected)
        shares.append(share)
        checked.append(variant)
        if reason:
            error = round(share, 4) if math.isfinite(share) else None
            said = f"{variant} inputs: {reason}"[:500]
            return replace(result, status=WRONG, reason=said, error=error, variants=tuple(checked))
        del call, expected
    if not checked:
        return replace(result, status=FAILED, reason="PyTorch's own result is unusable on all inputs")
    reference.release_memory()
    torch.cuda.empty_cache()
    kernel_ms, eager_ms = time_both(made.library, program, contract)
    return replace(
        result,
        error=round(max(shares), 4),
        variants=tuple(checked),
        kernel_ms=round(kernel_ms, 6),
        eager_ms=round(eager_ms, 6),
        speedup=round(eager_ms / kernel_ms, 4),
    )


class KernelCall:
    """A call of a kernel on one set of inputs; its outputs lie between guards."""

    def __init__(
        self, library: str, task: Task, contract: Contract, inputs: dict[str, Any], workspace: Any = None
    ) -> None:
        """`workspace`: memory that calls share; None takes some."""
        self._task, self._inputs = task, inputs
        self._device = next(iter(inputs.values())).device
        kinds, size_kinds = (
            [argument_kind(each) for each in chosen] for chosen in (contract.arguments, contract.size_arguments)
        )
        self._library = CLibrary(library, contract.entry, kinds, size_kinds)
        sizes = task.workloads[0].sizes
        values: dict[str, Any] = {**sizes, **{scalar.name: scalar.value for scalar in task.scalars}}
        asked = self._library.workspace_bytes([values[each.source] for each in contract.size_arguments])
        if asked < 0:
            raise RuntimeError(f"the kernel asks for {asked} bytes of workspace")
        self.workspace = self._filled(max(asked, 1), torch.uint8) if workspace is None else workspace
        self._guarded = [
            self._filled(math.prod(spec.shape(sizes)) + 2 * _GUARD, DTYPES[spec.dtype]) for spec in task.outputs
        ]
        self.outputs = [
            whole[_GUARD:-_GUARD].view(spec.shape(sizes))
            for spec, whole in zip(task.outputs, self._guarded, strict=True)
        ]
        values |= {name: tensor.data_ptr() for name, tensor in inputs.items()}
        values |= {spec.name: out.data_ptr() for spec, out in zip(task.outputs, self.outputs, strict=True)}
        self._table = pointer_table([values[name] for name in contract.table])
        special = {
            ArgumentKind.TABLE: ctypes.addressof(self._table) if contract.table else 0,
            ArgumentKind.WORKSPACE: self.workspace.data_ptr(),
            ArgumentKind.STREAM: 0,
        }
        self._values = [special.get(each.kind, values.get(each.source)) for each in contract.arguments]
        self._stream = [each.kind for each in contract.arguments].index(ArgumentKind.STREAM)

    def _filled(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory of bytes 255: NaN in floating types."""
        memory = torch.empty(count, dtype=dtype, device=self._device)
        memory.view(torch.uint8).fill_(255)
        return memory

    @property
    def nbytes(self) -> int:
        """The memory of inputs and outputs."""
        return sum(t.numel() * t.element_size() for t in (*self._inputs.values(), *self._guarded))

    def __call__(self) -> None:
        """Call the kernel on the current stream."""
        if self._device.type == "cuda":
            self._values[self._stream] = torch.cuda.current_stream().cuda_stream
        code = self._library.bind(self._values)()
        if code:
            raise RuntimeError(f"launch returned {code}, which is a CUDA error")

    def check(self, reference: Reference, expected: ReferenceResult) -> tuple[float, str]:
        """The largest error over its limit, and what is wrong; "" if nothing is."""
        before = {name: tensor.clone() for name, tensor in self._inputs.items()}
        self()
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        worst = 0.0
        for position, (whole, output) in enumerate(zip(self._guarded, self.outputs, strict=True)):
            for guard in (whole[:_GUARD], whole[-_GUARD:]):
                if not bool((guard.view(torch.uint8) == 255).all()):
                    return math.inf, "the kernel writes outside its output"
            found = compare_output(self._task, expected, position, output)
            if found.status is Status.WRONG and 1.0 < found.share <= _NEARLY_RIGHT:
                expected = reference.with_wider_limits(expected)
                found = compare_output(self._task, expected, position, output)
            if not found.ok:
                return found.share, found.reason
            worst = max(worst, found.share)
        for name, tensor in before.items():
            if not torch.equal(tensor.view(torch.uint8), self._inputs[name].view(torch.uint8)):
                return math.inf, f"the kernel changes its input {name}"
        return worst, ""


def time_both(library: str, program: Program, contract: Contract) -> tuple[float, float]:
    """Milliseconds of the kernel and of PyTorch eager: medians of samples in turn, as graphs, on data not in L2."""
    device = torch.device("cuda")
    task = program.task
    workload = task.workloads[0]

    def inputs(seed: int) -> dict[str, Any]:
        return program.inputs(workload, seed=seed, device=device)

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    cache = torch.empty(2 * torch.cuda.get_device_properties(device).L2_cache_size, dtype=torch.uint8, device=device)

    def timed(action: Callable[[], object]) -> float:
        cache.fill_(0x5A)
        start.record()
        action()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop))

    given = [inputs(0)]
    kernels, eager = [KernelCall(library, task, contract, given[0])], [program.bind(given[0])]
    estimate = 0.0
    for _ in range(2):
        kernels[0]()
        timed(eager[0])
        estimate = min(timed(eager[0]), timed(kernels[0]))
    room = max(1, _MOST_BYTES // kernels[0].nbytes)
    sets = min(_MOST_SETS, math.ceil(_SAMPLE_MS / max(estimate, 1e-3)), room)
    for seed in range(1, sets):
        given.append(inputs(seed))
        kernels.append(KernelCall(library, task, contract, given[-1], kernels[0].workspace))
        eager.append(program.bind(given[-1]))
    sides = [graph_of(kernels), graph_of(eager)]
    times: tuple[list[float], list[float]] = ([], [])
    began = time.monotonic()
    for number in range(_WARM_UPS + _SAMPLES):
        for side, samples in zip(sides, times, strict=True):
            samples.append(timed(side))
        if number >= 2 and time.monotonic() - began > _TIMING_S:
            break
    kept = [samples[min(_WARM_UPS, len(samples) - 1) :] for samples in times]
    return statistics.median(kept[0]) / sets, statistics.median(kept[1]) / sets


def graph_of(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """All calls as one graph; one after another where they cannot be captured."""
    kept: list[object] = []

    def plainly() -> None:
        for call in calls:
            call()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        plainly()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            kept += [call() for call in calls]
    except RuntimeError:  # a call that synchronises
        torch.cuda.synchronize()
        return plainly
    replay = graph.replay
    return lambda: (replay(), kept)


if __name__ == "__main__":
    try:
        main()
    except WarpsmithError as fault:
        sys.exit(f"error: {fault}")
