"""Objects to times in which the device cannot move the data or do the arithmetic: some work is not done."""

from __future__ import annotations

from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import Evidence, Guard, MeasuredSpeed, Objection


class FloorGuard:
    """Class 18."""

    name: str = "floor"
    attacks: tuple[int, ...] = (18,)
    looks_at: type[Evidence] = MeasuredSpeed

    def objection(self, evidence: Evidence) -> Objection | None:
        """A latency below the floor, which counts only work that every correct kernel does."""
        assert isinstance(evidence, MeasuredSpeed)
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
