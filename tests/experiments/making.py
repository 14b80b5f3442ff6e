"""What the tests of benches share: results made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.experiments.results import (
    BenchResults,
    BenchTask,
    Cell,
    CellBest,
    CellStatus,
    MeasuredSpeedup,
    Versions,
)
from warpsmith.run_log.events import Budget


def speedup(value: float, width: float = 0.01) -> MeasuredSpeedup:
    return MeasuredSpeedup(value, value * (1 - width), value * (1 + width))


def best(
    value: float,
    *,
    verified: bool | None = True,
    compile: float | None = None,
    start: float | None = None,
    share: float = 0.5,
    width: float = 0.01,
) -> CellBest:
    return CellBest(
        candidate="c0ffee",
        trial=3,
        file="",
        strategy="",
        eager=speedup(value, width),
        compile=speedup(compile) if compile else None,
        start=speedup(start) if start else None,
        latency_ms=1.0,
        share_of_floor=share,
        remeasured=True,
        verified=verified,
        why_not="" if verified else "because",
    )


def cell(
    task: str,
    won: CellBest | None,
    *,
    method: str = "m",
    proposer: str = "template",
    seed: int = 0,
    status: CellStatus = CellStatus.DONE,
    trials: int = 10,
    valid: int = 5,
    compiled: int = 8,
    tokens: int = 100,
    usd: float | None = 0.5,
) -> Cell:
    return Cell(
        task=task,
        method=method,
        proposer=proposer,
        seed=seed,
        status=status,
        reason="all trials are spent",
        run=f"cells/{task}/{method}",
        trials=trials,
        valid=valid,
        compiled=compiled,
        best=won,
        tokens=tokens,
        usd=usd,
        device_seconds=2.0,
        wall_seconds=4.0,
    )


def bench(cells: Sequence[Cell], **changes: object) -> BenchResults:
    """A bench of these cells."""
    tasks = dict.fromkeys(each.task for each in cells)
    known: dict[str, object] = {
        "id": "b0",
        "name": "by hand",
        "date": "2026-01-02T03:04:05+00:00",
        "versions": Versions("1.0", torch="2.9"),
        "devices": ("some CPU",),
        "backend": "cpu",
        "methods": tuple(dict.fromkeys(each.method for each in cells)),
        "proposers": tuple(dict.fromkeys(each.proposer for each in cells)),
        "tasks": tuple(BenchTask(name, f"suite/{name}", "family", zone="memory") for name in tasks),
        "repeats": 1,
        "seed": 0,
        "budget": Budget(trials=10),
        "verify": True,
        "cells": tuple(cells),
    }
    return BenchResults(**(known | changes))  # type: ignore[arg-type]
