"""Tuning: tries the values a source declares for its tunables, with no model, and discards bad ones early.

    with evaluating(lambda settings: Evaluator("auto", settings), "softmax.py") as judge:
        tuned = tune(judge, read_candidate(Path("softmax.cu")), budget=40, seed=0)

Three rounds: points are screened with few samples, the best quarter is measured in full, and the winners of that once
more, afresh, together with the kernel as it came, so that a lucky measurement does not win. Where there are more points
than the budget allows, screening goes in batches: first points spread at random, then neighbours of the best so far.
The lists are short and a batch is built in parallel, which is why no general optimiser is used: what those gain by
modelling one trial after the other they would lose in compile time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from random import Random
from typing import Protocol

from warpsmith.backends.tunables import Tunable, macros, tunables
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Settings
from warpsmith.core.errors import UsageError
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator

Point = tuple[int, ...]
"""One value of each tunable, by its place in the list."""

_KEEP = 0.25  # of the points screened, the share that is measured in full
_FEWEST_FULL = 2  # whatever that share comes to
_FINALISTS = 2  # measured once more, besides the kernel as it came
_BATCHES = 4  # of screening, where not all points can be tried
_SMALLEST_BATCH = 4
_ELITE = 3  # the points whose neighbours are tried next
_SCREEN_SAMPLES = 16
_SCREEN_BUDGET_S = 0.1


class Round(StrEnum):
    """How seriously a point was measured."""

    SCREEN = "screen"
    FULL = "full"
    FINAL = "final"


@dataclass(frozen=True)
class Measured:
    """One verdict on one point."""

    round: Round
    candidate: Candidate  # with the point's values as `defines`
    evaluation: Evaluation
    number: int  # of points screened so far, for a progress bar


class Judge(Protocol):
    """Evaluates a batch: (position, verdict) in any order, each once. Fresh: even where a verdict is known."""

    def __call__(
        self, candidates: Sequence[Candidate], settings: Settings, *, fresh: bool
    ) -> Iterable[tuple[int, Evaluation]]: ...


@dataclass(frozen=True)
class Tuned:
    """What came of it."""

    best: Candidate | None  # None where no point was valid
    evaluation: Evaluation | None  # of the best, from the last round
    before: Evaluation | None  # of the kernel as it came, from the last round it was in
    measured: tuple[Measured, ...]
    tried: int  # points screened
    discarded: int  # points that were not measured in full: slow or invalid
    total: int  # points there are

    @property
    def gain(self) -> float | None:
        """How much faster the best is than the kernel as it came; None where either is not valid."""
        after, before = (_speed(each) for each in (self.evaluation, self.before))
        return after / before if after is not None and before is not None else None

    @property
    def improved(self) -> bool:
        """Whether the best is faster for sure: the intervals of both do not meet."""
        if self.evaluation is None or self.before is None or not self.before.ok:
            return self.best is not None
        after, before = (each.interval(_baseline(each)) for each in (self.evaluation, self.before))
        return after is not None and before is not None and after.low > before.high


def tune(
    judge: Judge,
    candidate: Candidate,
    budget: int,
    seed: int,
    on_result: Callable[[Measured], None] = lambda _: None,
    settings: Settings | None = None,
) -> Tuned:
    """Find good values for a candidate's tunables, screening up to `budget` points. The same verdicts give the same."""
    space = Space.of(candidate)
    if budget < 1:
        raise UsageError(f"the budget of {budget} points is too small; give at least 1.")
    search = _Search(judge, space, settings or Settings(), on_result)
    search.screen(budget, Random(seed))
    order = search.ranked(Round.SCREEN)
    full = order[: max(_FEWEST_FULL, math.ceil(_KEEP * len(search.verdicts[Round.SCREEN])))]
    search.measure(Round.FULL, full)
    last = search.ranked(Round.FULL)[:_FINALISTS]
    if last and space.start in search.valid(Round.SCREEN) and space.start not in last:
        last.append(space.start)
    search.measure(Round.FINAL, last)
    order = search.ranked(Round.FINAL)
    best = order[0] if order else None
    return Tuned(
        best=space.at(best) if best is not None else None,
        evaluation=search.verdicts[Round.FINAL][best] if best is not None else None,
        before=search.latest(space.start),
        measured=tuple(search.measured),
        tried=len(search.verdicts[Round.SCREEN]),
        discarded=len(search.verdicts[Round.SCREEN]) - len(search.verdicts[Round.FULL]),
        total=space.total,
    )


