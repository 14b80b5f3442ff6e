"""The n best kernels of different strategies, with parents chosen by tournament: cuPilot's elitism and selection.

The best stay until a better kernel comes (elitism). A parent is the fastest of a few members drawn at random
(tournament), so that only the order of speeds matters. Kernels of one strategy take one place, that of the fastest:
otherwise the population fills with variants of a single strategy, and there is nothing to cross.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from warpsmith.model.brief import Member, Pick, Population
from warpsmith.populations.create import PopulationOption, PopulationPlugin, RankedPopulation


class Tournament(RankedPopulation):
    """Has the `size` best members, one of each niche."""

    def __init__(self, size: int, rivals: int) -> None:
        super().__init__(size)
        self._rivals = rivals

    def pick(self, count: int, seed: int) -> Pick:
        """The winners of one tournament after the other, each among the members left."""
        draw = random.Random(seed)
        waiting = list(self.members)  # best first: of the rivals drawn, the first one wins
        winners: list[Member] = []
        while waiting and len(winners) < count:
            place = min(draw.sample(range(len(waiting)), min(self._rivals, len(waiting))))
            winners.append(waiting.pop(place))
        chosen = {member.id for member in winners}
        return Pick(tuple(member.id for member in self.members if member.id in chosen))

    @property
    def members(self) -> tuple[Member, ...]:
        """The members, best first, each strategy once."""
        leaders: dict[str, Member] = {}
        for member in self._ranking.members:
            leaders.setdefault(member.niche or f"id {member.id}", member)
        return tuple(leaders.values())[: self._size]


def _build(options: Mapping[str, float]) -> Population:
    return Tournament(int(options["size"]), int(options["rivals"]))


PLUGIN = PopulationPlugin(
    "tournament",
    (PopulationOption("size", 5, least=1, most=10_000), PopulationOption("rivals", 3, least=1, most=10_000)),
    _build,
)
