"""From what a method says about its population to an empty one."""

from __future__ import annotations

from warpsmith.core.method import PopulationSpec
from warpsmith.core.registry import plugin
from warpsmith.core.search import Population

PACKAGE = "warpsmith.populations"


def create(spec: PopulationSpec) -> Population:
    """An empty population of that kind; an unknown kind or option is a `UsageError` that lists the known ones."""
    population: Population = plugin(PACKAGE, spec.name).create(**dict(spec.options))
    return population
