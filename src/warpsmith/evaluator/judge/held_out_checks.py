"""Checks a winner on held-out inputs: other seeds, distributions and shapes, and the same inputs repeated.

Used by the judge's process only, with a context that was opened to verify (`JudgeConfig.inputs_folder`). Each check has
an outcome of its own, so that a certificate can name it; `check` decides what is right. Nothing is timed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from warpsmith.evaluator.judge.check import Checker, CheckResult
from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.numerics import held_out_inputs
from warpsmith.evaluator.judge.numerics.compare import same_bits
from warpsmith.evaluator.judge.numerics.reference import Case
from warpsmith.evaluator.judge.records import CandidateFailed, JudgeReport
from warpsmith.evaluator.judge.task_context import TaskContext
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.model.certificate import DETERMINISM, DISTRIBUTIONS, SEEDS, SHAPES, CheckOutcome, CheckStatus, Figure
from warpsmith.model.evaluation import Status

_FEWEST_REPEATS, _MOST_REPEATS = 5, 200
_REPEAT_S = 1.0  # per workload
_HARMLESS = (Status.WRONG, Status.UNWRITTEN)  # after these failures the host can still be asked


@dataclass
class _Tally:
    """The input sets of one check so far, and their largest error."""

    inputs: int = 0
    error: float = 0.0
    limit: float = 0.0
    names: list[str] = field(default_factory=list)

    def add(self, measured: CheckResult, name: str) -> None:
        self.inputs += measured.checks
        if name not in self.names:
            self.names.append(name)
        if measured.limit > 0 and measured.error * self.limit >= self.error * measured.limit:
            self.error, self.limit = measured.error, measured.limit

    def figures(self, noun: str) -> tuple[tuple[str, Figure], ...]:
        found: list[tuple[str, Figure]] = [("input sets", self.inputs), (noun, ", ".join(self.names))]
        if self.limit > 0:
            found += [("error", self.error), ("error limit", self.limit)]
        return tuple(found)


class HeldOutChecks:
    """Runs all checks of a winner."""

    def __init__(
        self, context: TaskContext, checker: Callable[[], Checker], call_limit_s: Callable[[WorkloadBuffers], float]
    ):
        self._context = context
        self._new_checker = checker  # a new one for each check, since a check may fail halfway
        self._limit_s = call_limit_s
        declared = len(context.program.task.workloads)
        self._declared = context.workload_buffers[:declared]
        self._others = context.workload_buffers[declared:]

    def run(self, host: HostClient, report_stage: Callable[[str], None]) -> JudgeReport:
        """Run the checks in turn, until one of them leaves the host unusable; the report holds their outcomes."""
        done: list[CheckOutcome] = []
        checks: list[tuple[str, Callable[[HostClient], CheckOutcome]]] = [
            (SEEDS, self._seeds),
            (DISTRIBUTIONS, self._distributions),
            (SHAPES, self._shapes),
            (DETERMINISM, self._determinism),
        ]
        for name, check in checks:
            report_stage(name)
            begun = time.monotonic()
            try:
                done.append(_timed(check(host), begun))
            except CandidateFailed as failure:
                reason = failure.reason or "its process ended."  # the supervisor knows the exit status
                done.append(_timed(CheckOutcome(name, CheckStatus.FAILED, reason), begun))
                if failure.status not in _HARMLESS:
                    return JudgeReport(
                        failure.status, failure.reason, checks=tuple(done), stage=host.stage, died=failure.died
                    )
        return JudgeReport(Status.OK, "", checks=tuple(done))

    def _seeds(self, host: HostClient) -> CheckOutcome:
        tally = _Tally()
        for buffers in self._declared:
            self._check(host, buffers, held_out_inputs.seed_cases(buffers.workload), tally, buffers.workload.name)
        return CheckOutcome(SEEDS, CheckStatus.PASSED, figures=tally.figures("workloads"))

    def _distributions(self, host: HostClient) -> CheckOutcome:
        here, tally = self._context, _Tally()
        for buffers in self._declared:
            for case in held_out_inputs.variant_cases(here.program, buffers.workload, here.device):
                self._check(host, buffers, [case], tally, case.variant)
        if not tally.inputs:
            return CheckOutcome(
                DISTRIBUTIONS,
                CheckStatus.NOT_APPLICABLE,
                "no held-out distribution fits the inputs: they have a structure, or PyTorch fails on all of them.",
            )
        return CheckOutcome(DISTRIBUTIONS, CheckStatus.PASSED, figures=tally.figures("distributions"))

    def _shapes(self, host: HostClient) -> CheckOutcome:
        here, tally = self._context, _Tally()
        if not self._others:
            fixed = len(here.program.task.fixed_axes) == len(here.program.task.axes)
            why = "no axis varies between the workloads" if fixed else "the reference takes no other size"
            return CheckOutcome(SHAPES, CheckStatus.NOT_APPLICABLE, f"{why}.")
        for buffers in self._others:
            cases = held_out_inputs.shape_cases(here.program, buffers.workload, here.device)
            self._check(host, buffers, cases, tally, buffers.workload.name.removeprefix("held out: "))
        if not tally.inputs:
            return CheckOutcome(SHAPES, CheckStatus.NOT_APPLICABLE, "PyTorch's own result is unusable on other sizes.")
        return CheckOutcome(SHAPES, CheckStatus.PASSED, figures=tally.figures("shapes"))

    def _check(
        self, host: HostClient, buffers: WorkloadBuffers, cases: Sequence[Case], tally: _Tally, name: str
    ) -> None:
        usable = [case for case in cases if held_out_inputs.usable(self._context.reference, case)]
        if usable:
            tally.add(self._new_checker().check_cases(host, buffers, usable, self._limit_s(buffers)), name)

    def _determinism(self, host: HostClient) -> CheckOutcome:
        """Repeat the same call: every result must be right, and should have the same bits."""
        reference, runs, largest, changed = self._context.reference, 0, 0.0, 0
        for buffers in self._declared:
            case = next(
                (c for c in held_out_inputs.seed_cases(buffers.workload) if held_out_inputs.usable(reference, c)), None
            )
            expected = reference.result_for(case) if case else None
            if expected is None:
                continue
            checker, first = self._new_checker(), None
            begun, made = time.monotonic(), 0
            while made < _FEWEST_REPEATS or (made < _MOST_REPEATS and time.monotonic() - begun < _REPEAT_S):
                checker.check_call(host, buffers, expected, self._limit_s(buffers))
                results = buffers.copy_outputs(0)
                first, made = first or results, made + 1
                difference = max(_difference(now, then) for now, then in zip(results, first, strict=True))
                changed += difference > 0
                largest = max(largest, difference)
            runs += made
        figures: tuple[tuple[str, Figure], ...] = (
            ("runs", runs),
            ("runs that differed", changed),
            ("largest difference", largest),
        )
        said = ""
        if changed:
            said = "right in every run, but not bitwise reproducible (atomics, or sums in a changing order?)."
        return CheckOutcome(DETERMINISM, CheckStatus.PASSED, said, figures)


def _timed(outcome: CheckOutcome, begun: float) -> CheckOutcome:
    return CheckOutcome(outcome.name, outcome.outcome, outcome.detail, outcome.figures, time.monotonic() - begun)


def _difference(now: torch.Tensor, then: torch.Tensor) -> float:
    """0 if all bits are the same; else the largest difference, relative to the largest value."""
    if same_bits(now, then):
        return 0.0
    wide = torch.complex128 if now.is_complex() else torch.float64
    apart = (now.to(wide) - then.to(wide)).abs().nan_to_num()
    scale = float(then.to(wide).abs().nan_to_num().max())
    return max(float(apart.max()) / scale if scale else float(apart.max()), 1e-300)
