"""Lines of accepted versions: a kernel is accepted if it is faster than every earlier one of its line.

A search follows one line at a time, from version to version. A search that stalls begins another line (`branch`) at
an earlier version, the one that was least often begun from and of these the fastest. `Member.place` is the line.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from warpsmith.model.brief import Member, Pick, Population
from warpsmith.populations.create import RESERVE, PopulationPlugin, best_first


class Lineage:
    """Has all valid kernels; its members are the accepted versions of all lines."""

    def __init__(self) -> None:
        self._known: dict[str, Member] = {}
        self._bases: dict[int, str] = {0: ""}  # where each line begins: the id of a version, "" for nothing
        self.place = 0  # the line that is followed now
        self._most = 4 * RESERVE  # kernels before some are dropped

    def insert(self, member: Member) -> None:
        """Add a kernel, or change its score. Of many kernels that were not accepted the fastest are kept."""
        if not (math.isfinite(member.score) and member.score > 0):
            raise ValueError(f"{member.id} has the score {member.score}; a valid candidate's is finite and positive")
        self._known[member.id] = member
        versions = self.members if len(self._known) > self._most else ()
        if versions:
            accepted = {version.id for version in versions}
            others = best_first(each for each in self._known.values() if each.id not in accepted)[:RESERVE]
            self._known = {each.id: each for each in (*versions, *others)}
            self._most = len(self._known) + RESERVE

    def remove(self, id: str) -> None:
        """Remove a kernel; versions that it kept out are accepted then."""
        self._known.pop(id, None)

    def branch(self, place: int, base: str) -> None:
        """Begin a line at a version, or at nothing."""
        self._bases[place], self.place = base, place

    def line(self, place: int | None = None) -> tuple[Member, ...]:
        """The versions of a line, the latest last, beginning with the one that it branched from."""
        place = self.place if place is None else place
        base = self._known.get(self._bases.get(place, ""))
        return (*((base,) if base else ()), *self._accepted(place, base.score if base else 0.0))

    def ancestor(self) -> Member | None:
        """The version to begin another line at: never the latest of this line; None if there is no other."""
        used, latest = Counter(self._bases.values()), self.line()[-1:]
        earlier = [member for member in self.members if member not in latest]
        return min(earlier, key=lambda member: (used[member.id], -member.score, member.trial), default=None)

    def pick(self, count: int, seed: int) -> Pick:
        """The latest versions of the line that is followed."""
        return Pick(tuple(member.id for member in self.line()[::-1][: max(count, 0)]), self.place)

    @property
    def members(self) -> tuple[Member, ...]:
        """The accepted versions of all lines, best first."""
        return best_first({member.id: member for place in self._bases for member in self.line(place)}.values())

    def _accepted(self, place: int, least: float) -> Iterator[Member]:
        own = (member for member in self._known.values() if member.place == place)
        for member in sorted(own, key=lambda each: each.trial):
            if member.score > least:
                least = member.score
                yield member


def _build(_options: object) -> Population:
    return Lineage()


PLUGIN = PopulationPlugin("lineage", (), _build)
