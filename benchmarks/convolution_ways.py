"""Every way in which the forms can write a convolution, checked and timed: does a search try the best one first?

    python -m benchmarks.convolution_ways --json benchmarks/h200/convolution_ways.json --limit-s 300
    python -m benchmarks.convolution_ways --json /tmp/ways.json --compile-only

Sizes are some of those of the sweep (`sweep_shapes.py`), checked and timed as it does. A way is a strategy that a
search may choose (docs/kernels.md); the record has the time that the form expects beside the measured one. The plain
kernel, which takes seconds at such sizes, is left out. The record is written after each kernel; what it has already
with the same text is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.collection_record import ARCH
from benchmarks.shape_sweep import PROCESSES, RIGHT, Prepared, measure_all, selected, task_file, write_tasks
from benchmarks.suite_sitting import versions
from benchmarks.sweep_entries import CONVOLUTIONS, Entry

from warpsmith.backends.source import backend_named
from warpsmith.hardware.device import select_device
from warpsmith.kernels.facts import identity
from warpsmith.kernels.forms import form_ways
from warpsmith.model.build import BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import WarpsmithError
from warpsmith.system.files import put_in_place
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline

SLOWEST = 40.0  # times the expected time of the best way: slower ones take the GPU for nothing
EVERY = 4  # of the convolutions of the sweep


@dataclass(frozen=True)
class Way:
    """One way of one convolution."""

    name: str  # the entry's and the way's
    convolution: str  # for readers
    way: str  # a strategy
    place: int  # 0: what a search tries first
    candidate: str
    expected_ms: float | None
    status: str = ""
    reason: str = ""
    error: float | None = None  # the largest over its limit
    kernel_ms: float | None = None
    eager_ms: float | None = None


def ways_of(entry: Entry, folder: Path) -> list[tuple[Way, Candidate]]:
    """The ways of one convolution, the form's own first."""
    program = load_task(task_file(entry, folder))
    contract = backend_named("cuda").contract(program.task)
    found = [way for way in form_ways(program.task, contract, outline(program)) if way.name]
    best = min((way.microseconds for way in found if way.microseconds is not None), default=math.inf)
    ways = []
    for place, way in enumerate(found):
        if way.microseconds is not None and way.microseconds > SLOWEST * best:
            continue
        candidate = Candidate((SourceFile("kernel.cu", way.source()),), "cuda")
        expected, name = way.microseconds and way.microseconds / 1000, f"{entry.name}__{way.name}"
        ways.append((Way(name, entry.shape, way.name, place, identity(candidate), expected), candidate))
    return ways


def compiled(entry: Entry, way: Way, candidate: Candidate, folder: Path) -> Prepared:
    """The library of a way."""
    began = time.monotonic()
    backend = backend_named("cuda")
    try:
        contract = backend.contract(load_task(task_file(entry, folder)).task)
        made = backend.build(candidate, contract, Target(DeviceKind.CUDA, ARCH))
    except WarpsmithError as fault:
        return Prepared(way.name, "build error", reason=str(fault))
    if isinstance(made, BuildFailure):
        return Prepared(way.name, "build error", reason=made.reason)
    return Prepared(way.name, "", way.way, way.candidate, library=str(made.library), seconds=time.monotonic() - began)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", default="", help="parts of names of the sweep, separated by commas")
    parser.add_argument("--limit-s", type=float, default=300.0, help="no kernel is begun after that")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile at the same time")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    options = parser.parse_args()
    began = time.monotonic()
    entries = [each for each in selected(options.only or CONVOLUTIONS) if each.group == CONVOLUTIONS]
    entries = entries if options.only else entries[::EVERY]
    known = read_record(options.json)
    device = None if options.compile_only else select_device("cuda")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tasks(entries, folder)
        found = [(entry, *each) for entry in entries for each in ways_of(entry, folder)]
        left = [each for each in found if not _is_settled(known.get(each[1].name), each[1])]
        with ProcessPoolExecutor(options.processes, mp_context=PROCESSES) as pool:
            libraries = list(pool.map(compiled, *zip(*left, strict=True), [folder] * len(left))) if left else []
        took = time.monotonic() - began
        print(f"{len(left)} of {len(found)} kernels to do, compiled after {took:.0f} s", flush=True)
        jobs: dict[str, tuple[Way, Entry, Prepared]] = {}
        for (entry, way, _), library in zip(left, libraries, strict=True):
            if library.status:
                known[way.name] = replace(way, status=library.status, reason=library.reason[:500])
                print(f"{way.name}: {library.reason[:300]}")
                continue
            own = replace(entry, name=way.name)
            task_file(own, folder).write_text(entry.text, encoding="utf-8")
            jobs[way.name] = (way, own, library)
        details = {"device": device.name, "versions": versions(device)} if device else {}
        if not options.compile_only:
            for each in measure_all([job[1:] for job in jobs.values()], folder, began + options.limit_s):
                way = jobs[each.name][0]
                known[each.name] = replace(
                    way,
                    status=each.status,
                    reason=each.reason,
                    error=each.error,
                    kernel_ms=each.kernel_ms,
                    eager_ms=each.eager_ms,
                )
                write_record(options.json, known, details)
                print(line_of(known[each.name]), flush=True)
        write_record(options.json, known, details)
    chosen = [known[way.name] for _, way, _ in found if way.name in known]
    for line in summary(chosen):
        print(line)
    return int(any(each.status != RIGHT for each in chosen))


def _is_settled(known: Way | None, way: Way) -> bool:
    return known is not None and known.candidate == way.candidate and known.status == RIGHT


def read_record(path: Path) -> dict[str, Way]:
    """The kernels of a record; none if there is no file."""
    if not path.exists():
        return {}
    return {row["name"]: Way(**row) for row in json.loads(path.read_text(encoding="utf-8"))["ways"]}


def write_record(path: Path, known: Mapping[str, Way], details: Mapping[str, object]) -> None:
    """Write the whole record."""
    rows = [asdict(each) for each in known.values()]
    record = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **details, "ways": rows}
    put_in_place(path, (json.dumps(record, indent=1) + "\n").encode(), 0o644)


def line_of(found: Way) -> str:
    """One kernel for the terminal."""
    expected = f", expected {found.expected_ms:.4f} ms" if found.expected_ms else ""
    took = f"{found.kernel_ms:.4f} ms{expected}, eager {found.eager_ms:.4f} ms" if found.kernel_ms else found.reason
    return f"{found.convolution:90} {found.way:22} {found.status:8} {took}"


def summary(found: Iterable[Way]) -> list[str]:
    """How often the first way is the fastest, and what another one would gain."""
    by_case: dict[str, list[Way]] = {}
    for each in found:
        if each.status == RIGHT and each.kernel_ms:
            by_case.setdefault(each.convolution, []).append(each)
    losses = []
    lines = []
    for case, ways in by_case.items():
        first = next((each for each in ways if each.place == 0), None)
        best = min(ways, key=lambda each: each.kernel_ms or math.inf)
        if first is None or not first.kernel_ms or not best.kernel_ms:
            continue
        losses.append(first.kernel_ms / best.kernel_ms)
        if best is not first:
            lines.append(f"{case}: {first.way} {first.kernel_ms:.4f} ms, {best.way} {best.kernel_ms:.4f} ms")
    if losses:
        mean = math.exp(statistics.fmean(map(math.log, losses)))
        lines.append(f"the first way is the fastest in {losses.count(1.0)} of {len(losses)}; it takes {mean:.3f} times")
    return lines


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WarpsmithError as fault:
        sys.exit(f"error: {fault}")
