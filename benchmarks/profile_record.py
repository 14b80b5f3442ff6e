"""The record of what is said about kernels on a GPU: the planted bottleneck of each, and the zones of known tasks.

    python -m benchmarks.profile_record --json benchmarks/h200/profiles.json
    python -m benchmarks.profile_record --json benchmarks/h200/collection_profiles.json --kernels conv1d,conv3d

With --kernels, what limits these kernels of the collection. Without, the kernels and the tasks are those of tests/gpu
(`planted.py`). Prints every digest as a proposer gets it, writes after each, and ends with status 1 if a digest names
another bottleneck first or a zone is not the one it should be.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.suite_sitting import versions

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import select_device
from warpsmith.kernels.collection import find_kernel
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.settings import Settings
from warpsmith.profiling.profiler import Profiler

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the kernels live with the tests
from tests.gpu.planted import KERNELS, PLANTED, ZONES, planted_kernel, planted_task


@dataclass(frozen=True)
class Told:
    """What is said about one kernel."""

    kernel: str
    planted: str
    named: str  # first; "" where nothing was
    digest: str
    source: str
    seconds: float
    reason: str  # why there are no counters; "" where there are


@dataclass(frozen=True)
class Placed:
    """Where one task lies."""

    task: str
    expected: str
    zone: str
    bytes: int
    flops: int
    floor_ms: float


@dataclass
class Record:
    """All of it."""

    date: str
    device: str
    versions: dict[str, str]
    digests: list[Told] = field(default_factory=list)
    zones: list[Placed] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether everything is as it should be."""
        return all(d.named == d.planted for d in self.digests) and all(z.zone == z.expected for z in self.zones)


def told(name: str, evaluator: Evaluator, profiler: Profiler) -> Told:
    """Judge a planted kernel, and ask what holds it back."""
    task, candidate = planted_task(name), read_candidate(planted_kernel(name))
    evaluation = evaluator.evaluate_one(task, candidate)
    planted = PLANTED[name][1].value
    if not evaluation.ok:
        return Told(name, planted, "", "", "", 0.0, f"{evaluation.status}: {evaluation.reason}")
    found = profiler.profile(task, candidate, evaluator.survey(task, "cuda"), evaluation)
    digest = found.digest
    if digest is None:
        return Told(name, planted, "", "", "", 0.0, found.reason)
    return Told(
        name, planted, digest.bottleneck.value, digest.text, digest.source, round(digest.seconds, 1), found.reason
    )


def told_of_collection(name: str, evaluator: Evaluator, profiler: Profiler) -> Told:
    """What holds a kernel of the collection back."""
    kernel = find_kernel(name)
    task = kernel.task.spec()
    evaluation = evaluator.evaluate_one(task, kernel.candidate)
    if not evaluation.ok:
        return Told(name, "", "", "", "", 0.0, f"{evaluation.status}: {evaluation.reason}")
    found = profiler.profile(task, kernel.candidate, evaluator.survey(task, "cuda"), evaluation)
    digest = found.digest
    if digest is None:
        return Told(name, "", "", "", "", 0.0, found.reason)
    return Told(name, "", digest.bottleneck.value, digest.text, digest.source, round(digest.seconds, 1), found.reason)


def placed(task: str, expected: str, evaluator: Evaluator) -> Placed:
    """The zone of a known task."""
    problem = evaluator.survey(KERNELS / task, "cuda")
    bound = problem.bounds[0]
    return Placed(task, expected, problem.zone, bound.bytes, bound.flops, round(bound.floor_ms, 6))


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--kernels", default="", help="of the collection, separated by commas")
    options = parser.parse_args()
    device = select_device("cuda")
    record = Record(datetime.now(UTC).isoformat(timespec="seconds"), device.label, dict(versions(device)))

    def keep() -> None:
        options.json.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")

    with Evaluator(device, Settings(timing_budget_s=0.2)) as evaluator, Profiler(device) as profiler:
        of_collection = list(filter(None, options.kernels.split(",")))
        ask = told_of_collection if of_collection else told
        for name in of_collection or PLANTED:
            record.digests.append(ask(name, evaluator, profiler))
            last = record.digests[-1]
            print(f"{name} ({last.seconds} s)\n{last.digest or last.reason}\n", flush=True)
            keep()
        if of_collection:
            return 0 if all(each.digest for each in record.digests) else 1
        for task, expected in ZONES:
            record.zones.append(placed(task, expected, evaluator))
            print(f"{task}: {record.zones[-1].zone}", flush=True)
            keep()
    return 0 if record.right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except WarpsmithError as error:
        sys.exit(f"error: {error}")
