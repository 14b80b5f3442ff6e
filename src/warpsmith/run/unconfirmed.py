"""Valid kernels whose second measurement we failed to make: they may be parents, but not the best.

While there is no best, the fastest of them is measured again, a few times; the others once the run is opened again.
Pure; who they are is the ledger's.
"""

from __future__ import annotations

from collections.abc import Mapping

from warpsmith.run.contenders import fastest

MOST_RETRIES = 2
"""Further measurements of one kernel in a sitting."""

_IN_A_ROW = 5  # verdicts that we failed to reach, after which the evaluator is to blame, and the run stops


def retriable(unconfirmed: Mapping[int, float], retries: Mapping[int, int]) -> dict[int, float]:
    """Those that may be measured again in this sitting: scores by trial."""
    return {trial: score for trial, score in unconfirmed.items() if retries.get(trial, 0) < MOST_RETRIES}


def once_more(unconfirmed: Mapping[int, float], retries: Mapping[int, int], failed: int) -> int:
    """The trial that is measured again though its second measurement failed, as the last `failed` verdicts of the run
    did; 0 for none."""
    return fastest(retriable(unconfirmed, retries)) if failed < _IN_A_ROW else 0
