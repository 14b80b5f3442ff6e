"""Is a task fit to judge by? Wrong results of many kinds must fail it, PyTorch's own must pass with room to spare.

Judges impostors by the very rule candidates are judged by. One that some input set tells from the truth is caught; one
that none does gets the task refused, because a kernel could do just that. Before that, input variants of the reserve
are tried, and those that help become part of the task's checks. Seeds are fixed, so that the outcome is a property
of the task and not of luck; it is kept in the cache folder.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError

from warpsmith._version import __version__
from warpsmith.core.calibration import Calibration, Impostor
from warpsmith.core.inplace import put_in_place
from warpsmith.core.task import Task, Workload
from warpsmith.evaluate.correctness.coarse import BELOW
from warpsmith.evaluate.correctness.impostors import Disguise, Earlier, Scene, disguises
from warpsmith.evaluate.correctness.oracle import Case, Oracle, Truth, free_bytes
from warpsmith.evaluate.correctness.ruling import share
from warpsmith.tasks import variants
from warpsmith.tasks.program import Program, mixed

_FORMAT = 2  # raise it when a change to the harness makes old outcomes worthless
_CLEAR = 1.5  # times its limit: an impostor that is off by less is caught, but other input sets may do better
_SECOND_LOOKS = 4  # that many of them, before the reserve
_MARGIN = 0.5  # of each limit: the most PyTorch's own results may use
_OWN_SEEDS = 4  # input sets of the task's own distribution; timed calls are checked on many more
_HELD_INPUTS, _HELD_OUTPUTS = 4, 12  # copies of them that exist at once, about
_BROKEN = (RuntimeError, ValueError, ArithmeticError, AssertionError, IndexError)  # a reference on odd inputs
_CALIBRATION = TypeAdapter(Calibration)


class CalibrationCache:
    """Outcomes that need not be found twice."""

    def __init__(self, cache: Path, device: str, error_factor: float) -> None:
        self._folder = cache / "calibration"
        self._parts = (device, torch.__version__, repr(error_factor), __version__, str(_FORMAT))

    def get(self, task: Task) -> Calibration | None:
        """An outcome found before; None when there is none or it cannot be read."""
        try:
            found = _CALIBRATION.validate_json(self._path(task).read_bytes())
        except (OSError, ValidationError):
            return None
        return replace(found, cached=True)

    def put(self, task: Task, outcome: Calibration) -> None:
        """Keep an outcome. Where that fails, it costs the next one time and nothing else."""
        path = self._path(task)
        with suppress(OSError):
            put_in_place(path, _CALIBRATION.dump_json(outcome))

    def _path(self, task: Task) -> Path:
        text = "\0".join((task.digest, task.precision, *self._parts))
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def too_far(task: Task, workload: Workload) -> str:
    """What to say where PyTorch's own floating-point result is unusable."""
    return (
        f"{task.name}: PyTorch's own {task.precision} result on workload {workload.name!r} is "
        "too far from its fp64 result to judge others by; choose inputs or an operator that are better "
        "conditioned, or another precision."
    )


@dataclass
class _Open:
    """An impostor that has not clearly been caught yet, and why that may be."""

    disguise: Disguise
    made: bool = False
    differed: bool = False
    excused: bool = False
    crowded: bool = False  # no memory to try it
    best: float = 1.0  # the largest error ÷ limit so far
    looks: int = 0  # input sets tried since it was caught, but not clearly

    def undecided(self, reserve: bool) -> bool:
        """Whether it is worth another input set, or one of the reserve."""
        if not self.made or self.excused or (self.looks > _SECOND_LOOKS and not reserve):
            return False
        return self.differed or not self.disguise.kind.equal


