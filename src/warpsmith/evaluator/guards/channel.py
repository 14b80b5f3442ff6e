"""Objects to output of the candidate's process on the result channel that is no answer to a request."""

from __future__ import annotations

from warpsmith.evaluator.guards.attack_classes import rejection
from warpsmith.model.evidence import Evidence, Guard, Objection, UnexpectedOutput


class ChannelGuard:
    """Class 10."""

    name: str = "channel"
    attacks: tuple[int, ...] = (10,)
    looks_at: type[Evidence] = UnexpectedOutput

    def objection(self, evidence: Evidence) -> Objection | None:
        """Always: honest code never writes to the channel."""
        assert isinstance(evidence, UnexpectedOutput)
        return rejection(10, f"the candidate's process wrote into the result channel ({evidence.said}).")


PLUGIN: Guard = ChannelGuard()
