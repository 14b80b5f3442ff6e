"""Warpsmith makes GPU kernels faster by evolution, on an evaluator that cannot be fooled.

The names here are what a task file and a script need; each is imported on first use, so that
`import warpsmith` stays fast and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from warpsmith._version import __version__

if TYPE_CHECKING:
    from warpsmith.evaluate.evaluator import Evaluator as Evaluator
    from warpsmith.tasks.declare import booleans as booleans
    from warpsmith.tasks.declare import custom as custom
    from warpsmith.tasks.declare import integers as integers
    from warpsmith.tasks.declare import normal as normal
    from warpsmith.tasks.declare import probabilities as probabilities
    from warpsmith.tasks.declare import scalar as scalar
    from warpsmith.tasks.declare import task as task
    from warpsmith.tasks.declare import uniform as uniform
    from warpsmith.tasks.listing import listed as listed
    from warpsmith.use.loading import load as load

_HOME = {
    "Evaluator": "warpsmith.evaluate.evaluator",
    **dict.fromkeys(
        ("booleans", "custom", "integers", "normal", "probabilities", "scalar", "task", "uniform"),
        "warpsmith.tasks.declare",
    ),
    "listed": "warpsmith.tasks.listing",
    "load": "warpsmith.use.loading",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> object:
    """Import a public name where it is used."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'warpsmith' has no attribute {name!r}")
