"""Objects to a time that the candidate's process reports and the judge's own measurements contradict."""

from __future__ import annotations

from warpsmith.evaluator.guards.attack_classes import rejection
from warpsmith.model.evidence import ClaimedTime, Evidence, Guard, Objection


class ClockGuard:
    """Classes 5 and 9, which look the same from outside: work outside the timed stream, and a forged clock."""

    name: str = "clock"
    attacks: tuple[int, ...] = (5, 9)
    looks_at: type[Evidence] = ClaimedTime

    def objection(self, evidence: Evidence) -> Objection | None:
        """A claim below the judge's measurement or below the time of the replay."""
        assert isinstance(evidence, ClaimedTime)
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
            said = f"{claim}, but the replay needs {evidence.replayed_ns / 1e6:.4g} ms for the same calls: {cure}"
        else:
            return None
        return rejection(9, said)


PLUGIN: Guard = ClockGuard()
