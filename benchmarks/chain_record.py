"""Judges what an offline search proposes first for chains that users write, on the CPU, and writes a record.

    python -m benchmarks.chain_record --json benchmarks/cpu_chains.json --only conv,transposed --limit-s 900

The chains are those of tests/kernel_templates/users_chains.py. The record is written after every task and gone on with:
what it has already is left out unless the kernel or a header has changed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.suite_sitting import versions

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import Device, select_device
from warpsmith.kernels.facts import identity
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import CandidateError, WarpsmithError
from warpsmith.model.settings import Settings
from warpsmith.search.start import AUTO, offline_start
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline

CHAINS = Path(__file__).resolve().parent.parent / "tests" / "kernel_templates" / "users_chains.py"
SETTINGS = Settings(seeds=1, max_samples=40, target_width=0.05, timing_budget_s=0.3)
_TASK = re.compile(r"^@.*\ndef (\w+)\(", re.MULTILINE)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="the record: written, and gone on with if it is there")
    parser.add_argument("--limit-s", type=float, default=900.0, help="begin no task after this many seconds")
    parser.add_argument("--only", default="", help="how names begin, separated by commas")
    options = parser.parse_args()
    began, device = time.monotonic(), select_device("cpu")
    found: dict[str, Any] = json.loads(options.json.read_text())["chains"] if options.json.exists() else {}
    names = [
        n for n in _TASK.findall(CHAINS.read_text(encoding="utf-8")) if n.startswith(tuple(options.only.split(",")))
    ]
    with Evaluator(device, SETTINGS) as evaluator:
        for name, candidate in kernels(names, device):
            if found.get(name, {}).get("kernel") == identity(candidate) or time.monotonic() - began > options.limit_s:
                continue
            found[name] = judged(evaluator, name, candidate)
            print(name, found[name]["status"], found[name].get("speedup"), flush=True)
            options.json.write_text(json.dumps(record(found, device), indent=1) + "\n")


def kernels(names: list[str], device: Device) -> Iterator[tuple[str, Candidate]]:
    """The chains that have a kernel without a model, with the first one."""
    for name in names:
        program = load_task(f"{CHAINS}::{name}")
        contract = backend_named("cpu").contract(program.task)
        problem = Problem(program.task, contract, "cpu", device.name, device.kind, "", (), outline(program))
        with suppress(CandidateError):
            yield name, offline_start(problem, AUTO)


def judged(evaluator: Evaluator, name: str, candidate: Candidate) -> dict[str, Any]:
    """The verdict on one kernel."""
    try:
        verdict = evaluator.evaluate_one(f"{CHAINS}::{name}", candidate)
    except WarpsmithError as fault:
        return {"kernel": identity(candidate), "status": "fault", "reason": str(fault)}
    interval = verdict.interval()
    return {
        "kernel": identity(candidate),
        "parts": candidate.main.text.count("\nnamespace part_"),
        "status": verdict.status.value,
        "reason": verdict.reason[:300],
        "speedup": verdict.speedup(),
        "interval": [interval.low, interval.high] if interval else None,
        "error_of_limit": max((w.error / w.error_limit for w in verdict.workloads if w.error_limit), default=None),
    }


def record(found: dict[str, Any], device: Device) -> dict[str, Any]:
    """The whole record."""
    valid = [each for each in found.values() if each["status"] == "ok" and each["speedup"]]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": device.name,
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions(device),
        "judged": len(found),
        "valid": len(valid),
        "geometric_mean_speedup": math.exp(sum(math.log(e["speedup"]) for e in valid) / len(valid)) if valid else None,
        "beat_pytorch": sum(bool(e["interval"]) and e["interval"][0] > 1 for e in valid),
        "slower_than_pytorch": sum(bool(e["interval"]) and e["interval"][1] < 1 for e in valid),
        "chains": found,
    }


if __name__ == "__main__":
    main()
