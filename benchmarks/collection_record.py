"""Judges the kernels that ship with the package (`warpsmith.kernels.collection`), and verifies them where asked.

    python -m benchmarks.collection_record --limit-s 500
    python -m benchmarks.collection_record --verify --limit-s 500
    python -m benchmarks.collection_record --only matmul,conv2d --again
    python -m benchmarks.collection_record --precision tf32 --json benchmarks/h200/collection_tf32.json

Writes `src/warpsmith/kernels/facts/NAME-OF-THE-GPU.json` after every task, which `warpsmith kernels list` shows, and
leaves out what the file has already, unless a kernel's source or a header that it includes has changed since: run it
again until nothing is left. A kernel counts as verified only with a certificate. With `--verify`, kernels are judged
and measured again one after the other, and the checks between, which take no times, are made of several at once.
Compilers run beside the judge, as in every evaluation on a GPU. A batch is as large as the time left allows.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType

from benchmarks.side_by_side import evaluator, side_by_side, task_bytes
from benchmarks.suite_sitting import versions

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import Device, select_device
from warpsmith.kernel_templates.in_parts import in_parts
from warpsmith.kernels.collection import CollectedKernel, collected, collection
from warpsmith.kernels.facts import FACTS, DeviceFacts, KernelFacts, identity, read_device, write_facts
from warpsmith.kernels.form_file import FLOAT32_ONLY
from warpsmith.model.brief import Problem
from warpsmith.model.build import BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import SHAPES, Certificate, CheckOutcome, CheckStatus
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Paths
from warpsmith.model.task import Precision
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.suites import SuiteTask
from warpsmith.verification.verify import Verifier

ARCH = "sm_90a"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the record  [default: that of the GPU, in the package]")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit-s", type=float, default=500.0, help="no kernel is begun after that")
    parser.add_argument("--only", default="", help="tasks, separated by commas")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--at-once", type=int, default=4, help="kernels whose checks run on the GPU at once")
    parser.add_argument("--first", default="", help="families that come first, separated by commas")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--precision", type=Precision, help="a class that tasks declare beside their own: tf32")
    options = parser.parse_args()
    began = time.monotonic()
    device = select_device(options.device)
    path = options.json or FACTS / f"{file_name(device.name)}.json"
    record = read_device(path) or DeviceFacts(device.name, "", {}, {})
    wanted = set(filter(None, options.only.split(",")))
    if options.precision and not options.json:
        parser.error("--precision needs --json: the record of the package is for the tasks' own classes")
    chosen = [kernel for kernel in kernels_in(options.precision) if not wanted or kernel.task.name in wanted]
    chosen = [kernel for kernel in chosen if options.again or not settled(kernel, record, options.verify)]
    first = options.first.split(",")
    chosen.sort(key=lambda kernel: kernel.task.family not in first)
    print(f"{len(chosen)} kernels to do", flush=True)
    at_once = options.at_once if options.verify else 0
    processes = ProcessPoolExecutor(compilers(), mp_context=get_context("spawn"))
    try:
        builds = {kernel.task.title: processes.submit(build, kernel, options.precision) for kernel in chosen}
        sitting = Sitting(device, path, record, began, options.limit_s, options.precision, builds)
        while count := sitting.fitting(len(chosen), at_once):
            batch, chosen = chosen[:count], chosen[count:]
            sitting.record_batch(batch, at_once)
    finally:
        processes.shutdown(wait=True, cancel_futures=True)
    print(f"{len(chosen)} kernels not begun after {time.monotonic() - began:.0f} s", flush=True)


def compilers() -> int:
    """How many compilers run at once: some cores stay free for the judge and its candidate."""
    return max(1, len(os.sched_getaffinity(0)) - 3)


def kernels_in(precision: Precision | None) -> list[CollectedKernel]:
    """The kernels in the tasks' own class, or in another one, where a task declares it."""
    if precision is None:
        return list(collection())
    declaring = [kernel.task for kernel in collection() if precision in kernel.task.precisions]
    return [kernel for task in declaring if (kernel := in_class(task, precision))]


