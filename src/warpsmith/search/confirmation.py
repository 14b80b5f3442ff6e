"""The rule that the best kernel of a run is measured twice.

Kernels are compared by the lower end of the interval of their speedup: 1.87x that may be 0.22x does not beat 1.5x that
is at least 1.4x.

A kernel that would become the best by its first measurement may only have been lucky. It becomes the best after a
second measurement. A second measurement costs as much as evaluating a new kernel, so only the fastest such kernel is
measured at a time; the others wait, and most of them never need one. If a second measurement fails through no fault of
the kernel, the kernel may be a parent but not the best: it is measured again while the run has no best, at most
`MAX_RETRIES` times, and again when the run is reopened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_RETRIES = 2
"""Further measurements of one kernel while a run is open."""

_MAX_FAILURES_IN_A_ROW = 5  # failed evaluations in a row, after which the evaluator is to blame and the run stops


@dataclass
class Confirmation:
    """The trials that need a second measurement, with the lower end of the speedup of their first one."""

    waiting: dict[int, float] = field(default_factory=dict)  # faster than the best by one measurement
    unconfirmed: dict[int, float] = field(default_factory=dict)  # whose second measurement failed
    _retries: Counter[int] = field(default_factory=Counter)

    @property
    def next(self) -> int | None:
        """The trial to measure next: the fastest one that waits, of equals the earliest."""
        return _fastest(self.waiting)

    def remove(self, trial: int) -> None:
        """A trial was measured."""
        self.waiting.pop(trial, None)
        self.unconfirmed.pop(trial, None)

    def reopen(self, *, keep: bool) -> None:
        """The run was opened again: trials whose second measurement failed wait for another one."""
        if not keep:
            self._retries.clear()
        for trial in self._retriable():
            self._retry(trial)

    def update(self, best_low: float | None, failures_in_a_row: int) -> tuple[int, ...]:
        """Compare with the best. Returns the trials that waited and are not faster: their first measurement counts."""
        beaten = _not_faster(self.waiting, best_low)
        for trial in (*beaten, *_not_faster(self.unconfirmed, best_low)):
            self.remove(trial)
        if not self.waiting and best_low is None and failures_in_a_row < _MAX_FAILURES_IN_A_ROW:
            retried = _fastest(self._retriable())
            if retried is not None:
                self._retry(retried)
        return beaten

    def _retriable(self) -> dict[int, float]:
        return {trial: low for trial, low in self.unconfirmed.items() if self._retries[trial] < MAX_RETRIES}

    def _retry(self, trial: int) -> None:
        self.waiting[trial] = self.unconfirmed.pop(trial)
        self._retries[trial] += 1


def _fastest(lows: Mapping[int, float]) -> int | None:
    return max(lows, key=lambda trial: (lows[trial], -trial), default=None)


def _not_faster(lows: Mapping[int, float], best_low: float | None) -> tuple[int, ...]:
    return tuple(trial for trial, low in lows.items() if best_low is not None and low <= best_low)
