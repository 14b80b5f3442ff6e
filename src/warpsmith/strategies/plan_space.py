"""The space of valid plans: draws, mutates, crosses, tunes and repairs plans.

The operations are pure functions of a plan, the available strategies (`abilities`), a random source and the texts of
plans already tried. Each returns a valid plan that was not tried before, as near as possible to the requested one, or
None if no such plan is left. `kernel_templates` turns plans into code.

A plan is valid if every strategy is available, every strategy that one needs is in the plan, no two exclude each other,
and each parameter has one of its values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from random import Random

from warpsmith.model.strategy import Plan, Strategy, StrategyChoice

Abilities = tuple[Strategy, ...]
Settings = tuple[tuple[str, str], ...]

PLAIN = "plain"
"""The text of the empty plan."""

_KEEP = 0.6  # the chance of a strategy to be in a plan drawn at random
_USUAL = 0.7  # the chance of a parameter drawn at random to have its first value
_DRAWS = 24  # plans drawn at random before the nearest untried one is searched step by step
_WEIGHTS = {"tune": 0.4, "add": 0.35, "swap": 0.15, "drop": 0.1}  # the probability of each kind of mutation


def text_of(plan: Plan) -> str:
    """A plan as text that is never empty."""
    return str(plan) or PLAIN


def plan_of(text: str, abilities: Abilities) -> Plan | None:
    """The valid plan nearest to a plan in text form; None if the text is prose."""
    read = Plan.read(text)
    return None if read is None else fit(read, abilities)


def valid(plan: Plan, abilities: Abilities) -> bool:
    """Whether a plan can be carried out unchanged."""
    known = {each.name: each for each in abilities}
    names = set(plan.names)
    if len(names) < len(plan.choices) or not names <= set(known):
        return False
    if any(not set(known[name].needs) <= names for name in names):
        return False
    if any(_clash(known[a], known[b]) for a, b in combinations(sorted(names), 2)):
        return False
    return all(_settings_valid(choice, known[choice.strategy]) for choice in plan.choices)


def fit(plan: Plan, abilities: Abilities) -> Plan:
    """The valid plan nearest to any plan; where two strategies exclude each other, the earlier one stays."""
    space = _Space.of(abilities)
    return space.plan(
        space.assemble([c.strategy for c in plan.choices]), {c.strategy: c.settings for c in plan.choices}
    )


def distance(one: Plan, other: Plan) -> float:
    """The number of strategies that differ; a strategy with other settings counts half."""
    mine, yours = ({choice.strategy: choice.settings for choice in plan.choices} for plan in (one, other))
    shared = mine.keys() & yours.keys()
    return len(mine.keys() ^ yours.keys()) + 0.5 * sum(mine[name] != yours[name] for name in shared)


def initial(abilities: Abilities, rng: Random, tried: Collection[str], *, risky: Collection[str] = ()) -> Plan | None:
    """A new plan: first all compatible strategies except `risky` ones, with usual settings; then random plans."""
    space, seen = _Space.of(abilities), _seen(tried)
    everything = space.plan(space.assemble([name for name in space.known if name not in risky]), {})
    if str(everything) not in seen:
        return everything
    for _ in range(_DRAWS):
        drawn = space.draw(rng)
        if str(drawn) not in seen:
            return drawn
    return _nearest(space.draw(rng), space.neighbours, seen, rng)


def mutate(plan: Plan, abilities: Abilities, rng: Random, tried: Collection[str]) -> Plan | None:
    """A plan one step away: one strategy added, removed or replaced, or one parameter changed."""
    space, seen = _Space.of(abilities), _seen(tried)
    start = fit(plan, abilities)
    kinds = dict(_WEIGHTS)
    while kinds:
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        del kinds[kind]
        fresh = [each for each in space.steps(start, kind) if str(each) not in seen]
        if fresh:
            return rng.choice(fresh)
    return _nearest(start, space.neighbours, seen, rng)


def tune(plan: Plan, abilities: Abilities, rng: Random, tried: Collection[str]) -> Plan | None:
    """A plan with the same strategies and other settings; None if all of them were tried."""
    space, start = _Space.of(abilities), fit(plan, abilities)
    return _nearest(start, lambda each: list(space.steps(each, "tune")), _seen(tried) | {str(start)}, rng)


def cross(one: Plan, other: Plan, abilities: Abilities, rng: Random, tried: Collection[str]) -> Plan | None:
    """A plan with the strategies of both, as far as they are compatible, and settings of either."""
    space, seen = _Space.of(abilities), _seen(tried)
    mine, yours = fit(one, abilities), fit(other, abilities)
    child = mine
    for _ in range(_DRAWS):
        child = space.union(mine, yours, rng)
        if str(child) not in seen:
            return child
    return _nearest(child, space.neighbours, seen, rng)


def diverge(parents: Sequence[Plan], abilities: Abilities, rng: Random, tried: Collection[str]) -> Plan | None:
    """A plan far from all parents: of many drawn plans the one whose nearest parent is farthest."""
    space, seen = _Space.of(abilities), _seen(tried)
    known = [fit(parent, abilities) for parent in parents]
    drawn = [space.draw(rng) for _ in range(_DRAWS)] + [Plan()]
    drawn.sort(key=lambda each: -min((distance(each, parent) for parent in known), default=0.0))
    fresh = [each for each in drawn if str(each) not in seen]
    return fresh[0] if fresh else _nearest(drawn[0], space.neighbours, seen, rng)


def repair(
    plan: Plan,
    abilities: Abilities,
    rng: Random,
    tried: Collection[str],
    *,
    sound: Sequence[Plan] = (),  # plans known to work, its parents among them
    suspects: Sequence[str] = (),  # strategies that often cause failures of this kind, the most frequent first
) -> Plan | None:
    """The plan without the most likely cause of its failure: a strategy that no sound plan has, suspects first.

    If such plans were tried, too, another strategy or setting replaces the most likely cause.
    """
    space, seen = _Space.of(abilities), _seen(tried)
    broken = fit(plan, abilities)
    seen |= {str(broken)}
    trusted = {name for each in sound for name in each.names}
    rank = {name: place for place, name in enumerate(suspects)}
    blamed = sorted(broken.names, key=lambda name: (name in trusted, rank.get(name, len(rank)), name))
    unproven = [name for name in blamed if name not in trusted]
    for name in unproven or blamed:
        without = space.drop(broken, name)
        if str(without) not in seen:
            return without
    if blamed:
        rest = tuple(each for each in abilities if each.name != blamed[0])
        smaller = _Space.of(rest)
        found = _nearest(fit(space.drop(broken, blamed[0]), rest), smaller.neighbours, seen, rng)
        if found is not None:
            return found
    return _nearest(broken, space.neighbours, seen, rng)


def _seen(tried: Collection[str]) -> frozenset[str]:
    """The texts of tried plans in canonical form."""
    return frozenset("" if text.strip() == PLAIN else _canonical(text) for text in tried)


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    read = Plan.read(text)
    return text if read is None else str(read)


def _nearest(
    start: Plan, neighbours: Callable[[Plan], Sequence[Plan]], seen: frozenset[str], rng: Random
) -> Plan | None:
    """The untried plan with the fewest steps from `start`; None if all reachable plans were tried.

    Only tried plans are expanded, so that the work is bounded by their number.
    """
    if str(start) not in seen:
        return start
    visited, border = {str(start)}, [start]
    while border:
        beyond: list[Plan] = []
        rng.shuffle(border)
        for plan in border:
            found = {str(each): each for each in neighbours(plan) if str(each) not in visited}
            fresh = [each for text, each in found.items() if text not in seen]
            if fresh:  # all of them have the same distance
                return rng.choice(fresh)
            visited |= found.keys()
            beyond += found.values()
        border = beyond
    return None


def _clash(one: Strategy, other: Strategy) -> bool:
    return other.name in one.excludes or one.name in other.excludes


def _settings_valid(choice: StrategyChoice, strategy: Strategy) -> bool:
    given = dict(choice.settings)
    wanted = {parameter.name: parameter.values for parameter in strategy.parameters}
    return given.keys() == wanted.keys() and all(given[name] in values for name, values in wanted.items())


class _Space:
    """The valid plans for the available strategies, and the steps between plans."""

    def __init__(self, abilities: Abilities) -> None:
        named = {each.name: each for each in abilities if all(parameter.values for parameter in each.parameters)}
        wanted = {name: self._closure(name, named) for name in named}
        # A strategy whose needs are missing or exclude each other is left out.
        self.closure = {
            name: closure
            for name, closure in wanted.items()
            if closure is not None and not any(_clash(named[a], named[b]) for a, b in combinations(sorted(closure), 2))
        }
        self.known = {name: named[name] for name in self.closure}
        self._clashes = {
            name: {other for other in self.known if other != name and _clash(named[name], named[other])}
            for name in self.known
        }

    @staticmethod
    @lru_cache(maxsize=64)
    def of(abilities: Abilities) -> _Space:
        return _Space(abilities)

    @staticmethod
    def _closure(name: str, named: dict[str, Strategy]) -> frozenset[str] | None:
        """A strategy and all strategies that it needs; None if one of them is missing."""
        found: set[str] = set()
        open_names = [name]
        while open_names:
            current = open_names.pop()
            if current not in named:
                return None
            if current not in found:
                found.add(current)
                open_names += named[current].needs
        return frozenset(found)

    def _fits(self, group: Collection[str], names: Collection[str]) -> bool:
        return not any(self._clashes[name] & set(names) for name in group)

    def assemble(self, order: Sequence[str]) -> set[str]:
        """Strategies taken in order, each with its needs, if they are compatible with those taken before."""
        taken: set[str] = set()
        for name in order:
            if name in self.closure and self._fits(self.closure[name], taken):
                taken |= self.closure[name]
        return taken

    def plan(self, names: Collection[str], settings: dict[str, Settings]) -> Plan:
        """The plan with these strategies; a missing or invalid setting gets its usual value."""
        choices = []
        for name in sorted(names):
            given = dict(settings.get(name, ()))
            pairs = []
            for parameter in self.known[name].parameters:
                value = given.get(parameter.name, "")
                pairs.append((parameter.name, value if value in parameter.values else parameter.values[0]))
            choices.append(StrategyChoice(name, tuple(sorted(pairs))))
        return Plan(tuple(choices))

    def draw(self, rng: Random) -> Plan:
        """A random plan: a part of the strategies, mostly with usual settings."""
        order = list(self.known)
        rng.shuffle(order)
        names = self.assemble([name for name in order if rng.random() < _KEEP])
        settings = {
            name: tuple(
                (p.name, p.values[0] if rng.random() < _USUAL else rng.choice(p.values))
                for p in self.known[name].parameters
            )
            for name in sorted(names)
        }
        return self.plan(names, settings)

    def add(self, plan: Plan, name: str) -> Plan:
        """The plan with one more strategy and its needs, less strategies that it excludes and those that need them."""
        group = self.closure[name]
        kept = {each for each in plan.names if not self._clashes[each] & group}
        kept = {each for each in kept if self.closure[each] <= kept | group}
        return self.plan(kept | group, _settings(plan))

    def drop(self, plan: Plan, name: str) -> Plan:
        """The plan without one strategy and without those that need it."""
        return self.plan({each for each in plan.names if name not in self.closure[each]}, _settings(plan))

    def union(self, one: Plan, other: Plan, rng: Random) -> Plan:
        """The compatible strategies of both plans, with at least one that only each plan has, if possible."""
        mine, yours = sorted(set(one.names) - set(other.names)), sorted(set(other.names) - set(one.names))
        pairs = [(a, b) for a in mine for b in yours if self._fits(self.closure[a], self.closure[b])]
        shared = set(one.names) & set(other.names)
        rest = mine + yours
        rng.shuffle(rest)
        names = self.assemble([*(rng.choice(pairs) if pairs else ()), *sorted(shared), *rest])
        settings: dict[str, Settings] = {}
        for name in sorted(names):
            sources = [found for plan in (one, other) if (found := _settings(plan).get(name)) is not None]
            settings[name] = tuple((p.name, dict(rng.choice(sources))[p.name]) for p in self.known[name].parameters)
        return self.plan(names, settings)

    def steps(self, plan: Plan, kind: str) -> Iterator[Plan]:
        """All plans that are one step of this kind away: "tune", "add", "swap" or "drop"."""
        settings, missing = _settings(plan), [name for name in self.known if name not in plan.names]
        if kind == "tune":
            for name in plan.names:
                for parameter in self.known[name].parameters:
                    for value in parameter.values:
                        changed = dict(settings[name]) | {parameter.name: value}
                        if value != dict(settings[name])[parameter.name]:
                            yield self.plan(plan.names, settings | {name: tuple(changed.items())})
        elif kind == "add":
            yield from (self.add(plan, name) for name in missing)
        elif kind == "drop":
            yield from (self.drop(plan, name) for name in plan.names)
        else:
            yield from (self.add(self.drop(plan, old), new) for old in plan.names for new in missing)

    def neighbours(self, plan: Plan) -> list[Plan]:
        """All plans that are one step of any kind away."""
        return [each for kind in _WEIGHTS for each in self.steps(plan, kind)]


def _settings(plan: Plan) -> dict[str, Settings]:
    return {choice.strategy: choice.settings for choice in plan.choices}
