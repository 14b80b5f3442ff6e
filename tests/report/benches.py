"""Results of benches that nobody ran, as large as one likes: for the report's tests and its benchmark."""

from __future__ import annotations

import random

from warpsmith.experiments.results import (
    BenchResults,
    BenchTask,
    Cell,
    CellBest,
    CellStatus,
    CurvePoint,
    MeasuredSpeedup,
    Versions,
)
from warpsmith.run_log.events import Budget

_FAMILIES = (("matmul", 6), ("activation", 5), ("convolution", 9), ("normalisation", 4), ("reduction", 3), ("loss", 3))
_SKILL = {"evoengineer-full": 1.35, "cupilot": 1.5, "funsearch": 1.1, "evoengineer-free": 1.2}


def make_bench(
    methods: tuple[str, ...] = tuple(_SKILL), *, repeats: int = 2, seed: int = 7, suffix: str = "", scale: int = 1
) -> BenchResults:
    """A bench with winners, failures and doubts in it."""
    tasks = tuple(
        BenchTask(
            name=f"{family}_{number}{suffix}",
            title=f"warpsmith-100/{family}_{number}",
            family=family,
            precision="fp32",
            zone=("memory", "compute", "latency")[number % 3],
            floor_ms=0.01 * (number + 1),
            eager_ms=0.05 * (number + 1),
            compile_ms=0.04 * (number + 1),
        )
        for family, count in _FAMILIES
        for number in range(count * scale)
    )
    cells = tuple(
        _cell(task, method, s, random.Random(f"{seed} {task.name} {method} {s}"))
        for task in tasks
        for method in methods
        for s in range(repeats)
    )
    return BenchResults(
        id="0123456789",
        name=f"warpsmith-100{suffix}",
        date="2026-01-02T03:04:05Z",
        versions=Versions("0.test", "2.13.0", "nvcc 13.0", "580.95"),
        devices=("NVIDIA H200 (cuda:0)",),
        backend="cuda",
        methods=methods,
        proposers=("openai:gpt-large",),
        tasks=tasks,
        repeats=repeats,
        seed=0,
        budget=Budget(trials=45),
        verify=True,
        cells=cells,
    )


def _cell(task: BenchTask, method: str, seed: int, draw: random.Random) -> Cell:
    luck = draw.random()
    if luck < 0.02:
        return Cell(task.name, method, "openai:gpt-large", seed, CellStatus.UNFINISHED, "not begun", "cells/x")
    if luck < 0.04:
        return Cell(
            task.name, method, "openai:gpt-large", seed, CellStatus.FAILED, "The task does not load.", "cells/x"
        )
    value = _SKILL.get(method, 1.0) * draw.lognormvariate(0.0, 0.5) * (0.7 if task.family == "convolution" else 1.0)
    speedup = MeasuredSpeedup(value, value * 0.98, value * 1.02)
    verified = draw.choice((True,) * 8 + (False, None))
    why = {True: "", False: "It fails at rows=1: out of bounds.", None: "Nobody has looked yet."}[verified]
    slower = MeasuredSpeedup(value * 0.8, value * 0.79, value * 0.81)
    best = CellBest(
        candidate=f"{draw.randrange(16**12):012x}",
        trial=draw.randrange(1, 45),
        file="best.cu",
        strategy="vector-loads(width=4) + unroll(factor=2)",
        eager=speedup,
        compile=slower,
        start=MeasuredSpeedup(value * 1.4, value * 1.3, value * 1.5),
        latency_ms=(task.eager_ms or 1.0) / value,
        share_of_floor=min(0.97, 0.2 * value),
        remeasured=True,
        verified=verified,
        why_not=why,
    )
    trials = sorted(draw.sample(range(1, 46), 4))
    curve = tuple(CurvePoint(trial, value * (0.5 + 0.5 * (place + 1) / 4)) for place, trial in enumerate(trials))
    return Cell(
        task=task.name,
        method=method,
        proposer="openai:gpt-large",
        seed=seed,
        status=CellStatus.DONE,
        reason="all trials are spent",
        run=f"cells/{task.name}",
        trials=45,
        valid=draw.randrange(20, 45),
        compiled=44,
        best=best if luck < 0.93 else None,
        tokens=draw.randrange(100_000, 400_000),
        usd=draw.uniform(0.2, 0.9),
        device_seconds=draw.uniform(40, 90),
        wall_seconds=draw.uniform(200, 500),
        curve=curve if luck < 0.93 else (),
        device="NVIDIA H200 (cuda:0)",
    )
