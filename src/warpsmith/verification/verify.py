"""Verifies a winner in depth, beyond what an evaluation has time for, and writes a certificate.

    with Evaluator("cpu") as evaluator:
        certificate = Verifier(evaluator).verify("softmax.py", candidate)

The candidate is evaluated, checked on held-out inputs by another judge, run under sanitizers and measured once more. A
failure of the harness leaves a check `unavailable`; it never passes one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from warpsmith.evaluator.guards import all_guards
from warpsmith.evaluator.judge.records import JudgeReport
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.evaluator.supervisor.judge_client import VerificationSetup
from warpsmith.evaluator.supervisor.worker_pool import make_scratch_folder, python_hosts_drop_user
from warpsmith.hardware.device import Device
from warpsmith.model.build import EXTENSIONS
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import (
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
    CheckStatus,
    Figure,
    Measurement,
    objection,
)
from warpsmith.model.errors import HarnessFault, TaskError, TooLittleMemory, ToolMissing
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Paths, Settings
from warpsmith.model.task import Precision, Task
from warpsmith.system.files import OwnedFolder
from warpsmith.verification.certificate import read_certificate as read_certificate
from warpsmith.verification.device_sanitizers import check_cuda
from warpsmith.verification.sanitizers import SanitizerContext, check_cpu
from warpsmith.verification.standalone_run import StandaloneCandidate, StandaloneSettings, read_samples

_ATTEMPTS = 2  # if the harness fails
_HELD_OUT_CHECKS = (SEEDS, DISTRIBUTIONS, SHAPES, DETERMINISM)
_SANITIZERS = {"cpu": (ADDRESS, UNDEFINED), "cuda": DEVICE_TOOLS}
_OVERLAP_FACTOR = 6.0  # widens the tolerance if intervals overlap: to 2.5 times on a CPU, 1.6 times on a GPU
_TOLERANCE = {"cpu": 0.25, "cuda": 0.10}  # by how much two measurements may always differ
_REPEATED_MEASUREMENTS = 2


@dataclass(frozen=True)
class VerificationEvent:
    """A check has begun (`outcome` is None) or ended."""

    name: str
    outcome: CheckOutcome | None = None


class Measures(Protocol):
    """The part of an evaluator or engine that a verification uses."""

    @property
    def device(self) -> Device: ...
    @property
    def settings(self) -> Settings: ...
    def describe(self, task: str | Path, precision: Precision | None = None) -> Task: ...
    def evaluate_one(
        self, task: str | Path, candidate: Candidate, precision: Precision | None = None, *, fresh: bool = False
    ) -> Evaluation: ...
    def renew(self, settings: Settings | None = None) -> None: ...


@runtime_checkable
class ExaminesElsewhere(Protocol):
    """An engine whose devices are not in this process: it makes the checks of `Verifier.examine` where they are."""

    def examine(
        self, task: str | Path, candidate: Candidate, precision: Precision | None = None
    ) -> list[CheckOutcome]: ...


class Verifier:
    """Verifies candidates of one evaluator, one after the other."""

    def __init__(
        self,
        evaluator: Measures,
        *,
        paths: Paths | None = None,
        accept_uncalibrated: bool = False,  # certify although some wrong results pass the task's checks
        tolerance: float | None = None,  # relative difference of two measurements; by default 10 %, on a CPU 25 %
        on_event: Callable[[VerificationEvent], None] = lambda _: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._evaluator = evaluator
        self._paths = paths or Paths.from_environment()
        self._tolerance = _TOLERANCE[evaluator.device.kind] if tolerance is None else tolerance
        self._accept_uncalibrated = accept_uncalibrated
        self._on_event = on_event
        self._now = now

    def verify(
        self,
        task: str | Path,
        candidate: Candidate,
        precision: Precision | None = None,
        *,
        first: Evaluation | None = None,  # an evaluation made just now, used as the first check
        examined: Sequence[CheckOutcome] | None = None,  # what `examine` found just now
    ) -> Certificate:
        """Run every check and make the certificate."""
        begun = time.monotonic()
        checks: list[CheckOutcome] = []
        self._on_event(VerificationEvent(EVALUATION))
        if first is None or first.cached:
            first = self._evaluator.evaluate_one(task, candidate, precision, fresh=True)
        checks += self._report(
            [evaluation_check(first, accept_uncalibrated=self._accept_uncalibrated), self._guards(first)]
        )
        if first.ok:
            checks += self.examine(task, candidate, precision) if examined is None else examined
            checks += self._report([self._measure_again(task, candidate, precision, first)])
        kind = self._evaluator.device.kind
        against = objection(kind, checks)
        return Certificate(
            task=first.task,
            task_digest=self._evaluator.describe(task, precision).digest,  # at the end: the task is open by now
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

    def _report(self, checks: list[CheckOutcome]) -> list[CheckOutcome]:
        for check in checks:
            self._on_event(VerificationEvent(check.name, check))
        return checks

    def _measure_again(
        self, task: str | Path, candidate: Candidate, precision: Precision | None, first: Evaluation
    ) -> CheckOutcome:
        """Measure with a new judge; if the result differs, another program may have disturbed it: measure again."""
        self._on_event(VerificationEvent(REMEASUREMENT))
        check = CheckOutcome(REMEASUREMENT, CheckStatus.UNAVAILABLE, "not measured again.")
        for _ in range(_REPEATED_MEASUREMENTS):
            self._evaluator.renew()
            again = self._evaluator.evaluate_one(task, candidate, precision, fresh=True)
            check = compare_measurements(first, again, self._tolerance)
            if check.outcome is not CheckStatus.FAILED or not again.ok:
                break
        return check

    def _guards(self, first: Evaluation) -> CheckOutcome:
        """Which guards were active, and how the candidate was confined."""
        without = tuple(dict.fromkeys((*first.without, *self._evaluator.settings.without)))
        figures: tuple[tuple[str, Figure], ...] = (
            ("guards", ", ".join(name for name in sorted(all_guards()) if name not in without)),
            ("sandbox", ", ".join(first.environment.sandbox) or ("no sandbox" if first.ok else "nothing was executed")),
        )
        if without:
            return CheckOutcome(GUARDS, CheckStatus.FAILED, f"guards were left out: {', '.join(without)}.", figures)
        return CheckOutcome(GUARDS, CheckStatus.PASSED, figures=figures)

    def examine(
        self,
        task: str | Path,
        candidate: Candidate,
        precision: Precision | None = None,
        *,
        sanitizers: bool = True,  # False: held-out inputs alone, for a kernel whose text passed them before
    ) -> list[CheckOutcome]:
        """The checks that take no times: held-out inputs and sanitizers; tried again if the harness fails.

        Evaluators with `shared` can examine several candidates on one device at once.
        """
        names = (*_HELD_OUT_CHECKS, *(_SANITIZERS[self._evaluator.device.kind] if sanitizers else ()))
        if isinstance(self._evaluator, ExaminesElsewhere):
            self._on_event(VerificationEvent(SEEDS))
            return self._report(self._evaluator.examine(task, candidate, precision))
        evaluator = self._evaluator
        assert isinstance(evaluator, Evaluator), "another engine examines elsewhere"
        fault, attempts = "", 0
        while attempts < _ATTEMPTS:
            attempts += 1
            folder = make_scratch_folder()
            try:
                return self._attempt(evaluator, task, candidate, precision, folder, sanitizers)
            except TooLittleMemory as short:  # others use the device too
                attempts -= 1
                evaluator.wait_for_memory(short)
            except (HarnessFault, TaskError, ToolMissing) as error:  # the task was opened before, so it is not at fault
                fault = str(error)
            finally:
                folder.remove()
        return self._report(
            [CheckOutcome(name, CheckStatus.UNAVAILABLE, f"the harness failed: {fault}") for name in names]
        )

    def _attempt(
        self,
        evaluator: Evaluator,
        task: str | Path,
        candidate: Candidate,
        precision: Precision | None,
        folder: OwnedFolder,
        sanitizers: bool,
    ) -> list[CheckOutcome]:
        samples = folder.path / "samples"
        samples.mkdir(mode=0o700)
        self._on_event(VerificationEvent(SEEDS))
        with evaluator.verification_setup(task, candidate, precision, samples) as setup:
            host = setup.judge.take_host(1, python=setup.artifact.kind != "library")
            report = setup.judge.examine(host, setup.artifact.library, setup.contract, self._on_stage)
            if report.status is Status.NOT_JUDGED:
                raise HarnessFault(report.reason)
            checks = self._report(_held_out_outcomes(report))
            if not sanitizers:
                return checks
            self._on_event(VerificationEvent(_SANITIZERS[self._evaluator.device.kind][0]))
            # A result that is wrong without a sanitizer is wrong under one too: it is reported once.
            right = all(check.outcome is not CheckStatus.FAILED for check in checks)
            check_results = setup.judge.check_results if right else lambda _: ""
            return checks + self._report(self._sanitized(setup, candidate, folder.path, check_results))

    def _on_stage(self, stage: str) -> None:
        if stage in _HELD_OUT_CHECKS:
            self._on_event(VerificationEvent(stage))

    def _sanitized(
        self, setup: VerificationSetup, candidate: Candidate, folder: Path, check_results: Callable[[Path], str]
    ) -> list[CheckOutcome]:
        device, limits = self._evaluator.device, self._evaluator.settings.limits
        names, native = _SANITIZERS[device.kind], setup.artifact.kind == "library"
        if not native and device.kind == "cpu":
            if (setup.artifact.library / EXTENSIONS).is_dir():
                outcome, why = CheckStatus.UNAVAILABLE, "extensions of PyTorch are not built with sanitizers."
            else:
                outcome, why = (
                    CheckStatus.NOT_APPLICABLE,
                    "a Python candidate without extensions has no code to check.",
                )
            return [CheckOutcome(name, outcome, why) for name in names]
        samples = read_samples(folder / "samples" / "cases.json")
        if not samples:
            why = "the smallest workload is too large to be run under a sanitizer."
            return [CheckOutcome(name, CheckStatus.UNAVAILABLE, why) for name in names]
        settings = StandaloneSettings.for_device(device, limits, folder, limits.total_s)
        context = SanitizerContext(device, self._paths, limits, settings, os.environ)
        standalone = StandaloneCandidate(
            setup.artifact.library,
            setup.contract,
            setup.task,
            samples,
            folder / "samples",
            drop_user=native or python_hosts_drop_user(),
        )
        if device.kind == "cpu":
            return check_cpu(context, candidate, standalone, check_results)
        return check_cuda(context, standalone, check_results)


def evaluation_check(first: Evaluation, *, accept_uncalibrated: bool = False) -> CheckOutcome:
    """The first check: whether the candidate is valid, for a task that is calibrated or accepted."""
    if not first.ok:
        outcome = CheckStatus.UNAVAILABLE if first.status is Status.NOT_JUDGED else CheckStatus.FAILED
        status = first.status.value.replace("_", " ")
        return CheckOutcome(EVALUATION, outcome, f"{status}: {first.reason}", seconds=first.seconds)
    figures: list[tuple[str, Figure]] = [
        ("workloads", len(first.workloads)),
        ("input sets", sum(w.checks for w in first.workloads)),
    ]
    measured = Measurement.of(first)
    if measured is not None:
        figures += [("error", measured.error), ("error limit", measured.error_limit)]
        figures += [(f"speedup over {s.baseline}", s.value) for s in measured.speedups]
    detail, outcome = "", CheckStatus.PASSED
    if first.uncalibrated:
        figures.append(("calibrated", "no"))
        detail = f"calibrated: no ({first.uncalibrated.rstrip('.')})."
        outcome = outcome if accept_uncalibrated else CheckStatus.FAILED
    return CheckOutcome(EVALUATION, outcome, detail, tuple(figures), first.seconds)


def _held_out_outcomes(report: JudgeReport) -> list[CheckOutcome]:
    """The judge's outcomes, with the reason of a process that died, and one outcome for every check."""
    checks = list(report.checks)
    if report.died and checks:
        checks[-1] = replace(checks[-1], detail=report.reason or checks[-1].detail)
    for name in _HELD_OUT_CHECKS[len(checks) :]:
        if report.reason and not any(check.outcome is CheckStatus.FAILED for check in checks):
            checks.append(CheckOutcome(name, CheckStatus.FAILED, f"{report.status}: {report.reason}"))
        else:
            checks.append(CheckOutcome(name, CheckStatus.UNAVAILABLE, "not reached: the candidate failed earlier."))
    if report.status is not Status.OK and all(check.outcome is not CheckStatus.FAILED for check in checks):
        checks[-1] = replace(checks[-1], outcome=CheckStatus.FAILED, detail=f"{report.status}: {report.reason}")
    return checks


