"""The strategies (ideas) of a run: which there are, which wait for a kernel, and the measured effect of each.

A strategy and its kernels are separate: when a kernel fails, its strategy may be tried again. Part of the run state:
everything here follows from the events alone.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

from warpsmith.model.brief import Effect, Idea, Problem, StrategyDraft
from warpsmith.model.strategy import Plan
from warpsmith.search.trials import Trial
from warpsmith.strategies.catalogue import strategies
from warpsmith.strategies.plan_space import PLAIN

_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_FILLERS = frozenset(
    {"a", "an", "and", "by", "each", "for", "in", "of", "on", "so", "that", "the", "to", "use", "with"}
)
_SAME_SHARE = 0.8  # of the words of two texts, above which they are the same strategy
_MOST_COMPARED = 300  # the latest ideas, so that the cost does not grow with the run
_Key = tuple[str | None, frozenset[str]]  # equal for any two texts of the same strategy


def canonical_strategy(text: str) -> str:
    """One form for all ways to write the same strategy; "" for an empty text."""
    parsed = _parsed(text)
    return parsed.plan if parsed.plan is not None else " ".join(sorted(parsed.words | parsed.numbers))


@dataclass
class Ideas:
    """All strategies of a run, by number."""

    tries: int  # most kernels requested for one idea until one of them is valid
    known: dict[int, Idea] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)  # for a kernel, in order
    empty_replies_in_a_row: int = 0  # replies without a strategy to try
    revision: int = 0  # counts new texts
    repeats: dict[int, list[int]] = field(default_factory=dict)  # by trial: ideas whose kernel was a duplicate of it
    _by_key: dict[_Key, list[int]] = field(default_factory=dict)  # ideas that may be the same strategy

    def add(self, drafts: Iterable[StrategyDraft], parents: tuple[int, ...], operator: str, place: int) -> int:
        """Queue new strategies, and known ones whose kernels all failed while tries are left; returns how many."""
        joined = 0
        for draft in drafts:
            same = self.like(draft.strategy)
            if same is None:
                number = len(self.known) + 1
                self.known[number] = Idea(number, draft.strategy, draft.thought, parents, operator, place)
                self._index(draft.strategy, number)
                self.waiting.append(number)
                joined += 1
            elif self._may_be_tried(same):
                self.waiting.append(same.number)
                joined += 1
        self.empty_replies_in_a_row = 0 if joined else self.empty_replies_in_a_row + 1
        return joined

    def like(self, strategy: str) -> Idea | None:
        """The idea with the same strategy, as proposed or as aligned."""
        parsed = _parsed(strategy)
        oldest = len(self.known) - _MOST_COMPARED
        numbers = {number for number in self._by_key.get(parsed.key, ()) if number > oldest}
        for idea in (self.known[number] for number in sorted(numbers, reverse=True)):
            if _same(_parsed(idea.strategy), parsed) or (idea.aligned and _same(_parsed(idea.aligned), parsed)):
                return idea
        return None

    def begin(self, number: int) -> None:
        """A kernel was requested for an idea."""
        if number in self.waiting:
            self.waiting.remove(number)
        self._change(number, tries=self.known[number].tries + 1)

    def repeat(self, number: int, twin: Trial) -> None:
        """The kernel of an idea duplicates an earlier trial: results of that trial also count for the idea."""
        if number != twin.idea:
            self.repeats.setdefault(twin.number, []).append(number)
        if twin.score is not None:
            self.succeed(number, twin.score)
        elif twin.status is not None:
            self.fail(number)

    def behind(self, trial: Trial) -> tuple[int, ...]:
        """All ideas that the evaluation of a trial counts for."""
        return tuple(dict.fromkeys(filter(None, (trial.idea, *self.repeats.get(trial.number, ())))))

    def give_back(self, number: int) -> None:
        """Undo `begin`: no kernel was evaluated, through no fault of the idea."""
        self._change(number, tries=self.known[number].tries - 1)
        self.waiting.appendleft(number)

    def fail(self, number: int) -> None:
        """This try gave no valid kernel; if tries are left, queue the idea again behind the others."""
        idea = self._change(number, failures=self.known[number].failures + 1, speedup=None)
        if idea.tries < self.tries and number not in self.waiting:
            self.waiting.append(number)

    def succeed(self, number: int, speedup: float) -> None:
        """A kernel of the idea is valid."""
        self._change(number, speedup=speedup)

    def align(self, number: int, strategy: str) -> None:
        """Store the strategy that the kernel of the idea really follows."""
        self._index(strategy, number)
        self._change(number, aligned=strategy)

    def latest(self, count: int) -> tuple[Idea, ...]:
        """The latest ideas."""
        return tuple(self.known[number] for number in range(max(0, len(self.known) - count) + 1, len(self.known) + 1))

    def _index(self, strategy: str, number: int) -> None:
        self._by_key.setdefault(_parsed(strategy).key, []).append(number)
        self.revision += 1

    def _may_be_tried(self, idea: Idea) -> bool:
        """True if all kernels of the idea failed, none is in progress, and another one is allowed."""
        failed = idea.speedup is None and idea.failures >= idea.tries
        return failed and idea.tries < self.tries and idea.number not in self.waiting

    def _change(self, number: int, **what: object) -> Idea:
        self.known[number] = replace(self.known[number], **what)  # type: ignore[arg-type]
        return self.known[number]


def texts(ideas: Sequence[Idea]) -> tuple[str, ...]:
    """The texts of ideas, as proposed and as aligned."""
    return tuple(text for idea in ideas for text in (idea.strategy, idea.aligned) if text)


@dataclass(frozen=True)
class _ParsedStrategy:
    """A strategy text in a form that is compared quickly."""

    plan: str | None  # canonical text of a plan; None for prose
    words: frozenset[str]
    numbers: frozenset[str]

    @property
    def key(self) -> _Key:
        """Texts with different keys are different strategies."""
        return self.plan, frozenset() if self.plan is not None else self.numbers


@lru_cache(maxsize=4096)
def _parsed(text: str) -> _ParsedStrategy:
    plan = Plan.read(text) if text.strip() else None
    words = frozenset(_WORD.findall(text.lower())) - _FILLERS
    numbers = frozenset(word for word in words if word[0].isdigit())
    return _ParsedStrategy(str(plan) if plan is not None else None, words - numbers, numbers)


def _same(one: _ParsedStrategy, other: _ParsedStrategy) -> bool:
    """True if both are the same strategy. Plans must be equal; prose may differ in a few words, in no number."""
    if one.plan is not None or other.plan is not None:
        return one.plan == other.plan
    if one.numbers != other.numbers:
        return False
    shared = len(one.words & other.words)
    return shared >= _SAME_SHARE * max(1, len(one.words) + len(other.words) - shared)


class StrategyEffects:
    """The effect of each strategy: a kernel compared with the best of its parents, for what the kernel changed.

    Keeps sums over all comparisons of a run, updated trial by trial at a cost that does not grow with the run.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}  # by strategy: sum of ln(speed with / speed without), comparisons
        self._shares: dict[int, tuple[tuple[str, float], ...]] = {}  # by trial: its contribution
        self._children: dict[int, list[int]] = {}

    def update(self, trial: Trial, trials: Mapping[int, Trial], *, new: bool) -> None:
        """Take in a new or changed trial: its own comparison changes, and those of its children."""
        for parent in trial.parents if new else ():
            self._children.setdefault(parent, []).append(trial.number)
        for number in (trial.number, *self._children.get(trial.number, ())):
            shares = tuple(_shares(trials[number], trials))
            for name, share in self._shares.pop(number, ()):
                self._add(name, -share, -1)
            for name, share in shares:
                self._add(name, share, 1)
            if shares:
                self._shares[number] = shares

    def _add(self, name: str, share: float, count: int) -> None:
        total, known = self._sums.get(name, (0.0, 0))
        if known + count:
            self._sums[name] = total + share, known + count
        else:
            del self._sums[name]

    def best_first(self, problem: Problem) -> tuple[Effect, ...]:
        """The effects of all strategies that were added or removed, best first."""
        family, zone = problem.outline.family.value if problem.outline else "", problem.zone
        found = [Effect(name, zone, family, math.exp(total / n), n) for name, (total, n) in self._sums.items()]
        return tuple(sorted(found, key=lambda each: (-each.factor, each.strategy)))


