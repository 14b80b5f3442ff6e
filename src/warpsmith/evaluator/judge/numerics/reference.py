"""The expected results: inputs, the fp64 reference, PyTorch's own result, the error limits, and the comparison.

Used in the judge only. Small results are cached for the judge's lifetime, because every candidate of a batch is checked
on them; of large ones only the last, and the limits of all, which cost as much as the rest. If the fp64 reference does
not fit into memory it is computed in slices of the first dimension (after a test, on these very inputs, that the
operator treats slices independently). If that fails too, PyTorch's own result is used, and the evaluation says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from warpsmith.evaluator.judge.numerics import tolerance
from warpsmith.evaluator.judge.numerics.compare import Errors, OutputComparison, dtype_name, real_views
from warpsmith.evaluator.judge.numerics.index_ties import TieRecorder, Ties, compare_indices
from warpsmith.evaluator.judge.numerics.poison import PoisonPattern
from warpsmith.evaluator.judge.numerics.rounded_operations import RoundedOperations
from warpsmith.evaluator.judge.numerics.selection import SelectionDetector
from warpsmith.evaluator.judge.numerics.summation_orders import ORDERS, STARTS, Order, OtherOrder
from warpsmith.hardware.device import available_memory
from warpsmith.model.evaluation import Status
from warpsmith.model.task import Task, TensorRole, Workload
from warpsmith.tasks.program import Program, widened
from warpsmith.tasks.quick_random import random_bytes
from warpsmith.tasks.variants import HELD_OUT, HIDDEN, OWN

FULL = "fp64"
SLICED = "fp64 in slices"
BASELINE = "baseline"
_KEEP_SHARE = 0.05  # of free memory: all cached results together
_LAST_SHARE = 0.25  # of free memory: the last result
_ALWAYS_THERE_BYTES = 64 << 20
# Equal values, values with equal last bits, or large terms that cancel: a plain sum of them drifts.
_DRIFTING = frozenset({"sparse", "ties", "integers", "uneven", "one-sided", *HIDDEN, *HELD_OUT})
_FEW = 64  # elements of an output: with fewer, its rms error is one random number rather than a mean of many
_DRAWS = 4  # of inputs that are rounded at random
_MORE_DRAWS = 16  # for a result that just failed: four may all happen to move a sensitive element by little
_OTHER_ROUNDINGS = 12  # in `compare_with_other_rounding`
_SLICE_COUNTS = (4, 16, 64)
_FEW_SUMMED, _MANY_SUMMED = (
    1 << 22,
    1 << 27,
)  # input elements: every variant, or only the task's own inputs, in all orders
_TIMED = "timed"

Tensors = Mapping[str, torch.Tensor]
Moved = tuple[Errors | tolerance.NonfiniteMismatch, ...]  # per output, the change of the reference


@dataclass(frozen=True)
class Case:
    """One input set to check a candidate on."""

    workload: Workload
    variant: str
    seed: int


@dataclass(frozen=True)
class ReferenceOutputs:
    """The results of the reference, and how they were computed."""

    outputs: tuple[torch.Tensor, ...]  # float64 for floating outputs; integer outputs as they are
    ties: tuple[Ties | None, ...]  # per integer output: where other indices are as right
    how: str  # FULL, SLICED or BASELINE
    slices: int = 1  # of the first dimension, in which the reference was computed


@dataclass(frozen=True, kw_only=True)
class ReferenceResult(ReferenceOutputs):
    """The inputs of one case, and all that is needed to check a result for them."""

    case: Case
    inputs: dict[str, torch.Tensor]
    baseline: tuple[torch.Tensor, ...]
    limits: tuple[tolerance.ErrorLimit | None, ...]  # per floating output; None for integers, which are exact
    widened: bool = False  # whether the limits have been widened by `Reference.with_wider_limits`

    @property
    def nbytes(self) -> int:
        """The memory of all tensors."""
        held = [*self.inputs.values(), *self.outputs, *self.baseline]
        return sum(t.numel() * t.element_size() for t in held)


def free_bytes(device: torch.device) -> int:
    """Memory of the device that can still be used."""
    if device.type == "cuda":  # memory that torch caches can be used
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    return available_memory()


def has_room(device: torch.device, needed: float) -> bool:
    """Whether the device has so many free bytes. A few are always taken to be there: finding out takes as long as a
    small reference."""
    return needed <= _ALWAYS_THERE_BYTES or needed <= free_bytes(device)


def run_reference(program: Program, inputs: Tensors) -> tuple[torch.Tensor, ...]:
    """Run the reference on inputs that may be widened to fp64.

    In fp64 without cuDNN, whose transposed convolutions take up to 16 times as long on an H200
    (benchmarks/h200/fp64_references.txt). PyTorch's own ones may need more memory: with cuDNN where that is lacking.
    """
    if any(tensor.is_cuda and tensor.dtype == torch.float64 for tensor in inputs.values()):
        try:
            with torch.backends.cudnn.flags(enabled=False):
                return program.run(inputs)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    return program.run(inputs)


class Reference:
    """Computes and caches the expected results of a task."""

    def __init__(self, program: Program, device: torch.device, reductions: Mapping[str, int], factor: float) -> None:
        self._program = program
        self._device = device
        self._reductions = reductions  # effective summation length by workload
        self._factor = factor
        self._kept: dict[Case, ReferenceResult | None] = {}
        self._kept_bytes = 0
        self._last: ReferenceResult | None = None  # often needed again at once
        self._limits: dict[Case, tuple[tolerance.ErrorLimit | None, ...]] = {}  # of results that are too large to cache
        self._orders: dict[tuple[str, str], tuple[Errors | None, ...] | None] = {}  # by workload and variant
        self.selects = False  # whether the reference only chooses and moves elements; known after the first result
        self._looked = False
        self.dropped: list[str] = []  # variants on which PyTorch's own result is unusable

    def cases(self, workload: Workload, seeds: int, reserve: Sequence[str] = ()) -> list[Case]:
        """The cases of a workload: the task's own distribution several times, every other variant once."""
        cases = [Case(workload, OWN, secrets.randbits(62)) for _ in range(seeds)]
        others = [*(v for v in self._program.variants(device=self._device) if v != OWN), *reserve]
        return cases + [Case(workload, variant, secrets.randbits(62)) for variant in others]

    def result_for(self, case: Case) -> ReferenceResult | None:
        """The expected result of a case; None if PyTorch's own result is unusable, so that there is none."""
        if case in self._kept:
            return self._kept[case]
        if self._last is not None and self._last.case == case:
            return self._last
        self._last = None
        expected = self.compute(case)
        if expected is None:
            self.dropped.append(case.variant)
        size = expected.nbytes if expected else 0
        if expected is None or has_room(self._device, (self._kept_bytes + size) / _KEEP_SHARE):
            self._kept[case] = expected
            self._kept_bytes += size
        else:
            self._limits[case] = expected.limits
            self._last = expected if has_room(self._device, size / _LAST_SHARE) else None
        return expected

    def known_unusable(self, case: Case) -> bool:
        """Whether the case is already known to be unusable."""
        return case in self._kept and self._kept[case] is None

    def release_memory(self) -> None:
        """Drop the last result, which only saves time."""
        self._last = None

    def release_results(self) -> None:
        """Drop all results; their limits, and which cases are unusable, are kept."""
        self._last = None
        for case, found in self._kept.items():
            if found is not None:
                self._limits[case] = found.limits
        self._kept = {case: None for case, found in self._kept.items() if found is None}
        self._kept_bytes = 0

    @property
    def task(self) -> Task:
        """The task of the program."""
        return self._program.task

    def reduction(self, workload: Workload) -> int:
        """How many terms are summed per output element."""
        return self._reductions[workload.name]

    def result_for_inputs(self, workload: Workload, inputs: Tensors, variant: str = _TIMED) -> ReferenceResult | None:
        """The expected result for given inputs, such as those of a timed call."""
        return self._result(Case(workload, variant, 0), {n: t.clone() for n, t in inputs.items()})

    def compute(self, case: Case) -> ReferenceResult | None:
        """The expected result of a case, without caching it."""
        inputs = self._program.inputs(case.workload, variant=case.variant, seed=case.seed, device=self._device)
        return self._result(case, inputs)

    def _result(self, case: Case, inputs: dict[str, torch.Tensor]) -> ReferenceResult | None:
        baseline = self._program.run(inputs)
        found = self._compute_outputs(inputs, baseline)
        limits = self._limits.get(case) or self._find_limits(case, inputs, baseline, found)
        if limits is None:
            return None
        return ReferenceResult(
            found.outputs,
            found.ties,
            found.how,
            found.slices,
            case=case,
            inputs=inputs,
            baseline=baseline,
            limits=limits,
        )

    def _find_limits(
        self, case: Case, inputs: Tensors, baseline: tuple[torch.Tensor, ...], found: ReferenceOutputs
    ) -> tuple[tolerance.ErrorLimit | None, ...] | None:
        """The limits of all outputs; None if PyTorch's own result is unusable."""
        floating = [result.is_floating_point() or result.is_complex() for result in baseline]
        for position, (result, reference) in enumerate(zip(baseline, found.outputs, strict=True)):
            # A result that depends on the last bit (a sign, a nearest neighbour) would fail honest kernels too.
            name, ties = self.task.outputs[position].name, found.ties[position]
            if not floating[position] and not _compare_integers(self.task, result, reference, ties, name).ok:
                return None
        if not self._looked:
            self.selects, self._looked = self._only_selects(inputs), True
        moved = self._moved_if_needed(inputs, found, case.variant)
        limits: list[tolerance.ErrorLimit | None] = []
        for position, result in enumerate(baseline):
            limits.append(self._limit(case, inputs, position, result, found, moved) if floating[position] else None)
            if floating[position] and limits[-1] is None:
                return None
        return tuple(limits)

    def _only_selects(self, inputs: Tensors) -> bool:
        seen = SelectionDetector()
        with seen:
            self._program.run(inputs)
        return seen.selects

    def with_wider_limits(self, expected: ReferenceResult) -> ReferenceResult:
        """The expected result with limits that also allow for one roundoff in the inputs, for a result that just
        failed.

        If a few elements depend on the last bits of the inputs, PyTorch may happen to be right in all of them, so that
        its own error does not show the sensitivity; and so may the few draws that the limits were found with. Finding
        out costs many references, so it is not done in advance. The allowance for rounding in between stays the same:
        a lower precision gains nothing.
        """
        if expected.widened or self.selects:
            return expected
        few = sum(tensor.numel() for tensor in expected.inputs.values()) <= _FEW_SUMMED
        try:
            moved = self._moved(expected.inputs, expected, _MORE_DRAWS if few else _DRAWS)
        except torch.OutOfMemoryError:
            return expected
        limits = list(expected.limits)
        for position, (limit, result) in enumerate(zip(expected.limits, expected.baseline, strict=True)):
            if limit is None:
                continue
            measured = tolerance.measure_errors(result, expected.outputs[position], result)
            if not isinstance(measured, Errors):
                continue
            larger, maximum, rms = self._or_moved(measured, position, moved), limit.maximum, limit.rms
            if self._is_rounding(expected.case, result, measured):
                maximum += self._factor * (larger.maximum - measured.maximum)
                rms += self._factor * (larger.rms - measured.rms)
            else:  # the limits allow for some draws already
                maximum, rms = max(maximum, self._factor * larger.maximum), max(rms, self._factor * larger.rms)
            limits[position] = replace(limit, maximum=maximum, rms=rms)
        wider = replace(expected, limits=tuple(limits), widened=True)
        if expected.case in self._kept:
            self._kept[expected.case] = wider
        elif self._last is expected:
            self._last = wider
        return wider

    def compare_with_other_rounding(
        self, expected: ReferenceResult, position: int, result: torch.Tensor
    ) -> OutputComparison | None:
        """The comparison of a result with a few wrong elements, if each of them lies between the values that the
        reference gives when its operations round differently; None if the result remains wrong.

        Where a reference compares almost equal numbers that it has computed, rounding decides. Example: the two largest
        scores of an attention are large and differ in their last digits only, so that the softmax takes one of two
        values, or a mean of both. Either is right, and they are far apart, so that no limit of an error can allow for
        it. A comparison of inputs has one right answer, and they do not change here.
        """
        limit = expected.limits[position]
        if limit is None or self.selects or expected.how == BASELINE:
            return None
        others = tolerance.find_far_elements(result, expected.outputs[position], limit)
        if others is None:
            return None
        far, rms = others
        got, usual = (view.reshape(-1)[far].double() for view in real_views(result, expected.outputs[position]))
        low, high, explained = usual, usual, torch.zeros_like(far, dtype=torch.bool)
        roundoff = max(tolerance.roundoff(self.task.precision), 2.0**-52)  # fp64 itself loses half of that
        for draw in range(_OTHER_ROUNDINGS):
            if draw == _OTHER_ROUNDINGS // 2 and not explained.any():
                return None
            try:
                with RoundedOperations(roundoff):
                    results = self._run_slices(expected.inputs, expected.outputs, expected.slices, self._program.widen)
            except torch.OutOfMemoryError:
                return None
            (nearby,) = real_views(results[position])
            nearby = nearby.reshape(-1)[far]
            low, high = torch.minimum(low, nearby), torch.maximum(high, nearby)
            allowed = limit.maximum * (usual.abs() + limit.scale)
            explained = (high - low > allowed) & (got >= low - allowed) & (got <= high + allowed)
            if explained.all():
                return OutputComparison(Status.OK, rms, limit.rms, rms / limit.rms)
        return None

    def _limit(
        self,
        case: Case,
        inputs: Tensors,
        position: int,
        result: torch.Tensor,
        found: ReferenceOutputs,
        moved: Sequence[Moved],
    ) -> tolerance.ErrorLimit | None:
        """The error limit of one output; None if PyTorch's own result is unusable."""
        precision = self.task.precision
        measured = tolerance.measure_errors(result, found.outputs[position], result)
        if isinstance(measured, tolerance.NonfiniteMismatch) or not tolerance.usable(measured, precision):
            return None
        # Beyond rounding a few elements depend on the last bits of the inputs (a softmax between two almost equal large
        # scores), and an honest kernel may differ where PyTorch happens to be right. If PyTorch is right everywhere,
        # see `with_wider_limits`.
        if not self._is_rounding(case, result, measured):
            measured = self._or_moved(measured, position, moved or self._moved(inputs, found))
        conditioning = tolerance.sensitivity([each[position] for each in moved], precision)
        if case.variant in HELD_OUT and conditioning >= tolerance.WORST_CONDITION:
            return None  # the last bit of the inputs decides, as for a normalised row of equal values
        return tolerance.error_limit(
            measured,
            result,
            precision,
            reduction=self.reduction(case.workload),
            factor=self._factor,
            repeated=case.variant in _DRIFTING,
            conditioning=conditioning,
            orders=self._measured_orders(case, inputs, found)[position],
            selects=self.selects,
        )

    def own_orders(self, workload: Workload) -> tuple[Errors | None, ...]:
        """For each output the largest error of other orders of summation on the task's own inputs; None: not known."""
        return self._orders.get((workload.name, OWN)) or (None,) * len(self.task.outputs)

    def _measured_orders(self, case: Case, inputs: Tensors, found: ReferenceOutputs) -> tuple[Errors | None, ...]:
        """For each output the largest error of other orders of summation; None: not measured."""
        if case.variant == _TIMED:
            return self.own_orders(case.workload)
        key, elements = (case.workload.name, case.variant), sum(tensor.numel() for tensor in inputs.values())
        few = _has_few_elements(found)
        # How far one sum of equal terms drifts depends on their last bits: no other draw tells it.
        measured = key in self._orders and not (few and case.variant in _DRIFTING)
        if not measured and self.reduction(case.workload) >= tolerance.LONG_SUM and found.how == FULL:
            known = self._orders.get((case.workload.name, OWN), ())  # None: it cannot be measured
            affordable = elements <= (_MANY_SUMMED if case.variant == OWN else _FEW_SUMMED)
            if known is not None and affordable:
                starts = STARTS if few else ()
                orders = (*ORDERS, *starts) if elements <= _FEW_SUMMED else (ORDERS[0], *starts[::3])
                self._orders[key] = self._errors_of_orders(inputs, found, orders)
        return self._orders.get(key) or (None,) * len(self.task.outputs)

    def _errors_of_orders(
        self, inputs: Tensors, found: ReferenceOutputs, orders: Sequence[Order]
    ) -> tuple[Errors | None, ...] | None:
        """The largest errors with sums in other orders; None if the reference sums in ways that cannot be changed."""
        largest: list[Errors | None] = [Errors(0.0, 0.0) if e.is_floating_point() else None for e in found.outputs]
        for order in orders:
            with OtherOrder(order) as sums:
                results = self._program.run(inputs)
            if not sums.complete or not sums.replaced:
                return None
            for position, (result, expected) in enumerate(zip(results, found.outputs, strict=True)):
                known = largest[position]
                measured = tolerance.measure_errors(result, expected, None) if known else None
                if known is None or not isinstance(measured, Errors):
                    largest[position] = None
                else:
                    maximum, rms = max(known.maximum, measured.maximum), max(known.rms, measured.rms)
                    largest[position] = Errors(maximum, rms, measured.scale)
        return tuple(largest)

    def _is_rounding(self, case: Case, result: torch.Tensor, measured: Errors) -> bool:
        """Whether an error is no more than rounding."""
        nothing, terms = Errors(0.0, 0.0), self.reduction(case.workload)
        rounding = tolerance.error_limit(nothing, result, self.task.precision, reduction=terms, factor=1.0)
        return measured.maximum <= rounding.maximum

    def _or_moved(self, measured: Errors, position: int, moved: Sequence[Moved]) -> Errors:
        """An error, or twice the largest change by one roundoff in the inputs if that is larger."""
        found = [each[position] for each in moved]
        shifts = [each for each in found if isinstance(each, Errors) and tolerance.usable(each, self.task.precision)]
        return Errors(
            max([measured.maximum, *(2 * each.maximum for each in shifts)]),
            max([measured.rms, *(2 * each.rms for each in shifts)]),
            measured.scale,
        )

    def _moved_if_needed(self, inputs: Tensors, found: ReferenceOutputs, variant: str) -> list[Moved]:
        """The change of the reference by one roundoff in each input, if an output has too few elements to show its
        scale, or for held-out distributions, which are meant to be extreme.

        A single sum can cancel to almost nothing, and then any rounding in between is large beside it.
        """
        return self._moved(inputs, found) if _has_few_elements(found) or variant in HELD_OUT else []

    def _moved(self, inputs: Tensors, found: ReferenceOutputs, draws: int = _DRAWS) -> list[Moved]:
        """The change of the reference in several draws: one may happen to change nothing. Each draw is measured at
        once, because several references would not fit into memory."""
        if found.how == BASELINE:
            return []
        moved: list[Moved] = []
        unmoved = Errors(0.0, 0.0)
        for _ in range(draws):
            results = self._run_slices(inputs, found.outputs, found.slices, self._rounded_at_random)
            pairs = zip(results, found.outputs, strict=True)
            moved.append(
                tuple(tolerance.measure_errors(r, e, None) if e.is_floating_point() else unmoved for r, e in pairs)
            )
        return moved

    def _rounded_at_random(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """The inputs in fp64, each moved up or down by one roundoff of the task's arithmetic."""
        step = max(tolerance.roundoff(self.task.precision), 2.0**-52)  # fp64 itself loses half of that

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor
            up = random_bytes(tensor.numel(), device=tensor.device).bitwise_and_(1).view(tensor.shape)
            return up.to(tensor.dtype).mul_(2 * step).add_(1 - step).mul_(tensor)

        return {name: moved(tensor) for name, tensor in self._program.widen(inputs).items()}

    def _compute_outputs(self, inputs: dict[str, torch.Tensor], baseline: tuple[torch.Tensor, ...]) -> ReferenceOutputs:
        nothing = tuple(None for _ in baseline)
        if self._fits(inputs, baseline):
            try:
                with TieRecorder() as recorder:
                    expected = run_reference(self._program, self._program.widen(inputs))
                return ReferenceOutputs(expected, tuple(recorder.ties_for(e) for e in expected), FULL)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        for count in _SLICE_COUNTS:
            sliced = self.in_slices(inputs, baseline, count)
            if sliced is not None:
                return ReferenceOutputs(sliced, nothing, SLICED, count)
        widened = tuple(b.double() if b.is_floating_point() else b for b in baseline)
        return ReferenceOutputs(widened, nothing, BASELINE)

    def _fits(self, inputs: Tensors, outputs: tuple[torch.Tensor, ...], share: float = 1.0) -> bool:
        """Whether memory suffices for a fp64 run: inputs, outputs, and as much again for intermediate tensors."""
        tensors = [*inputs.values(), *outputs]
        needed = sum(t.numel() * 8 for t in tensors) * share + sum(t.numel() * 8 for t in outputs)
        return has_room(self._device, 2 * needed / 0.8)

    def in_slices(
        self, inputs: Tensors, baseline: tuple[torch.Tensor, ...], count: int, *, wide: bool = True
    ) -> tuple[torch.Tensor, ...] | None:
        """The reference (`wide`: in fp64) by slices of the first dimension; None if it does not treat them
        independently."""
        program = self._program
        if any(b.dim() == 0 for b in baseline):
            return None
        rows = baseline[0].shape[0]
        if any(b.shape[0] != rows for b in baseline) or rows < count or not self._fits(inputs, baseline, 1 / count):
            return None
        cut = self._cut(inputs, rows)
        if not cut:
            return None
        for low, high in (
            _bounds(rows, count)[0],
            _bounds(rows, count)[-1],
        ):  # is the result of a slice the slice of the result?
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
        return self._run_slices(inputs, baseline, count, program.widen if wide else dict)

    def _run_slices(
        self,
        inputs: Tensors,
        like: tuple[torch.Tensor, ...],
        count: int,
        prepare: Callable[[Tensors], dict[str, torch.Tensor]],
    ) -> tuple[torch.Tensor, ...]:
        """Run the reference on slices of the inputs, each prepared (such as widened); `like`: results of these
        shapes."""
        if count == 1:
            return run_reference(self._program, prepare(inputs))
        rows = like[0].shape[0]
        cut = self._cut(inputs, rows)
        whole: list[torch.Tensor] = []
        for low, high in _bounds(rows, count):
            pieces = run_reference(self._program, prepare(_part(inputs, cut, low, high)))
            for position, piece in enumerate(pieces):
                if not low:  # allocate the whole result: joining pieces would take twice the memory
                    whole.append(piece.new_empty(like[position].shape))
                whole[position][low:high] = piece
        return tuple(whole)

    def _cut(self, inputs: Tensors, rows: int) -> frozenset[str]:
        """The inputs of which a slice of the result needs only a slice."""
        roles = {t.name: t.role for t in self._program.task.inputs}
        return frozenset(
            n for n, t in inputs.items() if roles[n] is TensorRole.INPUT and t.dim() and t.shape[0] == rows
        )


def _has_few_elements(found: ReferenceOutputs) -> bool:
    return any(each.is_floating_point() and 0 < each.numel() < _FEW for each in found.outputs)


def _bounds(rows: int, count: int) -> list[tuple[int, int]]:
    return [(i * rows // count, (i + 1) * rows // count) for i in range(count)]


def _part(inputs: Tensors, cut: Collection[str], low: int, high: int) -> dict[str, torch.Tensor]:
    return {n: t[low:high].contiguous() if n in cut else t for n, t in inputs.items()}


_CLEARLY_WRONG = 10.0  # times its limit


def compare_output(
    task: Task,
    expected: ReferenceResult,
    position: int,
    result: torch.Tensor,
    poison: PoisonPattern | None = None,
) -> OutputComparison:
    """Compare the output at this position of the task, whether a candidate, an impostor or PyTorch computed it.

    `poison`: what the output held before, if that is one pattern.
    """
    name, reference, limit = task.outputs[position].name, expected.outputs[position], expected.limits[position]
    missing = poison.unwritten(result, reference, name=name) if poison and poison.decides(result) else None
    if missing is not None:
        return missing
    if limit is not None:
        found = tolerance.compare_float(result, reference, expected.baseline[position], limit=limit, name=name)
    else:
        found = _compare_integers(task, result, reference, expected.ties[position], name)
    if not found.ok and poison and not poison.decides(result):
        found = poison.unwritten(result, reference, name=name) or found
    return found


def output_share(task: Task, expected: ReferenceResult, position: int, result: torch.Tensor) -> float:
    """The error of a written result ÷ its limit, by the rule of `compare_output`: above 1 it is wrong.

    Cheaper than `compare_output`: of a clearly wrong result only the first part is read.
    """
    limit = expected.limits[position]
    if limit is None:
        return compare_output(task, expected, position, result).share
    return tolerance.limit_share(
        result, expected.outputs[position], expected.baseline[position], limit, enough=_CLEARLY_WRONG
    )


def _compare_integers(
    task: Task, result: torch.Tensor, expected: torch.Tensor, ties: Ties | None, name: str
) -> OutputComparison:
    """Compare integers and bools: equal, except that an index may name any of several equal values."""
    if ties is None:
        return tolerance.compare_exact(result, expected, name=name)
    floating = [t.dtype for t in task.inputs if "float" in t.dtype]
    dtype = floating[0] if floating else dtype_name(ties.values)
    return compare_indices(result, expected, ties, dtype=dtype, name=name)
