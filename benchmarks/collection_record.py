"""Judges the kernels that ship with the package (`warpsmith.kernels.collection`), and verifies them where asked.

    python -m benchmarks.collection_record --limit-s 500
    python -m benchmarks.collection_record --verify --limit-s 500
    python -m benchmarks.collection_record --only matmul,conv2d --again

Writes `src/warpsmith/kernels/facts/NAME-OF-THE-GPU.json` after every task, which `warpsmith kernels list` shows, and
leaves out what the file has already, unless a kernel's source or a header that it includes has changed since: run it
again until nothing is left. A kernel counts as verified only with a certificate.
"""

from __future__ import annotations

import argparse
import re
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from benchmarks.suite_sitting import versions

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import Device, select_device
from warpsmith.kernels.collection import CollectedKernel, collection
from warpsmith.kernels.facts import FACTS, DeviceFacts, KernelFacts, identity, read_device, write_facts
from warpsmith.model.build import BuildFailure, DeviceKind, Target
from warpsmith.model.certificate import SHAPES, Certificate, CheckStatus
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Paths
from warpsmith.tasks.load import load_task
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
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    device = select_device(options.device)
    path = options.json or FACTS / f"{file_name(device.name)}.json"
    record = read_device(path) or DeviceFacts(device.name, "", {}, {})
    wanted = set(filter(None, options.only.split(",")))
    chosen = [kernel for kernel in collection() if not wanted or kernel.task.name in wanted]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        for fault in processes.map(build, chosen):
            if fault:
                print(fault, flush=True)
    print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    with Evaluator(device) as evaluator:
        for kernel in chosen:
            if options.limit_s - (time.monotonic() - began) < 0:
                break
            known = record.kernels.get(kernel.task.title)
            settled = known and (known.verified is not None or not options.verify or known.status != "ok")
            if known and settled and known.candidate == identity(kernel.candidate) and not options.again:
                continue
            found = judge(evaluator, device, kernel, options.verify)
            record = replace(
                record,
                date=found.date,
                versions=versions(device),
                kernels={**record.kernels, kernel.task.title: found},
            )
            write_facts(path, record)
            shown = f"{found.speedup:.2f}x" if found.speedup else found.reason[:160]
            print(f"{found.task:45} {found.status:10} {shown} {found.verified} {found.objection[:120]}", flush=True)


def file_name(device: str) -> str:
    """The name of a GPU's file: "NVIDIA H200" has "h200"."""
    return re.sub(r"\W+", "_", device.lower().removeprefix("nvidia ")).strip("_")


def judge(evaluator: Evaluator, device: Device, kernel: CollectedKernel, verify: bool) -> KernelFacts:
    """Evaluate one kernel, and verify it where asked."""
    began = time.monotonic()
    task, candidate = kernel.task.spec(), kernel.candidate
    try:
        evaluation = evaluator.evaluate_one(task, candidate)
        certificate = None
        if verify and evaluation.ok:
            verifier = Verifier(evaluator, paths=Paths.from_environment())
            certificate = verifier.verify(task, candidate, None, first=evaluation)
    except WarpsmithError as fault:
        status = ("fault", str(fault), None, None, (), (), (), None, None, "", 0.0)
        return KernelFacts(kernel.task.title, kernel.task.family, identity(candidate), *status)
    return facts_of(kernel, device, evaluation, certificate, time.monotonic() - began)


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


def build(kernel: CollectedKernel) -> str:
    """Compile one kernel into the build cache, in a process of its own that needs no GPU."""
    try:
        backend = backend_named("cuda")
        contract = backend.contract(load_task(kernel.task.spec()).task)
        made = backend.build(kernel.candidate, contract, Target(DeviceKind.CUDA, ARCH))
    except WarpsmithError as fault:
        return f"{kernel.task.title}: {fault}"
    return f"{kernel.task.title}: {made.reason[:300]}" if isinstance(made, BuildFailure) else ""


if __name__ == "__main__":
    main()
