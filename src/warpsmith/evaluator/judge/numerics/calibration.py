"""Calibrates a task: wrong results of many kinds must fail it, and PyTorch's own results must pass with a margin.

Impostors (wrong results made on purpose) are compared by the same rule as candidates. An impostor that some input set
tells from the right result is caught. If no input set does, the task is refused, because a kernel could do the same.
Before that, input variants of the reserve are tried, and those that help become part of the task's checks. Seeds are
fixed, so that the calibration is a property of the task and not of chance; it is cached.
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
from warpsmith.evaluator.judge.numerics.coarse_arithmetic import NEXT_COARSER
from warpsmith.evaluator.judge.numerics.compare import same_bits
from warpsmith.evaluator.judge.numerics.impostors import EarlierResults, ImpostorContext, OutputImpostor, impostors_for
from warpsmith.evaluator.judge.numerics.reference import Case, Reference, ReferenceResult, has_room, output_share
from warpsmith.model.certificate import Calibration, Impostor
from warpsmith.model.task import Task, Workload
from warpsmith.system.files import put_in_place
from warpsmith.tasks import variants
from warpsmith.tasks.program import Program, stream_seed

_FORMAT = 5  # raise it when a change makes cached calibrations invalid
_CLEAR = 1.5  # times its limit: an impostor with a smaller error is caught, but another input set may do better
_SECOND_LOOKS = 4  # other input sets, before the reserve
_MARGIN = 0.5  # of each limit: the most PyTorch's own results may use
_OWN_SEEDS = 4  # input sets of the task's own distribution; timed calls are checked on many more
_HELD_INPUTS, _HELD_OUTPUTS = 4, 12  # about how many copies exist at once
_MANY_S = 20.0  # for the impostors of which there is one for each input; those left over are not tried
_BROKEN = (
    RuntimeError,
    ValueError,
    ArithmeticError,
    AssertionError,
    IndexError,
)  # raised by a reference on unusual inputs
_CALIBRATION = TypeAdapter(Calibration)


class CalibrationCache:
    """Calibrations on disk."""

    def __init__(self, cache: Path, device: str, error_factor: float) -> None:
        self._folder = cache / "calibration"
        self._parts = (device, torch.__version__, repr(error_factor), __version__, str(_FORMAT))

    def get(self, task: Task) -> Calibration | None:
        """A cached calibration; None if there is none or it cannot be read."""
        try:
            found = _CALIBRATION.validate_json(self._path(task).read_bytes())
        except (OSError, ValidationError):
            return None
        return replace(found, cached=True)

    def put(self, task: Task, found: Calibration) -> None:
        """Write a calibration; if that fails, the next judge calibrates again."""
        path = self._path(task)
        with suppress(OSError):
            put_in_place(path, _CALIBRATION.dump_json(found))

    def _path(self, task: Task) -> Path:
        text = "\0".join((task.digest, task.precision, *self._parts))
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def baseline_unusable(task: Task, workload: Workload) -> str:
    """The message for a task on which PyTorch's own floating-point result is unusable."""
    return (
        f"{task.name}: PyTorch's own {task.precision} result on workload {workload.name!r} is "
        "too far from its fp64 result to judge others by; choose inputs or an operator that are better "
        "conditioned, or another precision."
    )


@dataclass
class _Pending:
    """An impostor that has not clearly been caught yet, and why."""

    impostor: OutputImpostor
    made: bool = False  # on some input set
    differed: bool = False  # from the right result
    excused: bool = False  # honest results are as coarse
    lacks_memory: bool = False  # to be tried
    best: float = 1.0  # the largest error ÷ limit so far
    looks: int = 0  # input sets tried since it was caught, but not clearly

    def undecided(self, reserve: bool) -> bool:
        """Whether another input set, or one of the reserve, may still catch it."""
        if not self.made or self.excused or (self.looks > _SECOND_LOOKS and not reserve):
            return False
        kind = self.impostor.kind
        unread = reserve and kind.costly  # a part of a long mean may change no bit of it on usual inputs
        return self.differed or not kind.equal or unread


