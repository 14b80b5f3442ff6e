"""Held-out inputs: shapes, distributions and seeds that an ordinary evaluation does not use.

Used by the judge's process when it verifies a winner. Shapes differ only in axes that vary between the task's own
workloads; an axis with one value is a constant of the contract, and a kernel may rely on it. Sizes that the reference
refuses are left out, and so are input sets on which its result is not finite.
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

from warpsmith.evaluator.judge.numerics.reference import Case, Reference, ReferenceResult, compare_output
from warpsmith.hardware.work import count_work
from warpsmith.model.task import Task, Workload
from warpsmith.tasks.program import Program
from warpsmith.tasks.user_code import Attempt
from warpsmith.tasks.variants import OWN

SEEDS = 5  # fresh input sets of the task's own distribution, per workload
MOST_SHAPES = 10
_MUCH = 1.5  # a held-out shape may be this much larger than the largest declared workload
_ROOM_BYTES = 2 << 30  # a larger shape must not exceed the smallest declared workload
_SEEDS_PER_SHAPE = 1
_VARIANTS_PER_SHAPE = 1
_DUMP_BYTES = 1 << 30  # a larger workload is not run under a sanitizer, which is 10 to 100 times slower
# A larger workload, counting tensors whose sizes may change, is made smaller for a sanitizer. With 64 MB, verifying
# kernels that give each of many short rows a cluster of blocks took 24 s on an H200, others 13 s.
_LIGHT_BYTES = 8 << 20
_LIGHT_FLOPS = 2 << 30  # likewise: racecheck takes about a second on an H200 for each 2**30
_TILE = 32  # a size stays a multiple of this when it is halved
_LEAST_ROWS = 2  # the leading axis is halved down to this
_FEWER = 16  # times fewer bytes with many short rows
_LARGE = 1 / 16  # of all bytes: the least share of a large tensor
LIGHTER = "smaller: "
CASES = "cases.json"


@dataclass(frozen=True)
class InputFileSet:
    """One input set written to `<tensor>.bin` files in a folder, for a standalone process."""

    folder: str
    workload: str
    sizes: dict[str, int]
    inputs: dict[str, int]  # bytes by name
    outputs: dict[str, int]


def add_held_out_workloads(program: Program, device: torch.device, path: Path) -> Task:
    """The task with held-out shapes after its own workloads."""
    task = program.task
    declared = [replace(w, name=f"held out: {w.name}") for w in task.held_out]
    shapes = [w for w in (*declared, *_shapes(program, path)) if _accepted(program, w, device, path)]
    lighter = [w for w in _lighter(program, device, path) if _accepted(program, w, device, path)]
    return replace(task, workloads=(*task.workloads, *lighter, *shapes[:MOST_SHAPES]))


def seed_cases(workload: Workload) -> list[Case]:
    """Several input sets of the task's own distribution."""
    return [Case(workload, OWN, secrets.randbits(62)) for _ in range(SEEDS)]


def variant_cases(program: Program, workload: Workload, device: torch.device) -> list[Case]:
    """One input set of every held-out distribution."""
    names = program.variants(device=device, held_out=True)
    return [Case(workload, name, secrets.randbits(62)) for name in names if name != OWN]


def shape_cases(program: Program, workload: Workload, device: torch.device) -> list[Case]:
    """A few input sets of both kinds, chosen at random."""
    others = variant_cases(program, workload, device)
    chosen = secrets.SystemRandom().sample(others, min(_VARIANTS_PER_SHAPE, len(others)))
    return [*seed_cases(workload)[:_SEEDS_PER_SHAPE], *chosen]


def usable(reference: Reference, case: Case) -> bool:
    """Whether a candidate can be checked on this case."""
    expected = reference.result_for(case)
    return expected is not None and all(bool(e.isfinite().all()) for e in expected.outputs if e.is_floating_point())


# --- shapes ---


def _shapes(program: Program, path: Path) -> list[Workload]:
    """Held-out shapes: all axes changed together, from the smallest workload; then one axis at a time, from the
    workload that is nearest to the changed size."""
    task = program.task
    axes = [axis for axis in task.axes if axis not in task.fixed_axes]
    known = (*task.workloads, *task.held_out)
    smallest = min(known, key=lambda w: total_bytes(task, w)).sizes
    together = [{axis: step(smallest[axis]) for axis in axes} for step in (_prime_below, lambda n: n + 1)]
    others = {axis: _others([w.sizes[axis] for w in known]) for axis in axes}
    apart = [(place, axis, value) for axis in axes for place, value in enumerate(others[axis])]
    # The axes take turns, so that a limit on the number of shapes cuts all of them alike.
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
    """The smallest declared workload with sizes halved until a sanitizer can run it in seconds, and another one with
    odd sizes; [] if a sanitizer can run the workload as it is, or if its sizes are constants.

    The number of rows is halved before their length: with a few rows of full length a kernel takes the same paths as
    with all of them. If that makes a difference, a third workload has many short rows, for errors between the rows of
    one block. It is the smallest, because each short row may get the threads of a long one, and racecheck's time grows
    with the number of threads.
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
    """The smallest declared workload halved until it is light enough; None if that is not needed or not possible.

    As long as possible its sizes stay multiples of the sizes of vectors and tiles.
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
        half = sizes[most] // 2 | sizes[most] % 2  # an odd size stays odd
        made, halved = _made(program, sizes | {most: half}, path, math.inf), True
        if made is not None and made.sizes[most] != half:
            axes.remove(most)  # this size follows from others
    return made if halved else None


