"""What is right: inputs, the fp64 reference, the same-precision baseline and the limits that follow from it.

Lives in the judge only. Truths are kept for the judge's lifetime while they are small, because every candidate of a
batch is judged on them; of large ones only the last is, and the limits of all, which cost as much as the rest. When the
fp64 reference does not fit into memory it is computed in slices of the first dimension (after testing, on the data at
hand, that the operator treats slices independently), and failing that the baseline stands in, and the result says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from warpsmith.core.task import Task, TensorRole, Workload
from warpsmith.evaluate.correctness import numerics
from warpsmith.evaluate.correctness.indices import TieRecorder, Ties
from warpsmith.evaluate.correctness.ruling import exactly
from warpsmith.evaluate.correctness.scanning import Errors
from warpsmith.tasks.program import Program, widened
from warpsmith.tasks.variants import HELD_OUT

FULL = "fp64"
SLICED = "fp64 in slices"
BASELINE = "baseline"
_KEEP_SHARE = 0.05  # of free memory: all kept truths together
_LAST_SHARE = 0.25  # of free memory: the last one asked for
# Values alike (in all or in their last bits), or sums that come back from far away: a plain sum of them drifts.
_DRIFTING = frozenset({"sparse", "ties", "integers", "uneven", "one-sided", *HELD_OUT})
_FEW = 64  # outputs with fewer elements are checked for cancellation
_NUDGES = 4
_SLICE_COUNTS = (4, 16, 64)

Tensors = Mapping[str, torch.Tensor]
Moved = tuple[Errors | numerics.Mismatch, ...]  # by how much, per output


@dataclass(frozen=True)
class Case:
    """One input set to check a candidate on."""

    workload: Workload
    variant: str
    seed: int


@dataclass(frozen=True)
class Truth:
    """Everything needed to judge one call."""

    case: Case
    inputs: dict[str, torch.Tensor]
    expected: tuple[torch.Tensor, ...]  # float64 for floating outputs; integer outputs as they are
    baseline: tuple[torch.Tensor, ...]
    limits: tuple[numerics.Limit | None, ...]  # per floating output; None for integers, which are exact
    ties: tuple[Ties | None, ...]  # per integer output: where other indices would be as right
    how: str
    slices: int = 1  # of the first dimension, in which the reference was computed
    doubted: bool = False  # whether the limits allow for PyTorch's luck with all elements

    @property
    def nbytes(self) -> int:
        """What keeping it costs."""
        held = [*self.inputs.values(), *self.expected, *self.baseline]
        return sum(t.numel() * t.element_size() for t in held)


@dataclass(frozen=True)
class _Expected:
    """The reference's results, and how they were come by."""

    expected: tuple[torch.Tensor, ...]
    ties: tuple[Ties | None, ...]
    how: str
    slices: int = 1


def free_bytes(device: torch.device) -> int:
    """Memory that can still be used on the device."""
    if device.type == "cuda":  # what torch keeps for itself is free to us
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    import psutil

    return int(psutil.virtual_memory().available)


