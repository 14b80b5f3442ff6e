"""The roofline picture: its data, its scales, and the picture in characters; `roofline_svg` writes SVG and PNG.

All candidates of one workload have the same arithmetic intensity, so they would lie on one vertical line. They are
spread along the roof in the order of their trials; their distance to the roof stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.hardware.roofline import Ceilings
from warpsmith.model.brief import Problem
from warpsmith.model.evaluation import Evaluation, WorkloadResult
from warpsmith.model.numbers import quantity

X_LABEL = "FLOP per byte (counted; candidates side by side by trial)"
"""The label of the axis: the position of a candidate along it is no measurement."""

EAGER = "eager"
"""The id of the point for PyTorch."""

LEAST_INTENSITY = 1 / 16
"""FLOP per byte at which a task without arithmetic is drawn: a logarithmic axis has no zero."""

_SPREAD = (0.12, 0.45)  # decades to either side of the workload's intensity: with few candidates, and at most
_MANY = 40  # candidates from which the largest spread is used
_ROOM = 2.2  # factor by which the axes extend beyond the points


@dataclass(frozen=True)
class Point:
    """A candidate on one workload, or the baseline."""

    id: str
    label: str  # "" for none
    intensity: float  # FLOP per byte, of the workload
    bandwidth_bytes_s: float  # useful bytes a second
    parents: tuple[str, ...] = ()
    order: int = 0  # the trial
    best: bool = False
    baseline: bool = False  # PyTorch

    @property
    def x(self) -> float:
        """FLOP per byte, never zero."""
        return max(self.intensity, LEAST_INTENSITY)

    @property
    def y(self) -> float:
        """FLOP per second."""
        return self.x * self.bandwidth_bytes_s


@dataclass(frozen=True)
class Roof:
    """The limits of the device; an unknown height is None."""

    bandwidth_bytes_s: float
    plain_flops_s: float | None = None
    best_flops_s: float | None = None  # higher than the plain one only if tensor cores may be used
    best_name: str = "tensor cores"

    @property
    def heights(self) -> tuple[tuple[str, float], ...]:
        """The flat parts with their names, the lowest first."""
        plain = ("plain arithmetic", self.plain_flops_s or 0.0)
        best = (self.best_name, self.best_flops_s or 0.0)
        if best[1] <= plain[1] * 1.001:
            return (plain,) if plain[1] else ()
        return (plain, best) if plain[1] else (best,)

    @property
    def ridges(self) -> tuple[float, ...]:
        """The intensity at which each flat part begins."""
        return tuple(height / self.bandwidth_bytes_s for _, height in self.heights)

    def at(self, intensity: float) -> float:
        """FLOP per second that the device allows at this intensity."""
        slope = intensity * self.bandwidth_bytes_s
        return min(slope, self.heights[-1][1]) if self.heights else slope


@dataclass(frozen=True)
class RooflinePicture:
    """The data of a roofline picture."""

    title: str
    device: str
    roof: Roof
    points: tuple[Point, ...]

    @property
    def best(self) -> Point | None:
        """The best candidate."""
        return next((point for point in self.points if point.best), None)


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis."""

    low: float
    high: float
    start: float  # where `low` is drawn
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    @property
    def decades(self) -> tuple[float, ...]:
        """The powers of ten on the axis."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return tuple(10.0**power for power in range(first, last + 1))


def point_positions(picture: RooflinePicture) -> dict[str, tuple[float, float]]:
    """The position of each point: spread along the roof in the order of trials, at its true distance below the roof."""
    searched = sorted({point.order for point in picture.points if not point.baseline})
    number = {order: index for index, order in enumerate(searched)}
    wide = _SPREAD[0] + (_SPREAD[1] - _SPREAD[0]) * min(1.0, len(searched) / _MANY)
    found = {}
    for point in picture.points:
        if point.y <= 0:
            continue  # not measured
        share = 0.0
        if not point.baseline and len(searched) > 1:
            share = 2 * number[point.order] / (len(searched) - 1) - 1
        x = point.x * 10 ** (wide * share)
        found[point.id] = (x, point.y * picture.roof.at(x) / picture.roof.at(point.x))
    return found


def axis_ranges(picture: RooflinePicture) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of both axes, which show all points, the ridges and the roof above them."""
    drawn = point_positions(picture).values()
    xs = [*(x for x, _ in drawn), *picture.roof.ridges] or [1.0]
    low, high = min(xs) / _ROOM, max(xs) * _ROOM
    if high / low < 100:  # a slope needs at least two decades
        middle = math.sqrt(low * high)
        low, high = middle / 10, middle * 10
    left = picture.roof.at(low)
    top = max([picture.roof.at(high), *(y for _, y in drawn)])
    bottom = min([left * 4, *(y for _, y in drawn)])
    return (low, high), (bottom / _ROOM, top * _ROOM)


def ancestors_of_best(points: Sequence[Point]) -> frozenset[str]:
    """The best candidate and all its ancestors."""
    parents = {point.id: point.parents for point in points}
    waiting = [point.id for point in points if point.best]
    found: set[str] = set()
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting += parents.get(current, ())
    return frozenset(found)


# --- from evaluations to a picture ---


@dataclass(frozen=True)
class DrawnCandidate:
    """A valid candidate to draw."""

    id: str
    label: str
    evaluation: Evaluation
    parents: tuple[str, ...] = ()
    order: int = 0
    best: bool = False