def screening(settings: Settings) -> Settings:
    """The same evaluation with few samples and one set of inputs: enough to see what is hopeless."""
    most = min(settings.max_samples, max(settings.min_samples, _SCREEN_SAMPLES))
    return replace(
        settings,
        seeds=1,
        max_samples=most,
        min_samples=min(settings.min_samples, most),
        timing_budget_s=min(settings.timing_budget_s, _SCREEN_BUDGET_S),
    )


def settled(candidate: Candidate) -> str:
    """The source of a tuned candidate with its values first in each list: the file that needs no defines."""
    text = candidate.main.text
    for name, value in candidate.defines:
        line = re.compile(rf"^[ \t]*//[ \t]*tune:[ \t]*{re.escape(name)}[ \t]*=[ \t]*(.+?)[ \t]*$", re.MULTILINE)
        found = line.search(text)
        if found is not None:
            text = text[: found.start(1)] + _first(found[1], value) + text[found.end(1) :]
    return text


@contextmanager
def evaluating(
    open_evaluator: Callable[[Settings], AbstractContextManager[Evaluator]],
    task: str | Path,
    precision: Precision | None = None,
) -> Iterator[Judge]:
    """A judge by a real evaluator, which gets a new court whenever the settings change."""
    with open_evaluator(Settings()) as evaluator:

        def judge(
            candidates: Sequence[Candidate], settings: Settings, *, fresh: bool
        ) -> Iterable[tuple[int, Evaluation]]:
            if evaluator.settings != settings:
                evaluator.renew(settings)
            return evaluator.evaluate(task, candidates, precision, fresh=fresh)

        yield judge


@dataclass(frozen=True)
class Space:
    """All points of a candidate."""

    candidate: Candidate
    tunables: tuple[Tunable, ...]
    start: Point  # the candidate as it came

    @staticmethod
    def of(candidate: Candidate) -> Space:
        """Its tunables; a UsageError where it declares none."""
        found: dict[str, Tunable] = {}
        for file in candidate.files:
            for each in tunables(file.text):
                found.setdefault(each.name, each)
        if not found:
            raise UsageError(
                f"{candidate.main.name} declares nothing to tune; add a line such as `// tune: BLOCK = 128, 256, 512` "
                "and use BLOCK in the code."
            )
        chosen = dict(macros(candidate))
        # A value given from outside that the source does not list is a point, too.
        lists = tuple(
            each if chosen[each.name] in each.values else Tunable(each.name, (chosen[each.name], *each.values))
            for each in found.values()
        )
        return Space(candidate, lists, tuple(each.values.index(chosen[each.name]) for each in lists))

    @property
    def total(self) -> int:
        """How many points there are."""
        return math.prod(len(each.values) for each in self.tunables)

    def at(self, point: Point) -> Candidate:
        """The candidate with a point's values."""
        values = {each.name: each.values[place] for each, place in zip(self.tunables, point, strict=True)}
        return replace(self.candidate, defines=tuple(sorted((dict(self.candidate.defines) | values).items())))

    def every(self) -> Iterator[Point]:
        """All points, that of the candidate as it came first."""
        yield self.start
        for point in product(*(range(len(each.values)) for each in self.tunables)):
            if point != self.start:
                yield point

    def random(self, rng: Random) -> Point:
        """Any point."""
        return tuple(rng.randrange(len(each.values)) for each in self.tunables)

    def around(self, point: Point) -> Iterator[Point]:
        """One tunable one place up or down its list."""
        for axis, place in enumerate(point):
            for moved in (place - 1, place + 1):
                if 0 <= moved < len(self.tunables[axis].values):
                    yield (*point[:axis], moved, *point[axis + 1 :])


