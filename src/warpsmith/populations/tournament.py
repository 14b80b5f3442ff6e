"""The n best of different strategies, with parents chosen by tournament: cuPilot's elitism and selection.

Who is among the best stays until it is outdone (elitism); a parent is the fastest of a few drawn evenly (tournament),
so that only the order of speeds counts. Kernels of one strategy take one place, the fastest of them stands for it:
else the population fills with variants of a single idea, and there is nothing to cross.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from warpsmith.core.search import Member, Pick, Population
from warpsmith.populations.kind import Kind, Option
from warpsmith.populations.ranking import RESERVE, Ranking


class Tournament:
    """Shows the `size` best members, one of each niche."""

    def __init__(self, size: int, rivals: int) -> None:
        self._size = size
        self._rivals = rivals
        self._ranking = Ranking(size + RESERVE)

    def insert(self, member: Member) -> None:
        """Add or revise."""
        self._ranking.insert(member)

    def remove(self, id: str) -> None:
        """Forget; whoever stood behind it, in its niche or after it, comes up."""
        self._ranking.remove(id)

    def pick(self, count: int, seed: int) -> Pick:
        """Winners of one tournament after the other, each among those left."""
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
        """Best first, each strategy once."""
        leaders: dict[str, Member] = {}
        for member in self._ranking.members:
            leaders.setdefault(member.niche or f"id {member.id}", member)
        return tuple(leaders.values())[: self._size]


def _build(options: Mapping[str, float]) -> Population:
    return Tournament(int(options["size"]), int(options["rivals"]))


PLUGIN = Kind(
    "tournament", (Option("size", 5, least=1, most=10_000), Option("rivals", 3, least=1, most=10_000)), _build
)