class Oracle:
    """Gives the truth about a case."""

    def __init__(self, program: Program, device: torch.device, reductions: Mapping[str, int], factor: float) -> None:
        self._program = program
        self._device = device
        self._reductions = reductions  # effective summation length by workload
        self._factor = factor
        self._kept: dict[Case, Truth | None] = {}
        self._kept_bytes = 0
        self._last: Truth | None = None  # often asked for again at once
        self._limits: dict[Case, tuple[numerics.Limit | None, ...]] = {}  # of truths that are too large to keep
        self.dropped: list[str] = []  # variants that PyTorch itself cannot compute well

    def cases(self, workload: Workload, seeds: int, reserve: Sequence[str] = ()) -> list[Case]:
        """The cases of a workload: the task's own distribution several times, every other variant once."""
        cases = [Case(workload, "own", secrets.randbits(62)) for _ in range(seeds)]
        others = [*(v for v in self._program.variants(device=self._device) if v != "own"), *reserve]
        return cases + [Case(workload, variant, secrets.randbits(62)) for variant in others]

    def truth(self, case: Case) -> Truth | None:
        """The truth about a case; None where PyTorch's own result is unusable, so nobody can be judged by it."""
        if case in self._kept:
            return self._kept[case]
        if self._last is not None and self._last.case == case:
            return self._last
        self._last = None
        truth = self._compute(case)
        size = truth.nbytes if truth else 0
        free = free_bytes(self._device)
        if truth is None or self._kept_bytes + size <= _KEEP_SHARE * free:
            self._kept[case] = truth
            self._kept_bytes += size
        else:
            self._limits[case] = truth.limits
            self._last = truth if size <= _LAST_SHARE * free else None
        return truth

    def surely_unusable(self, case: Case) -> bool:
        """Whether it is known already that nobody can be judged by a case."""
        return case in self._kept and self._kept[case] is None

    def forget(self) -> None:
        """Give back what only saves time and takes much room."""
        self._last = None

    @property
    def task(self) -> Task:
        """The task it knows the truth about."""
        return self._program.task

    def reduction(self, workload: Workload) -> int:
        """How many terms are summed per output element."""
        return self._reductions[workload.name]

    def truth_of(self, workload: Workload, inputs: Tensors) -> Truth | None:
        """The truth about inputs at hand, e.g. those of a timed call."""
        return self._judged(Case(workload, "timed", 0), {n: t.clone() for n, t in inputs.items()})

    def unkept(self, case: Case) -> Truth | None:
        """The truth about a case that will not be asked for again."""
        inputs = self._program.inputs(case.workload, variant=case.variant, seed=case.seed, device=self._device)
        return self._judged(case, inputs)

    def _compute(self, case: Case) -> Truth | None:
        truth = self.unkept(case)
        if truth is None:
            self.dropped.append(case.variant)
        return truth

    def _judged(self, case: Case, inputs: dict[str, torch.Tensor]) -> Truth | None:
        baseline = self._program.run(inputs)
        found = self._expected(inputs, baseline)
        known = self._limits.get(case)
        if known is not None:
            return Truth(case, inputs, found.expected, baseline, known, found.ties, found.how, found.slices)
        limits: list[numerics.Limit | None] = []
        for position, (result, reference) in enumerate(zip(baseline, found.expected, strict=True)):
            if result.is_floating_point() or result.is_complex():
                continue
            # What hangs on the last bit (a sign, a nearest neighbour) would condemn honest kernels too.
            name = self.task.outputs[position].name
            if not exactly(self.task, result, reference, found.ties[position], name).ok:
                return None
        nudges = self._nudges(inputs, found, case.variant)
        for position, result in enumerate(baseline):
            if not (result.is_floating_point() or result.is_complex()):
                limits.append(None)
                continue
            allowed = self._limit(case, inputs, position, result, found, nudges)
            if allowed is None:
                return None
            limits.append(allowed)
        return Truth(case, inputs, found.expected, baseline, tuple(limits), found.ties, found.how, found.slices)

    def relented(self, truth: Truth) -> Truth:
        """The same truth for a result that has just failed by it: with limits that also allow for what one roundoff in
        the inputs does.

        Where a few elements hang on the last bits of the inputs PyTorch may have been lucky with every one of them, so
        that its own error does not show it. Costs some references, which is why nobody is asked this in advance. What
        rounding on the way may do stays as it was: a lower precision gains nothing.
        """
        if truth.doubted:
            return truth
        found = _Expected(truth.expected, truth.ties, truth.how, truth.slices)
        try:
            moved = self._nudged(truth.inputs, found)
        except torch.OutOfMemoryError:
            return truth
        limits = list(truth.limits)
        for position, (limit, result) in enumerate(zip(truth.limits, truth.baseline, strict=True)):
            if limit is None:
                continue
            measured = numerics.measure(result, truth.expected[position], result)
            if isinstance(measured, Errors) and self._is_rounding(truth.case, result, measured):
                lucky = self._or_moved(measured, position, moved)
                limits[position] = replace(
                    limit,
                    maximum=limit.maximum + self._factor * (lucky.maximum - measured.maximum),
                    rms=limit.rms + self._factor * (lucky.rms - measured.rms),
                )
        fair = replace(truth, limits=tuple(limits), doubted=True)
        if truth.case in self._kept:
            self._kept[truth.case] = fair
        elif self._last is truth:
            self._last = fair
        return fair

    def _limit(
        self,
        case: Case,
        inputs: Tensors,
        position: int,
        result: torch.Tensor,
        found: _Expected,
        nudges: Sequence[Moved],
    ) -> numerics.Limit | None:
        """What a result may be off by; None where PyTorch's own is unusable."""
        precision = self.task.precision
        measured = numerics.measure(result, found.expected[position], result)
        if isinstance(measured, numerics.Mismatch) or not numerics.usable(measured, precision):
            return None
        measured = self._without_luck(case, inputs, position, result, found, measured, nudges)
        conditioning = numerics.sensitivity([moved[position] for moved in nudges], precision)
        if case.variant in HELD_OUT and conditioning >= numerics.WORST_CONDITION:
            return None  # the last bit of the inputs decides: a row without spread, normalised
        return numerics.limit(
            measured,
            result,
            precision,
            reduction=self.reduction(case.workload),
            factor=self._factor,
            repeated=case.variant in _DRIFTING,
            conditioning=conditioning,
        )

    def _without_luck(
        self,
        case: Case,
        inputs: Tensors,
        position: int,
        result: torch.Tensor,
        found: _Expected,
        measured: Errors,
        nudges: Sequence[Moved],
    ) -> Errors:
        """The baseline's error, or what one roundoff in the inputs does to the result if that is more.

        Only where the error is more than rounding: then a few elements hang on the last bits of the inputs (a softmax
        between two almost equal large scores), and where PyTorch was lucky another honest kernel need not be. Where it
        was lucky with all of them, see `relented`.
        """
        if self._is_rounding(case, result, measured):
            return measured
        return self._or_moved(measured, position, nudges or self._nudged(inputs, found))

    def _is_rounding(self, case: Case, result: torch.Tensor, measured: Errors) -> bool:
        """Whether an error is no more than what rounding makes."""
        nothing, terms = Errors(0.0, 0.0), self.reduction(case.workload)
        rounding = numerics.limit(nothing, result, self.task.precision, reduction=terms, factor=1.0)
        return measured.maximum <= rounding.maximum

    def _or_moved(self, measured: Errors, position: int, moved: Sequence[Moved]) -> Errors:
        """An error, or twice the most that one roundoff in the inputs does if that is more."""
        found = [each[position] for each in moved]
        shifts = [each for each in found if isinstance(each, Errors) and numerics.usable(each, self.task.precision)]
        return Errors(
            max([measured.maximum, *(2 * each.maximum for each in shifts)]),
            max([measured.rms, *(2 * each.rms for each in shifts)]),
            measured.scale,
        )

    def _nudges(self, inputs: Tensors, found: _Expected, variant: str) -> list[Moved]:
        """How far the reference moves on inputs that differ by one roundoff each, for outputs too few to show their
        own scale.

        A single sum can cancel to almost nothing, and then any rounding on the way is large beside it. Several
        draws, because one may happen to change nothing. Held-out distributions are meant to be extreme, so that
        it is asked there too.
        """
        few = any(e.is_floating_point() and 0 < e.numel() < _FEW for e in found.expected)
        return self._nudged(inputs, found) if few or variant in HELD_OUT else []

    def _nudged(self, inputs: Tensors, found: _Expected) -> list[Moved]:
        """Each draw is measured at once: several references would not fit beside each other."""
        if found.how == BASELINE:
            return []
        moved: list[Moved] = []
        unmoved = Errors(0.0, 0.0)
        for _ in range(_NUDGES):
            results = self._referred(inputs, found.expected, found.slices, self._nudge)
            pairs = zip(results, found.expected, strict=True)
            moved.append(tuple(numerics.measure(r, e, None) if e.is_floating_point() else unmoved for r, e in pairs))
        return moved

    def _nudge(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """In fp64, and up or down by one roundoff of the task's arithmetic."""
        step = max(numerics.roundoff(self.task.precision), 2.0**-52)  # half of that would be lost in fp64 itself

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor
            return torch.empty_like(tensor).random_(0, 2).mul_(2 * step).add_(1 - step).mul_(tensor)

        return {name: moved(tensor) for name, tensor in self._program.widen(inputs).items()}

    def _expected(self, inputs: dict[str, torch.Tensor], baseline: tuple[torch.Tensor, ...]) -> _Expected:
        nothing = tuple(None for _ in baseline)
        if self._fits(inputs, baseline):
            try:
                with TieRecorder() as recorder:
                    expected = self._program.run(self._program.widen(inputs))
                return _Expected(expected, tuple(recorder.ties_for(e) for e in expected), FULL)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        for count in _SLICE_COUNTS:
            sliced = self.in_slices(inputs, baseline, count)
            if sliced is not None:
                return _Expected(sliced, nothing, SLICED, count)
        widened = tuple(b.double() if b.is_floating_point() else b for b in baseline)
        return _Expected(widened, nothing, BASELINE)

    def _fits(self, inputs: Tensors, outputs: tuple[torch.Tensor, ...], share: float = 1.0) -> bool:
        """Whether a fp64 run has room: doubled inputs, outputs, and as much again for what lies between."""
        tensors = [*inputs.values(), *outputs]
        needed = sum(t.numel() * 8 for t in tensors) * share + sum(t.numel() * 8 for t in outputs)
        return 2 * needed < 0.8 * free_bytes(self._device)

    def in_slices(
        self, inputs: Tensors, baseline: tuple[torch.Tensor, ...], count: int, *, wide: bool = True
    ) -> tuple[torch.Tensor, ...] | None:
        """The reference (`wide`: in fp64) by slices of the first dimension, where it treats them independently."""
        program = self._program
        if any(b.dim() == 0 for b in baseline):
            return None
        rows = baseline[0].shape[0]
        if any(b.shape[0] != rows for b in baseline) or rows < count or not self._fits(inputs, baseline, 1 / count):
            return None
        cut = self._cut(inputs, rows)
        if not cut:
            return None
        for low, high in (_bounds(rows, count)[0], _bounds(rows, count)[-1]):  # is a slice's result the result's slice?
            try:
                sliced = program.run(_part(inputs, cut, low, high))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                return None  # shapes that no longer fit together
            for whole, piece in zip(baseline, sliced, strict=True):
                if piece.shape != whole[low:high].shape or not torch.allclose(
                    widened(piece), widened(whole[low:high]), rtol=1e-3, atol=1e-5, equal_nan=True
                ):
                    return None
        return self._referred(inputs, baseline, count, program.widen if wide else dict)

    def _referred(
        self,
        inputs: Tensors,
        like: tuple[torch.Tensor, ...],
        count: int,
        prepare: Callable[[Tensors], dict[str, torch.Tensor]],
    ) -> tuple[torch.Tensor, ...]:
        """The reference on inputs that are prepared (e.g. widened) slice by slice; `like`: results of these shapes."""
        if count == 1:
            return self._program.run(prepare(inputs))
        rows = like[0].shape[0]
        cut = self._cut(inputs, rows)
        whole: list[torch.Tensor] = []
        for low, high in _bounds(rows, count):
            for position, piece in enumerate(self._program.run(prepare(_part(inputs, cut, low, high)))):
                if not low:  # room for all of it at once: pieces side by side would take twice as much
                    whole.append(piece.new_empty(like[position].shape))
                whole[position][low:high] = piece
        return tuple(whole)

    def _cut(self, inputs: Tensors, rows: int) -> frozenset[str]:
        """The inputs of which a slice of the result needs a slice only."""
        roles = {t.name: t.role for t in self._program.task.inputs}
        return frozenset(
            n for n, t in inputs.items() if roles[n] is TensorRole.INPUT and t.dim() and t.shape[0] == rows
        )


def _bounds(rows: int, count: int) -> list[tuple[int, int]]:
    return [(i * rows // count, (i + 1) * rows // count) for i in range(count)]


def _part(inputs: Tensors, cut: Collection[str], low: int, high: int) -> dict[str, torch.Tensor]:
    return {n: t[low:high].contiguous() if n in cut else t for n, t in inputs.items()}
