"""Candidates per minute of the engine `ray` against `local`: the same kernels, in turn, in one run.

    python benchmarks/engine_throughput.py --device cuda --count 48 --json benchmarks/h200/engine_throughput.json

Each pass judges `--count` right kernels of `evaluator_throughput.py` that no cache knows (they differ from those of
other passes in a comment), in the order local, ray, ray, local. Ray runs on this machine alone. The clock starts when
the task is open: starting processes takes place once per run, whatever the engine, and is given apart. Exit status: 1
if a kernel is not valid.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ray
from benchmarks.evaluator_throughput import SIZES, TASK, make_candidates

from warpsmith._version import __version__
from warpsmith.engine.engine import open_engine
from warpsmith.model.candidate import SourceFile

ORDER = ("local", "ray", "ray", "local")


@dataclass(frozen=True)
class Pass:
    """One pass."""

    engine: str
    open_s: float  # until the task was open
    seconds: float  # from then to the last verdict
    per_minute: float
    statuses: dict[str, int]


def one_pass(engine: str, spec: str, device: str, count: int, number: int, task: Path) -> Pass:
    """Judge all kernels with an engine that is opened for it."""
    candidates = []
    for each in make_candidates(device, count):
        text = f"{each.main.text}\n// pass {number}\n"
        candidates.append(replace(each, files=(SourceFile(each.main.name, text),)))
    begun = time.monotonic()
    with open_engine(spec, device, name="throughput", on_message=lambda text: print(text, file=sys.stderr)) as opened:
        opened.describe(task)
        ready = time.monotonic()
        statuses = Counter(evaluation.status.value for _, evaluation in opened.evaluate(task, candidates))
        done = time.monotonic()
    return Pass(engine, ready - begun, done - ready, 60 * count / (done - ready), dict(statuses))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--ray", default="ray", help="the engine to compare with local")
    parser.add_argument("--json", default="")
    given = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["WARPSMITH_CACHE"] = str(Path(scratch) / "cache")  # of the nodes, too: they start with it
        rows, cols = SIZES[given.device]
        task = Path(scratch) / "softmax.py"
        task.write_text(TASK.replace("@ROWS@", str(rows)).replace("@COLS@", str(cols)))
        with open_engine("local", given.device) as warm:  # measures the device's peaks
            warm.describe(task)
            device = warm.device.label
        if given.ray == "ray":
            ray.init(  # its own
                address="local",
                include_dashboard=False,
                object_store_memory=1 << 30,
                log_to_driver=False,
                logging_level=logging.ERROR,
                namespace="warpsmith",
            )
        passes = []
        for number, engine in enumerate(ORDER):
            spec = given.ray if engine == "ray" else engine
            passes.append(one_pass(engine, spec, given.device, given.count, number, task))
            print(f"{engine}: {passes[-1].per_minute:.1f} per minute, open in {passes[-1].open_s:.1f} s", flush=True)
    rates = {
        name: math.exp(sum(math.log(each.per_minute) for each in passes if each.engine == name) / 2)
        for name in ("local", "ray")
    }
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"warpsmith": __version__, "ray": ray.__version__},
        "candidates": given.count,
        "engine": given.ray,
        "passes": [asdict(each) for each in passes],
        "per_minute": rates,
        "ratio": rates["ray"] / rates["local"],
    }
    print(f"ray / local: {rates['ray'] / rates['local']:.3f}")
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n")
    return int(any(set(each.statuses) != {"ok"} for each in passes))


if __name__ == "__main__":
    sys.exit(main())
