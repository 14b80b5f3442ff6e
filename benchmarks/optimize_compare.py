"""Two methods in one record of `optimize_record.py`, task by task and over all: ratios with bootstrap intervals.

    python -m benchmarks.optimize_compare benchmarks/h200/optimize.json cupilot evoengineer-full

A ratio is of geometric means of the speedups over eager; the interval is drawn over tasks and over each task's runs,
both methods' runs drawn apart, since equal seeds share nothing but the seed. Measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

RESAMPLES = 20_000
_SEED = 20261116

Runs = Mapping[str, Sequence[float]]  # speedups by task


def runs_of(document: Mapping[str, object], method: str) -> dict[str, list[float]]:
    """A method's speedups by task; runs that found nothing are left out."""
    rows = document["rows"]
    assert isinstance(rows, list), "a record of optimize_record.py"
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["method"] == method and row["speedup"]:
            found.setdefault(row["task"], []).append(float(row["speedup"]))
    return found


def ratio(ours: Runs, theirs: Runs, tasks: Sequence[str]) -> tuple[float, float, float]:
    """The ratio of geometric means over these tasks, and its interval."""
    rng = np.random.default_rng(_SEED)
    logs = [(np.log(ours[task]), np.log(theirs[task])) for task in tasks]
    value = math.exp(float(np.mean([a.mean() - b.mean() for a, b in logs])))
    drawn = np.stack([_means(a, rng) - _means(b, rng) for a, b in logs])  # tasks by resamples
    chosen = rng.integers(0, len(tasks), size=drawn.shape)
    low, high = np.quantile(np.take_along_axis(drawn, chosen, axis=0).mean(axis=0), (0.025, 0.975))
    return value, math.exp(low), math.exp(high)


def _means(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn: np.ndarray = rng.choice(values, size=(RESAMPLES, len(values))).mean(axis=1)
    return drawn


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("one")
    parser.add_argument("other")
    options = parser.parse_args(arguments)
    document = json.loads(options.record.read_text(encoding="utf-8"))
    ours, theirs = runs_of(document, options.one), runs_of(document, options.other)
    tasks = [task for task in ours if task in theirs]
    if not tasks:
        print(f"{options.record} has no task with runs of both {options.one} and {options.other}.", file=sys.stderr)
        return 2
    print(f"{'task':12} {options.one:>18} {options.other:>18}  ratio")
    for task in tasks:
        value, low, high = ratio(ours, theirs, [task])
        means = [math.exp(float(np.mean(np.log(each[task])))) for each in (ours, theirs)]
        print(f"{task:12} {means[0]:>18.3f} {means[1]:>18.3f}  {value:.3f} [{low:.3f}, {high:.3f}]")
    value, low, high = ratio(ours, theirs, tasks)
    means = [math.exp(float(np.mean([np.mean(np.log(each[task])) for task in tasks]))) for each in (ours, theirs)]
    print(f"{'all':12} {means[0]:>18.3f} {means[1]:>18.3f}  {value:.3f} [{low:.3f}, {high:.3f}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