class Calibrator:
    """Calibrates one task on one device, once."""

    def __init__(self, program: Program, oracle: Oracle, device: torch.device) -> None:
        self._program = program
        self._oracle = oracle
        self._device = device
        self._task: Task = program.task
        self._earlier: dict[str, Earlier] = {}  # by workload
        self._open = [_Open(each) for each in disguises(self._task)]
        self._found: dict[Disguise, Impostor] = {}
        self._shares: list[float] = []  # of the limits: what PyTorch's own results use
        self._strained = ""  # what is wrong with PyTorch's own results
        self._attended = 0  # input sets of the task's own distribution on which they are usable
        self._reserve: list[str] = []

    def run(self) -> Calibration:
        """Try every impostor until it is clearly caught or all input sets are used up."""
        began = time.monotonic()
        order = [each.disguise for each in self._open]
        for index, case in enumerate(self._cases()):
            reserve = case.variant in variants.RESERVE
            if not self._undecided(reserve) and not (index < _OWN_SEEDS and self._hangs_on_bits()):
                continue
            if self._attend(case) and reserve and case.variant not in self._reserve:
                self._reserve.append(case.variant)
        if not self._attended and not self._strained:
            self._strained = too_far(self._task, self._task.workloads[0])
        for each in self._open:
            self._found.setdefault(each.disguise, self._uncaught(each))
        reason = self._strained or next((self._complaint(d) for d in order if self._found[d].passes), "")
        return Calibration(
            passed=not reason,
            reason=reason,
            impostors=tuple(self._found[disguise] for disguise in order) if self._attended else (),
            baseline_share=max((s for s in self._shares if math.isfinite(s)), default=None),
            reserve=tuple(self._reserve),
            seconds=time.monotonic() - began,
        )

    def _undecided(self, reserve: bool) -> bool:
        """Whether an impostor is left that another input set may catch."""
        return not self._attended or any(each.undecided(reserve) for each in self._open)

    def _cases(self) -> Iterator[Case]:
        """The input sets to try, the smallest workload first; those of the reserve where all others have failed."""
        usual = [v for v in self._program.variants(device=self._device) if v != variants.OWN]
        workloads = sorted(self._task.workloads, key=self._nbytes)
        first = _OWN_SEEDS if self._hangs_on_bits() else 1
        for workload in workloads:
            yield from (self._case(workload, variants.OWN, number) for number in range(first))
            yield from (self._case(workload, variant, 0) for variant in usual)
            yield from (self._case(workload, variants.OWN, number) for number in range(first, _OWN_SEEDS))
        for workload in workloads:
            yield from (self._case(workload, variant, 0) for variant in variants.RESERVE)

    def _case(self, workload: Workload, variant: str, number: int) -> Case:
        return Case(workload, variant, mixed(int(self._task.digest[:15], 16), f"{workload.name}/{variant}/{number}"))

    def _nbytes(self, workload: Workload) -> int:
        return sum(t.nbytes(workload.sizes) for t in self._task.tensors)

    def _hangs_on_bits(self) -> bool:
        """Whether rounding may decide an exact output: then one input set proves little."""
        exact = any("float" not in t.dtype and "complex" not in t.dtype for t in self._task.outputs)
        return exact and any("float" in t.dtype for t in self._task.inputs)

    # --- one input set ---

    def _attend(self, case: Case) -> bool:
        """Judge PyTorch's own result and every open impostor; whether one was clearly caught."""
        truth = self._oracle.unkept(case)
        if truth is None:
            if case.variant == variants.OWN and self._hangs_on_bits() and not self._strained:
                self._strained = (
                    f"{self._task.name}: on some inputs of workload {case.workload.name!r} PyTorch's own "
                    f"{self._task.precision} result is not right by the rule it would be judged by; choose inputs or "
                    "outputs that do not hang on the last bit, or another precision."
                )
            return False
        self._attended += case.variant == variants.OWN
        self._try_baseline(truth)
        if case.workload.name not in self._earlier:
            other = self._case(case.workload, variants.OWN, _OWN_SEEDS)
            self._earlier[case.workload.name] = Earlier.of(
                self._program.run(self._program.inputs(other.workload, seed=other.seed, device=self._device))
            )
        earlier, terms = self._earlier[case.workload.name], self._oracle.reduction(case.workload)
        scene = Scene(self._program, truth, earlier, reduction=terms, roomy=self._roomy(truth))
        before = len(self._open)
        self._open = [each for each in self._open if not self._catches(scene, each)]
        return len(self._open) < before

    def _roomy(self, truth: Truth) -> bool:
        """Whether there is memory for results that have to be computed."""
        inputs, outputs = (
            sum(t.numel() * t.element_size() for t in tensors) for tensors in (truth.inputs.values(), truth.baseline)
        )
        return _HELD_INPUTS * inputs + _HELD_OUTPUTS * outputs < 0.8 * free_bytes(self._device)

    def _try_baseline(self, truth: Truth) -> None:
        """PyTorch's own result as a whole and, where the operator allows it, computed in two halves."""
        halves = None if self._shares else self._oracle.in_slices(truth.inputs, truth.baseline, 2, wide=False)
        for results in (truth.baseline, halves or ()):
            for position, result in enumerate(results):
                used = share(self._task, truth, position, result)
                self._shares.append(used)
                if used > _MARGIN and not self._strained:
                    self._strained = (
                        f"{self._task.name}: PyTorch's own {self._task.precision} result uses {used:.0%} of its limit "
                        f"on {truth.case.variant} inputs of workload {truth.case.workload.name!r}, so that honest "
                        "kernels may fail; choose better conditioned inputs, or another precision."
                    )

    def _catches(self, scene: Scene, each: _Open) -> bool:
        """Whether this input set clearly shows that an impostor is one."""
        kind, position, truth = each.disguise.kind, each.disguise.position, scene.truth
        try:
            each.crowded = kind.costly and not scene.roomy
            result = None if each.crowded else kind.make(scene, position)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            each.crowded, result = True, None
        except _BROKEN:
            result = None
        if result is None:
            return False
        each.made = True
        if kind.equal and (_same(result, truth.baseline[position]) or _same(result, scene.right(position))):
            return False
        each.differed = True
        each.looks += each.best > 1.0
        used = share(self._task, truth, position, result)
        if used <= 1.0:
            each.excused = kind.excused is not None and kind.excused(scene, position)
            return False
        if used > each.best:
            each.best = used
            self._found[each.disguise] = Impostor(
                name=kind.name,
                output=self._task.outputs[position].name,
                applies=True,
                caught_by=f"{truth.case.variant}/{truth.case.workload.name}",
                share=used if math.isfinite(used) else None,
            )
        return used >= _CLEAR

    # --- what is left ---

    def _uncaught(self, each: _Open) -> Impostor:
        kind, output = each.disguise.kind, self._task.outputs[each.disguise.position].name
        if each.excused:
            said = "an honest result is rounded as coarsely"
        elif each.differed or (each.made and not kind.equal):
            return Impostor(kind.name, output, applies=True, detail=self._worded(kind.why, each.disguise))
        elif each.made:
            said = kind.equal
        else:
            said = "not tried: not enough memory" if each.crowded else kind.unfit
        return Impostor(kind.name, output, applies=False, detail=said)

    def _complaint(self, disguise: Disguise) -> str:
        """One sentence for the author of the task."""
        kind = disguise.kind
        text = f"a kernel that {kind.does} would pass {{task}}: {kind.why}; {kind.advice}."
        return self._worded(text, disguise)

    def _worded(self, text: str, disguise: Disguise) -> str:
        constant = next(iter(self._earlier.values())).constants[disguise.position].item()
        return text.format(
            task=self._task.name,
            output=self._task.outputs[disguise.position].name,
            constant=f"{constant:.6g}" if isinstance(constant, float) else constant,
            step=BELOW[self._task.precision].name,
            precision=self._task.precision.value,
        )


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal everywhere, NaN included."""
    return torch.equal(a, b) or torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)