def in_class(task: SuiteTask, precision: Precision) -> CollectedKernel | None:
    """What an offline search offers first in a class: parts, where the task's own file is for fp32 alone."""
    if task.name not in FLOAT32_ONLY:
        return collected(task, precision)
    program = load_task(task.spec(), precision)
    contract = backend_named("cuda").contract(program.task)
    problem = Problem(program.task, contract, "cuda", ARCH, DeviceKind.CUDA, ARCH, (), outline(program))
    divided = in_parts(problem)
    if divided is None:
        return None
    return CollectedKernel(task, Candidate((SourceFile(f"{task.name}.cu", divided.source),), "cuda"), divided.form)


BATCH = 16  # kernels judged before they are verified: what is found of a batch is kept if the next does not finish
_TIMED_S = 9.0  # to judge a kernel and to measure it again, on an H200 on 2026-11-18
_EXAMINED_S = 42.0  # to examine as many kernels as are examined at once
_MEASURED_S = 6.0  # to measure a kernel again


def batch_seconds(count: int, at_once: int) -> float:
    """How long a batch may take; 0 at once: kernels are judged only."""
    if not at_once:
        return count * _TIMED_S / 2
    return count * _TIMED_S + math.ceil(count / at_once) * _EXAMINED_S


class Sitting:
    """One call of this script."""

    def __init__(
        self,
        device: Device,
        path: Path,
        record: DeviceFacts,
        began: float,
        limit_s: float,
        precision: Precision | None,
        builds: Mapping[str, Future[str]] = MappingProxyType({}),  # by task: a fault, or ""
    ) -> None:
        self._builds = builds
        self._slowness = 1.0  # of the last batch, against `batch_seconds`
        self._device = device
        self._precision = precision
        self._path = path
        self._record = record
        self._began = began
        self._limit_s = limit_s
        self._stages: dict[str, float] = {}  # seconds by what was done
        self._stage, self._since = "", time.monotonic()

    def record_batch(self, batch: Sequence[CollectedKernel], at_once: int) -> None:
        """Judge kernels, and verify them with the checks of `at_once` kernels side by side; 0: do not verify."""
        begun = time.monotonic()
        self._work_on(batch, at_once)
        self._slowness = (time.monotonic() - begun) / batch_seconds(len(batch), at_once)

    def fitting(self, count: int, at_once: int) -> int:
        """How many of so many kernels make the next batch: no more than can be finished before the limit."""
        left = self._limit_s - (time.monotonic() - self._began)
        sizes = range(min(count, BATCH), 0, -1)
        return next((size for size in sizes if batch_seconds(size, at_once) * self._slowness <= left), 0)

    def _work_on(self, batch: Sequence[CollectedKernel], at_once: int) -> None:
        found: list[tuple[CollectedKernel, Evaluation]] = []
        with Evaluator(
            self._device, on_progress=lambda progress: self._reached(f"judge: {progress.stage}")
        ) as evaluator:
            for kernel in batch:
                if self._over():
                    break
                self._reached("compile")
                self._wait_for_build(kernel)
                self._reached("judge: open")
                evaluation = self._judge(evaluator, kernel)
                if evaluation is not None and evaluation.ok:
                    found.append((kernel, evaluation))
        if not at_once or self._over() or not found:
            return
        began = time.monotonic()
        self._reached("examine")
        found.sort(key=lambda each: -each[1].seconds)  # the longest first: less waiting for the last one
        checks = self._examined([kernel for kernel, _ in found], at_once)
        print(f"{len(checks)} of {len(found)} kernels examined in {time.monotonic() - began:.0f} s", flush=True)
        found = [each for each in found if each[0].task.title in checks]
        with Evaluator(
            self._device, on_progress=lambda progress: self._reached(f"again: {progress.stage}")
        ) as evaluator:
            for kernel, evaluation in found:
                if self._over():
                    break
                self._reached("again: open")
                self._certify(evaluator, kernel, evaluation, checks[kernel.task.title])
        self._reached("")
        print(
            "; ".join(
                f"{stage} {seconds:.0f} s" for stage, seconds in sorted(self._stages.items(), key=lambda each: -each[1])
            ),
            flush=True,
        )

    def _examined(self, kernels: Sequence[CollectedKernel], at_once: int) -> dict[str, list[CheckOutcome]]:
        """The checks without times, by task; none of a kernel whose process was killed.

        Kernels begin as the memory of the device allows. Those that are not through when the others have to be measured
        again are left for another call.
        """
        end = self._began + self._limit_s - len(kernels) * _MEASURED_S
        works = {kernel.task.title: ((kernel, self._precision), task_bytes(kernel.task.spec())) for kernel in kernels}
        examined: dict[str, list[CheckOutcome]] = {}
        for title, outcomes in side_by_side(examine, works, self._device, at_once, end):
            examined[title] = outcomes or []
            print(f"    {title}: {summary(examined[title])}", flush=True)
        return examined

    def _reached(self, stage: str) -> None:
        """Something new begins: the time until the next call is counted for it."""
        now = time.monotonic()
        self._stages[self._stage] = self._stages.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, now

    def _wait_for_build(self, kernel: CollectedKernel) -> None:
        building = self._builds.get(kernel.task.title)
        try:
            fault = building.result() if building else ""
        except BrokenExecutor:
            fault = f"{kernel.task.title}: the compilers' processes have ended; the evaluator compiles it."
        if fault:
            print(fault, flush=True)

    def _over(self) -> bool:
        return time.monotonic() - self._began > self._limit_s

    def _judge(self, evaluator: Evaluator, kernel: CollectedKernel) -> Evaluation | None:
        began = time.monotonic()
        try:
            evaluation = evaluator.evaluate_one(kernel.task.spec(), kernel.candidate, self._precision)
        except WarpsmithError as fault:
            nothing = (None, None, (), (), (), None, None, "", 0.0)
            self._keep(
                KernelFacts(
                    kernel.task.title,
                    kernel.task.family,
                    identity(kernel.candidate),
                    "fault",
                    str(fault),
                    *nothing,
                )
            )
            return None
        self._keep(facts_of(kernel, self._device, evaluation, None, time.monotonic() - began))
        return evaluation

    def _certify(
        self,
        evaluator: Evaluator,
        kernel: CollectedKernel,
        evaluation: Evaluation,
        examined: Sequence[CheckOutcome],
    ) -> None:
        """Measure again and make the certificate. What a neighbour on the GPU may have disturbed is checked alone."""
        began = time.monotonic()
        passed = bool(examined) and all(
            each.outcome in (CheckStatus.PASSED, CheckStatus.NOT_APPLICABLE) for each in examined
        )
        try:
            verifier = Verifier(evaluator, paths=Paths.from_environment())
            certificate = verifier.verify(
                kernel.task.spec(),
                kernel.candidate,
                self._precision,
                first=evaluation,
                examined=examined if passed else None,
            )
        except WarpsmithError as fault:
            print(f"{kernel.task.title}: {fault}", flush=True)
            return
        self._keep(facts_of(kernel, self._device, evaluation, certificate, time.monotonic() - began))

    def _keep(self, found: KernelFacts) -> None:
        found = with_lineage(found, self._record.kernels.get(found.task))
        self._record = replace(
            self._record,
            date=found.date,
            versions=versions(self._device),
            kernels={**self._record.kernels, found.task: found},
        )
        write_facts(self._path, self._record)
        shown = f"{found.speedup:.3g}x" if found.speedup else found.reason[:200]
        share = f"{min(found.share_of_floor):.0%}" if found.share_of_floor else ""
        state = {None: "", True: "verified", False: "NOT VERIFIED"}[found.verified]
        print(
            f"{found.task:46} {found.status:8} {shown} {share} {state} {found.objection[:200]} ({found.seconds:.0f} s)",
            flush=True,
        )


