"""What nobody tried before: shapes, distributions and seeds that an ordinary evaluation does not use.

Used by the judge's process when it verifies a winner. Shapes differ only in axes that vary between the task's own
workloads; an axis with one value is a constant of the contract, and a kernel may rely on it. A size that the
reference itself refuses is left out, and so is an input set on which its result is not finite.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from warpsmith.core.task import Task, Workload
from warpsmith.evaluate.correctness.oracle import Case, Oracle, Truth
from warpsmith.evaluate.correctness.ruling import rule
from warpsmith.hardware.work import count_work
from warpsmith.tasks.program import Program
from warpsmith.tasks.usercode import Attempt
from warpsmith.tasks.variants import OWN

SEEDS = 5  # fresh input sets of the task's own distribution, per workload
MOST_SHAPES = 10
_MUCH = 1.5  # how much larger than the largest declared workload one may be
_ROOM_BYTES = 2 << 30  # one that is larger than this has to be no larger than the smallest declared workload
_SEEDS_PER_SHAPE = 1
_VARIANTS_PER_SHAPE = 1
_DUMP_BYTES = 1 << 30  # a workload larger than this is not run under a sanitizer, which costs 10 to 100 times
# And one that is larger than this, in tensors whose sizes may change, is made smaller for it. With 64 MB verifying
# kernels that give each of many short rows a cluster of blocks took 24 s on an H200, others 13 s.
_LIGHT_BYTES = 8 << 20
_LIGHT_FLOPS = 2 << 30  # likewise: under racecheck a product takes about a second on an H200 for each 2**30
_TILE = 32  # a size stays a multiple of this when it is halved
_LEAST_ROWS = 2  # what comes first in all large tensors is halved as far as this
_FEWER = 16  # times less in many short rows
_LARGE = 1 / 16  # of all bytes: a tensor that counts when it is asked what all have in common
LIGHTER = "smaller: "
CASES = "cases.json"


@dataclass(frozen=True)
class Dumped:
    """One input set written to files, for a process that has no judge: `<tensor>.bin` in its folder."""

    folder: str
    workload: str
    sizes: dict[str, int]
    inputs: dict[str, int]  # bytes by name
    outputs: dict[str, int]


def extended(program: Program, device: torch.device, path: Path) -> Task:
    """The task with held-out shapes behind its own workloads."""
    task = program.task
    declared = [replace(w, name=f"held out: {w.name}") for w in task.held_out]
    shapes = [w for w in (*declared, *_shapes(program, path)) if _accepted(program, w, device, path)]
    lighter = [w for w in _lighter(program, device, path) if _accepted(program, w, device, path)]
    return replace(task, workloads=(*task.workloads, *lighter, *shapes[:MOST_SHAPES]))


def seed_cases(workload: Workload) -> list[Case]:
    """The task's own distribution again and again."""
    return [Case(workload, OWN, secrets.randbits(62)) for _ in range(SEEDS)]


def variant_cases(program: Program, workload: Workload, device: torch.device) -> list[Case]:
    """Every held-out distribution once."""
    names = program.variants(device=device, held_out=True)
    return [Case(workload, name, secrets.randbits(62)) for name in names if name != OWN]


def shape_cases(program: Program, workload: Workload, device: torch.device) -> list[Case]:
    """A few of both, chosen anew each time."""
    others = variant_cases(program, workload, device)
    chosen = secrets.SystemRandom().sample(others, min(_VARIANTS_PER_SHAPE, len(others)))
    return [*seed_cases(workload)[:_SEEDS_PER_SHAPE], *chosen]


def usable(oracle: Oracle, case: Case) -> bool:
    """Whether anybody can be judged by this case."""
    truth = oracle.truth(case)
    return truth is not None and all(bool(e.isfinite().all()) for e in truth.expected if e.is_floating_point())


# --- shapes ---


def _shapes(program: Program, path: Path) -> list[Workload]:
    """All axes changed together, from the smallest workload; then one at a time, from the workload nearest to it."""
    task = program.task
    axes = [axis for axis in task.axes if axis not in task.fixed_axes]
    known = (*task.workloads, *task.held_out)
    smallest = min(known, key=lambda w: total_bytes(task, w)).sizes
    together = [{axis: step(smallest[axis]) for axis in axes} for step in (_prime_below, lambda n: n + 1)]
    others = {axis: _others([w.sizes[axis] for w in known]) for axis in axes}
    apart = [(place, axis, value) for axis in axes for place, value in enumerate(others[axis])]
    # In turn between the axes, so that a limit on their number cuts all of them alike.
    changes = [([smallest], change) for change in together if axes]
    changes += [([_nearest(task, axis, value), smallest], {axis: value}) for _, axis, value in sorted(apart)]
    sizes = [total_bytes(task, w) for w in task.workloads]
    largest = min(_MUCH * max(sizes), max(_ROOM_BYTES, min(sizes)))
    found: list[Workload] = []
    for bases, change in changes:
        made = next((w for base in bases if (w := _made(program, base | change, path, largest))), None)
        if made is not None and made.sizes not in [w.sizes for w in (*known, *found)]:
            label = " ".join(f"{axis}={made.sizes[axis]}" for axis in axes)
            found.append(replace(made, name=f"held out: {label}"))
    return found


