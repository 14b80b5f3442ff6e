"""The ways of a form among the offline proposer's strategies: which comes next, and what is said of them.

A way is a whole kernel, so that a plan has one way at most. The form's own way is proposed first, under the name of the
collection's kernel; then those that no plan has yet come before variants of known ones, the fastest by estimate first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from warpsmith.model.strategy import Plan, Strategy, StrategyChoice
from warpsmith.strategies import plan_space


class Ways:
    """The ways of one task; there may be none."""

    def __init__(
        self,
        times: Mapping[str, float | None],  # microseconds by strategy, in the order in which to try them
        abilities: tuple[Strategy, ...],
        own: Plan | None,  # of the form's own kernel
    ) -> None:
        self.own = own if times else None
        self._times = times
        self._abilities = abilities

    def __bool__(self) -> bool:
        return bool(self._times)

    def not_to_try(self) -> set[str]:
        """Plans that stand for the form's own kernel, which has another name, and for the plain kernel."""
        own = {plan_space.text_of(self.own)} if self.own is not None else set()
        plain = self and self._times.keys() >= {each.name for each in self._abilities}
        return {*own, plan_space.PLAIN} if plain else own

    def next(self, tried: Collection[str]) -> Plan | None:
        """Of the ways that no tried plan has, the one that should be fastest."""
        new = self._new(tried)
        return plan_space.fit(Plan((StrategyChoice(new[0]),)), self._abilities) if new else None

    def fastest_first(self, plan: Plan, tried: Collection[str]) -> Plan:
        """The plan; where its way is new, the new way that should be fastest."""
        better = self.next(tried) if {*plan.names} & {*self._new(tried)} else None
        return plan if better is None else better

    def estimate(self, plan: Plan) -> str:
        """The time that the way of a plan should take, as a sentence; "" if that is not known."""
        time = next((time for name in plan.names if (time := self._times.get(name)) is not None), None)
        return "" if time is None else f" Estimated for an H200, with usual values: {time:.3g} us."

    def overview(self) -> str:
        """Which way the form's own kernel is, and the times of all ways, as sentences; "" if there are none."""
        times = [f"{name} {time:.3g} us" for name, time in self._times.items() if time is not None]
        own = f" It is {plan_space.text_of(self.own)}." if self.own is not None else ""
        return own + (f" Estimated for an H200: {', '.join(times)}." if times else "")

    def _new(self, tried: Collection[str]) -> list[str]:
        if not self._times:
            return []
        used = {name for text in tried for name in (Plan.read(text) or Plan()).names}
        return [name for name in self._times if name not in used]
