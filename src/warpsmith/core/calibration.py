"""What calibrating a task showed: whether results that are wrong on purpose fail it, and PyTorch's own passes.

Plain data: made by the judge (`warpsmith.evaluate.correctness`), kept in the cache, shown by the command line.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Impostor:
    """One wrong result in one output, and what became of it."""

    name: str  # e.g. "zeros", "copy of x"
    output: str
    applies: bool  # False: here it would be no impostor, or it could not be made; `detail` says why
    caught_by: str = ""  # "variant/workload"; "" where it does not apply, or where nothing catches it
    share: float | None = None  # its error ÷ the limit there; None for exact rules and for NaN
    detail: str = ""

    @property
    def passes(self) -> bool:
        """Whether a kernel could get away with it."""
        return self.applies and not self.caught_by


@dataclass(frozen=True)
class Calibration:
    """The outcome for one task on one device."""

    passed: bool
    reason: str = ""  # "" when passed; otherwise what would pass, why, and what to change
    impostors: tuple[Impostor, ...] = ()
    baseline_share: float | None = None  # the largest part of a limit that PyTorch's own results use
    reserve: tuple[str, ...] = ()  # input variants this task needs besides the usual ones
    seconds: float = 0.0
    cached: bool = False

    def __post_init__(self) -> None:
        if self.passed == bool(self.reason):
            raise ValueError("a calibration has a reason exactly when the task is refused")
