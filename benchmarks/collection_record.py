"""Judges the kernels that ship with the package (`src/warpsmith/kernels/cuda`), and verifies them where asked.

    python -m benchmarks.collection_record --json benchmarks/h200/collection.json --limit-s 500
    python -m benchmarks.collection_record --json benchmarks/h200/collection.json --verify --limit-s 500
    python -m benchmarks.collection_record --json benchmarks/h200/collection.json --only matmul,conv2d --again

Writes after every task and leaves out what the file has already, unless a kernel's source has changed since: run it
again until nothing is left. A kernel counts as verified only with a certificate.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from benchmarks.suite_sitting import versions

from warpsmith.backends.cuda import library_digest
from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import select_device
from warpsmith.model.build import BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Certificate
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Paths
from warpsmith.tasks.load import load_task
from warpsmith.tasks.suites import resolve_task, suite_tasks
from warpsmith.verification.verify import Verifier

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "src" / "warpsmith" / "kernels" / "cuda"
ARCH = "sm_90a"
SUITES = ("warpsmith-100", "warpsmith-fused")


@dataclass(frozen=True)
class Figures:
    """What is known of one kernel on one device."""

    task: str
    family: str
    candidate: str  # of the source and of the device library that it may include
    status: str
    reason: str
    speedup: float | None  # over PyTorch eager
    interval: tuple[float, float] | None
    latency_ms: tuple[float, ...]  # by workload
    eager_ms: tuple[float, ...]
    share_of_floor: tuple[float, ...]
    error: float | None  # the largest over its limit, of all workloads
    verified: bool | None  # None: not tried
    objection: str  # what stands against it being verified
    seconds: float


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", required=True, type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit-s", type=float, default=500.0, help="no kernel is begun after that")
    parser.add_argument("--only", default="", help="tasks, separated by commas")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()
    families = {task.title: task.family for suite in SUITES for task in suite_tasks(suite)}
    record = json.loads(options.json.read_text()) if options.json.exists() else {"kernels": {}}
    wanted = set(filter(None, options.only.split(",")))
    device = select_device(options.device)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        present = [title for title in families if (KERNELS / f"{title.partition('/')[2]}.cu").exists()]
        for fault in processes.map(build, [t for t in present if not wanted or t.partition("/")[2] in wanted]):
            if fault:
                print(fault, flush=True)
    print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    with Evaluator(device) as evaluator:
        for title, family in families.items():
            file = KERNELS / f"{title.partition('/')[2]}.cu"
            left_s = options.limit_s - (time.monotonic() - began)
            if not file.exists() or (wanted and file.stem not in wanted) or left_s < 0:
                continue
            candidate = read_candidate(file)
            known = record["kernels"].get(title)
            settled = known and (known["verified"] is not None or not options.verify or known["status"] != "ok")
            if settled and known["candidate"] == identity(candidate) and not options.again:
                continue
            found = judge(evaluator, title, family, candidate, options.verify)
            record["kernels"][title] = asdict(found)
            record |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), "device": device.label}
            record["versions"] = versions(device)
            options.json.write_text(json.dumps(record, indent=1) + "\n")
            shown = f"{found.speedup:.2f}x" if found.speedup else found.reason[:160]
            print(f"{title:45} {found.status:10} {shown} {found.verified} {found.objection[:120]}", flush=True)


def judge(evaluator: Evaluator, title: str, family: str, candidate: Candidate, verify: bool) -> Figures:
    """Evaluate one kernel, and verify it where asked."""
    began = time.monotonic()
    task = resolve_task(title)
    try:
        evaluation = evaluator.evaluate_one(task, candidate)
        certificate = None
        if verify and evaluation.ok:
            verifier = Verifier(evaluator, paths=Paths.from_environment())
            certificate = verifier.verify(task, candidate, None, first=evaluation)
    except WarpsmithError as fault:
        return Figures(
            title, family, identity(candidate), "fault", str(fault), None, None, (), (), (), None, None, "", 0.0
        )
    return figures(title, family, candidate, evaluation, certificate, time.monotonic() - began)


def figures(
    title: str,
    family: str,
    candidate: Candidate,
    evaluation: Evaluation,
    certificate: Certificate | None,
    seconds: float,
) -> Figures:
    """An evaluation and a certificate as one row."""
    interval = evaluation.interval()
    eager = [next(b for b in each.baselines if b.name == "eager") for each in evaluation.workloads]
    return Figures(
        task=title,
        family=family,
        candidate=identity(candidate),
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
    )


def identity(candidate: Candidate) -> str:
    """A name for a kernel as it is compiled: another header makes it another kernel."""
    return f"{candidate.id}-{library_digest()[:8]}"


def build(title: str) -> str:
    """Compile one kernel into the build cache, in a process of its own that needs no GPU."""
    try:
        program = load_task(resolve_task(title))
        backend = backend_named("cuda")
        candidate = read_candidate(KERNELS / f"{title.partition('/')[2]}.cu")
        made = backend.build(candidate, backend.contract(program.task), Target(DeviceKind.CUDA, ARCH))
    except WarpsmithError as fault:
        return f"{title}: {fault}"
    return f"{title}: {made.reason[:300]}" if isinstance(made, BuildFailure) else ""


if __name__ == "__main__":
    main()