def settled(kernel: CollectedKernel, record: DeviceFacts, verify: bool) -> bool:
    """Whether the record has everything that is asked for of a kernel in its present text."""
    known = record.kernels.get(kernel.task.title)
    if known is None or known.candidate != identity(kernel.candidate):
        return False
    return known.verified is not None or not verify or known.status != "ok"


def with_lineage(found: KernelFacts, before: KernelFacts | None) -> KernelFacts:
    """With the lineage that the record has for the same kernel: judging it again does not change where it came from."""
    return replace(found, lineage=before.lineage) if before and before.candidate == found.candidate else found


def examine(work: tuple[CollectedKernel, Precision | None]) -> list[CheckOutcome]:
    """The checks of a verification that take no times, in a process of its own."""
    kernel, precision = work
    verifier = Verifier(evaluator(), paths=Paths.from_environment())
    return verifier.examine(kernel.task.spec(), kernel.candidate, precision)


def summary(outcomes: Sequence[CheckOutcome]) -> str:
    """The times of checks, and what was found against the kernel."""
    said = [f"{each.name} {each.seconds:.0f} s" for each in outcomes if each.seconds >= 0.5]
    said += [
        f"{each.name} {each.outcome.value}: {each.detail[:300]}"
        for each in outcomes
        if each.outcome not in (CheckStatus.PASSED, CheckStatus.NOT_APPLICABLE)
    ]
    return ", ".join(said) or ("passed" if outcomes else "its process was killed")


