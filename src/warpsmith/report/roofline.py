"""The roofline picture as plain data, and its scales: what the SVG, the PNG and the terminal draw alike.

Candidates of one workload have one arithmetic intensity, so that they would all lie on one vertical line. They are
spread along the roof around it in the order of their trials, which shows the way a search took: the distance to the
roof, which is what counts, stays as it is. The caption says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_INTENSITY = 1 / 16
"""FLOP per byte: a task that only moves data is drawn here, since a logarithmic axis has no zero."""

_SPREAD = (0.12, 0.45)  # decades to either side of a workload's own intensity: for two candidates, and at most
_MANY = 40  # candidates from which on the most is used
_ROOM = 2.2  # how far the axes go beyond what is drawn, as a factor


@dataclass(frozen=True)
class Point:
    """A candidate on one workload, or the baseline."""

    id: str
    label: str  # "" for a point without words
    intensity: float  # FLOP per byte, of the workload
    bandwidth_bytes_s: float  # useful bytes a second
    parents: tuple[str, ...] = ()
    order: int = 0  # the trial
    best: bool = False
    baseline: bool = False  # PyTorch

    @property
    def x(self) -> float:
        """Where it lies; never zero."""
        return max(self.intensity, LEAST_INTENSITY)

    @property
    def y(self) -> float:
        """FLOP a second, with the same least intensity."""
        return self.x * self.bandwidth_bytes_s


@dataclass(frozen=True)
class Roof:
    """What the device allows; a height that is not known is None."""

    bandwidth_bytes_s: float
    plain_flops_s: float | None = None
    best_flops_s: float | None = None  # above the plain one only where tensor cores may be used
    best_name: str = "tensor cores"

    @property
    def heights(self) -> tuple[tuple[str, float], ...]:
        """The flat parts with their names, the lower first."""
        plain = ("plain arithmetic", self.plain_flops_s or 0.0)
        best = (self.best_name, self.best_flops_s or 0.0)
        if best[1] <= plain[1] * 1.001:
            return (plain,) if plain[1] else ()
        return (plain, best) if plain[1] else (best,)

    @property
    def ridges(self) -> tuple[float, ...]:
        """Where a flat part begins."""
        return tuple(height / self.bandwidth_bytes_s for _, height in self.heights)

    def at(self, intensity: float) -> float:
        """The highest that can be reached there."""
        slope = intensity * self.bandwidth_bytes_s
        return min(slope, self.heights[-1][1]) if self.heights else slope


@dataclass(frozen=True)
class RooflinePicture:
    """Everything that is drawn."""

    title: str
    device: str
    roof: Roof
    points: tuple[Point, ...]

    @property
    def best(self) -> Point | None:
        """The point to look at first."""
        return next((point for point in self.points if point.best), None)


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis onto an interval of the picture."""

    low: float
    high: float
    start: float  # where `low` is drawn
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    @property
    def decades(self) -> tuple[float, ...]:
        """The powers of ten inside."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return tuple(10.0**power for power in range(first, last + 1))


def places(picture: RooflinePicture) -> dict[str, tuple[float, float]]:
    """Where every point is drawn: around its own place, in the order of trials, as far below the roof as it is."""
    searched = sorted({point.order for point in picture.points if not point.baseline})
    number = {order: index for index, order in enumerate(searched)}
    wide = _SPREAD[0] + (_SPREAD[1] - _SPREAD[0]) * min(1.0, len(searched) / _MANY)
    found = {}
    for point in picture.points:
        if point.y <= 0:
            continue  # nothing was measured
        share = 0.0
        if not point.baseline and len(searched) > 1:
            share = 2 * number[point.order] / (len(searched) - 1) - 1
        x = point.x * 10 ** (wide * share)
        found[point.id] = (x, point.y * picture.roof.at(x) / picture.roof.at(point.x))
    return found


def ranges(picture: RooflinePicture) -> tuple[tuple[float, float], tuple[float, float]]:
    """What the axes must show: all points, both ridges, the whole roof above them."""
    drawn = places(picture).values()
    xs = [*(x for x, _ in drawn), *picture.roof.ridges] or [1.0]
    low, high = min(xs) / _ROOM, max(xs) * _ROOM
    if high / low < 100:  # a picture of less than two decades tells nothing about a slope
        middle = math.sqrt(low * high)
        low, high = middle / 10, middle * 10
    left = picture.roof.at(low)
    top = max([picture.roof.at(high), *(y for _, y in drawn)])
    bottom = min([left * 4, *(y for _, y in drawn)])
    return (low, high), (bottom / _ROOM, top * _ROOM)


def lineage(points: Sequence[Point]) -> frozenset[str]:
    """The best and all it comes from: the way through the picture that matters."""
    parents = {point.id: point.parents for point in points}
    waiting = [point.id for point in points if point.best]
    found: set[str] = set()
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting += parents.get(current, ())
    return frozenset(found)


def short(value: float, unit: str) -> str:
    """A number with a decimal prefix: 4.02 TB/s."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
