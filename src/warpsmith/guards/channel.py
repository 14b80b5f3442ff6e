"""The result channel: whatever comes out of it and is not an answer was written by the candidate."""

from __future__ import annotations

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Evidence, Guard, Objection, Talk
from warpsmith.guards.classes import title


class ChannelGuard:
    """Class 10."""

    name: str = "channel"
    attacks: tuple[int, ...] = (10,)
    looks_at: type[Evidence] = Talk

    def objection(self, evidence: Evidence) -> Objection | None:
        """There is nothing honest to say there."""
        assert isinstance(evidence, Talk)
        return Objection(
            Status.REJECTED,
            10,
            f"{title(10)}: the candidate's process wrote into the result channel ({evidence.said}).",
        )


PLUGIN: Guard = ChannelGuard()
