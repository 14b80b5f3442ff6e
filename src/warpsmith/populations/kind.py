"""What a population plugin is: a name, options with their limits, and how to build one. Not a population itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warpsmith.core.errors import UsageError
from warpsmith.core.search import Population


@dataclass(frozen=True)
class Option:
    """A number that a kind of population leaves open."""

    name: str
    default: float
    least: float
    most: float
    whole: bool = True  # whether only whole numbers make sense

    @property
    def limits(self) -> str:
        """What it may be, for people."""
        return f"a {'whole ' if self.whole else ''}number from {self.least:g} to {self.most:g}"

    def allows(self, value: object) -> bool:
        """Whether it may be this."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.least <= value <= self.most and (not self.whole or value == int(value))


@dataclass(frozen=True)
class Kind:
    """A kind of population, as a plugin."""

    name: str
    options: tuple[Option, ...]
    build: Callable[[Mapping[str, float]], Population]  # all options given

    def create(self, **options: float) -> Population:
        """An empty one. An option that it does not know, or a value that makes no sense, is an error."""
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
