"""The ways of a form (`kernels.forms.form_ways`) as strategies: which there are, their kernels, and how they are found.

A plan names one way at most; a plan without one stands for the plain kernel. Ways that are expected to take much longer
than the best one are read in sources, and are not offered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from warpsmith.kernels.form_ways import FormWay
from warpsmith.kernels.forms import form_ways
from warpsmith.model.brief import Problem
from warpsmith.model.strategy import Plan, Strategy, StrategyChoice, StrategyParameter
from warpsmith.strategies.catalogue import strategies

_MOST_TIMES = 10.0  # the expected time of the best way


def expected_times(problem: Problem) -> Mapping[str, float | None]:
    """Microseconds that each way should take, by strategy: the form's own first, then the fastest. None: not known.

    Empty where there is no choice.
    """
    named = [way for way in _ways(problem) if way.name]
    limit = _MOST_TIMES * min((way.microseconds for way in named if way.microseconds is not None), default=0.0)
    offered = {
        way.name: way.microseconds
        for place, way in enumerate(named)
        if place == 0 or way.microseconds is None or way.microseconds <= limit
    }
    return offered


def way_strategies(problem: Problem) -> tuple[Strategy, ...]:
    """The strategies that choose a way, in the order in which they should be tried; each excludes the others."""
    offered, catalogue = expected_times(problem), strategies()
    return tuple(
        replace(
            catalogue[way.name],
            parameters=tuple(StrategyParameter(p.name, p.values) for p in way.parameters),
            needs=(),
            excludes=tuple(name for name in offered if name != way.name),
        )
        for way in _ways(problem)
        if way.name in offered
    )


def translated_way(problem: Problem, plan: Plan) -> str | None:
    """The kernel of the way that a plan names, else the plain one; None where the form has no choice."""
    known = _ways(problem)
    chosen = {choice.strategy: dict(choice.settings) for choice in plan.choices}
    way = next((each for each in known if each.name in chosen), None)
    if way is None:
        way = next((each for each in known if not each.name), None)
    return None if way is None else way.source(chosen.get(way.name))


def way_in_source(problem: Problem, source: str) -> Plan | None:
    """The plan of a source that is written in one of the ways; None for another source."""
    for way in _ways(problem):
        settings = way.settings_in(source)
        if settings is not None:
            return Plan((StrategyChoice(way.name, tuple(sorted(settings.items()))),) if way.name else ())
    return None


def _ways(problem: Problem) -> tuple[FormWay, ...]:
    if problem.outline is None or problem.backend != problem.contract.backend:
        return ()
    return form_ways(problem.task, problem.contract, problem.outline, problem.arch)
