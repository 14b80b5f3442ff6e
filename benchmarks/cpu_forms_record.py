"""Judges what an offline search proposes first for the CPU, at the small size of every suite task; writes a record.

    nice python -m benchmarks.cpu_forms_record --json benchmarks/cpu_forms.json --limit-s 900

A kernel is written by a form of the collection or by the templates; a search would go on from there. The record is
written after every task and gone on with: what it has already is left out unless the kernel or a header has changed.
A kernel beats PyTorch where the whole interval of its speedup is above 1. Times of a busy machine have wide intervals.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
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
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Settings
from warpsmith.search.start import AUTO, offline_start
from warpsmith.tasks.listing import SMALL
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.suites import SHIPPED, SuiteTask, suite_tasks

SETTINGS = Settings(seeds=1, max_samples=40, target_width=0.05, timing_budget_s=0.3)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="the record: written, and gone on with if it is there")
    parser.add_argument("--limit-s", type=float, default=900.0, help="begin no task after this many seconds")
    parser.add_argument("--only", default="", help="names or families of tasks, separated by commas")
    options = parser.parse_args()
    began, device = time.monotonic(), select_device("cpu")
    found: dict[str, Any] = json.loads(options.json.read_text())["tasks"] if options.json.exists() else {}
    wanted = set(filter(None, options.only.split(",")))
    tasks = [t for suite in SHIPPED for t in suite_tasks(suite) if not wanted or wanted & {t.name, t.family}]
    with Evaluator(device, SETTINGS) as evaluator:
        for task, candidate in kernels(tasks, device):
            known = found.get(task.title, {}).get("kernel")
            if known == identity(candidate) or time.monotonic() - began > options.limit_s:
                continue
            found[task.title] = entry(evaluator, task, candidate)
            print(task.title, found[task.title]["status"], found[task.title]["speedup"], flush=True)
            options.json.write_text(json.dumps(record(found, device), indent=1) + "\n")


def kernels(tasks: list[SuiteTask], device: Device) -> Iterator[tuple[SuiteTask, Candidate]]:
    """The tasks that have a kernel without a model, with the first one."""
    for task in tasks:
        program = load_task(task.spec(SMALL))
        contract = backend_named("cpu").contract(program.task)
        problem = Problem(program.task, contract, "cpu", device.name, device.kind, "", (), outline(program))
        with suppress(CandidateError):
            yield task, offline_start(problem, AUTO)


def entry(evaluator: Evaluator, task: SuiteTask, candidate: Candidate) -> dict[str, Any]:
    """The verdict on one kernel."""
    head = {"family": task.family, "strategy": candidate.strategy, "kernel": identity(candidate)}
    try:
        verdict: Evaluation = evaluator.evaluate_one(task.spec(SMALL), candidate)
    except WarpsmithError as fault:
        return {**head, "status": "fault", "reason": str(fault), "speedup": None}
    interval = verdict.interval()
    return {
        **head,
        "status": verdict.status.value,
        "reason": verdict.reason[:300],
        "speedup": verdict.speedup(),
        "interval": [interval.low, interval.high] if interval else None,
        "latency_ms": [each.latency_ms for each in verdict.workloads],
        "eager_ms": [b.latency_ms for each in verdict.workloads for b in each.baselines if b.name == "eager"],
        "error_of_limit": max((w.error / w.error_limit for w in verdict.workloads if w.error_limit), default=None),
        "torch": verdict.environment.torch,
        "compiler": verdict.environment.compiler,
    }


def record(found: dict[str, Any], device: Device) -> dict[str, Any]:
    """The whole record."""
    families: dict[str, dict[str, Any]] = {}
    for name in sorted({each["family"] for each in found.values()}):
        members = [each for each in found.values() if each["family"] == name]
        valid = [each for each in members if each["status"] == "ok" and each["speedup"]]
        families[name] = {
            "tasks": len(members),
            "valid": len(valid),
            "geometric_mean_speedup": math.exp(sum(math.log(e["speedup"]) for e in valid) / len(valid))
            if valid
            else None,
            "beat_pytorch": sum(bool(e["interval"]) and e["interval"][0] > 1 for e in valid),
            "median_above_1": sum(e["speedup"] > 1 for e in valid),
            "lowest_speedup": min((e["speedup"] for e in valid), default=None),
        }
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": device.name,
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "size": SMALL,
        "versions": versions(device),
        "settings": {k: v for k, v in asdict(SETTINGS).items() if k in ("seeds", "max_samples", "timing_budget_s")},
        "families": families,
        "tasks": found,
    }


if __name__ == "__main__":
    main()
