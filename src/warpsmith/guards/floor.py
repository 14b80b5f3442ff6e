"""Faster than the device can move the data or do the arithmetic: some of the work is not done."""

from __future__ import annotations

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Evidence, Guard, Objection, Speed


class FloorGuard:
    """Class 18."""

    name: str = "floor"
    attacks: tuple[int, ...] = (18,)
    looks_at: type[Evidence] = Speed

    def objection(self, evidence: Evidence) -> Objection | None:
        """The bound counts only what no correct kernel avoids."""
        assert isinstance(evidence, Speed)
        if evidence.latency_ms >= evidence.least_ms:
            return None
        return Objection(
            Status.BELOW_FLOOR,
            18,
            f"{evidence.latency_ms:.4g} ms on workload {evidence.workload!r} is less than the "
            f"{evidence.least_ms:.4g} ms that this device needs to move the data or do the arithmetic: "
            "some of the work is not done.",
        )


PLUGIN: Guard = FloorGuard()
