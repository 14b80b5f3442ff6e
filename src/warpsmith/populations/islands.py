"""Islands that evolve separately: diversity lasts longer, and weak islands are reset.

Members of an island form clusters of about equal speed. A parent is drawn in two steps: a cluster, by a softmax over
its speed, then one of its members, the shorter program more often. The temperature of the softmax falls from one reset
to the next, from exploring to exploiting. At a reset the weaker half of the islands is emptied, and each starts again
from the best member of a stronger one.

Speed is relative to the best of the island, on a logarithmic scale, so that the temperature does not depend on the unit
of time, the baseline or the task.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from warpsmith.model.brief import Member, Pick, Population
from warpsmith.populations.create import PopulationOption, PopulationPlugin, Ranking, best_first

CLUSTER_WIDTH = math.log(1.05)  # of a cluster, in ln(speedup): kernels within 5 % are about equally fast
MOST_MEMBERS = 100  # of an island; further ones are so slow that the softmax would hardly draw them
COLDEST = 0.02  # the last temperature as a share of the first; at 0 a softmax is undefined


class Islands:
    """One ranking per island. Resets count new valid kernels, not hours."""

    def __init__(self, islands: int, temperature: float, reset_every: int) -> None:
        self._islands = [Ranking(MOST_MEMBERS) for _ in range(islands)]
        self._temperature = temperature
        self._reset_every = reset_every
        self._since_reset = 0

    def insert(self, member: Member) -> None:
        """Add a member to the island `member.place`, or change its score on every island that has it.

        The first member is added to all islands, so that each has a parent.
        """
        if not 0 <= member.place < len(self._islands):
            raise ValueError(f"{member.id} belongs to island {member.place} of {len(self._islands)}")
        homes = [place for place, island in enumerate(self._islands) if member.id in island]
        is_new = not homes
        if is_new:
            homes = [member.place] if any(self._islands) else list(range(len(self._islands)))
        for place in homes:
            self._islands[place].insert(replace(member, place=place))
        self._since_reset += is_new
        if self._since_reset >= self._reset_every:
            self._reset()

    def remove(self, id: str) -> None:
        """Remove a member from all islands; an island left empty gets the best of all members."""
        for island in self._islands:
            island.remove(id)
        heirs = self.members[:1]
        for place, island in enumerate(self._islands):
            for heir in heirs if not len(island) else ():
                island.insert(replace(heir, place=place))

    def pick(self, count: int, seed: int) -> Pick:
        """Parents from one island, which is drawn uniformly; an empty island gives its place and no parents."""
        draw = random.Random(seed)
        place = draw.randrange(len(self._islands))
        ranked = self._islands[place].members
        waiting = list(ranked)
        drawn: set[str] = set()
        while waiting and len(drawn) < count:
            parent = self._draw(waiting, ranked[0].score, draw)
            waiting.remove(parent)
            drawn.add(parent.id)
        return Pick(tuple(member.id for member in ranked if member.id in drawn), place)

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of all islands, best first, each id once."""
        found: dict[str, Member] = {}
        for island in self._islands:
            for member in island.members:
                found.setdefault(member.id, member)
        return best_first(found.values())

    def _draw(self, waiting: Sequence[Member], best_score: float, draw: random.Random) -> Member:
        """A member: first a cluster is drawn, then one of its members."""
        clusters: dict[int, list[Member]] = {}
        for member in waiting:
            lag = round(math.log(best_score / member.score) / CLUSTER_WIDTH)  # in cluster widths behind the best
            clusters.setdefault(lag, []).append(member)
        lags = list(clusters)
        heat = max(1 - self._since_reset / self._reset_every, COLDEST) * self._temperature
        # Relative to the fastest cluster left, so that at least one weight is 1.
        (lag,) = draw.choices(lags, [math.exp((min(lags) - lag) * CLUSTER_WIDTH / heat) for lag in lags])
        return _shorter(clusters[lag], draw)

    def _reset(self) -> None:
        """Empty the weaker half of the islands; the weakest gets the best member of the strongest, and so on."""
        self._since_reset = 0
        leaders = best_first(island.best for island in self._islands if island.best is not None)
        half = len(leaders) // 2
        for strong, weak in zip(leaders[:half], reversed(leaders), strict=False):
            self._islands[weak.place] = Ranking(MOST_MEMBERS)
            self._islands[weak.place].insert(replace(strong, place=weak.place))


def _shorter(members: Sequence[Member], draw: random.Random) -> Member:
    """One of several about equally fast programs; the shortest is e times as likely as a much longer one."""
    least = min(member.length for member in members)
    most = max(member.length for member in members)
    weights = [math.exp(-(member.length - least) / max(most, 1)) for member in members]
    return draw.choices(members, weights)[0]


def _build(options: Mapping[str, float]) -> Population:
    return Islands(int(options["islands"]), options["temperature"], int(options["reset_every"]))


PLUGIN = PopulationPlugin(
    "islands",
    (
        PopulationOption("islands", 5, least=1, most=100),
        PopulationOption("temperature", 0.2, least=0.001, most=1000, whole=False),
        PopulationOption("reset_every", 20, least=1, most=1_000_000),
    ),
    _build,
)
