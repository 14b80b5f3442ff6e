"""A time that the candidate's process reports and the judge's clock contradicts."""

from __future__ import annotations

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Clock, Evidence, Guard, Objection
from warpsmith.guards.classes import title

_PREFIX = title(9)


class ClockGuard:
    """Classes 5 and 9: work outside the timed stream and a forged clock look the same from outside."""

    name: str = "clock"
    attacks: tuple[int, ...] = (5, 9)
    looks_at: type[Evidence] = Clock

    def objection(self, evidence: Evidence) -> Objection | None:
        """Both comparisons must hold."""
        assert isinstance(evidence, Clock)
        claim = f"the candidate's process reports {evidence.claimed_ns / 1e6:.4g} ms"
        cure = "work was done outside the timed stream, or the clock was tampered with."
        if evidence.excess_ns > evidence.allowed_ns and evidence.processor:
            said = (
                f"{claim} for a sample, but used {evidence.excess_ns / 1e6:.4g} ms more of a processor's time in it "
                f"({evidence.allowed_ns / 1e6:.3g} ms can be explained): {cure}"
            )
        elif evidence.excess_ns > evidence.allowed_ns:
            said = (
                f"{claim}, but at least {evidence.excess_ns / 1e6:.4g} ms more passed outside in every sample "
                f"({evidence.allowed_ns / 1e6:.3g} ms can be explained): {cure}"
            )
        elif evidence.replayed_ns > evidence.replayed_allowed_ns:
            said = (
                f"{claim}, but a process of ours needs {evidence.replayed_ns / 1e6:.4g} ms for the same calls: {cure}"
            )
        else:
            return None
        return Objection(Status.REJECTED, 9, f"{_PREFIX}: {said}")


PLUGIN: Guard = ClockGuard()