def compare_measurements(first: Evaluation, second: Evaluation, tolerance: float) -> CheckOutcome:
    """Compare two measurements: they may differ by the tolerance, or by more if their intervals overlap.

    The wider tolerance is limited too: on a busy machine, the intervals of 7x and 2x may overlap.
    """
    if not second.ok:
        outcome = CheckStatus.UNAVAILABLE if second.status is Status.NOT_JUDGED else CheckStatus.FAILED
        return CheckOutcome(REMEASUREMENT, outcome, f"{second.status}: {second.reason}", seconds=second.seconds)
    figures: list[tuple[str, Figure]] = []
    apart, wider = "", False
    for name in _baselines((first, second)):
        (one, near), (two, far) = [(e.speedup(name), e.interval(name)) for e in (first, second)]
        if one is None or two is None or near is None or far is None:
            continue
        figures += [(f"first speedup over {name}", one), (f"second speedup over {name}", two)]
        overlap = near.low <= far.high and far.low <= near.high
        difference = max(one / two, two / one) - 1
        wider = wider or (overlap and difference > tolerance)
        if difference > tolerance * (_OVERLAP_FACTOR if overlap else 1.0):
            said = f"{one:.3g} times as fast as {name} at first, {two:.3g} times in a new process"
            apart = apart or f"{said}; if the machine is busy, try again when it is not."
    figures.append(("difference allowed", tolerance))
    if wider:
        figures.append(("intervals", "more where the intervals overlap, as here"))
    outcome = CheckStatus.FAILED if apart else CheckStatus.PASSED
    return CheckOutcome(REMEASUREMENT, outcome, apart, tuple(figures), second.seconds)


def _baselines(evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(b.name for e in evaluations for w in e.workloads for b in w.baselines))
