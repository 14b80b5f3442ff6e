"""Population plugins: a name, options with limits, and a function that builds an empty population (`create`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warpsmith.model.brief import Population
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