def _shares(trial: Trial, trials: Mapping[int, Trial]) -> Iterator[tuple[str, float]]:
    """The contribution of one comparison to each strategy that differs, in ln(speed with / speed without)."""
    known = [trials[number] for number in trial.parents if number in trials and trials[number].score]
    if not trial.score or not known:
        return
    parent = max(known, key=lambda each: each.score or 0.0)
    assert parent.score is not None, "only parents with a score were taken"
    mine, theirs = strategy_names(trial.strategy), strategy_names(parent.strategy)
    share = math.log(trial.score / parent.score) / max(1, len(mine ^ theirs))
    for name in sorted(mine ^ theirs):
        yield name, share if name in mine else -share


@lru_cache(maxsize=4096)
def strategy_names(strategy: str) -> frozenset[str]:
    """The strategies in a text: all of a plan, or in prose those the catalogue knows."""
    plan = Plan.read(strategy) if strategy.strip() else None
    if plan is not None:
        return frozenset(plan.names) - {PLAIN}
    lowered = strategy.lower()
    return frozenset(name for name, pattern in _patterns() if pattern.search(lowered))


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Patterns that find "vector-loads" and "vector loads"."""
    return tuple((name, re.compile(rf"\b{name.replace('-', '[- ]')}\b")) for name in strategies())
