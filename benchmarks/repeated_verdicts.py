"""Whether verdicts on the CPU repeat: the same kernels judged again and again, each time by a new evaluator.

    python -m benchmarks.repeated_verdicts [--times 5] [--json FILE]

For each kernel and workload: all speedups over PyTorch eager, how far the highest is from the lowest, and how wide
their intervals are. Run it in two checkouts, one after the other, to see what a change to the timing does.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import warpsmith
from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator

ROOT = Path(__file__).parents[1]
PACKAGED = Path(warpsmith.__file__).parent / "examples"
KERNELS = (
    (PACKAGED / "softmax.py", PACKAGED / "softmax_vector.cpp"),
    (ROOT / "examples/tasks/layer_norm.py", ROOT / "examples/kernels/layer_norm.cpp"),
    (ROOT / "examples/tasks/relu.py", ROOT / "examples/kernels/relu.cpp"),
)


@dataclass
class Repeated:
    """One workload of one kernel, over all verdicts."""

    speedups: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)  # of the intervals, as a share of the speedup
    latencies_ms: list[float] = field(default_factory=list)
    eager_ms: list[float] = field(default_factory=list)

    @property
    def spread(self) -> float:
        """The highest speedup over the lowest."""
        return max(self.speedups) / min(self.speedups)


def judge(times: int) -> tuple[dict[str, Repeated], dict[str, str]]:
    """All verdicts by kernel and workload, and where they were made."""
    found: dict[str, Repeated] = defaultdict(Repeated)
    where: dict[str, str] = {}
    for _ in range(times):
        for task, kernel in KERNELS:
            with Evaluator("cpu", use_cache=False) as evaluator:
                ((_, verdict),) = evaluator.evaluate(str(task), [read_candidate(kernel)])
            assert verdict.workloads, verdict.reason
            made = verdict.environment
            where = {"device": made.device, "compiler": made.compiler, "torch": made.torch, "warpsmith": made.harness}
            for result in verdict.workloads:
                eager = result.baselines[0]
                assert eager.interval is not None
                one = found[f"{verdict.task} {result.workload}"]
                one.speedups.append(eager.speedup)
                one.widths.append((eager.interval.high - eager.interval.low) / eager.speedup)
                one.latencies_ms.append(result.latency_ms)
                one.eager_ms.append(eager.latency_ms)
    return found, where


def main() -> None:
    """Judge, print a table, and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found, where = judge(options.times)
    print("| kernel | speedups | highest over lowest | width of the interval, median |\n|---|---|---|---|")
    for name, one in found.items():
        speedups = ", ".join(f"{value:.2f}" for value in one.speedups)
        print(f"| {name} | {speedups} | {one.spread:.2f} | {100 * median(one.widths):.0f} % |")
    if options.json:
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **where,
            "kernels": {name: asdict(one) for name, one in found.items()},
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
