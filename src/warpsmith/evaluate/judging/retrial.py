"""A second, harder examination of a candidate that is valid: other seeds, distributions and shapes, and the same again.

Used by the judge's process only, with premises that were opened for it (`JudgeConfig.samples`). Each check is an
outcome of its own, so that a certificate can name it; what is judged, and by which rule, is `check`'s part. Nothing
is timed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from warpsmith.core.certificate import DETERMINISM, DISTRIBUTIONS, SEEDS, SHAPES, CheckOutcome, Figure, Outcome
from warpsmith.core.evaluation import Status
from warpsmith.evaluate.correctness import heldout
from warpsmith.evaluate.correctness.oracle import Case
from warpsmith.evaluate.judging.bench import Bench
from warpsmith.evaluate.judging.check import Checker, Measured
from warpsmith.evaluate.judging.findings import Condemned, Findings
from warpsmith.evaluate.judging.peer import Peer
from warpsmith.evaluate.judging.premises import Premises

_FEWEST_REPEATS, _MOST_REPEATS = 5, 200
_REPEAT_S = 1.0  # per workload
_HARMLESS = (Status.WRONG, Status.UNWRITTEN)  # after these the candidate's process can still be asked


@dataclass
class _Tally:
    """What one check has seen so far."""

    inputs: int = 0
    error: float = 0.0
    limit: float = 0.0
    names: list[str] = field(default_factory=list)

    def add(self, measured: Measured, name: str) -> None:
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


class Retrial:
    """The checks, one after the other."""

    def __init__(self, premises: Premises, checker: Callable[[], Checker], call_limit_s: Callable[[Bench], float]):
        self._premises = premises
        self._checker = checker  # a new one for each check: nothing is carried over from a failed one
        self._limit_s = call_limit_s
        declared = len(premises.program.task.workloads)
        self._declared = premises.benches[:declared]
        self._others = premises.benches[declared:]

    def hold(self, peer: Peer, report: Callable[[str], None]) -> Findings:
        """Every check that can still be made; its outcomes are in the findings."""
        checks: list[CheckOutcome] = []
        held: list[tuple[str, Callable[[Peer], CheckOutcome]]] = [
            (SEEDS, self._seeds),
            (DISTRIBUTIONS, self._distributions),
            (SHAPES, self._shapes),
            (DETERMINISM, self._determinism),
        ]
        for name, check in held:
            report(name)
            begun = time.monotonic()
            try:
                checks.append(_timed(check(peer), begun))
            except Condemned as fate:
                reason = fate.reason or "its process ended."  # the supervisor knows how
                checks.append(_timed(CheckOutcome(name, Outcome.FAILED, reason), begun))
                if fate.status not in _HARMLESS:
                    return Findings(fate.status, fate.reason, checks=tuple(checks), stage=peer.stage, died=fate.died)
        return Findings(Status.OK, "", checks=tuple(checks))

    def _seeds(self, peer: Peer) -> CheckOutcome:
        tally = _Tally()
        for bench in self._declared:
            self._try(peer, bench, heldout.seed_cases(bench.workload), tally, bench.workload.name)
        return CheckOutcome(SEEDS, Outcome.PASSED, figures=tally.figures("workloads"))

    def _distributions(self, peer: Peer) -> CheckOutcome:
        here, tally = self._premises, _Tally()
        for bench in self._declared:
            for case in heldout.variant_cases(here.program, bench.workload, here.device):
                self._try(peer, bench, [case], tally, case.variant)
        if not tally.inputs:
            return CheckOutcome(
                DISTRIBUTIONS,
                Outcome.NOT_APPLICABLE,
                "no held-out distribution fits the inputs: they have a structure, or PyTorch fails on all of them.",
            )
        return CheckOutcome(DISTRIBUTIONS, Outcome.PASSED, figures=tally.figures("distributions"))

    def _shapes(self, peer: Peer) -> CheckOutcome:
        here, tally = self._premises, _Tally()
        if not self._others:
            fixed = len(here.program.task.fixed_axes) == len(here.program.task.axes)
            why = "no axis varies between the workloads" if fixed else "the reference takes no other size"
            return CheckOutcome(SHAPES, Outcome.NOT_APPLICABLE, f"{why}.")
        for bench in self._others:
            cases = heldout.shape_cases(here.program, bench.workload, here.device)
            self._try(peer, bench, cases, tally, bench.workload.name.removeprefix("held out: "))
        if not tally.inputs:
            return CheckOutcome(SHAPES, Outcome.NOT_APPLICABLE, "PyTorch's own result is unusable on other sizes.")
        return CheckOutcome(SHAPES, Outcome.PASSED, figures=tally.figures("shapes"))

    def _try(self, peer: Peer, bench: Bench, cases: Sequence[Case], tally: _Tally, name: str) -> None:
        usable = [case for case in cases if heldout.usable(self._premises.oracle, case)]
        if usable:
            tally.add(self._checker().examine(peer, bench, usable, self._limit_s(bench)), name)

    def _determinism(self, peer: Peer) -> CheckOutcome:
        """The same inputs again and again: every result must be right, and should be the same bit by bit."""
        oracle, runs, largest, changed = self._premises.oracle, 0, 0.0, 0
        for bench in self._declared:
            case = next((c for c in heldout.seed_cases(bench.workload) if heldout.usable(oracle, c)), None)
            truth = oracle.truth(case) if case else None
            if truth is None:
                continue
            checker, first = self._checker(), None
            begun, made = time.monotonic(), 0
            while made < _FEWEST_REPEATS or (made < _MOST_REPEATS and time.monotonic() - begun < _REPEAT_S):
                checker.call(peer, bench, truth, self._limit_s(bench))
                results = tuple(output.clone() for output in bench.sets[0].outputs)
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
        return CheckOutcome(DETERMINISM, Outcome.PASSED, said, figures)


def _timed(outcome: CheckOutcome, begun: float) -> CheckOutcome:
    return CheckOutcome(outcome.name, outcome.outcome, outcome.detail, outcome.figures, time.monotonic() - begun)


def _difference(now: torch.Tensor, then: torch.Tensor) -> float:
    """0 where every bit is the same; else the largest difference, relative to the largest value."""
    if torch.equal(now.contiguous().view(-1).view(torch.uint8), then.contiguous().view(-1).view(torch.uint8)):
        return 0.0
    wide = torch.complex128 if now.is_complex() else torch.float64
    apart = (now.to(wide) - then.to(wide)).abs().nan_to_num()
    scale = float(then.to(wide).abs().nan_to_num().max())
    return max(float(apart.max()) / scale if scale else float(apart.max()), 1e-300)