def _lighter(program: Program, device: torch.device, path: Path) -> list[Workload]:
    """The smallest declared workload with sizes halved until a sanitizer can run it in seconds, and one with odd sizes
    beside it; [] where it can as it is, or where its sizes are constants.

    Rows go before their length: with a few rows of full length a kernel does what it does with all of them. Where that
    makes a difference, one with many short rows comes third, for what happens between the rows of one block. It is the
    smallest, because each short row may get the threads of a long one, and racecheck is slow by the thread.
    """
    few = _halved(program, device, path, _LIGHT_BYTES, rows_first=True)
    many = _halved(program, device, path, _LIGHT_BYTES, rows_first=False)
    found = [] if few is None else [few, _odd(program, few, path)]
    if few is not None and many is not None and many.sizes != few.sizes:
        shorter = _halved(program, device, path, _LIGHT_BYTES // _FEWER, rows_first=False)
        found.append(shorter and _odd(program, shorter, path))
    given = {axis for tensor in program.task.inputs for axis in tensor.dims}  # others follow
    axes = [axis for axis in program.task.axes if axis in given and axis not in program.task.fixed_axes]
    named = [replace(w, name=LIGHTER + " ".join(f"{axis}={w.sizes[axis]}" for axis in axes)) for w in found if w]
    return list({w.name: w for w in named}.values())


def _halved(program: Program, device: torch.device, path: Path, limit: int, *, rows_first: bool) -> Workload | None:
    """The smallest declared workload made light enough; None where that is not needed, or not to be had.

    As long as possible its sizes stay multiples of what vectors and tiles need.
    """
    task = program.task
    axes = [axis for axis in task.axes if axis not in task.fixed_axes]
    made: Workload | None = min(task.workloads, key=lambda w: total_bytes(task, w))
    halved = False
    while made is not None and _is_heavy(program, made, device, path, limit):
        sizes = made.sizes
        rows = [axis for axis in _leading(task, made) if axis in axes and sizes[axis] >= 2 * _LEAST_ROWS]
        even = [axis for axis in axes if sizes[axis] % (2 * _TILE) == 0]
        most = max((rows_first and rows) or even or axes, key=sizes.__getitem__, default="")
        if not most or sizes[most] == 1:
            return None
        half = sizes[most] // 2 | sizes[most] % 2  # what is odd stays odd
        made, halved = _made(program, sizes | {most: half}, path, math.inf), True
        if made is not None and made.sizes[most] != half:
            axes.remove(most)  # it follows from others
    return made if halved else None


def _odd(program: Program, workload: Workload, path: Path) -> Workload | None:
    """Another one that is hardly smaller, with primes for sizes."""
    task, sizes = program.task, workload.sizes
    primes = {axis: _prime_below(sizes[axis]) for axis in task.axes if axis not in task.fixed_axes}
    return _made(program, sizes | primes, path, math.inf)


def _is_heavy(program: Program, workload: Workload, device: torch.device, path: Path, limit: int) -> bool:
    """Whether a sanitizer would take long; not where the reference refuses the sizes, which `_accepted` finds out."""
    if _changing_bytes(program.task, workload) > limit:
        return True
    with Attempt(path) as attempt:
        fake = program.fake_inputs(workload)
        with fake.mode:
            work = count_work(program.run, fake.tensors, structured=program.structured(device=device))
    return attempt.error is None and work.flops > _LIGHT_FLOPS


def _leading(task: Task, workload: Workload) -> list[str]:
    """The axis that comes first in all large tensors, if there is one."""
    sizes = [(tensor, tensor.nbytes(workload.sizes)) for tensor in task.tensors]
    limit = _LARGE * sum(nbytes for _, nbytes in sizes)
    first = {tensor.dims[:1] for tensor, nbytes in sizes if nbytes >= limit}
    return [axis for dims in first for axis in dims if isinstance(axis, str)] if len(first) == 1 else []


def _changing_bytes(task: Task, workload: Workload) -> int:
    """Of the tensors that are smaller where sizes are."""
    least = workload.sizes | {axis: 1 for axis in task.axes if axis not in task.fixed_axes}
    sizes = [(tensor.nbytes(workload.sizes), tensor.nbytes(least)) for tensor in task.tensors]
    return sum(now for now, then in sizes if then < now)


def _made(program: Program, sizes: dict[str, int], path: Path, largest: float) -> Workload | None:
    """A workload of these sizes; None where the task refuses them or it takes more bytes than this."""
    with Attempt(path) as attempt:
        made = program.workload("", sizes)
    return made if attempt.error is None and total_bytes(program.task, made) <= largest else None


def _nearest(task: Task, axis: str, value: int) -> dict[str, int]:
    """The declared workload that is most like one with this value."""

    def distance(workload: Workload) -> tuple[float, int]:
        return abs(math.log(workload.sizes[axis] / value)), total_bytes(task, workload)

    return min((*task.workloads, *task.held_out), key=distance).sizes


def _others(values: Sequence[int]) -> list[int]:
    """Other values for an axis, the most telling first: a prime inside, next to the ends, one, half, an even one."""
    low, high = min(values), max(values)
    wanted = [_prime_below((low + high) // 2), high + 1, low - 1, 1, (low // 2) | 1, _prime_below(high), low - 2]
    return [v for v in dict.fromkeys(wanted) if v >= 1 and v not in values]


def _prime_below(limit: int) -> int:
    """The largest prime not above a number; 1 where there is none."""
    for n in range(limit, 1, -1):
        if all(n % d for d in range(2, int(n**0.5) + 1)):
            return n
    return 1


def _accepted(program: Program, workload: Workload, device: torch.device, path: Path) -> bool:
    """Whether the reference takes these sizes, and gives what the task says."""
    with Attempt(path) as attempt:
        results = program.run(program.inputs(workload, seed=0, device=device))
        shapes = [spec.shape(workload.sizes) for spec in program.task.outputs]
        same = [tuple(r.shape) for r in results] == shapes
    if isinstance(attempt.error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
    return attempt.error is None and same


def total_bytes(task: Task, workload: Workload) -> int:
    """All tensors of a workload."""
    return sum(t.nbytes(workload.sizes) for t in task.tensors)


# --- for processes without a judge ---


class Samples:
    """A few small input sets in files, and the truth about them, which stays here."""

    def __init__(self, program: Program, task: Task, oracle: Oracle, folder: Path) -> None:
        self._task = task
        self._truths: dict[str, Truth] = {}
        dumped: list[Dumped] = []
        for number, workload in enumerate(_smallest(program.task, task)):
            case = next((c for c in seed_cases(workload) if usable(oracle, c)), None)
            truth = oracle.truth(case) if case else None
            if truth is None:
                continue
            name = f"case{number}"
            self._truths[name] = truth
            dumped.append(_written(task, workload, truth.inputs, folder / name))
        (folder / CASES).write_text(json.dumps([asdict(each) for each in dumped]), encoding="utf-8")

    def appraise(self, folder: Path) -> str:
        """What is wrong with results in `<case>/<output>.bin` of this folder; "" where they are right."""
        for name, truth in self._truths.items():
            for position, spec in enumerate(self._task.outputs):
                expected = truth.baseline[position]
                try:
                    raw = _read_plainly(folder / name / f"{spec.name}.bin", expected.numel() * expected.element_size())
                except OSError as error:
                    return f"it left no {spec.name} behind ({error.strerror or error})."
                result = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.empty(0)
                result = result.view(expected.dtype).view(expected.shape).to(expected.device)
                verdict = rule(self._task, truth, position, result).verdict
                if not verdict.ok:
                    return verdict.reason
        return ""


def _smallest(own: Task, extended_task: Task) -> list[Workload]:
    """The smallest declared workload, and a held-out one with odd sizes where there is one; or both lighter."""
    declared = min(own.workloads, key=lambda w: total_bytes(own, w))
    others = extended_task.workloads[len(own.workloads) :]
    lighter = [w for w in others if w.name.startswith(LIGHTER)]
    return [w for w in lighter or (declared, *others[:1]) if total_bytes(own, w) <= _DUMP_BYTES]


def _written(task: Task, workload: Workload, inputs: Mapping[str, torch.Tensor], folder: Path) -> Dumped:
    folder.mkdir(parents=True)
    for name, tensor in inputs.items():
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        (folder / f"{name}.bin").write_bytes(raw.numpy().tobytes())
    sizes = workload.sizes
    return Dumped(
        folder=folder.name,
        workload=workload.name,
        sizes=sizes,
        inputs={t.name: t.nbytes(sizes) for t in task.inputs},
        outputs={t.name: t.nbytes(sizes) for t in task.outputs},
    )


def _read_plainly(path: Path, nbytes: int) -> bytes:
    """A file somebody else wrote: no link, no pipe, of exactly this size."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes:
            raise OSError(0, f"{found.st_size} bytes instead of {nbytes}")
        return file.read(nbytes)
