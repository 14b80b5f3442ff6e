"""The evaluator's record on a GPU: honest kernels judged twice, the eight statuses, too-coarse products.

    python benchmarks/h200_record.py --json benchmarks/h200.json

Writes date, device, versions and figures, and prints them as Markdown for benchmarks/README.md. It takes about
four minutes on an H200. It says how far two evaluations of the same file disagree; it is no contest between
kernels, which are there to be judged.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Limits, Paths, Settings

ROOT = Path(__file__).resolve().parent.parent
LARGE = ROOT / "tests" / "kernels" / "large"
BROKEN = ROOT / "tests" / "kernels" / "cuda"
HONEST = ROOT / "examples" / "kernels"

JUDGED: Sequence[tuple[str, str]] = (  # task of LARGE, kernel of HONEST
    ("relu", "relu.cu"),
    ("softmax", "softmax.cu"),
    ("layer_norm", "layer_norm.cu"),
    ("matmul_fp32", "matmul_fp32.cu"),
    ("matmul_tf32", "matmul_tf32.cu"),
)
COARSE: Sequence[tuple[str, Path]] = (  # each must be wrong
    ("matmul_fp32", BROKEN / "matmul_fp16.cu"),
    ("matmul_fp32", HONEST / "matmul_tf32.cu"),
    ("matmul_tf32", BROKEN / "matmul_fp16.cu"),
)
EIGHT = {
    "right": "ok",
    "wrong": "wrong",
    "does_not_compile": "build_error",
    "hangs": "timed_out",
    "segfaults": "crashed",
    "out_of_bounds": "out_of_bounds",
    "changes_input": "input_modified",
    "half_written": "unwritten",
}


@dataclass(frozen=True)
class Round:
    """One evaluation of one kernel."""

    status: str
    reason: str
    latency_ms: float | None
    speedup: dict[str, float]
    interval: dict[str, tuple[float, float]]
    error: float | None
    error_limit: float | None
    share_of_floor: float | None
    timing: str
    seconds: float


@dataclass(frozen=True)
class Judged:
    """One honest kernel, judged twice."""

    task: str
    kernel: str
    precision: str
    axes: dict[str, int]
    rounds: tuple[Round, Round]
    disagreement: dict[str, float]  # per baseline: |ratio of the two speedups - 1|


@dataclass(frozen=True)
class Outcome:
    """A kernel that must fail in a certain way."""

    task: str
    kernel: str
    expected: str
    status: str
    reason: str


@dataclass(frozen=True)
class Record:
    """All of it."""

    date: str
    device: str
    versions: dict[str, str]
    sandbox: tuple[str, ...]
    seconds: float
    judged: tuple[Judged, ...]
    statuses: tuple[Outcome, ...]
    coarse: tuple[Outcome, ...]


def digest(evaluation: Evaluation) -> Round:
    """What the record keeps of one verdict; the tasks here have one workload each."""
    workload = evaluation.workloads[0] if evaluation.workloads else None
    baselines = workload.baselines if workload else ()
    return Round(
        status=evaluation.status.value,
        reason=evaluation.reason,
        latency_ms=workload.latency_ms if workload else None,
        speedup={b.name: b.speedup for b in baselines},
        interval={b.name: (b.interval.low, b.interval.high) for b in baselines},
        error=workload.error if workload else None,
        error_limit=workload.error_limit if workload else None,
        share_of_floor=workload.share_of_floor if workload else None,
        timing=workload.timing if workload else "",
        seconds=evaluation.seconds,
    )


def judge_twice(evaluator: Evaluator, task: str, kernel: str) -> tuple[Judged, Evaluation]:
    """Two evaluations of the same file, one after the other."""
    file = LARGE / f"{task}.py"
    candidate = read_candidate(HONEST / kernel)
    first, second = (evaluator.evaluate_one(file, candidate) for _ in range(2))
    rounds = (digest(first), digest(second))
    both = rounds[0].speedup.keys() & rounds[1].speedup.keys()
    disagreement = {name: abs(rounds[0].speedup[name] / rounds[1].speedup[name] - 1) for name in sorted(both)}
    described = evaluator.describe(file)
    return (
        Judged(task, kernel, described.precision.value, described.workloads[0].sizes, rounds, disagreement),
        first,
    )


def judge_statuses(settings: Settings, paths: Paths) -> tuple[Outcome, ...]:
    """The eight, as one batch."""
    task = ROOT / "tests" / "kernels" / "tasks" / "softmax.py"
    names = list(EIGHT)
    with Evaluator("cuda", settings, paths=paths, use_cache=False, on_message=_complain) as evaluator:
        judged = dict(evaluator.evaluate(task, [read_candidate(BROKEN / f"{n}.cu") for n in names]))
    return tuple(
        Outcome("softmax", f"{n}.cu", EIGHT[n], judged[i].status.value, judged[i].reason) for i, n in enumerate(names)
    )


def judge_coarse(evaluator: Evaluator) -> tuple[Outcome, ...]:
    """Products in less precision than their class allows."""
    found = []
    for task, file in COARSE:
        verdict = evaluator.evaluate_one(LARGE / f"{task}.py", read_candidate(file))
        found.append(Outcome(task, file.name, "wrong", verdict.status.value, verdict.reason))
    return tuple(found)


def _complain(message: str) -> None:
    print(message, file=sys.stderr)


def make_record(baselines: tuple[str, ...]) -> Record:
    """Everything, on an empty cache that is removed afterwards."""
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="record-"))
    os.environ["WARPSMITH_CACHE"] = str(folder)
    paths = Paths(folder)
    judged: list[Judged] = []
    try:
        statuses = judge_statuses(Settings(limits=Limits(launch_s=3.0)), paths)
        print(f"statuses after {time.monotonic() - start:.0f} s", file=sys.stderr)
        settings = Settings(baselines=baselines)
        environment = None
        with Evaluator("cuda", settings, paths=paths, use_cache=False, on_message=_complain) as evaluator:
            for task, kernel in JUDGED:
                one, evaluation = judge_twice(evaluator, task, kernel)
                judged.append(one)
                environment = environment or evaluation.environment
                print(f"{task} after {time.monotonic() - start:.0f} s: {one.rounds[0].status}", file=sys.stderr)
            coarse = judge_coarse(evaluator)
        assert environment is not None, "at least one kernel is judged"
        return Record(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            device=environment.device,
            versions={
                "warpsmith": environment.harness,
                "torch": environment.torch,
                "compiler": environment.compiler,
                "driver": environment.driver,
                "python": sys.version.split()[0],
            },
            sandbox=environment.sandbox,
            seconds=time.monotonic() - start,
            judged=tuple(judged),
            statuses=statuses,
            coarse=coarse,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def markdown(record: Record) -> str:
    """The record for benchmarks/README.md."""
    versions = ", ".join(f"{k} {v}" for k, v in record.versions.items() if v)
    lines = [
        f"{record.device}, {record.date[:10]}; {versions}; sandbox: {', '.join(record.sandbox)}.",
        "",
        "| task | class | kernel | latency | speedup over eager (95 %) | over compile | error / limit "
        "| share of the hardware limit | second run differs by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(judged) for judged in record.judged]
    lines += ["", "| kernel | task | status | expected | reason |", "|---|---|---|---|---|"]
    for outcome in (*record.statuses, *record.coarse):
        reason = " ".join(outcome.reason.split())[:160].replace("|", "\\|")
        lines.append(f"| {outcome.kernel} | {outcome.task} | {outcome.status} | {outcome.expected} | {reason} |")
    return "\n".join(lines)


def _row(judged: Judged) -> str:
    first = judged.rounds[0]
    sizes = " ".join(f"{k}={v}" for k, v in judged.axes.items())
    head = f"| {judged.task} ({sizes}) | {judged.precision} | {judged.kernel} |"
    if first.latency_ms is None or first.error is None or first.error_limit is None or first.share_of_floor is None:
        return f"{head} {first.status}: {' '.join(first.reason.split())[:120]} | | | | | |"
    low, high = first.interval.get("eager", (0.0, 0.0))
    eager = f"{first.speedup['eager']:.3f} ({low:.3f} to {high:.3f})" if "eager" in first.speedup else ""
    compiled = f"{first.speedup['compile']:.3f}" if "compile" in first.speedup else ""
    differs = ", ".join(f"{100 * value:.2f} % ({name})" for name, value in judged.disagreement.items())
    return (
        f"{head} {first.latency_ms:.4f} ms | {eager} | {compiled} | {first.error:.2g} / {first.error_limit:.2g} "
        f"| {100 * first.share_of_floor:.0f} % | {differs} |"
    )


def shortcomings(record: Record) -> list[str]:
    """Where the record is not what it must be."""
    found = []
    for judged in record.judged:
        for one in judged.rounds:
            if one.status != "ok":
                found.append(f"{judged.kernel} on {judged.task}: {one.status}: {one.reason}")
        for name, value in judged.disagreement.items():
            if value > 0.02:
                found.append(f"{judged.kernel} on {judged.task}: two runs differ by {100 * value:.1f} % ({name})")
    for outcome in (*record.statuses, *record.coarse):
        if outcome.status != outcome.expected:
            found.append(
                f"{outcome.kernel} on {outcome.task}: {outcome.status} instead of {outcome.expected}: {outcome.reason}"
            )
    return found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--baseline", default="eager,compile", help="baselines, separated by commas")
    options = parser.parse_args()
    there = backend_named("cuda").available()
    if not (there.build and there.run):
        print(f"cannot run here: {there.detail}", file=sys.stderr)
        return 2
    try:
        record = make_record(tuple(options.baseline.split(",")))
    except WarpsmithError as error:
        print(error, file=sys.stderr)
        return 2
    print(markdown(record))
    if options.json:
        options.json.write_text(json.dumps(asdict(record), indent=2) + "\n")
    lacking = shortcomings(record)
    for line in lacking:
        print(f"NOT AS IT MUST BE: {line}", file=sys.stderr)
    print(f"took {record.seconds:.0f} s", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
