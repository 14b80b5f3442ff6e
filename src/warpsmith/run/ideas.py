"""Strategies of a run as ideas: which there are, which wait for a kernel, and what became of each.

An idea and its kernels are kept apart: a kernel that failed is not a failed idea, which may be carried out once more.
Part of the ledger's fold, so everything here follows from the events alone. It writes and picks nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from warpsmith.core.search import Draft, Idea
from warpsmith.core.strategy import Plan
from warpsmith.run.trials import Trial

_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_FILLERS = frozenset(
    {"a", "an", "and", "by", "each", "for", "in", "of", "on", "so", "that", "the", "to", "use", "with"}
)
_ALIKE = 0.8  # share of words that two strategies in prose have in common where they say the same
_MOST_COMPARED = 300  # the latest ideas: the cost of a reply stays flat however long a run is
_Key = tuple[str | None, frozenset[str]]  # what two texts that say the same have in common in any case


def niche(text: str) -> str:
    """The form that equal strategies share, however they are written; "" where a text says nothing."""
    said = _said(text)
    return said.plan if said.plan is not None else " ".join(sorted(said.words | said.numbers))


def alike(one: str, other: str) -> bool:
    """Whether two strategies say the same. Plans must be equal; prose may differ in a few words, in no number."""
    return _alike(_said(one), _said(other))


@dataclass
class Ideas:
    """All ideas of a run."""

    tries: int  # kernels asked for one idea until one of them is valid
    known: dict[int, Idea] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)  # to be carried out, in order
    barren: int = 0  # replies in a row that brought nothing to carry out
    revision: int = 0  # how often there was a new text
    repeats: dict[int, list[int]] = field(default_factory=dict)  # by trial: ideas that led to its kernel once more
    _kin: dict[_Key, list[int]] = field(default_factory=dict)  # numbers of those that may say the same

    def add(self, drafts: Iterable[Draft], parents: tuple[int, ...], operator: str, place: int) -> int:
        """New ones join the line, and so do known ones whose kernels failed, while they have tries left; how many."""
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
        self.barren = 0 if joined else self.barren + 1
        return joined

    def like(self, strategy: str) -> Idea | None:
        """The idea that says the same, as it was thought of or as its kernel turned out."""
        said = _said(strategy)
        oldest = len(self.known) - _MOST_COMPARED
        kin = {number for number in self._kin.get(said.key, ()) if number > oldest}
        for idea in (self.known[number] for number in sorted(kin, reverse=True)):
            if _alike(_said(idea.strategy), said) or (idea.aligned and _alike(_said(idea.aligned), said)):
                return idea
        return None

    def begin(self, number: int) -> None:
        """Somebody was asked to carry it out."""
        if number in self.waiting:
            self.waiting.remove(number)
        self._change(number, tries=self.known[number].tries + 1)

    def repeat(self, number: int, twin: Trial) -> None:
        """It led to a kernel that is there already: what is known of that one, now or later, is known of the idea."""
        if number != twin.idea:
            self.repeats.setdefault(twin.number, []).append(number)
        if twin.score is not None:
            self.succeed(number, twin.score)
        elif twin.status is not None:
            self.fail(number)

    def behind(self, trial: Trial) -> tuple[int, ...]:
        """All ideas that a verdict on a trial is about, each once."""
        return tuple(dict.fromkeys(filter(None, (trial.idea, *self.repeats.get(trial.number, ())))))

    def give_back(self, number: int) -> None:
        """Nobody has carried it out, through no fault of the idea or the kernel."""
        self._change(number, tries=self.known[number].tries - 1)
        self.waiting.appendleft(number)

    def fail(self, number: int) -> None:
        """No valid kernel came of this try; another one may, behind the ideas that nobody has tried yet."""
        idea = self._change(number, failures=self.known[number].failures + 1, speedup=None)
        if idea.tries < self.tries and number not in self.waiting:
            self.waiting.append(number)

    def succeed(self, number: int, speedup: float) -> None:
        """A kernel of it is valid."""
        self._change(number, speedup=speedup)

    def align(self, number: int, strategy: str) -> None:
        """What its kernel really does."""
        self._index(strategy, number)
        self._change(number, aligned=strategy)

    def latest(self, count: int) -> tuple[Idea, ...]:
        """The last ones."""
        return tuple(self.known[number] for number in range(max(0, len(self.known) - count) + 1, len(self.known) + 1))

    def _index(self, strategy: str, number: int) -> None:
        self._kin.setdefault(_said(strategy).key, []).append(number)
        self.revision += 1

    def _may_be_tried(self, idea: Idea) -> bool:
        """Whether all kernels of it failed, none is under way, and another one is allowed."""
        failed = idea.speedup is None and idea.failures >= idea.tries
        return failed and idea.tries < self.tries and idea.number not in self.waiting

    def _change(self, number: int, **what: object) -> Idea:
        self.known[number] = replace(self.known[number], **what)  # type: ignore[arg-type]
        return self.known[number]


def texts(ideas: Sequence[Idea]) -> tuple[str, ...]:
    """All that they are called."""
    return tuple(text for idea in ideas for text in (idea.strategy, idea.aligned) if text)


@dataclass(frozen=True)
class _Said:
    """What a text says, in a form that is compared quickly."""

    plan: str | None  # in the form equal plans share; None where it is prose
    words: frozenset[str]
    numbers: frozenset[str]

    @property
    def key(self) -> _Key:
        """Texts with different ones are not alike: see `_alike`."""
        return self.plan, frozenset() if self.plan is not None else self.numbers


@lru_cache(maxsize=4096)
def _said(text: str) -> _Said:
    plan = Plan.read(text) if text.strip() else None
    words = frozenset(_WORD.findall(text.lower())) - _FILLERS
    numbers = frozenset(word for word in words if word[0].isdigit())
    return _Said(str(plan) if plan is not None else None, words - numbers, numbers)


def _alike(one: _Said, other: _Said) -> bool:
    if one.plan is not None or other.plan is not None:
        return one.plan == other.plan
    if one.numbers != other.numbers:
        return False
    shared = len(one.words & other.words)
    return shared >= _ALIKE * max(1, len(one.words) + len(other.words) - shared)
