"""Warpsmith makes GPU kernels faster by evolution, on an evaluator hardened against every attack we know.

The names here are what a task file and a script need; each is imported on first use, so that
`import warpsmith` stays fast and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from warpsmith._version import __version__

if TYPE_CHECKING:
    from warpsmith.api import BestKernel as BestKernel
    from warpsmith.api import Result as Result
    from warpsmith.api import Run as Run
    from warpsmith.api import TrialResult as TrialResult
    from warpsmith.api import evaluate as evaluate
    from warpsmith.api import evaluate_all as evaluate_all
    from warpsmith.api import optimize as optimize
    from warpsmith.api import verify as verify
    from warpsmith.evaluator.supervisor.evaluator import Evaluator as Evaluator
    from warpsmith.model.errors import WarpsmithError as WarpsmithError
    from warpsmith.runtime.load import load as load
    from warpsmith.search.options import RunOptions as RunOptions
    from warpsmith.server.client import Client as Client
    from warpsmith.tasks.declare import booleans as booleans
    from warpsmith.tasks.declare import custom as custom
    from warpsmith.tasks.declare import integers as integers
    from warpsmith.tasks.declare import normal as normal
    from warpsmith.tasks.declare import probabilities as probabilities
    from warpsmith.tasks.declare import scalar as scalar
    from warpsmith.tasks.declare import task as task
    from warpsmith.tasks.declare import uniform as uniform
    from warpsmith.tasks.listing import listed as listed

_HOME = {
    **dict.fromkeys(
        ("BestKernel", "Result", "Run", "TrialResult", "evaluate", "evaluate_all", "optimize", "verify"),
        "warpsmith.api",
    ),
    "Evaluator": "warpsmith.evaluator.supervisor.evaluator",
    "Client": "warpsmith.server.client",
    "RunOptions": "warpsmith.search.options",
    "WarpsmithError": "warpsmith.model.errors",
    **dict.fromkeys(
        ("booleans", "custom", "integers", "normal", "probabilities", "scalar", "task", "uniform"),
        "warpsmith.tasks.declare",
    ),
    "listed": "warpsmith.tasks.listing",
    "load": "warpsmith.runtime.load",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> object:
    """Import a public name where it is used."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'warpsmith' has no attribute {name!r}")
