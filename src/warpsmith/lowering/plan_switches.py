"""Which strategies of a plan a template carries out."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.model.strategy import Plan, Strategy, StrategyChoice


class PlanSwitches:
    """A plan without the strategies that are unknown, exclude each other, or lack a strategy that they need."""

    def __init__(self, plan: Plan, able: Sequence[Strategy]) -> None:
        known = {strategy.name: strategy for strategy in able}
        chosen: dict[str, dict[str, str]] = {}
        for choice in sorted(plan.choices, key=lambda c: c.strategy):
            strategy = known.get(choice.strategy)
            if strategy is None or choice.strategy in chosen:
                continue
            if any(other in strategy.excludes or choice.strategy in known[other].excludes for other in chosen):
                continue
            given = dict(choice.settings)
            chosen[choice.strategy] = {
                p.name: given[p.name] if given.get(p.name) in p.values else p.values[0] for p in strategy.parameters
            }
        while lacking := [n for n in chosen if any(need not in chosen for need in known[n].needs)]:
            for name in lacking:
                del chosen[name]
        self._known = known
        self._chosen = chosen
        self._tunes: dict[str, tuple[str, ...]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._chosen

    def get(self, name: str, parameter: str) -> str:
        """The value of a parameter of a strategy that is on."""
        return self._chosen[name][parameter]

    def macro(self, macro: str, name: str, parameter: str) -> str:
        """A macro for a parameter of a strategy that is on, with a `// tune:` line; the chosen value is first."""
        values = next(p.values for p in self._known[name].parameters if p.name == parameter)
        return self.tune(macro, self.get(name, parameter), values)

    def tune(self, macro: str, first: str, values: Sequence[str]) -> str:
        """A macro with a `// tune:` line that belongs to no strategy."""
        self._tunes[macro] = (first, *(v for v in values if v != first))
        return macro

    @property
    def tune_lines(self) -> str:
        """The `// tune:` lines of all requested macros."""
        return "".join(f"// tune: {macro} = {', '.join(values)}\n" for macro, values in self._tunes.items())

    @property
    def plan(self) -> Plan:
        """The strategies that are carried out, with their parameters."""
        return Plan(tuple(StrategyChoice(name, tuple(sorted(values.items()))) for name, values in self._chosen.items()))
