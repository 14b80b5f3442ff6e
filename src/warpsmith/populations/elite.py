"""The n best kernels, with parents drawn by rank: better ones more often."""

from __future__ import annotations

import random
from collections.abc import Mapping

from warpsmith.model.brief import Pick, Population
from warpsmith.populations.create import PopulationOption, PopulationPlugin, RankedPopulation


class Elite(RankedPopulation):
    """Has the `size` best members."""

    def pick(self, count: int, seed: int) -> Pick:
        """Members drawn one after the other, each with probability proportional to 1/(rank + n) among those left.

        Ranks count from 1 and n is the number of members, so that the best is not quite twice as likely as the last.
        """
        draw = random.Random(seed)
        ranked = {rank: member.id for rank, member in enumerate(self.members, start=1)}
        waiting = list(ranked)
        drawn: list[int] = []
        while waiting and len(drawn) < count:
            (rank,) = draw.choices(waiting, [1 / (rank + len(ranked)) for rank in waiting])
            waiting.remove(rank)
            drawn.append(rank)
        return Pick(tuple(ranked[rank] for rank in sorted(drawn)))


def _build(options: Mapping[str, float]) -> Population:
    return Elite(int(options["size"]))


PLUGIN = PopulationPlugin("elite", (PopulationOption("size", 5, least=1, most=10_000),), _build)
