"""Tuning: tries the values that a source declares for its tunables, without a model.

    with tuning_evaluator(lambda settings: open_engine("local", "auto", settings), "softmax.py") as evaluate:
        tuned = tune(evaluate, read_candidate(Path("softmax.cu")), budget=40, seed=0)

There are three rounds. All points are screened with few samples; the best quarter is measured in full; the two fastest
of those are measured again together with the original kernel, so that a lucky measurement does not win. If there are
more points than the budget allows, screening goes in batches: random points first, then neighbours of the best so far.
The lists are short and a batch is compiled in parallel, so no general optimiser is used: it would propose one point
after another and lose more in compile time than it gains.
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
from warpsmith.engine.engine import Engine
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision

Point = tuple[int, ...]
"""The index of the chosen value of each tunable."""

_KEEP = 0.25  # share of the screened points that is measured in full
_FEWEST_FULL = 2
_FINALISTS = 2  # measured again, besides the original
_BATCHES = 4  # of screening, if not all points can be tried
_SMALLEST_BATCH = 4
_ELITE = 3  # best points, whose neighbours are tried next
_SCREEN_SAMPLES = 16
_SCREEN_BUDGET_S = 0.1


class TuningRound(StrEnum):
    """How thoroughly a point was measured."""

    SCREEN = "screen"
    FULL = "full"
    FINAL = "final"


@dataclass(frozen=True)
class MeasuredPoint:
    """One evaluation of one point."""

    round: TuningRound
    candidate: Candidate  # with the point's values as `defines`
    evaluation: Evaluation
    number: int  # points screened so far, for a progress bar


class EvaluateBatch(Protocol):
    """Evaluates a batch: (position, evaluation) in any order, each once. `fresh`: even if a result is cached."""

    def __call__(
        self, candidates: Sequence[Candidate], settings: Settings, *, fresh: bool
    ) -> Iterable[tuple[int, Evaluation]]: ...


@dataclass(frozen=True)
class TuningResult:
    """The result of tuning a candidate."""

    best: Candidate | None  # None if no point is valid
    evaluation: Evaluation | None  # of the best, in the last round
    before: Evaluation | None  # of the original, in the last round it was part of
    measured: tuple[MeasuredPoint, ...]
    tried: int  # points screened
    discarded: int  # points not measured in full: slow or invalid
    total: int  # points there are

    @property
    def gain(self) -> float | None:
        """Speed of the best over the original; None if either is invalid."""
        after, before = (_speed(each) for each in (self.evaluation, self.before))
        return after / before if after is not None and before is not None else None

    @property
    def improved(self) -> bool:
        """True if the best is certainly faster than the original: their intervals do not overlap."""
        if self.evaluation is None or self.before is None or not self.before.ok:
            return self.best is not None
        after, before = (each.interval(_baseline(each)) for each in (self.evaluation, self.before))
        return after is not None and before is not None and after.low > before.high


def tune(
    evaluate: EvaluateBatch,
    candidate: Candidate,
    budget: int,
    seed: int,
    on_result: Callable[[MeasuredPoint], None] = lambda _: None,
    settings: Settings | None = None,
) -> TuningResult:
    """Find good values for the tunables of a candidate; screens up to `budget` points. Deterministic for a seed."""
    space = TuningSpace.of(candidate)
    if budget < 1:
        raise UsageError(f"the budget of {budget} points is too small; give at least 1.")
    search = _Search(evaluate, space, settings or Settings(), on_result)
    search.screen(budget, Random(seed))
    order = search.ranked(TuningRound.SCREEN)
    full = order[: max(_FEWEST_FULL, math.ceil(_KEEP * len(search.evaluations[TuningRound.SCREEN])))]
    search.measure(TuningRound.FULL, full)
    last = search.ranked(TuningRound.FULL)[:_FINALISTS]
    if last and space.start in search.valid(TuningRound.SCREEN) and space.start not in last:
        last.append(space.start)
    search.measure(TuningRound.FINAL, last)
    order = search.ranked(TuningRound.FINAL)
    best = order[0] if order else None
    return TuningResult(
        best=space.at(best) if best is not None else None,
        evaluation=search.evaluations[TuningRound.FINAL][best] if best is not None else None,
        before=search.latest(space.start),
        measured=tuple(search.measured),
        tried=len(search.evaluations[TuningRound.SCREEN]),
        discarded=len(search.evaluations[TuningRound.SCREEN]) - len(search.evaluations[TuningRound.FULL]),
        total=space.total,
    )


def screening_settings(settings: Settings) -> Settings:
    """The same settings with few samples and one set of inputs: enough to discard slow and invalid points."""
    most = min(settings.max_samples, max(settings.min_samples, _SCREEN_SAMPLES))
    return replace(
        settings,
        seeds=1,
        max_samples=most,
        min_samples=min(settings.min_samples, most),
        timing_budget_s=min(settings.timing_budget_s, _SCREEN_BUDGET_S),
    )


def source_with_values(candidate: Candidate) -> str:
    """The source of a tuned candidate with its values first in each list, so that it needs no defines."""
    text = candidate.main.text
    for name, value in candidate.defines:
        line = re.compile(rf"^[ \t]*//[ \t]*tune:[ \t]*{re.escape(name)}[ \t]*=[ \t]*(.+?)[ \t]*$", re.MULTILINE)
        found = line.search(text)
        if found is not None:
            text = text[: found.start(1)] + _first(found[1], value) + text[found.end(1) :]
    return text


@contextmanager
def tuning_evaluator(
    open_evaluator: Callable[[Settings], AbstractContextManager[Engine]],
    task: str | Path,
    precision: Precision | None = None,
) -> Iterator[EvaluateBatch]:
    """An `EvaluateBatch` that uses one evaluator, with new settings whenever they change."""
    with open_evaluator(Settings()) as evaluator:

        def evaluate(
            candidates: Sequence[Candidate], settings: Settings, *, fresh: bool
        ) -> Iterable[tuple[int, Evaluation]]:
            if evaluator.settings != settings:
                evaluator.renew(settings)
            return evaluator.evaluate(task, candidates, precision, fresh=fresh)

        yield evaluate


@dataclass(frozen=True)
class TuningSpace:
    """All combinations of values of a candidate."""

    candidate: Candidate
    tunables: tuple[Tunable, ...]
    start: Point  # the original

    @staticmethod
    def of(candidate: Candidate) -> TuningSpace:
        """The space of a candidate; a UsageError if it declares no tunable."""
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
        # A value given from outside that the source does not list is one more value.
        lists = tuple(
            each if chosen[each.name] in each.values else Tunable(each.name, (chosen[each.name], *each.values))
            for each in found.values()
        )
        return TuningSpace(candidate, lists, tuple(each.values.index(chosen[each.name]) for each in lists))

    @property
    def total(self) -> int:
        """The number of points."""
        return math.prod(len(each.values) for each in self.tunables)

    def at(self, point: Point) -> Candidate:
        """The candidate with the values of a point."""
        values = {each.name: each.values[place] for each, place in zip(self.tunables, point, strict=True)}
        return replace(self.candidate, defines=tuple(sorted((dict(self.candidate.defines) | values).items())))

    def every(self) -> Iterator[Point]:
        """All points, the original first."""
        yield self.start
        for point in product(*(range(len(each.values)) for each in self.tunables)):
            if point != self.start:
                yield point

    def random(self, rng: Random) -> Point:
        """A random point."""
        return tuple(rng.randrange(len(each.values)) for each in self.tunables)

    def around(self, point: Point) -> Iterator[Point]:
        """The neighbours of a point: one tunable moved by one place in its list."""
        for axis, place in enumerate(point):
            for moved in (place - 1, place + 1):
                if 0 <= moved < len(self.tunables[axis].values):
                    yield (*point[:axis], moved, *point[axis + 1 :])


class _Search:
    """The rounds and their evaluations."""

    def __init__(
        self,
        evaluate: EvaluateBatch,
        space: TuningSpace,
        settings: Settings,
        on_result: Callable[[MeasuredPoint], None],
    ) -> None:
        self._evaluate = evaluate
        self._space = space
        self._settings = settings
        self._on_result = on_result
        self.measured: list[MeasuredPoint] = []
        self.evaluations: dict[TuningRound, dict[Point, Evaluation]] = {each: {} for each in TuningRound}

    def screen(self, budget: int, rng: Random) -> None:
        """All points if the budget allows it, else batches that close in on the best."""
        if self._space.total <= budget:
            self.measure(TuningRound.SCREEN, list(self._space.every()))
            return
        done = self.evaluations[TuningRound.SCREEN]
        size = max(_SMALLEST_BATCH, math.ceil(budget / _BATCHES))
        known = -1
        while known < len(done) < budget:  # ends if the evaluator was stopped and returned nothing
            known = len(done)
            self.measure(TuningRound.SCREEN, self._batch(min(size, budget - len(done)), rng))

    def _batch(self, size: int, rng: Random) -> list[Point]:
        """Points not yet tried: neighbours of the best, and random ones for the rest and for a quarter at least."""
        done = self.evaluations[TuningRound.SCREEN]
        picked = [] if done else [self._space.start]
        near = [
            p for best in self.ranked(TuningRound.SCREEN)[:_ELITE] for p in self._space.around(best) if p not in done
        ]
        near = list(dict.fromkeys(near))
        rng.shuffle(near)
        picked += near[: size - size // 4]
        while len(picked) < size:  # ends: there are more points than the budget
            drawn = self._space.random(rng)
            if drawn not in done and drawn not in picked:
                picked.append(drawn)
        return picked

    def measure(self, round: TuningRound, points: Sequence[Point]) -> None:
        """Evaluate a batch."""
        if not points:
            return
        settings = screening_settings(self._settings) if round is TuningRound.SCREEN else self._settings
        candidates = [self._space.at(point) for point in points]
        found: dict[int, Evaluation] = {}
        for place, evaluation in self._evaluate(candidates, settings, fresh=round is TuningRound.FINAL):
            found[place] = evaluation
            number = len(self.evaluations[TuningRound.SCREEN]) + (len(found) if round is TuningRound.SCREEN else 0)
            self.measured.append(MeasuredPoint(round, candidates[place], evaluation, number))
            self._on_result(self.measured[-1])
        # In the order of the batch, not of arrival: ties must not depend on which build was ready first.
        self.evaluations[round].update((point, found[place]) for place, point in enumerate(points) if place in found)

    def valid(self, round: TuningRound) -> dict[Point, float]:
        """The speed of each valid point."""
        speeds = {point: _speed(found) for point, found in self.evaluations[round].items()}
        return {point: speed for point, speed in speeds.items() if speed is not None}

    def ranked(self, round: TuningRound) -> list[Point]:
        """The valid points of a round, fastest first."""
        speeds = self.valid(round)
        return sorted(speeds, key=lambda point: -speeds[point])

    def latest(self, point: Point) -> Evaluation | None:
        """The most thorough evaluation of a point."""
        return next((self.evaluations[r][point] for r in reversed(TuningRound) if point in self.evaluations[r]), None)


def _baseline(evaluation: Evaluation) -> str:
    return evaluation.workloads[0].baselines[0].name


def _speed(evaluation: Evaluation | None) -> float | None:
    """Speedup over the first baseline: measured side by side, so a drifting clock matters less than for a time."""
    return evaluation.speedup(_baseline(evaluation)) if evaluation is not None and evaluation.ok else None


def _first(listed: str, value: str) -> str:
    """A list of values with one of them moved to the front."""
    values = [each.strip() for each in listed.split(",") if each.strip()]
    return ", ".join([value, *(each for each in values if each != value)])
