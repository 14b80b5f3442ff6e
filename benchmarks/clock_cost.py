"""What a change to the evaluator's timing costs: two checkouts judge the same kernels in turn.

    git worktree add ../before b6420ec^
    python -m benchmarks.clock_cost --before ../before --device cpu --json benchmarks/cpu_2core_clock_cost.json

A short, a middle and a long softmax, each with `--count` right kernels of `evaluator_throughput.py`. Both checkouts are
called by their command line, `warpsmith evaluate --json`, in the order before, after, after, before, with empty caches.
For each task: candidates per minute with everything (processes started, task opened, kernels built), the speedups, and
how wide their intervals are. Both judge the same kernels, so their speedups should agree.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.evaluator_throughput import TASK, make_candidates

from warpsmith.system.files import put_in_place

ROOT = Path(__file__).resolve().parents[1]
_OWN_PATHS = ("", str(ROOT), str(ROOT / "src"))
ORDER = ("before", "after", "after", "before")
SIZES = {  # rows, columns: about 10 µs, 1 ms and 20 ms on two CPU cores; 5 µs, 50 µs and 1 ms on an H200
    "cpu": {"short": (4, 1024), "middle": (64, 16000), "long": (1024, 16384)},
    "cuda": {"short": (4, 1024), "middle": (1024, 16384), "long": (16384, 32768)},
}


@dataclass
class Side:
    """What one checkout found on one task."""

    statuses: list[str] = field(default_factory=list)
    speedups: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)  # of the intervals, as a share of the speedup
    latencies_ms: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of one call of the command line

    def judge(self, checkout: Path, device: str, task: Path, kernels: list[Path]) -> None:
        """Judge all kernels in one call."""
        with tempfile.TemporaryDirectory() as cache:
            installed = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in _OWN_PATHS]
            search = os.pathsep.join([str(checkout / "src"), *installed])
            environment = {**os.environ, "PYTHONPATH": search, "WARPSMITH_CACHE": cache}
            command = [sys.executable, "-m", "warpsmith", "evaluate", str(task), *map(str, kernels)]
            began = time.monotonic()
            called = subprocess.run(
                [*command, "--device", device, "--json"], env=environment, capture_output=True, text=True, cwd=cache
            )
            self.seconds.append(time.monotonic() - began)
        if called.returncode not in (0, 1):
            raise SystemExit(f"{checkout}: {called.stderr[-2000:]}")
        for each in map(json.loads, called.stdout.splitlines()):
            self.statuses.append(each["status"])
            for result in each["workloads"]:
                speedup, (low, high) = result["speedup"]["eager"], result["speedup_interval"]["eager"]
                self.speedups.append(speedup)
                self.widths.append((high - low) / speedup)
                self.latencies_ms.append(result["latency_ms"])

    def summary(self) -> dict[str, float]:
        """The figures of a table."""
        return {
            "valid": self.statuses.count("ok"),
            "of": len(self.statuses),
            "per_minute": round(60 * len(self.statuses) / sum(self.seconds), 1),
            "speedup": round(median(self.speedups), 3),
            "width": round(median(self.widths), 3),
            "widest": round(max(self.widths), 3),
            "ms": round(median(self.latencies_ms), 5),
        }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=8, help="kernels in a call")
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    if not (options.before / "src" / "warpsmith").is_dir():
        parser.error(f"{options.before} is no checkout of Warpsmith: it has no folder src/warpsmith")
    checkouts = {"before": options.before.resolve(), "after": ROOT}
    found: dict[str, dict[str, Side]] = {}
    with tempfile.TemporaryDirectory() as folder:
        kernels = []
        for candidate in make_candidates(options.device, options.count):
            (file,) = candidate.files
            kernels.append(Path(folder) / file.name)
            kernels[-1].write_text(file.text, encoding="utf-8")
        for length, (rows, cols) in SIZES[options.device].items():
            task = Path(folder) / f"{length}.py"
            task.write_text(TASK.replace("@ROWS@", str(rows)).replace("@COLS@", str(cols)), encoding="utf-8")
            sides = found[length] = {name: Side() for name in checkouts}
            for name in ORDER:
                sides[name].judge(checkouts[name], options.device, task, kernels)
            for name, side in sides.items():
                print(f"{length:7} {name:7} {side.summary()}", flush=True)
            if options.json:
                put_in_place(options.json, record_of(found, checkouts, options.device).encode(), 0o644)
    return 0


def record_of(found: Mapping[str, Mapping[str, Side]], checkouts: Mapping[str, Path], device: str) -> str:
    """The record so far."""
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "device": device,
        "commits": {name: commit(checkout) for name, checkout in checkouts.items()},
        "load": os.getloadavg()[0],
        "summary": {length: {name: side.summary() for name, side in sides.items()} for length, sides in found.items()},
        "all": {length: {name: asdict(side) for name, side in sides.items()} for length, sides in found.items()},
    }
    return json.dumps(record, indent=1) + "\n"


def commit(checkout: Path) -> str:
    """The commit that a checkout stands at; "" for a plain folder, or without git."""
    git = shutil.which("git")
    if git is None or not (checkout / ".git").exists():
        return ""
    asked = subprocess.run([git, "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return asked.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
