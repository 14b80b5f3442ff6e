"""How many trials a second the driver of a bench can carry when evaluations cost nothing.

    python benchmarks/driver_limit.py --cells 64 --trials 45 --slots 16 --json benchmarks/driver_limit.json

A whole bench runs: plan, sessions, prompts, parsing, logs, confirmations, results. Only who proposes (a kernel that
nobody proposed before, at once) and who judges (a verdict at once) are replaced: the engine `free` of this file, which
stands in the list of engines while the benchmark runs. `--profile` prints where the driver's time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.searching import PROBLEM, CannedProposer, answer_to, factor, invalid, reply_text, valid

from warpsmith._version import __version__
from warpsmith.backends.source import backend_named
from warpsmith.engine import engine as engines
from warpsmith.experiments import runner as bench_runner
from warpsmith.experiments.plan import BenchPlan, CellKey, keep_plan
from warpsmith.experiments.runner import BenchRunner
from warpsmith.experiments.selection import select
from warpsmith.hardware.device import Device, select_device
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Problem
from warpsmith.model.build import Availability
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.method import Move, Product
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.prompts.renderer import render
from warpsmith.proposers.choose import ChosenProposer
from warpsmith.run_log.events import Budget


class FreeEngine:
    """Judges at once: a third is wrong, the others get better slowly."""

    width = 1

    def __init__(self, device: Device, settings: Settings) -> None:
        self.device, self.settings = device, settings

    def __enter__(self) -> FreeEngine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def survey(self, task: str | Path, backend: str, precision: Precision | None = None) -> Problem:
        name = Path(str(task).partition("::")[0]).stem
        return replace(PROBLEM, task=replace(PROBLEM.task, name=name, digest=name))

    def evaluate(
        self, task: str | Path, candidates: Sequence[Candidate], precision: Precision | None = None, *, fresh: bool
    ) -> Iterator[tuple[int, Evaluation]]:
        for place, candidate in enumerate(candidates):
            number = factor(candidate)
            yield place, invalid(candidate) if number % 3 == 0 else valid(candidate, 1 + number / 1e6)

    def prepare(self, *_: object) -> None:
        pass


class FreeSite:
    """The engine `free`."""

    has_gpu = False
    slots = 1

    def select(self, spec: str) -> Device:
        return select_device("cpu")

    def available(self, backend: str) -> Availability:
        return backend_named(backend).available()

    def open(self, device: Device, settings: Settings, **_: Any) -> FreeEngine:
        return FreeEngine(device, settings)


def site(spec: str) -> FreeSite:
    """What `open_engine` looks for."""
    return FreeSite()


class _Proposer(CannedProposer):
    """Answers at once; words the prompt as for a model."""

    def prompt(self, brief: Brief) -> Any:
        return render(brief)


def _answer(brief: Brief) -> str:
    words = brief.product is not Product.KERNEL or brief.move is Move.WRITE
    return answer_to(brief, brief.number) if words else reply_text(brief.number)


def chosen(plan: BenchPlan, key: CellKey, *, skip: int = 0) -> ChosenProposer:
    """In the place of `choice_of`."""
    return ChosenProposer("canned", "canned.", lambda: _Proposer(_answer, concurrency=4))


def measure(cells: int, trials: int, slots: int, method: str) -> tuple[float, int, float]:
    """Seconds, trials, and processor seconds of a bench."""
    engines._SITES["free"] = "benchmarks.driver_limit"
    bench_runner.choice_of = chosen
    tasks = select(("warpsmith-100",))[: max(1, cells)]
    repeats = -(-cells // len(tasks))
    plan = BenchPlan(
        name="free",
        created="",
        version=__version__,
        tasks=tasks,
        methods=(load(method),),
        proposers=("canned",),
        repeats=repeats,
        seed=0,
        budget=Budget(trials=trials),
        settings=Settings(),
        device="cpu",
        backend="cpu",
        enough_share=None,
        parallel=4,
        profile=False,
        tune=False,
        verify=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        kept = keep_plan(plan, Path(folder) / "bench")
        runner = BenchRunner(Path(folder) / "bench", kept, [select_device("cpu")], engine="free", slots=slots)
        wall, cpu = time.perf_counter(), time.process_time()
        results = runner.run()
        seconds, spent = time.perf_counter() - wall, time.process_time() - cpu
    return seconds, sum(cell.trials for cell in results.cells), spent


def _profiled(act: Callable[[], object]) -> None:
    """Run with a profiler in every thread; print the functions with most time of their own."""
    profiles: list[cProfile.Profile] = []

    def begin(*_: object) -> None:
        profiles.append(cProfile.Profile(time.thread_time))
        profiles[-1].enable()

    threading.setprofile(begin)
    act()
    threading.setprofile(None)
    stats = pstats.Stats(*profiles)
    stats.sort_stats("tottime").print_stats(35)
    stats.sort_stats("cumulative").print_stats(60)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--trials", type=int, default=45)
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--method", default="evoengineer-full")
    parser.add_argument("--json", default="")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if given.profile:
        _profiled(lambda: measure(given.cells, given.trials, given.slots[0], given.method))
        return
    rows = []
    for slots in given.slots:
        seconds, trials, cpu = measure(given.cells, given.trials, slots, given.method)
        rows.append({"slots": slots, "trials": trials, "seconds": seconds, "processor_seconds": cpu})
        rows[-1] |= {"per_second": trials / seconds, "per_processor_second": trials / cpu}
        print(f"{slots} slots: {trials / seconds:.0f} trials/s, {trials / cpu:.0f} per second of processor", flush=True)
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "python": platform.python_version(),
        "warpsmith": __version__,
        "method": given.method,
        "cells": given.cells,
        "trials_each": given.trials,
        "rows": rows,
    }
    if given.json:
        Path(given.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