def file_name(device: str) -> str:
    """The name of a GPU's file: "NVIDIA H200" has "h200"."""
    return re.sub(r"\W+", "_", device.lower().removeprefix("nvidia ")).strip("_")


def facts_of(
    kernel: CollectedKernel, device: Device, evaluation: Evaluation, certificate: Certificate | None, seconds: float
) -> KernelFacts:
    """An evaluation and a certificate as one entry."""
    interval = evaluation.interval()
    eager = [next(b for b in each.baselines if b.name == "eager") for each in evaluation.workloads]
    checks = {check.name: check.outcome for check in certificate.checks} if certificate else {}
    made_with = {"torch": evaluation.environment.torch, "compiler": evaluation.environment.compiler}
    return KernelFacts(
        task=kernel.task.title,
        family=kernel.task.family,
        candidate=identity(kernel.candidate),
        status=evaluation.status.value,
        reason=evaluation.reason[:500],
        speedup=evaluation.speedup(),
        interval=(interval.low, interval.high) if interval else None,
        latency_ms=tuple(each.latency_ms for each in evaluation.workloads),
        eager_ms=tuple(each.latency_ms for each in eager),
        share_of_floor=tuple(each.share_of_floor for each in evaluation.workloads),
        error=max((each.error / each.error_limit for each in evaluation.workloads if each.error_limit), default=None),
        verified=certificate.verified if certificate else None,
        objection=certificate.reason[:500] if certificate else "",
        seconds=round(seconds, 1),
        any_shape=bool(certificate and certificate.verified and checks.get(SHAPES) is CheckStatus.PASSED),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={**versions(device), **made_with},
    )


def build(kernel: CollectedKernel, precision: Precision | None) -> str:
    """Compile one kernel into the build cache, in a process of its own that needs no GPU."""
    try:
        backend = backend_named("cuda")
        contract = backend.contract(load_task(kernel.task.spec(), precision).task)
        made = backend.build(kernel.candidate, contract, Target(DeviceKind.CUDA, ARCH))
    except WarpsmithError as fault:
        return f"{kernel.task.title}: {fault}"
    return f"{kernel.task.title}: {made.reason[:300]}" if isinstance(made, BuildFailure) else ""


if __name__ == "__main__":
    main()
