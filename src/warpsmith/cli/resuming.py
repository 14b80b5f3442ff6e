"""What `optimize --resume` cannot change: how a run searches and measures. Limits, and who proposes, it can.

An option that says what the run was begun with anyway does no harm. One that says otherwise is refused, since verdicts
and kernels from before and after could not be compared, or the log would not fold to what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from warpsmith.archive.events import Begun
from warpsmith.cli.evaluate import parse_baselines
from warpsmith.core.errors import UsageError
from warpsmith.core.task import Precision
from warpsmith.methods.loading import load

if TYPE_CHECKING:
    from warpsmith.cli.optimize import Request

_Value = str | int | float | bool


def check_unchanged(request: Request, folder: Path, begun: Begun) -> None:
    """Raise where an option says otherwise than the run that it is to go on with, and a run cannot change that."""
    if request.run and Path(request.run).resolve() != folder.resolve():
        raise UsageError(f"--run {request.run} names the folder of a new run; leave it out to go on with {folder}.")
    for option, given, own in _told(request, begun):
        if given is not None and given != own:
            raise UsageError(
                f"{_shown(option, given)} does not go with --resume: {folder} was begun with {_shown(option, own)}; "
                "leave it out, or start a new run."
            )


def _told(request: Request, begun: Begun) -> Iterator[tuple[str, _Value | None, _Value]]:
    """What cannot change: the option, what it was given (None for nothing), and what it is in the run."""
    config, method = begun.config, begun.method
    parts = {"roofline": request.roofline, "retrieval": request.retrieval, "alignment": request.alignment}
    missing = [part for part in parts if f"-no-{part}" in method.name]
    if request.method is not None:
        same = "-no-".join([load(request.method).name, *missing]) == method.name
        yield "--method", request.method, request.method if same else method.name
    for part, wanted in parts.items():
        yield f"--{part}", wanted, part not in missing
    yield "--backend", request.backend or None, config.backend
    yield "--precision", request.precision, Precision(config.precision or begun.problem.task.precision)
    if request.baselines is not None:
        yield "--baseline", ",".join(parse_baselines(request.baselines)), ",".join(config.settings.baselines)
    yield "--time-budget", request.timing_budget_s, config.settings.timing_budget_s
    yield "--seed", request.seed, config.seed
    yield "--repairs", request.repairs, method.repairs if config.repairs is None else config.repairs


def _shown(option: str, value: _Value) -> str:
    """As it is written on the command line."""
    if isinstance(value, bool):
        return option if value else option.replace("--", "--no-", 1)
    return f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}"
