"""The suites' record on a GPU: PyTorch eager and compiled, floor and zone of all 112 tasks.

    python -m benchmarks.suite_record --json benchmarks/h200/suite.json
    python -m benchmarks.suite_record --json /tmp/cpu.json --device cpu --small --only relu,softmax --eager
    python -m benchmarks.suite_record --json benchmarks/h200/suite.json --compare TABLE.tsv

First torch.compile works in many processes at once, then one process times everything, serially. Writes after every
task and leaves out what the file has already, so that it can be stopped (`--limit-s`) and run again. `--compare`
measures nothing: it holds the record against a table of published times (columns id, eager_fp32_ms, eager_tf32_ms).
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.suite_compiling import Compilers, Job, Outcome, share_cache
from benchmarks.suite_figures import SuiteRecord, TaskFigures, chosen, in_turn, read_suite, write
from benchmarks.suite_sitting import Common, check_same, common_of, common_parser, deaf, ended, merged, versions

from warpsmith.hardware.device import Device, select_device, visible_gpus
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.model.settings import Paths
from warpsmith.model.task import Precision
from warpsmith.tasks import suites
from warpsmith.tasks.suites import SuiteTask

if TYPE_CHECKING:
    from benchmarks.suite_timing import Stopwatch

PRECISIONS = (Precision.FP32, Precision.TF32)
_COMPILE_SHARE = 0.45  # of the time limit: what is not compiled by then is left for the next sitting
_MEMORY_SHARE = 0.8  # of the device, for all that is compiled at once
_FAR = 0.10


@dataclass(frozen=True)
class Options:
    """The command line."""

    common: Common
    workers: int
    compile_s: float
    baselines: tuple[str, ...]
    cache: Path
    again: bool
    compare: Path | None


def parsed(arguments: Sequence[str]) -> Options:
    """The command line, read."""
    parser = common_parser(__doc__, device="cuda", limit_s=240.0)
    parser.add_argument("--workers", type=int, default=12, help="processes that compile at once")
    parser.add_argument("--compile-s", type=float, default=60.0, help="for each of their jobs")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "warpsmith-suite-compiled")
    parser.add_argument("--again", action="store_true", help="measure anew what the record has already")
    parser.add_argument("--compare", type=Path, default=None, metavar="TSV", help="measure nothing, compare with this")
    given = parser.parse_args(arguments)
    return Options(
        common=common_of(given),
        workers=given.workers,
        compile_s=given.compile_s,
        baselines=("eager",) if given.eager else ("eager", "compile"),
        cache=given.cache,
        again=given.again,
        compare=given.compare,
    )


def classes(entry: SuiteTask, device: Device) -> tuple[Precision, ...]:
    """The precision classes to measure a task in: a CPU has no tf32."""
    return tuple(p for p in PRECISIONS if p in entry.precisions and (p is Precision.FP32 or device.kind == "cuda"))


def jobs(entries: Iterable[SuiteTask], device: Device, size: str) -> Iterator[Job]:
    """What is to be compiled."""
    from warpsmith.tasks.load import load_task  # imports torch

    for entry in entries:
        task = load_task(entry.spec(size)).task
        for workload in task.workloads:
            nbytes = sum(spec.nbytes(workload.sizes) for spec in task.tensors)
            for precision in classes(entry, device):
                yield Job(entry.title, entry.spec(size), workload.name, precision.value, nbytes)


@dataclass(frozen=True)
class Warmed:
    """What came of compiling ahead."""

    unready: frozenset[str] = frozenset()  # tasks of which a part was not compiled before the time was up
    too_slow: frozenset[tuple[str, str, str]] = frozenset()  # keys of jobs that took longer than their limit


def warmed(options: Options, entries: Sequence[SuiteTask], device: Device, began: float) -> Warmed:
    """Everything compiled that can be in its share of the time."""
    if "compile" not in options.baselines or not entries:
        return Warmed()
    share_cache(options.cache)
    memory = [gpu.memory_bytes for gpu in visible_gpus() if gpu.index == device.index]
    room = _MEMORY_SHARE * memory[0] if device.kind == "cuda" and memory else float("inf")
    place = f"cuda:{device.index}" if device.kind == "cuda" else "cpu"
    with deaf():
        compilers = Compilers(options.workers, place, room, options.compile_s)
    try:
        wanted = list(jobs(entries, device, options.common.size))
        told = _Telling(len(wanted), began)
        outcomes = compilers.warm(wanted, began + _COMPILE_SHARE * options.common.limit_s, told)
    finally:
        compilers.close()
    reached = {outcome.job.key for outcome in outcomes}
    return Warmed(
        unready=frozenset(job.task for job in wanted if job.key not in reached),
        too_slow=frozenset(outcome.job.key for outcome in outcomes if outcome.timed_out),
    )


class _Telling:
    """A line on the error stream for what failed, and every now and then."""

    def __init__(self, total: int, began: float) -> None:
        self._total = total
        self._began = began
        self._count = 0

    def __call__(self, outcome: Outcome) -> None:
        self._count += 1
        if outcome.failure or self._count % 20 == 0 or self._count == self._total:
            after_s = time.monotonic() - self._began
            what = f": {outcome.job.task} {outcome.job.precision}: {outcome.failure}" if outcome.failure else ""
            print(f"compiled {self._count} of {self._total} after {after_s:.0f} s{what}", file=sys.stderr, flush=True)


def begun(common: Common, known: SuiteRecord | None, device: Device, stopwatch: Stopwatch) -> SuiteRecord:
    """The record to go on with, or a new one."""
    if known is not None:
        check_same((known.device, known.size), (device.label, common.size))
    peaks = stopwatch.peaks
    fresh = SuiteRecord(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device.label,
        versions=versions(device) | versions_of_torch(device),
        size=common.size,
        timing=stopwatch.described(),
        bandwidth_bytes_s=peaks.bandwidth_bytes_s,
        flops_s=dict(peaks.flops),
        seconds=0.0,
    )
    return replace(fresh, tasks=known.tasks, seconds=known.seconds) if known else fresh


def versions_of_torch(device: Device) -> dict[str, str]:
    """Of PyTorch, and of what it computes with."""
    import torch

    found: dict[str, str] = {"torch": torch.__version__}
    if device.kind == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())
        try:
            found["triton"] = version("triton")
        except PackageNotFoundError:
            found["triton"] = ""
    return found


def measure(options: Options, began: float) -> int:
    """Compile, time, write; 0 where nothing is left to do, 1 where another sitting is needed."""
    common = options.common
    device = select_device(common.device)
    known = common.record(read_suite)
    done = {task.task for task in known.tasks if not task.failure} if known and not options.again else set()
    wanted = [entry for entry in in_turn(chosen(suites.select_tasks(), common.only)) if entry.title not in done]
    ahead = warmed(options, wanted, device, began)
    from benchmarks.suite_timing import Request, Stopwatch  # imports torch

    stopwatch = Stopwatch(device, Paths.from_environment().cache)
    record = begun(common, known, device, stopwatch)
    sitting = time.monotonic()
    count = 0
    for entry in wanted:
        if entry.title in ahead.unready:
            continue
        if time.monotonic() - began > common.limit_s:
            break
        request = Request(entry, common.size, classes(entry, device), options.baselines, ahead.too_slow)
        try:
            figures = stopwatch.measure(request)
        except (RuntimeError, WarpsmithError) as fault:  # one task that does not work here must not cost the others
            said = str(fault).strip().partition("\n")[0]
            figures = TaskFigures(entry.title, entry.family, None, (), 0.0, said or type(fault).__name__)
        count += not figures.failure
        seconds = round(record.seconds + time.monotonic() - sitting, 1)
        record = replace(record, tasks=merged(record.tasks, figures), seconds=seconds)
        sitting = time.monotonic()
        write(common.json, record)
        print(_line(figures), flush=True)
        stopwatch.check()
    if "compile" in options.baselines:
        print(stopwatch.cache_use(), file=sys.stderr)
    left = len(wanted) - count
    print(f"{len(record.tasks)} tasks in {common.json}, {left} left, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if left else 0


def _line(figures: TaskFigures) -> str:
    if figures.failure:
        return f"{figures.task:42} {figures.failure}"
    first = figures.workloads[0]
    times = "  ".join(f"{s.name} {s.precision} {s.median_ms:.4f}" for s in first.sides)
    bound = first.bounds[0]
    return f"{figures.task:42} {times}  floor {bound.floor_ms:.4f} ({bound.zone})  {figures.seconds:.1f} s"


# --- against published times ---


def compared(record: SuiteRecord, table: Iterable[dict[str, str]], far: float = _FAR) -> list[str]:
    """Where our eager times differ from published ones by more than that, the farthest first; how many do not."""
    ours = {task.level1: task for task in record.tasks if task.level1 is not None and task.workloads}
    found: list[tuple[float, str]] = []
    count = 0
    for row in table:
        task = ours.get(int(row["id"]))
        for precision in PRECISIONS:
            here = task.workloads[0].ms("eager", precision.value) if task else None
            there = row.get(f"eager_{precision.value}_ms", "")
            if task is None or here is None or not there:
                continue
            count += 1
            ratio = here / float(there)
            if abs(ratio - 1) > far:
                line = (
                    f"{task.level1:>3} {task.name:34} {precision.value}  {here:9.3f} {float(there):9.3f}  {ratio:.2f}"
                )
                found.append((max(ratio, 1 / ratio), line))
    farthest = [line for _, line in sorted(found, reverse=True)]
    head = [f"{'id':>3} {'task':34} class {'here ms':>9} {'there ms':>9}  ratio"] if found else []
    within = f"{count - len(found)} of {count} eager times are within {far:.0%} of the published ones."
    return [*head, *farthest, within]


def compare(options: Options) -> int:
    """Print the comparison."""
    assert options.compare is not None, "asked for"
    record = read_suite(options.common.json)
    if record is None:
        raise UsageError(f"there is no record {options.common.json} to compare.")
    with options.compare.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    print("\n".join(compared(record, rows)))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or compare."""
    began = time.monotonic()
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    return ended(lambda: compare(options) if options.compare else measure(options, began), options.common.json)


if __name__ == "__main__":
    sys.exit(main())
