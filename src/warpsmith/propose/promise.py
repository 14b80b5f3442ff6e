"""How much a plan promises, by what was measured in the run and by what holds the task back.

Only for choosing among plans that were drawn anyway: a promise is no measurement, and never replaces one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from warpsmith.core.search import Brief
from warpsmith.core.strategy import Plan, Strategy

_DOUBT = 2  # comparisons that a measured effect is weighed against: one alone counts a third
_ADVISED = 0.05  # what a strategy that a parent's profile asks for is worth until it was measured, in ln(speed)
_IN_ZONE = 0.02  # what a strategy made for the task's zone is worth before anything is measured, in ln(speed)


def promise(plan: Plan, brief: Brief, known: Mapping[str, Strategy]) -> float:
    """The gain to hope for, in ln(speed); only differences between plans mean something."""
    measured = {each.strategy: each for each in brief.effects}
    advised = _advised(brief)
    total = 0.0
    for name in plan.names:
        effect = measured.get(name)
        if effect is not None:
            total += math.log(effect.factor) * effect.count / (effect.count + _DOUBT)
        elif name in advised:
            total += _ADVISED
        elif brief.roofline and name in known and brief.problem.zone in known[name].zones:
            total += _IN_ZONE
    return total


def _advised(brief: Brief) -> frozenset[str]:
    """The strategies that profiles of the parents name, in a line of their own: see `Digest.text`."""
    lines = (line for parent in brief.parents for line in parent.profile.splitlines() if line.startswith("Try: "))
    return frozenset(name.strip() for line in lines for name in line.removeprefix("Try: ").rstrip(".").split(","))