def _odd(program: Program, workload: Workload, path: Path) -> Workload | None:
    """A workload that is hardly smaller, with primes for sizes."""
    task, sizes = program.task, workload.sizes
    primes = {axis: _prime_below(sizes[axis]) for axis in task.axes if axis not in task.fixed_axes}
    return _made(program, sizes | primes, path, math.inf)


def _is_heavy(program: Program, workload: Workload, device: torch.device, path: Path, limit: int) -> bool:
    """Whether a sanitizer would take long; False if the reference refuses the sizes, which `_accepted` finds out."""
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
    """The bytes of the tensors that shrink with the sizes."""
    least = workload.sizes | {axis: 1 for axis in task.axes if axis not in task.fixed_axes}
    sizes = [(tensor.nbytes(workload.sizes), tensor.nbytes(least)) for tensor in task.tensors]
    return sum(now for now, then in sizes if then < now)


def _made(program: Program, sizes: dict[str, int], path: Path, largest: float) -> Workload | None:
    """A workload of these sizes; None if the task refuses them or it takes more bytes than `largest`."""
    with Attempt(path) as attempt:
        made = program.workload("", sizes)
    return made if attempt.error is None and total_bytes(program.task, made) <= largest else None


def _nearest(task: Task, axis: str, value: int) -> dict[str, int]:
    """The sizes of the declared workload whose axis is nearest to this value."""

    def distance(workload: Workload) -> tuple[float, int]:
        return abs(math.log(workload.sizes[axis] / value)), total_bytes(task, workload)

    return min((*task.workloads, *task.held_out), key=distance).sizes


def _others(values: Sequence[int]) -> list[int]:
    """Other sizes for an axis, those most likely to show an error first: a prime between, next to the ends, 1, half."""
    low, high = min(values), max(values)
    wanted = [_prime_below((low + high) // 2), high + 1, low - 1, 1, (low // 2) | 1, _prime_below(high), low - 2]
    return [v for v in dict.fromkeys(wanted) if v >= 1 and v not in values]


def _prime_below(limit: int) -> int:
    """The largest prime not above a number; 1 if there is none."""
    for n in range(limit, 1, -1):
        if all(n % d for d in range(2, int(n**0.5) + 1)):
            return n
    return 1


def _accepted(program: Program, workload: Workload, device: torch.device, path: Path) -> bool:
    """Whether the reference accepts these sizes, and its outputs have the declared shapes."""
    with Attempt(path) as attempt:
        results = program.run(program.inputs(workload, seed=0, device=device))
        shapes = [spec.shape(workload.sizes) for spec in program.task.outputs]
        same = [tuple(r.shape) for r in results] == shapes
    if isinstance(attempt.error, torch.OutOfMemoryError):
        torch.cuda.empty_cache()
    return attempt.error is None and same


def total_bytes(task: Task, workload: Workload) -> int:
    """The bytes of all tensors of a workload."""
    return sum(t.nbytes(workload.sizes) for t in task.tensors)


# --- for standalone processes ---


class WrittenInputs:
    """Writes a few small input sets to files, and checks results for them; the expected results stay in the judge."""

    def __init__(self, program: Program, task: Task, reference: Reference, folder: Path) -> None:
        self._task = task
        self._expected: dict[str, ReferenceResult] = {}
        dumped: list[InputFileSet] = []
        for number, workload in enumerate(_smallest(program.task, task)):
            case = next((c for c in seed_cases(workload) if usable(reference, c)), None)
            expected = reference.result_for(case) if case else None
            if expected is None:
                continue
            name = f"case{number}"
            self._expected[name] = expected
            dumped.append(_written(task, workload, expected.inputs, folder / name))
        (folder / CASES).write_text(json.dumps([asdict(each) for each in dumped]), encoding="utf-8")

    def check_results(self, folder: Path) -> str:
        """What is wrong with the results in `<case>/<output>.bin` of a folder; "" if they are right."""
        for name, expected in self._expected.items():
            for position, spec in enumerate(self._task.outputs):
                like = expected.baseline[position]
                try:
                    raw = _read_regular_file(folder / name / f"{spec.name}.bin", like.numel() * like.element_size())
                except OSError as error:
                    return f"it left no {spec.name} behind ({error.strerror or error})."
                result = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else torch.empty(0)
                result = result.view(like.dtype).view(like.shape).to(like.device)
                found = compare_output(self._task, expected, position, result)
                if not found.ok:
                    return found.reason
        return ""


def _smallest(own: Task, extended_task: Task) -> list[Workload]:
    """The smallest declared workload and a held-out one with odd sizes; or the lighter versions of both."""
    declared = min(own.workloads, key=lambda w: total_bytes(own, w))
    others = extended_task.workloads[len(own.workloads) :]
    lighter = [w for w in others if w.name.startswith(LIGHTER)]
    return [w for w in lighter or (declared, *others[:1]) if total_bytes(own, w) <= _DUMP_BYTES]


def _written(task: Task, workload: Workload, inputs: Mapping[str, torch.Tensor], folder: Path) -> InputFileSet:
    folder.mkdir(parents=True)
    for name, tensor in inputs.items():
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        (folder / f"{name}.bin").write_bytes(raw.numpy().tobytes())
    sizes = workload.sizes
    return InputFileSet(
        folder=folder.name,
        workload=workload.name,
        sizes=sizes,
        inputs={t.name: t.nbytes(sizes) for t in task.inputs},
        outputs={t.name: t.nbytes(sizes) for t in task.outputs},
    )


def _read_regular_file(path: Path, nbytes: int) -> bytes:
    """Read a file that an untrusted process wrote: no link, no pipe, of exactly this size."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes:
            raise OSError(0, f"{found.st_size} bytes instead of {nbytes}")
        return file.read(nbytes)
