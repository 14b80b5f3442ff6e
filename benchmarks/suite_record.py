"""The suites' record on a GPU: PyTorch eager and compiled, floor and zone of all 112 tasks.

    python -m benchmarks.suite_record --json benchmarks/h200/suite.json
    python -m benchmarks.suite_record --json /tmp/cpu.json --device cpu --small --only relu,softmax --eager
    python -m benchmarks.suite_record --json benchmarks/h200/suite.json --compare TABLE.tsv

First torch.compile works in many processes at once, then one process times everything, serially. Writes after every
task and leaves out what the file has already, so that it can be stopped (`--limit-s`) and run again. `--compare`
measures nothing: it holds the record against a table of published times (columns id, eager_fp32_ms, eager_tf32_ms).
"""

from __future__ import annotations

import argparse
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

from warpsmith import __version__
from warpsmith.core.config import Paths
from warpsmith.core.errors import UsageError, WarpsmithError
from warpsmith.core.task import Precision
from warpsmith.hardware.device import Device, gpus, select_device
from warpsmith.tasks import suites
from warpsmith.tasks.listing import FULL, SMALL
from warpsmith.tasks.suites import Entry

if TYPE_CHECKING:
    from benchmarks.suite_timing import Stopwatch

PRECISIONS = (Precision.FP32, Precision.TF32)
_COMPILE_SHARE = 0.45  # of the time limit: what is not compiled by then is left for the next sitting
_MEMORY_SHARE = 0.8  # of the device, for all that is compiled at once
_FAR = 0.10


@dataclass(frozen=True)
class Options:
    """The command line."""

    json: Path
    known: Path | None
    device: str
    size: str
    only: str
    limit_s: float
    workers: int
    compile_s: float
    baselines: tuple[str, ...]
    cache: Path
    again: bool
    compare: Path | None


