"""Kernels that would be the best of a run by their first measurement, which may have been a lucky one.

A second measurement costs as much as the first one of a new kernel. So only the fastest of them gets one at a time, and
the others wait for what comes of it: most never need one. Pure; who they are is the ledger's.
"""

from __future__ import annotations

from collections.abc import Mapping


def fastest(contenders: Mapping[int, float]) -> int:
    """The trial that is measured once more, of scores by trial; of equals the earliest, 0 for none."""
    return max(contenders, key=lambda trial: (contenders[trial], -trial), default=0)


def beaten(contenders: Mapping[int, float], held: float | None) -> tuple[int, ...]:
    """Those that do not beat the best's score, in the order they came; none where there is no best."""
    return tuple(trial for trial, score in contenders.items() if held is not None and score <= held)
