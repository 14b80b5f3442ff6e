"""`warpsmith demo`: optimise residual + RMSNorm on this machine with the offline catalogue, in under two minutes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.cli import cards
from warpsmith.cli.optimize import OptimizeRequest, run_search
from warpsmith.cli.options import AsJson
from warpsmith.search.options import RunOptions

_TRIALS = 24
_TIMING_S = 0.3  # per workload: more trials are worth more here than narrower intervals
_SECONDS = 75.0  # opening the task and the last verdicts come on top; together under two minutes


def demo(
    run: Annotated[str, typer.Option(metavar="DIR", help="The run's folder.  [default: under runs/]")] = "",
    json: AsJson = False,
) -> int:
    """Optimise residual + RMSNorm for this machine with the offline catalogue, in under two minutes.

    Exit status: 0 a valid kernel was found, faster than PyTorch or not, 1 none was found.
    """
    if not json:
        console = cards.console(stderr=True)
        budget = f"{_TRIALS} trials or {_SECONDS:.0f} s"
        console.print(f"Optimising residual + RMSNorm for this machine: {budget}, no model needed.")
    options = RunOptions(proposer="template", trials=_TRIALS, seconds=_SECONDS, timing_budget_s=_TIMING_S)
    task = str(Path(str(files("warpsmith.examples"))) / "residual_rms_norm.py")
    return run_search(OptimizeRequest(task, options, run=run, as_json=json))
