"""The roofline of a run for its page: the roof as far as it is known, every measured candidate where it is drawn."""

from __future__ import annotations

from warpsmith.core.search import Bound, Problem
from warpsmith.hardware.analysis import Ceilings, ceilings
from warpsmith.hardware.roofline import Peaks
from warpsmith.report.document import RoofPoint, RoofView
from warpsmith.report.roofline import Point, RooflinePicture, places, ranges
from warpsmith.report.standing import Shown, picture_of
from warpsmith.report.story import Story

_EAGER = "eager"


def roof_view(told: Story, peaks: Peaks | None) -> RoofView | None:
    """The picture; None where nothing was measured or the task's floor is not known."""
    ledger, problem = told.ledger, told.ledger.begun.problem
    if not problem.bounds:
        return None
    largest = max(problem.bounds, key=lambda bound: bound.floor_ms)
    known = ceilings(problem, peaks)
    roof = known if known.bandwidth_bytes_s else _guessed(known, largest)
    if roof is None:
        return None
    picture = picture_of(
        problem, roof, [_shown(told, number) for number in ledger.found if told.judged[number].evaluation.ok]
    )
    if picture is None or not picture.points:
        return None
    x, y = ranges(picture)
    return RoofView(
        title=_title(problem, largest),
        intensity=picture.points[0].x,
        bandwidth_bytes_s=picture.roof.bandwidth_bytes_s,
        heights=picture.roof.heights,
        slope_known=bool(known.bandwidth_bytes_s),
        x=x,
        y=y,
        points=tuple(_placed(picture)),
        undrawn=len(ledger.trials) - sum(not point.baseline for point in picture.points),
    )


def _shown(told: Story, number: int) -> Shown:
    trial = told.ledger.trials[number]
    parents = tuple(str(parent) for parent in trial.parents)
    best = number == told.ledger.best
    return Shown(str(number), "", told.judged[number].evaluation, parents, number, best)


def _guessed(known: Ceilings, bound: Bound) -> Ceilings | None:
    """A bandwidth where none is recorded: at least what the floor of the largest workload needs."""
    if bound.floor_ms <= 0 or bound.bytes <= 0:
        return None
    return Ceilings(1e3 * bound.bytes / bound.floor_ms, known.plain_flops_s, known.best_flops_s)


def _title(problem: Problem, bound: Bound) -> str:
    return f"{problem.task.name} ({problem.task.precision.value}), {bound.workload}"


def _placed(picture: RooflinePicture) -> list[RoofPoint]:
    at = places(picture)
    return [
        RoofPoint(_number(point), *at[point.id], tuple(int(parent) for parent in point.parents))
        for point in picture.points
        if point.id in at
    ]


def _number(point: Point) -> int:
    return 0 if point.id == _EAGER else int(point.id)
