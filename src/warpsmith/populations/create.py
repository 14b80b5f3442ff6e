"""What all populations share: the plugin with its options, `create`, and members in order (`Ranking`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from warpsmith.model.brief import Member, Population
from warpsmith.model.errors import UsageError
from warpsmith.model.method import PopulationSpec
from warpsmith.system.plugins import plugin

PACKAGE = "warpsmith.populations"


@dataclass(frozen=True)
class PopulationOption:
    """A numeric option of a population."""

    name: str
    default: float
    least: float
    most: float
    whole: bool = True  # only whole numbers

    @property
    def limits(self) -> str:
        """The allowed values, for messages."""
        return f"a {'whole ' if self.whole else ''}number from {self.least:g} to {self.most:g}"

    def allows(self, value: object) -> bool:
        """True if a value is allowed."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.least <= value <= self.most and (not self.whole or value == int(value))


@dataclass(frozen=True)
class PopulationPlugin:
    """A kind of population."""

    name: str
    options: tuple[PopulationOption, ...]
    build: Callable[[Mapping[str, float]], Population]  # gets all options

    def create(self, **options: float) -> Population:
        """An empty population; raises a UsageError for an unknown option or a value outside its limits."""
        known = {option.name: option for option in self.options}
        for name, value in options.items():
            if name not in known:
                names = f"known: {', '.join(sorted(known))}" if known else "it has none"
                raise UsageError(f"the population {self.name!r} has no option {name!r}; {names}.")
            if not known[name].allows(value):
                raise UsageError(
                    f"{name} = {value!r} is not possible for the population {self.name!r}: give {known[name].limits}."
                )
        return self.build({option.name: option.default for option in self.options} | options)


def create(spec: PopulationSpec) -> Population:
    """An empty population of that kind; raises a `UsageError` that lists the known kinds or options."""
    population: Population = plugin(PACKAGE, spec.name).create(**dict(spec.options))
    return population


RESERVE = 64  # members kept besides those of the population


def best_first(members: Iterable[Member]) -> tuple[Member, ...]:
    """Members by score; of equal scores the earlier first."""
    return tuple(sorted(members, key=lambda member: (-member.score, member.trial, member.id)))


class Ranking:
    """At most `most` members, best first, each id once; the worst is dropped when there are more.

    A ranking keeps more members than its population has (`RESERVE`): when a second measurement lowers a score or
    removes a member, the next one takes its place.
    """

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


class RankedPopulation:
    """Keeps its members in a ranking: the base of populations that differ in whom they show and pick."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ranking = Ranking(size + RESERVE)

    def insert(self, member: Member) -> None:
        """Add a member, or change its score."""
        self._ranking.insert(member)

    def remove(self, id: str) -> None:
        """Remove a member; the next best takes its place."""
        self._ranking.remove(id)

    @property
    def members(self) -> tuple[Member, ...]:
        """The members, best first."""
        return self._ranking.members[: self._size]
