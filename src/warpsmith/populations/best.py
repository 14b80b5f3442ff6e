"""The single best kernel: every new kernel starts from it."""

from __future__ import annotations

from warpsmith.model.brief import Pick, Population
from warpsmith.populations.create import PopulationPlugin, RankedPopulation


class SingleBest(RankedPopulation):
    """Has one member: the fastest, of equally fast ones the earliest."""

    def pick(self, count: int, seed: int) -> Pick:
        """The best member, for every seed."""
        return Pick(tuple(member.id for member in self.members[: max(count, 0)]))


def _build(_options: object) -> Population:
    return SingleBest(1)


PLUGIN = PopulationPlugin("best", (), _build)