def picture_of(problem: Problem, roof: Ceilings, shown: Sequence[DrawnCandidate]) -> RooflinePicture | None:
    """The picture of candidates on the problem's largest workload; None if the device's bandwidth is unknown."""
    if not roof.bandwidth_bytes_s or not problem.bounds:
        return None
    workload = max(problem.bounds, key=lambda bound: bound.floor_ms).workload
    points: list[Point] = []
    for each in sorted(shown, key=lambda one: one.best):
        result = _result(each.evaluation, workload)
        if result is None or result.latency_ms <= 0 or result.bytes <= 0:
            continue
        rate = 1e3 * result.bytes / result.latency_ms
        intensity = result.flops / result.bytes
        points.append(Point(each.id, each.label, intensity, rate, each.parents, each.order, each.best))
        eager = next((b.latency_ms for b in result.baselines if b.name == EAGER), None)
        if eager and (each.best or len(shown) == 1):
            base = 1e3 * result.bytes / eager
            points.append(Point(EAGER, "PyTorch eager", intensity, base, baseline=True))
    task = problem.task
    return RooflinePicture(
        title=f"{task.name} ({task.precision.value}), {workload}",
        device=problem.device,
        roof=Roof(roof.bandwidth_bytes_s, roof.plain_flops_s, roof.best_flops_s, _fast_name(problem)),
        points=tuple(points),
    )


def _result(evaluation: Evaluation, workload: str) -> WorkloadResult | None:
    return next((each for each in evaluation.workloads if each.workload == workload), None)


def _fast_name(problem: Problem) -> str:
    return "tensor cores" if problem.kind == "cuda" else "fastest arithmetic"


# --- with characters ---

POINT, BEST, BASELINE = "o", "@", "+"
_LEFT = 12  # columns of the axis


def text_lines(picture: RooflinePicture, width: int = 78, height: int = 18) -> list[str]:
    """The lines of the picture, and the legend below it."""
    columns = max(width - _LEFT - 1, 24)
    (x_low, x_high), (y_low, y_high) = axis_ranges(picture)
    x, y = Scale(x_low, x_high, 0, columns - 1), Scale(y_low, y_high, height - 1, 0)
    grid = [[" "] * columns for _ in range(height)]
    _draw_roof(picture, grid, x, y)
    at = point_positions(picture)
    for point in sorted(picture.points, key=lambda each: (each.best, each.baseline)):
        if point.id in at:
            sign = BEST if point.best else BASELINE if point.baseline else POINT
            _put(grid, x(at[point.id][0]), y(at[point.id][1]), sign)
    heights = {round(y(value)): quantity(value, "FLOP/s") for value in y.decades}
    rows = [f"{heights.get(number, ''):>{_LEFT - 1}} │{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    rows.append(f"{'':>{_LEFT - 1}} └{'─' * columns}")
    rows.append(_ticks(x, columns))
    rows.append(f"{'':>{_LEFT}}{X_LABEL[:columns]:^{columns}}".rstrip())
    return [*rows, "", *_legend(picture)]


def _put(grid: list[list[str]], column: float, row: float, sign: str) -> None:
    if 0 <= round(row) < len(grid) and 0 <= round(column) < len(grid[0]):
        grid[round(row)][round(column)] = sign


def _draw_roof(picture: RooflinePicture, grid: list[list[str]], x: Scale, y: Scale) -> None:
    roof = picture.roof
    columns = len(grid[0])
    step = (x.high / x.low) ** (1 / (4 * (columns - 1)))  # finer than a column, so the slope has no gaps
    last = roof.heights[-1][1] if roof.heights else None
    value = x.low
    while value <= x.high:
        top = roof.at(value)
        for number, (_, height) in enumerate(roof.heights[:-1]):
            if value >= roof.ridges[number]:
                _put(grid, x(value), y(height), "-")
        _put(grid, x(value), y(top), "=" if last is not None and top >= last else "/")
        value *= step
    for number, ridge in enumerate(roof.ridges):
        _put(grid, x(ridge), y(roof.heights[number][1]), "A" if number == 0 else "B")


def _ticks(x: Scale, columns: int) -> str:
    row = [" "] * (_LEFT + 1 + columns)
    for value in x.decades:
        text = f"{value:g}"
        begin = min(_LEFT + 1 + round(x(value)) - len(text) // 2, len(row) - len(text))
        if all(each == " " for each in row[max(begin - 1, 0) : begin + len(text) + 1]):
            row[begin : begin + len(text)] = text
    return "".join(row).rstrip()


def _legend(picture: RooflinePicture) -> list[str]:
    roof = picture.roof
    best, baseline = picture.best, next((each for each in picture.points if each.baseline), None)
    said = [f"/ memory {quantity(roof.bandwidth_bytes_s, 'B/s')}"]
    for number, ((name, height), ridge) in enumerate(zip(roof.heights, roof.ridges, strict=True)):
        sign = "=" if number == len(roof.heights) - 1 else "-"
        said.append(f"{sign} {name} {quantity(height, 'FLOP/s')}, ridge {'AB'[number > 0]} at {ridge:.3g}")
    if best is not None:
        said.append(f"{BEST} {best.label or best.id}")
    if baseline is not None:
        said.append(f"{BASELINE} {baseline.label or 'PyTorch'}")
    if any(not (each.best or each.baseline) for each in picture.points):
        said.append(f"{POINT} candidates, in the order of trials")
    return said
