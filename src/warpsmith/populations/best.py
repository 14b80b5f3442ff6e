"""The single best kernel: every new kernel starts from it."""

from __future__ import annotations

from warpsmith.model.brief import Member, Pick, Population
from warpsmith.populations.create import RESERVE, PopulationPlugin, Ranking


class SingleBest:
    """Has one member: the fastest, of equally fast ones the earliest."""

    def __init__(self) -> None:
        self._ranking = Ranking(1 + RESERVE)

    def insert(self, member: Member) -> None:
        """Add a member, or change its score."""
        self._ranking.insert(member)

    def remove(self, id: str) -> None:
        """Remove a member."""
        self._ranking.remove(id)

    def pick(self, count: int, seed: int) -> Pick:
        """The best member, for every seed."""
        return Pick(tuple(member.id for member in self.members[: max(count, 0)]))

    @property
    def members(self) -> tuple[Member, ...]:
        """The best member, if there is one."""
        return self._ranking.members[:1]


def _build(_options: object) -> Population:
    return SingleBest()


PLUGIN = PopulationPlugin("best", (), _build)
