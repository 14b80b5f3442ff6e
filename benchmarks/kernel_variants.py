"""Times variants of kernels: every combination of values of their macros, checked against PyTorch.

    python -m benchmarks.kernel_variants "softmax TUNE_THREADS=256,512 TUNE_PACKS=4,8" "relu TUNE_PACKS=1,2,4"
    python -m benchmarks.kernel_variants cross_entropy "cross_entropy:path/to/candidate.cu"

    python -m benchmarks.kernel_variants "sweep/product_batched_48_197_65_197 TUNE_WAY=0,1,2"

A kernel is that of the collection for a task, or, for sweep/ENTRY, that which an entry of `sweep_shapes.py` gets.
TASK:FILE is another kernel for the task. Arguments of the same task that follow each other make one table.

For people who write kernels: one table in a minute instead of a judged candidate per variant. A variant is checked
against PyTorch eager on one set of inputs only, so the one that is chosen has to be judged afterwards. Variants run in
a process of their own: one that breaks the GPU's context or never ends is named, and the others are timed all the same.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from benchmarks.collection_record import ARCH
from benchmarks.shape_sweep import KernelCall, kernel_for, selected, set_up_torch, task_file, write_tasks

from warpsmith.backends.source import backend_named
from warpsmith.kernels.collection import find_kernel
from warpsmith.model.build import BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

_PROCESSES: Any = multiprocessing.get_context("spawn")  # a forked process may not use the GPU
_WARM_UPS, _SAMPLES = 2, 9
SWEEP = "sweep/"
_SILENT_S = 45.0  # a measuring process that comes no further for so long is ended


@dataclass(frozen=True)
class Variant:
    """A kernel with values for its macros."""

    task: str
    file: str  # "": the kernel of the collection
    defines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.defines) or "as it is"
        return f"{self.file} {values}" if self.file else values


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+", metavar="'TASK[:FILE] MACRO=A,B MACRO=C,D'")
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--processes", type=int, help="that compile at the same time  [default: one per core]")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    options = parser.parse_args()
    began = time.monotonic()
    chosen = [variant for text in options.kernels for variant in variants(text)]
    for variant in chosen:
        try:
            subject(variant.task)
        except WarpsmithError as error:
            parser.error(str(error))
    with ProcessPoolExecutor(options.processes, mp_context=_PROCESSES) as pool:
        built = list(pool.map(build, chosen))
    compiled = sum(not fault for _, fault in built)
    print(f"{compiled} of {len(chosen)} variants compiled after {time.monotonic() - began:.0f} s", flush=True)
    if options.compile_only:
        for variant, (_, fault) in zip(chosen, built, strict=True):
            print(f"{variant.task} {variant}: {fault or 'compiled'}")
        return
    pairs = enumerate(zip(chosen, built, strict=True))
    groups = [list(group) for _, group in itertools.groupby(pairs, key=lambda pair: pair[1][0].task)]
    measure_all([[Job(number, *pair) for number, pair in group] for group in groups], began + options.limit_s)


@dataclass(frozen=True)
class Job:
    """A variant to be timed."""

    number: int
    variant: Variant
    built: tuple[str, str]  # the library, and what went wrong


class Position:
    """Where a measuring process stands; in memory that both processes see."""

    def __init__(self) -> None:
        self.group = _PROCESSES.Value("i", 0)  # the first that is not finished
        self.job = _PROCESSES.Value("i", -1)  # the variant in work
        self.moves = _PROCESSES.Value("i", 0)

    def reach(self, job: int) -> None:
        """A variant begins, or -1: something else."""
        self.job.value = job
        self.moves.value += 1


def measure_all(groups: list[list[Job]], end: float, work: Callable[..., None] | None = None) -> None:
    """Time all groups in one process after another: a new process follows one that a variant has broken."""
    position = Position()
    while position.group.value < len(groups):
        position.reach(-1)
        process = _PROCESSES.Process(target=work or measure, args=(groups, position, end - time.monotonic()))
        process.start()
        seen, moved = -1, time.monotonic()
        while process.is_alive():
            if position.moves.value != seen:
                seen, moved = position.moves.value, time.monotonic()
            if time.monotonic() - moved > _SILENT_S:
                process.kill()
            process.join(0.1)
        if process.exitcode == 0:
            return
        culprit, reason = position.job.value, "no end" if process.exitcode == -9 else f"status {process.exitcode}"
        number = position.group.value
        if culprit < 0:
            print(f"{groups[number][0].variant.task}: the measuring process ended ({reason})", flush=True)
            position.group.value += 1
            continue
        fault = ("", f"it broke the measuring process ({reason})")
        groups[number] = [replace(job, built=fault) if job.number == culprit else job for job in groups[number]]


def measure(groups: Sequence[Sequence[Job]], position: Position, limit_s: float) -> None:
    """Time groups from the position on, until the time is over."""
    end = time.monotonic() + limit_s
    set_up_torch()
    for group in groups[position.group.value :]:
        if time.monotonic() > end:
            break
        for line in compare(group[0].variant.task, group, position):
            print(line, flush=True)
        position.group.value += 1


def variants(text: str) -> Iterator[Variant]:
    """The variants that one argument asks for."""
    kernel, *macros = text.split()
    task, _, file = kernel.partition(":")
    names = [macro.partition("=")[0] for macro in macros]
    for values in itertools.product(*(macro.partition("=")[2].split(",") for macro in macros)):
        yield Variant(task, file, tuple(zip(names, values, strict=True)))


@cache
def subject(name: str) -> tuple[Program, Contract, Candidate]:
    """The task that a name means, and its kernel as it is."""
    backend = backend_named("cuda")
    if not name.startswith(SWEEP):
        kernel = find_kernel(name)
        program = load_task(kernel.task.spec())
        return program, backend.contract(program.task), kernel.candidate
    entry = next((each for each in selected(name.removeprefix(SWEEP)) if each.name == name.removeprefix(SWEEP)), None)
    if entry is None:
        raise UsageError(f"no entry of sweep_shapes.py is called {name.removeprefix(SWEEP)!r}.")
    with tempfile.TemporaryDirectory() as folder:
        write_tasks([entry], Path(folder))
        program = load_task(task_file(entry, Path(folder)))
    contract = backend.contract(program.task)
    found = kernel_for(entry, program, contract)
    if found is None:
        raise UsageError(f"no kernel fits the entry {entry.name!r}.")
    return program, contract, found.candidate


def build(variant: Variant) -> tuple[str, str]:
    """The library, and what went wrong."""
    try:
        _, contract, candidate = subject(variant.task)
        backend = backend_named("cuda")
        candidate = replace(candidate, defines=variant.defines)
        if variant.file:
            main = replace(candidate.main, text=Path(variant.file).read_text(encoding="utf-8"))
            candidate = replace(candidate, files=(main,))
        made = backend.build(candidate, contract, Target(DeviceKind.CUDA, ARCH))
    except (WarpsmithError, OSError) as fault:
        return "", str(fault)
    return ("", made.reason) if isinstance(made, BuildFailure) else (str(made.library), "")


def compare(name: str, group: Sequence[Job], position: Position) -> Iterator[str]:
    """One line per workload and variant, the fastest first."""
    program, contract, _ = subject(name)
    for workload in program.task.workloads:
        one = replace(program.task, workloads=(workload,))
        inputs = program.inputs(workload, seed=0, device=torch.device("cuda"))
        eager = program.bind(inputs)
        expected = eager()
        yield f"{name} ({workload.name}): eager {timed(eager):.4f} ms"
        found = []
        for job in group:
            position.reach(job.number)
            variant, (library, fault) = job.variant, job.built
            if fault:
                found.append((float("inf"), f"{variant}: {fault[:200]}"))
                continue
            try:
                call = KernelCall(library, one, contract, inputs)
                call()
                torch.cuda.synchronize()
                error = difference(call.outputs, expected)
                taken = timed(call)
            except RuntimeError as failed:
                torch.cuda.synchronize()  # raises again if the context is broken, which ends this process
                found.append((float("inf"), f"{variant}: {str(failed)[:200]}"))
                continue
            found.append((taken, f"{taken:.4f} ms  {variant}  largest difference {error:.2g}"))
            del call
        position.reach(-1)
        yield from (f"  {text}" for _, text in sorted(found))
        del inputs, eager, expected
        torch.cuda.empty_cache()


def difference(outputs: Sequence[torch.Tensor], expected: Any) -> float:
    """The largest difference over the largest magnitude of PyTorch's result."""
    wanted = expected if isinstance(expected, (tuple, list)) else (expected,)
    worst = 0.0
    for output, other in zip(outputs, wanted, strict=True):
        apart = (output.float() - other.float()).abs().max() / other.float().abs().max().clamp(min=1e-30)
        worst = max(worst, float("inf") if apart.isnan() else float(apart))
    return worst


def timed(call: Any) -> float:
    """Milliseconds: the median of some calls, each on a cold L2 cache."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    cache = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(_WARM_UPS + _SAMPLES):
        cache.fill_(0x5A)
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(float(start.elapsed_time(stop)))
    return statistics.median(times[_WARM_UPS:])


if __name__ == "__main__":
    main()