class _Search:
    """The rounds and what they found."""

    def __init__(self, judge: Judge, space: Space, settings: Settings, on_result: Callable[[Measured], None]) -> None:
        self._judge = judge
        self._space = space
        self._settings = settings
        self._on_result = on_result
        self.measured: list[Measured] = []
        self.verdicts: dict[Round, dict[Point, Evaluation]] = {each: {} for each in Round}

    def screen(self, budget: int, rng: Random) -> None:
        """All points where the budget allows it, else batches that close in on the best."""
        if self._space.total <= budget:
            self.measure(Round.SCREEN, list(self._space.every()))
            return
        done = self.verdicts[Round.SCREEN]
        size = max(_SMALLEST_BATCH, math.ceil(budget / _BATCHES))
        known = -1
        while known < len(done) < budget:  # a judge that has stopped judging says nothing more
            known = len(done)
            self.measure(Round.SCREEN, self._batch(min(size, budget - len(done)), rng))

    def _batch(self, size: int, rng: Random) -> list[Point]:
        """Points not yet tried: neighbours of the best, and random ones for the rest and for a quarter at least."""
        done = self.verdicts[Round.SCREEN]
        picked = [] if done else [self._space.start]
        near = [p for best in self.ranked(Round.SCREEN)[:_ELITE] for p in self._space.around(best) if p not in done]
        near = list(dict.fromkeys(near))
        rng.shuffle(near)
        picked += near[: size - size // 4]
        while len(picked) < size:  # ends: there are more points than the budget
            drawn = self._space.random(rng)
            if drawn not in done and drawn not in picked:
                picked.append(drawn)
        return picked

    def measure(self, round: Round, points: Sequence[Point]) -> None:
        """Have a batch judged."""
        if not points:
            return
        settings = screening(self._settings) if round is Round.SCREEN else self._settings
        candidates = [self._space.at(point) for point in points]
        found: dict[int, Evaluation] = {}
        for place, evaluation in self._judge(candidates, settings, fresh=round is Round.FINAL):
            found[place] = evaluation
            number = len(self.verdicts[Round.SCREEN]) + (len(found) if round is Round.SCREEN else 0)
            self.measured.append(Measured(round, candidates[place], evaluation, number))
            self._on_result(self.measured[-1])
        # In the order of the batch, not of arrival: ties must not hang on which build was ready first.
        self.verdicts[round].update((point, found[place]) for place, point in enumerate(points) if place in found)

    def valid(self, round: Round) -> dict[Point, float]:
        """Speed by point of those that work."""
        speeds = {point: _speed(verdict) for point, verdict in self.verdicts[round].items()}
        return {point: speed for point, speed in speeds.items() if speed is not None}

    def ranked(self, round: Round) -> list[Point]:
        """The valid points of a round, fastest first."""
        speeds = self.valid(round)
        return sorted(speeds, key=lambda point: -speeds[point])

    def latest(self, point: Point) -> Evaluation | None:
        """The most serious verdict on a point."""
        return next((self.verdicts[r][point] for r in reversed(Round) if point in self.verdicts[r]), None)


def _baseline(evaluation: Evaluation) -> str:
    return evaluation.workloads[0].baselines[0].name


def _speed(evaluation: Evaluation | None) -> float | None:
    """Over the first baseline: measured side by side, it bears a drifting clock better than a time does."""
    return evaluation.speedup(_baseline(evaluation)) if evaluation is not None and evaluation.ok else None


def _first(listed: str, value: str) -> str:
    """A list of values with one of them moved to the front."""
    values = [each.strip() for each in listed.split(",") if each.strip()]
    return ", ".join([value, *(each for each in values if each != value)])
