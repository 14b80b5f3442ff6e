"""Settings, resolved once and passed in: where things are kept, and the limits of an evaluation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paths:
    """Where Warpsmith keeps what it may delete at any time."""

    cache: Path  # builds, measured peaks, results
    reuse_builds: bool = True  # False: every candidate is built anew, so that nobody sees what others have had built

    @staticmethod
    def from_environment(environ: Mapping[str, str] | None = None) -> Paths:
        """`WARPSMITH_CACHE`, else the XDG cache folder."""
        env = os.environ if environ is None else environ
        if env.get("WARPSMITH_CACHE"):
            return Paths(Path(env["WARPSMITH_CACHE"]).expanduser())
        base = env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return Paths(Path(base) / "warpsmith")


@dataclass(frozen=True)
class Limits:
    """What a candidate may use. Past a limit it is killed, and the verdict says which limit."""

    start_s: float = 30.0  # to start its process, set up the device and load its library
    launch_s: float = 10.0  # one call of the entry point (on top of 100 times the baseline's own time)
    total_s: float = 120.0  # all its calls together; what judging takes besides is not counted
    build_s: float = 120.0  # one compiler run
    memory_bytes: int = 8 << 30  # memory of its own beyond the harness's buffers, host or device
    workspace_bytes: int = 4 << 30  # scratch memory it may ask the harness for
    scratch_bytes: int = 64 << 20  # the largest file it may write in its scratch folder


@dataclass(frozen=True)
class Settings:
    """How an evaluation is done. All of it is part of the result cache's key."""

    baselines: tuple[str, ...] = ("eager",)
    seeds: int = 2  # input sets drawn from the task's own distribution, per workload
    error_factor: float = 3.0  # k in e_candidate <= k * e_baseline + rounding floor
    min_samples: int = 10  # timed pairs, at least
    max_samples: int = 200  # timed pairs, at most
    target_width: float = 0.01  # stop when the ratio's interval is this narrow (relative, half width)
    timing_budget_s: float = 1.0  # per workload and baseline, once min_samples are there
    allow: tuple[str, ...] = ()  # libraries a candidate may call, besides those that the task allows
    without: tuple[str, ...] = ()  # guards left out, to measure what they cost or to test the others; never trusted
    published_rule: bool = False  # also say what the published rule (5 inputs, tolerance 1e-2) calls valid
    limits: Limits = Limits()
