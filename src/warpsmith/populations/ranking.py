"""Members in order, best first, each id once; used by all populations.

A ranking keeps more members than its population has: when a second measurement lowers a score or removes a member,
the next one takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from warpsmith.model.brief import Member

RESERVE = 64  # members kept besides those of the population


def best_first(members: Iterable[Member]) -> tuple[Member, ...]:
    """Members by score; of equal scores the earlier first."""
    return tuple(sorted(members, key=lambda member: (-member.score, member.trial, member.id)))


class Ranking:
    """At most `most` members; the worst is dropped when there are more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ranked: tuple[Member, ...] = ()

    def __len__(self) -> int:
        return len(self._ranked)

    def __contains__(self, id: object) -> bool:
        return any(member.id == id for member in self._ranked)

    @property
    def members(self) -> tuple[Member, ...]:
        """The members, best first."""
        return self._ranked

    @property
    def best(self) -> Member | None:
        """The best member; None if there is none."""
        return self._ranked[0] if self._ranked else None

    def insert(self, member: Member) -> None:
        """Add a member, or replace the one with its id."""
        if not (math.isfinite(member.score) and member.score > 0):
            raise ValueError(f"{member.id} has the score {member.score}; a valid candidate's is finite and positive")
        others = (other for other in self._ranked if other.id != member.id)
        self._ranked = best_first((*others, member))[: self._most]

    def remove(self, id: str) -> None:
        """Remove a member; no error if it was dropped before."""
        self._ranked = tuple(member for member in self._ranked if member.id != id)