def parsed(arguments: Sequence[str]) -> Options:
    """The command line, read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="the record: written, and gone on with if it is there")
    parser.add_argument(
        "--from", dest="known", type=Path, default=None, help="a record to go on with, if --json is new"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="the small workloads: to try it on a CPU")
    parser.add_argument("--only", default="", help="names or families of tasks, separated by commas")
    parser.add_argument("--limit-s", type=float, default=240.0, help="begin no task after this many seconds")
    parser.add_argument("--workers", type=int, default=12, help="processes that compile at once")
    parser.add_argument("--compile-s", type=float, default=60.0, help="for each of their jobs")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "warpsmith-suite-compiled")
    parser.add_argument("--again", action="store_true", help="measure anew what the record has already")
    parser.add_argument("--compare", type=Path, default=None, metavar="TSV", help="measure nothing, compare with this")
    given = parser.parse_args(arguments)
    return Options(
        json=given.json,
        known=given.known,
        device=given.device,
        size=SMALL if given.small else FULL,
        only=given.only,
        limit_s=given.limit_s,
        workers=given.workers,
        compile_s=given.compile_s,
        baselines=("eager",) if given.eager else ("eager", "compile"),
        cache=given.cache,
        again=given.again,
        compare=given.compare,
    )


def classes(entry: Entry, device: Device) -> tuple[Precision, ...]:
    """The precision classes to measure a task in: a CPU has no tf32."""
    return tuple(p for p in PRECISIONS if p in entry.precisions and (p is Precision.FP32 or device.kind == "cuda"))


def jobs(entries: Iterable[Entry], device: Device, size: str) -> Iterator[Job]:
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


def warmed(options: Options, entries: Sequence[Entry], device: Device, began: float) -> Warmed:
    """Everything compiled that can be in its share of the time."""
    if "compile" not in options.baselines or not entries:
        return Warmed()
    share_cache(options.cache)
    memory = [gpu.memory_bytes for gpu in gpus() if gpu.index == device.index]
    room = _MEMORY_SHARE * memory[0] if device.kind == "cuda" and memory else float("inf")
    place = f"cuda:{device.index}" if device.kind == "cuda" else "cpu"
    compilers = Compilers(options.workers, place, room, options.compile_s)
    try:
        wanted = list(jobs(entries, device, options.size))
        told = _Telling(len(wanted), began)
        outcomes = compilers.warm(wanted, began + _COMPILE_SHARE * options.limit_s, told)
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


def begun(options: Options, device: Device, stopwatch: Stopwatch) -> SuiteRecord:
    """The record to go on with, or a new one."""
    known = read_suite(options.json) or (read_suite(options.known) if options.known else None)
    if known is not None and (known.device != device.label or known.size != options.size):
        raise UsageError(
            f"the record is of {known.device} at {known.size} size, not of {device.label} at {options.size}; "
            "name another file."
        )
    peaks = stopwatch.peaks
    fresh = SuiteRecord(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device.label,
        versions=versions(device),
        size=options.size,
        timing=stopwatch.described(),
        bandwidth_bytes_s=peaks.bandwidth_bytes_s,
        flops_s=dict(peaks.flops),
        seconds=0.0,
    )
    return replace(fresh, tasks=known.tasks, seconds=known.seconds) if known else fresh


def versions(device: Device) -> dict[str, str]:
    """Of everything that decides a time."""
    import torch

    found = {"warpsmith": __version__, "torch": torch.__version__, "python": sys.version.split()[0]}
    if device.kind == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())
        found["driver"] = next((gpu.driver for gpu in gpus() if gpu.index == device.index), "")
        try:
            found["triton"] = version("triton")
        except PackageNotFoundError:
            found["triton"] = ""
    return found


def measure(options: Options, began: float) -> int:
    """Compile, time, write; 0 where nothing is left to do, 1 where another sitting is needed."""
    device = select_device(options.device)
    known = read_suite(options.json) or (read_suite(options.known) if options.known else None)
    done = {task.task for task in known.tasks if not task.failure} if known and not options.again else set()
    wanted = [entry for entry in in_turn(chosen(suites.select(), options.only)) if entry.title not in done]
    ahead = warmed(options, wanted, device, began)
    from benchmarks.suite_timing import Request, Stopwatch  # imports torch

    stopwatch = Stopwatch(device, Paths.from_environment().cache)
    record = begun(options, device, stopwatch)
    sitting = time.monotonic()
    count = 0
    for entry in wanted:
        if entry.title in ahead.unready:
            continue
        if time.monotonic() - began > options.limit_s:
            break
        request = Request(entry, options.size, classes(entry, device), options.baselines, ahead.too_slow)
        try:
            figures = stopwatch.measure(request)
        except (RuntimeError, WarpsmithError) as fault:  # one task that does not work here must not cost the others
            said = str(fault).strip().partition("\n")[0]
            figures = TaskFigures(entry.title, entry.family, None, (), 0.0, said or type(fault).__name__)
        count += not figures.failure
        record = _with(record, figures, record.seconds + time.monotonic() - sitting)
        sitting = time.monotonic()
        write(options.json, record)
        print(_line(figures), flush=True)
        stopwatch.check()
    if "compile" in options.baselines:
        print(stopwatch.cache_use(), file=sys.stderr)
    left = len(wanted) - count
    print(
        f"{len(record.tasks)} tasks in {options.json}, {left} left, {time.monotonic() - began:.0f} s", file=sys.stderr
    )
    return 1 if left else 0


def _with(record: SuiteRecord, figures: TaskFigures, seconds: float) -> SuiteRecord:
    others = (task for task in record.tasks if task.task != figures.task)
    tasks = tuple(sorted((*others, figures), key=lambda task: task.task))
    return replace(record, tasks=tasks, seconds=round(seconds, 1))


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
    record = read_suite(options.json)
    if record is None:
        raise UsageError(f"there is no record {options.json} to compare.")
    with options.compare.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    print("\n".join(compared(record, rows)))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or compare."""
    began = time.monotonic()
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        return compare(options) if options.compare else measure(options, began)
    except WarpsmithError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
