"""`warpsmith demo`: optimise softmax on this machine with the offline catalogue, in under two minutes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from warpsmith.cli import optimize, render

_TRIALS = 24
_TIMING_S = 0.3  # per workload: more trials are worth more here than narrower intervals
_SECONDS = 75.0  # with opening the task and the last verdicts it stays under two minutes


def run(*, folder: str, as_json: bool) -> int:
    """Optimise; 0 when a valid kernel was found, faster than PyTorch or not: the outcome says which."""
    task = Path(str(files("warpsmith.examples"))) / "softmax.py"
    if not as_json:
        console = render.console(stderr=True)
        console.print(f"Optimising softmax for this machine: {_TRIALS} trials or {_SECONDS:.0f} s, no model needed.")
    return optimize.run(
        optimize.Request(
            task=str(task),
            proposer="template",
            trials=_TRIALS,
            seconds=_SECONDS,
            timing_budget_s=_TIMING_S,
            run=folder,
            as_json=as_json,
        )
    )
