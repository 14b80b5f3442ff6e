"""What `optimize --resume` cannot change: how a run searches and measures. Limits, and who proposes, it can.

An option that says what the run was begun with anyway does no harm. One that says otherwise is refused, since verdicts
and kernels from before and after could not be compared, or the log would not fold to what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warpsmith.methods.load import load
from warpsmith.model.errors import UsageError
from warpsmith.model.task import Precision
from warpsmith.run_log.events import RunCreated
from warpsmith.search.options import RunOptions

_Value = str | int | float | bool


def check_unchanged(options: RunOptions, folder: Path, begun: RunCreated) -> None:
    """Raise where an option differs from what the run was begun with, and a run cannot change that."""
    for option, given, own in _told(options, begun):
        if given is not None and given != own:
            raise UsageError(
                f"{_shown(option, given)} does not go with --resume: {folder} was begun with {_shown(option, own)}; "
                "leave it out, or start a new run."
            )


def _told(options: RunOptions, begun: RunCreated) -> Iterator[tuple[str, _Value | None, _Value]]:
    """What cannot change: the option, what it was given (None for nothing), and what it is in the run."""
    config, method = begun.config, begun.method
    parts = {"roofline": options.roofline, "retrieval": options.retrieval, "alignment": options.alignment}
    missing = [part for part in parts if f"-no-{part}" in method.name]
    if options.method is not None:
        same = "-no-".join([load(options.method).name, *missing]) == method.name
        yield "--method", options.method, options.method if same else method.name
    for part, wanted in parts.items():
        yield f"--{part}", wanted, part not in missing
    yield "--backend", options.backend, config.backend
    yield "--precision", options.precision, Precision(config.precision or begun.problem.task.precision)
    if options.baselines is not None:
        yield "--baseline", ",".join(options.baselines), ",".join(config.settings.baselines)
    yield "--time-budget", options.timing_budget_s, config.settings.timing_budget_s
    yield "--seed", options.seed, config.seed
    yield "--repairs", options.repairs, method.repairs if config.repairs is None else config.repairs


def _shown(option: str, value: _Value) -> str:
    """As it is written on the command line."""
    if isinstance(value, bool):
        return option if value else option.replace("--", "--no-", 1)
    return f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}"
