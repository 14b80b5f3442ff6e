"""Deep verification of a winner: everything an evaluation is too quick for, written down in a certificate.

    with Evaluator("cpu") as evaluator:
        certificate = Verifier(evaluator).verify("softmax.py", candidate)

The supervisor's side: it has the candidate evaluated, tried again by another judge, run under sanitizers and measured
once more, and says what came of it. A fault of ours leaves a check `unavailable`; it never passes one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from warpsmith.core.build import EXTENSIONS
from warpsmith.core.candidate import Candidate
from warpsmith.core.certificate import (
    ADDRESS,
    DETERMINISM,
    DEVICE_TOOLS,
    DISTRIBUTIONS,
    EVALUATION,
    GUARDS,
    REMEASUREMENT,
    SEEDS,
    SHAPES,
    UNDEFINED,
    Certificate,
    CheckOutcome,
    Figure,
    Measurement,
    Outcome,
    objection,
)
from warpsmith.core.config import Paths
from warpsmith.core.errors import HarnessFault, TaskError, ToolMissing
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.owned import OwnedFolder
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.judging.findings import Findings
from warpsmith.evaluate.supervising.court import Reopened
from warpsmith.evaluate.supervising.workforce import Workforce, drops, new_scratch
from warpsmith.evaluate.verification.certificate import read_certificate as read_certificate
from warpsmith.evaluate.verification.devicecheck import check_cuda
from warpsmith.evaluate.verification.sanitize import Rig, check_cpu
from warpsmith.evaluate.verification.solorun import Part, Stage, read_samples
from warpsmith.guards import panel
from warpsmith.hardware.device import threads

_ATTEMPTS = 2  # for our own failures
_RETRIAL = (SEEDS, DISTRIBUTIONS, SHAPES, DETERMINISM)
_OF_DEVICE = {"cpu": (ADDRESS, UNDEFINED), "cuda": DEVICE_TOOLS}
_EXCUSED = 6.0  # times the tolerance, where intervals overlap: 2.5 times as fast on a CPU, 1.6 times on a GPU
_TOLERANCE = {"cpu": 0.25, "cuda": 0.10}  # two measurements may differ by this much, whatever their intervals say
_MEASUREMENTS = 2  # after the first one


@dataclass(frozen=True)
class Event:
    """A check has begun (`outcome` is None) or ended."""

    name: str
    outcome: CheckOutcome | None = None


class Verifier:
    """Verifies candidates of one evaluator, one after the other."""

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        paths: Paths | None = None,
        tolerance: float | None = None,  # by how much two measurements may differ; by default 10 %, on a CPU 25 %
        on_event: Callable[[Event], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._evaluator = evaluator
        self._paths = paths or Paths.from_environment()
        self._tolerance = _TOLERANCE[evaluator.device.kind] if tolerance is None else tolerance
        self._on_event = on_event
        self._now = now

    def verify(
        self,
        task: str | Path,
        candidate: Candidate,
        precision: Precision | None = None,
        *,
        first: Evaluation | None = None,  # a verdict reached just now, to begin with
    ) -> Certificate:
        """Every check, and what they come to."""
        begun = time.monotonic()
        digest = self._evaluator.describe(task, precision).digest
        checks: list[CheckOutcome] = []
        self._on_event(Event(EVALUATION))
        if first is None or first.cached:
            first = self._evaluator.evaluate_one(task, candidate, precision, fresh=True)
        checks += self._told([_evaluated(first), self._guards(first)])
        if first.ok:
            checks += self._tried_again(task, candidate, precision)
            checks += self._told([self._remeasured(task, candidate, precision, first)])
        kind = self._evaluator.device.kind
        against = objection(kind, checks)
        return Certificate(
            task=first.task,
            task_digest=digest,
            candidate=candidate.id,
            candidate_digest=candidate.digest,
            device=kind,
            precision=first.precision,
            verified=not against,
            reason=against,
            checks=tuple(checks),
            measurement=Measurement.of(first),
            environment=first.environment,
            date=self._now().isoformat(timespec="seconds"),
            seconds=time.monotonic() - begun,
        )

    def _told(self, checks: list[CheckOutcome]) -> list[CheckOutcome]:
        for check in checks:
            self._on_event(Event(check.name, check))
        return checks

    def _remeasured(
        self, task: str | Path, candidate: Candidate, precision: Precision | None, first: Evaluation
    ) -> CheckOutcome:
        """Once more with a new judge; where that differs, something else may have used the machine: a third time."""
        self._on_event(Event(REMEASUREMENT))
        check = CheckOutcome(REMEASUREMENT, Outcome.UNAVAILABLE, "not made.")
        for _ in range(_MEASUREMENTS):
            self._evaluator.renew()
            again = self._evaluator.evaluate_one(task, candidate, precision, fresh=True)
            check = compared(first, again, self._tolerance)
            if check.outcome is not Outcome.FAILED or not again.ok:
                break
        return check

    def _guards(self, first: Evaluation) -> CheckOutcome:
        """Which guards looked, and how the candidate was confined."""
        without = self._evaluator.settings.without
        figures: tuple[tuple[str, Figure], ...] = (
            ("guards", ", ".join(name for name in sorted(panel.guards()) if name not in without)),
            ("sandbox", ", ".join(first.environment.sandbox) or "none"),
        )
        if without:
            return CheckOutcome(GUARDS, Outcome.FAILED, f"guards were left out: {', '.join(without)}.", figures)
        return CheckOutcome(GUARDS, Outcome.PASSED, figures=figures)

    # --- before another judge ---

    def _tried_again(self, task: str | Path, candidate: Candidate, precision: Precision | None) -> list[CheckOutcome]:
        """The retrial and the sanitizers; tried once more where a part of ours fails."""
        names = (*_RETRIAL, *_OF_DEVICE[self._evaluator.device.kind])
        fault = ""
        for _ in range(_ATTEMPTS):
            folder = new_scratch()
            try:
                return self._attempt(task, candidate, precision, folder)
            except (HarnessFault, TaskError, ToolMissing) as error:  # the task was opened before: it is not to blame
                fault = str(error)
            finally:
                folder.remove()
        return self._told([CheckOutcome(name, Outcome.UNAVAILABLE, f"our own fault: {fault}") for name in names])

    def _attempt(
        self, task: str | Path, candidate: Candidate, precision: Precision | None, folder: OwnedFolder
    ) -> list[CheckOutcome]:
        samples = folder.path / "samples"
        samples.mkdir(mode=0o700)
        self._on_event(Event(SEEDS))
        with self._evaluator.reopened(task, candidate, precision, samples) as case:
            host = case.court.take_host(1, python=case.artifact.kind != "library")
            findings = case.court.examine(host, case.artifact.library, case.contract, self._reported)
            if findings.status is Status.NOT_JUDGED:
                raise HarnessFault(findings.reason)
            checks = self._told(_retried(findings))
            self._on_event(Event(_OF_DEVICE[self._evaluator.device.kind][0]))
            # What is wrong without a sanitizer is wrong under one too, and has been said.
            right = all(check.outcome is not Outcome.FAILED for check in checks)
            appraise = case.court.appraise if right else lambda _: ""
            return checks + self._told(self._sanitized(case, candidate, folder.path, appraise))

    def _reported(self, stage: str) -> None:
        if stage in _RETRIAL:
            self._on_event(Event(stage))

    def _sanitized(
        self, case: Reopened, candidate: Candidate, folder: Path, appraise: Callable[[Path], str]
    ) -> list[CheckOutcome]:
        device, limits = self._evaluator.device, self._evaluator.settings.limits
        names, native = _OF_DEVICE[device.kind], case.artifact.kind == "library"
        if not native and device.kind == "cpu":
            if (case.artifact.library / EXTENSIONS).is_dir():
                outcome, why = Outcome.UNAVAILABLE, "extensions of PyTorch are not built with sanitizers."
            else:
                outcome, why = Outcome.NOT_APPLICABLE, "a Python candidate without an extension has no code to check."
            return [CheckOutcome(name, outcome, why) for name in names]
        samples = read_samples(folder / "samples" / "cases.json")
        if not samples:
            why = "the smallest workload is too large to be run under a sanitizer."
            return [CheckOutcome(name, Outcome.UNAVAILABLE, why) for name in names]
        crew = Workforce(device.kind, self._paths.cache, threads())
        stage = Stage(
            kind=device.kind,
            device=device.index,
            threads=threads(),
            environ=crew.host_environ(),
            readable=crew.readable(),
            memory_bytes=2 * limits.memory_bytes,  # the sanitizer's own bookkeeping comes on top
            limit_s=limits.total_s,
            folder=folder,
        )
        rig = Rig(device, self._paths, limits, stage, os.environ)
        part = Part(
            case.artifact.library, case.contract, case.task, samples, folder / "samples", drops=native or drops()
        )
        if device.kind == "cpu":
            return check_cpu(rig, candidate, part, appraise)
        return check_cuda(rig, part, appraise)


def _evaluated(first: Evaluation) -> CheckOutcome:
    if not first.ok:
        outcome = Outcome.UNAVAILABLE if first.status is Status.NOT_JUDGED else Outcome.FAILED
        return CheckOutcome(EVALUATION, outcome, f"{first.status}: {first.reason}", seconds=first.seconds)
    figures: list[tuple[str, Figure]] = [
        ("workloads", len(first.workloads)),
        ("input sets", sum(w.checks for w in first.workloads)),
    ]
    measured = Measurement.of(first)
    assert measured is not None, "it is valid"
    figures += [("error", measured.error), ("error limit", measured.error_limit)]
    figures += [(f"speedup over {s.baseline}", s.value) for s in measured.speedups]
    return CheckOutcome(EVALUATION, Outcome.PASSED, figures=tuple(figures), seconds=first.seconds)


def _retried(findings: Findings) -> list[CheckOutcome]:
    """The judge's outcomes, with the supervisor's words for a process that died, and nothing silently missing."""
    checks = list(findings.checks)
    if findings.died and checks:
        checks[-1] = replace(checks[-1], detail=findings.reason or checks[-1].detail)
    for name in _RETRIAL[len(checks) :]:
        if findings.reason and not any(check.outcome is Outcome.FAILED for check in checks):
            checks.append(CheckOutcome(name, Outcome.FAILED, f"{findings.status}: {findings.reason}"))
        else:
            checks.append(CheckOutcome(name, Outcome.UNAVAILABLE, "not reached: the candidate failed before."))
    if findings.status is not Status.OK and all(check.outcome is not Outcome.FAILED for check in checks):
        checks[-1] = replace(checks[-1], outcome=Outcome.FAILED, detail=f"{findings.status}: {findings.reason}")
    return checks


def compared(first: Evaluation, second: Evaluation, tolerance: float) -> CheckOutcome:
    """Whether a new judge and a new process measure the same: near enough, or less near with overlapping intervals.

    Intervals so wide that they overlap whatever is measured prove nothing: on a busy machine 7x and 2x may overlap.
    """
    if not second.ok:
        outcome = Outcome.UNAVAILABLE if second.status is Status.NOT_JUDGED else Outcome.FAILED
        return CheckOutcome(REMEASUREMENT, outcome, f"{second.status}: {second.reason}", seconds=second.seconds)
    figures: list[tuple[str, Figure]] = []
    apart = ""
    for name in _baselines((first, second)):
        pair = [(e.speedup(name), e.interval(name)) for e in (first, second)]
        (one, near), (two, far) = pair
        if one is None or two is None or near is None or far is None:
            continue
        figures += [(f"first speedup over {name}", one), (f"second speedup over {name}", two)]
        overlap = near.low <= far.high and far.low <= near.high
        if max(one / two, two / one) > 1 + tolerance * (_EXCUSED if overlap else 1.0):
            said = f"{one:.3g} times as fast as {name} at first, {two:.3g} times in a new process"
            apart = apart or f"{said}; if the machine is busy, try again when it is not."
    figures.append(("difference allowed", tolerance))
    outcome = Outcome.FAILED if apart else Outcome.PASSED
    return CheckOutcome(REMEASUREMENT, outcome, apart, tuple(figures), second.seconds)


def _baselines(evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(b.name for e in evaluations for w in e.workloads for b in w.baselines))