class Calibrator:
    """Calibrates one task on one device, once."""

    def __init__(self, program: Program, reference: Reference, device: torch.device) -> None:
        self._program = program
        self._reference = reference
        self._device = device
        self._task: Task = program.task
        self._earlier: dict[str, EarlierResults] = {}  # by workload
        self._pending = [_Pending(each) for each in impostors_for(self._task)]
        self._found: dict[OutputImpostor, Impostor] = {}
        self._shares: list[float] = []  # errors of PyTorch's own results ÷ their limits
        self._baseline_problem = ""  # why PyTorch's own results are not good enough
        self._usable_sets = 0  # input sets of the task's own distribution with a usable result
        self._reserve: list[str] = []
        self._many_s = 0.0  # spent on impostors of which there is one for each input

    def run(self) -> Calibration:
        """Try every impostor until it is clearly caught or all input sets are used up."""
        began = time.monotonic()
        order = [each.impostor for each in self._pending]
        for index, case in enumerate(self._cases()):
            reserve = case.variant in variants.RESERVE
            shows_constants = case.variant == variants.CONSTANTS and any(
                p.impostor.kind.one_of_many for p in self._pending
            )
            needed = shows_constants or (index < _OWN_SEEDS and self._rounding_decides())
            if not needed and not self._undecided(reserve):
                continue
            if self._try_case(case) and reserve and case.variant not in self._reserve:
                self._reserve.append(case.variant)
        if not self._usable_sets and not self._baseline_problem:
            self._baseline_problem = baseline_unusable(self._task, self._task.workloads[0])
        for each in self._pending:
            self._found.setdefault(each.impostor, self._uncaught(each))
        reason = self._baseline_problem or next((self._complaint(d) for d in order if self._found[d].passes), "")
        return Calibration(
            passed=not reason,
            reason=reason,
            impostors=tuple(self._found[impostor] for impostor in order) if self._usable_sets else (),
            baseline_share=max((s for s in self._shares if math.isfinite(s)), default=None),
            reserve=tuple(self._reserve),
            seconds=time.monotonic() - began,
        )

    def _undecided(self, reserve: bool) -> bool:
        """Whether an impostor is left that another input set may catch."""
        return not self._usable_sets or any(each.undecided(reserve) for each in self._pending)

    def _cases(self) -> Iterator[Case]:
        """The input sets to try, the smallest workload first; those of the reserve where all others have failed."""
        usual = [v for v in self._program.variants(device=self._device) if v != variants.OWN]
        usual.sort(key=lambda variant: variant != variants.CONSTANTS)
        workloads = sorted(self._task.workloads, key=self._nbytes)
        first = _OWN_SEEDS if self._rounding_decides() else 1
        for workload in workloads:
            yield from (self._case(workload, variants.OWN, number) for number in range(first))
            yield from (self._case(workload, variant, 0) for variant in usual)
            yield from (self._case(workload, variants.OWN, number) for number in range(first, _OWN_SEEDS))
        for workload in workloads:
            yield from (self._case(workload, variant, 0) for variant in variants.RESERVE)

    def _case(self, workload: Workload, variant: str, number: int) -> Case:
        return Case(
            workload, variant, stream_seed(int(self._task.digest[:15], 16), f"{workload.name}/{variant}/{number}")
        )

    def _nbytes(self, workload: Workload) -> int:
        return sum(t.nbytes(workload.sizes) for t in self._task.tensors)

    def _rounding_decides(self) -> bool:
        """Whether rounding may decide an output that must be exact: then one input set proves little."""
        exact = any("float" not in t.dtype and "complex" not in t.dtype for t in self._task.outputs)
        return exact and any("float" in t.dtype for t in self._task.inputs)

    # --- one input set ---

    def _try_case(self, case: Case) -> bool:
        """Check PyTorch's own result and every pending impostor; True if one was clearly caught."""
        expected = self._reference.compute(case)
        if expected is None:
            if case.variant == variants.OWN and self._rounding_decides() and not self._baseline_problem:
                self._baseline_problem = (
                    f"{self._task.name}: on some inputs of workload {case.workload.name!r} PyTorch's own "
                    f"{self._task.precision} result is not right by the rule it would be judged by; choose inputs or "
                    "outputs that do not hang on the last bit, or another precision."
                )
            return False
        self._usable_sets += case.variant == variants.OWN
        self._try_baseline(expected)
        if case.workload.name not in self._earlier:
            other = self._case(case.workload, variants.OWN, _OWN_SEEDS)
            self._earlier[case.workload.name] = EarlierResults.of(
                self._program.run(self._program.inputs(other.workload, seed=other.seed, device=self._device))
            )
        context = ImpostorContext(
            self._program,
            expected,
            self._earlier[case.workload.name],
            reduction=self._reference.reduction(case.workload),
            has_memory=self._has_memory(expected),
            other_seed=self._case(case.workload, variants.OWN, _OWN_SEEDS).seed,
        )
        before = len(self._pending)
        self._pending = [each for each in self._pending if not self._catches(context, each)]
        return len(self._pending) < before

    def _has_memory(self, expected: ReferenceResult) -> bool:
        """Whether memory suffices for impostors that run the reference."""
        inputs, outputs = (
            sum(t.numel() * t.element_size() for t in tensors)
            for tensors in (expected.inputs.values(), expected.baseline)
        )
        return has_room(self._device, (_HELD_INPUTS * inputs + _HELD_OUTPUTS * outputs) / 0.8)

    def _try_baseline(self, expected: ReferenceResult) -> None:
        """PyTorch's own result as a whole and, where the operator allows it, computed in two halves."""
        halves = None if self._shares else self._reference.in_slices(expected.inputs, expected.baseline, 2, wide=False)
        for results in (expected.baseline, halves or ()):
            for position, result in enumerate(results):
                share = output_share(self._task, expected, position, result)
                self._shares.append(share)
                if share > _MARGIN and not self._baseline_problem:
                    self._baseline_problem = (
                        f"{self._task.name}: PyTorch's own {self._task.precision} result uses {share:.0%} of its limit "
                        f"on {expected.case.variant} inputs of workload {expected.case.workload.name!r}, so honest "
                        "kernels may fail; choose better conditioned inputs, or another precision."
                    )

    def _catches(self, context: ImpostorContext, each: _Pending) -> bool:
        """Whether this input set clearly shows that an impostor is wrong; no, where the time for kinds of which there
        are many impostors is spent."""
        kind = each.impostor.kind
        if not kind.one_of_many:
            return self._shows(context, each)
        begun = time.monotonic()
        found = self._many_s < _MANY_S and self._shows(context, each)
        self._many_s += time.monotonic() - begun
        return found

    def _shows(self, context: ImpostorContext, each: _Pending) -> bool:
        """`_catches` without the time limit."""
        kind, position, expected = each.impostor.kind, each.impostor.position, context.expected
        try:
            each.lacks_memory = kind.costly and not context.has_memory
            result = None if each.lacks_memory else kind.make(context, position)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            each.lacks_memory, result = True, None
        except _BROKEN:
            result = None
        if result is None:
            return False
        each.made = True
        if kind.equal and any(
            _equal(result, right) for right in (expected.baseline[position], context.right(position))
        ):
            return False
        each.differed = True
        each.looks += each.best > 1.0
        share = output_share(self._task, expected, position, result)
        if share <= 1.0:
            each.excused = kind.excused is not None and kind.excused(context, position)
            return False
        if share > each.best:
            each.best = share
            self._found[each.impostor] = Impostor(
                name=kind.name,
                output=self._task.outputs[position].name,
                applies=True,
                caught_by=f"{expected.case.variant}/{expected.case.workload.name}",
                share=share if math.isfinite(share) else None,
            )
        return share >= _CLEAR

    # --- uncaught impostors ---

    def _uncaught(self, each: _Pending) -> Impostor:
        kind, output = each.impostor.kind, self._task.outputs[each.impostor.position].name
        if each.excused:
            said = kind.excuse
        elif each.differed or (each.made and not kind.equal):
            return Impostor(kind.name, output, applies=True, detail=self._fill_in(kind.why, each.impostor))
        elif each.made:
            said = kind.equal
        else:
            said = "not tried: not enough memory" if each.lacks_memory else kind.unfit
            if kind.one_of_many and self._many_s >= _MANY_S:
                said = "not tried: too many inputs"
        return Impostor(kind.name, output, applies=False, detail=said)

    def _complaint(self, impostor: OutputImpostor) -> str:
        """One sentence to the author of the task about an impostor that passes."""
        kind = impostor.kind
        text = f"a kernel that {kind.does} would pass {{task}}: {kind.why}; {kind.advice}."
        return self._fill_in(text, impostor)

    def _fill_in(self, text: str, impostor: OutputImpostor) -> str:
        constant = next(iter(self._earlier.values())).constants[impostor.position].item()
        return text.format(
            task=self._task.name,
            output=self._task.outputs[impostor.position].name,
            constant=f"{constant:.6g}" if isinstance(constant, float) else constant,
            step=NEXT_COARSER[self._task.precision].name,
            precision=self._task.precision.value,
        )


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal everywhere, NaN included; 0 and -0 are equal."""
    return torch.equal(a, b) or same_bits(a, b)
