"""Writes a roofline picture to a file: SVG without a dependency, in light or dark colours; PNG with matplotlib."""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.model.numbers import quantity
from warpsmith.report.roofline import (
    X_LABEL,
    Point,
    Roof,
    RooflinePicture,
    Scale,
    ancestors_of_best,
    axis_ranges,
    point_positions,
)

WIDTH, HEIGHT = 960, 600
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 28, 74, 64
_CHAR = 6.7  # approximate width of a character of a label, in pixels
_LINE = 16.0

_STYLE = """
.back { fill: #ffffff } .grid { stroke: #e6e8eb; stroke-width: 1 } .frame { stroke: #9aa2ab; fill: none }
text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
  font-size: 12.5px; fill: #3a424b;
  paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round }
.title { font-size: 18px; font-weight: 600; fill: #161b20 } .quiet { fill: #6b747e }
.roof { stroke: #2b6cb0; stroke-width: 2.5; fill: none; stroke-linejoin: round } .lower { stroke-dasharray: 7 5 }
.ridge { stroke: #2b6cb0; stroke-width: 1; stroke-dasharray: 2 4 } .rooftext { fill: #2b6cb0 }
.arrow { stroke: #8a94a0; stroke-width: 1; fill: none; opacity: 0.3 } .head { fill: #8a94a0 }
.arrow.line { stroke: #2f855a; stroke-width: 1.8; opacity: 0.9 } .linehead { fill: #2f855a }
.leader { stroke: #8a94a0; stroke-width: 1 }
.point { fill: #dd6b20; stroke: #ffffff; stroke-width: 1 } .best { fill: #2f855a; stroke: #ffffff; stroke-width: 1.2 }
.baseline { fill: #805ad5; stroke: #ffffff; stroke-width: 1 }
.bestlabel { fill: #276749; font-weight: 600 } .baselinelabel { fill: #6b46c1 }
@media (prefers-color-scheme: dark) {
  .back { fill: #14181d } .grid { stroke: #272d35 } .frame { stroke: #5d6670 }
  text { fill: #c6ccd3; stroke: #14181d }
  .title { fill: #f2f4f6 } .quiet { fill: #929ba5 } .roof, .ridge { stroke: #63b3ed } .rooftext { fill: #63b3ed }
  .arrow, .leader { stroke: #77818c } .head { fill: #77818c } .arrow.line { stroke: #68d391 }
  .linehead { fill: #68d391 } .point { fill: #f6ad55; stroke: #14181d }
  .best { fill: #68d391; stroke: #14181d } .baseline { fill: #b794f4; stroke: #14181d }
  .bestlabel { fill: #9ae6b4 } .baselinelabel { fill: #d6bcfa }
}
"""


@dataclass(frozen=True)
class _Box:
    """An area that labels must not cover."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def svg(picture: RooflinePicture) -> str:
    """The whole file."""
    (x_low, x_high), (y_low, y_high) = axis_ranges(picture)
    x = Scale(x_low, x_high, _LEFT, WIDTH - _RIGHT)
    y = Scale(y_low, y_high, HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(picture.title)}">',
        f"<style>{_STYLE}</style>",
        f"<defs>{_marker('head')}{_marker('linehead')}</defs>",
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>',
        *_axes(picture, x, y),
        *_roof(picture, x, y),
        *_candidates(picture, x, y),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _marker(name: str) -> str:
    size = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" markerUnits="userSpaceOnUse"'
    return f'<marker id="{name}" {size} orient="auto"><path class="{name}" d="M0 0.8 L8 4 L0 7.2 z"/></marker>'


def _text(left: float, top: float, words: str, kind: str = "", anchor: str = "start", extra: str = "") -> str:
    return f'<text class="{kind}" x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def _axes(picture: RooflinePicture, x: Scale, y: Scale) -> Iterator[str]:
    yield _text(_LEFT, 30, picture.title, "title")
    searched = len({point.id for point in picture.points if not point.baseline})
    order = ", spread along the roof in the order of trials" if searched > 1 else ""
    yield _text(_LEFT, 52, f"{picture.device}; {searched} candidate{'s' if searched != 1 else ''}{order}", "quiet")
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for value in x.decades:
        at = x(value)
        yield f'<line class="grid" x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{bottom}"/>'
        yield _text(at, bottom + 20, _tick(value), "quiet", "middle")
    for value in y.decades:
        at = y(value)
        yield f'<line class="grid" x1="{_LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>'
        yield _text(_LEFT - 8, at + 4, quantity(value, ""), "quiet", "end")
    yield f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}"/>'
    yield _text((_LEFT + right) / 2, HEIGHT - 14, X_LABEL, "", "middle")
    middle = (_TOP + bottom) / 2
    yield _text(22, middle, "FLOP per second", "", "middle", f' transform="rotate(-90 22 {middle:.1f})"')


def _tick(value: float) -> str:
    return f"{value:g}" if 1e-3 <= value < 1e6 else f"{value:.0e}"


def _roof(picture: RooflinePicture, x: Scale, y: Scale) -> Iterator[str]:
    roof = picture.roof
    right = WIDTH - _RIGHT
    turn = roof.ridges[-1] if roof.ridges else x.high
    begin = max(x.low, y.low / roof.bandwidth_bytes_s)
    corner = min(turn, x.high)
    path = f"M{x(begin):.1f} {y(roof.at(begin)):.1f} L{x(corner):.1f} {y(roof.at(corner)):.1f}"
    yield f'<path class="roof" d="{path}{f" H{right}" if roof.heights else ""}"/>'
    angle = math.degrees(math.atan2(y(roof.at(corner)) - y(roof.at(begin)), x(corner) - x(begin)))
    along = math.exp(0.3 * math.log(corner) + 0.7 * math.log(begin))
    at, height = x(along), y(roof.at(along)) - 9
    words = f"memory {quantity(roof.bandwidth_bytes_s, 'B/s')}"
    turned = f' transform="rotate({angle:.1f} {at:.1f} {height:.1f})"'
    yield _text(at, height, words, "rooftext", "middle", turned)
    last = len(roof.heights) - 1
    for number, ((name, top), ridge) in enumerate(zip(roof.heights, roof.ridges, strict=True)):
        if number < last:
            yield f'<path class="roof lower" d="M{x(ridge):.1f} {y(top):.1f} H{right}"/>'
        yield _text(right - 8, y(top) - 8, f"{name} {quantity(top, 'FLOP/s')}", "rooftext", "end")
        if x.low < ridge < x.high:
            bottom = HEIGHT - _BOTTOM
            yield f'<line class="ridge" x1="{x(ridge):.1f}" y1="{y(top):.1f}" x2="{x(ridge):.1f}" y2="{bottom}"/>'
            yield _text(x(ridge) + 5, bottom - 8 - 16 * number, f"ridge {ridge:.3g}", "rooftext")


def _candidates(picture: RooflinePicture, x: Scale, y: Scale) -> Iterator[str]:
    at = {name: (x(across), y(up)) for name, (across, up) in point_positions(picture).items()}
    main = ancestors_of_best(picture.points)
    arrows = [
        (parent in main and point.id in main, at[parent], at[point.id])
        for point in picture.points
        for parent in point.parents
        if parent in at and point.id in at and parent != point.id
    ]
    for important, start, end in sorted(arrows):
        yield _arrow(start, end, important)
    shown = sorted((p for p in picture.points if p.id in at), key=lambda p: (p.best, p.order))
    for point in shown:
        left, top = at[point.id]
        title = f"<title>{escape(point.label or point.id)}: {quantity(point.y, 'FLOP/s')}</title>"
        if point.baseline:
            shape = f"M{left:.1f} {top - 7:.1f} l7 7 l-7 7 l-7 -7 z"
            yield f'<path class="baseline" d="{shape}">{title}</path>'
        else:
            kind, radius = ("best", 7.5) if point.best else ("point", 3.8 if len(shown) > 20 else 4.8)
            yield f'<circle class="{kind}" cx="{left:.1f}" cy="{top:.1f}" r="{radius}">{title}</circle>'
    yield from _labels(picture, shown, at, x, y)


def _arrow(start: tuple[float, float], end: tuple[float, float], important: bool) -> str:
    """A slightly bent arrow from a parent to its child."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1)
    kind, head = ("arrow line", "linehead") if important else ("arrow", "head")
    if length < 14:  # no room for an arrow head between the dots
        return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f} L{x2:.1f} {y2:.1f}"/>'
    cut = 8 / length
    x2, y2 = x2 - cut * (x2 - x1), y2 - cut * (y2 - y1)
    bend_x, bend_y = (x1 + x2) / 2 - 0.12 * (y1 - y2), (y1 + y2) / 2 - 0.12 * (x2 - x1)
    path = f"M{x1:.1f} {y1:.1f} Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} {y2:.1f}"
    return f'<path class="{kind}" marker-end="url(#{head})" d="{path}"/>'


def _labels(
    picture: RooflinePicture, shown: list[Point], at: dict[str, tuple[float, float]], x: Scale, y: Scale
) -> Iterator[str]:
    """Labels beside points where they cover nothing; a label without a free place is in the tooltip only."""
    taken = [_Box(left - 8, top - 8, left + 8, top + 8) for left, top in at.values()]
    taken += [*_roof_boxes(picture, x, y)]
    for point in reversed(shown):  # the best first
        if not point.label:
            continue
        left, top = at[point.id]
        width = _CHAR * len(point.label)
        for anchor, dx, dy in _SPOTS:
            begin = left + dx - (width if anchor == "end" else 0.0)
            box = _Box(begin, top + dy - _LINE + 3, begin + width, top + dy + 4)
            inside = box.left > _LEFT + 4 and box.right < WIDTH - _RIGHT - 4
            inside = inside and box.top > _TOP + 2 and box.bottom < HEIGHT - _BOTTOM - 2
            if inside and not any(box.meets(other) for other in taken):
                taken.append(box)
                kind = "bestlabel" if point.best else "baselinelabel" if point.baseline else "quiet"
                if abs(dy) > 30:
                    yield f'<path class="leader" d="M{left:.1f} {top:.1f} L{left + dx:.1f} {top + dy - 4:.1f}"/>'
                yield _text(left + dx, top + dy, point.label, kind, anchor)
                break


_SPOTS = sorted(
    (
        (anchor, sign * dx, dy)
        for dx in (14.0, 30.0, 60.0, 110.0, 170.0)
        for dy in (4.0, 24.0, -18.0, 50.0, -44.0, 80.0, -74.0, 120.0, -110.0, 170.0, -160.0)
        for anchor, sign in (("start", 1), ("end", -1))
    ),
    key=lambda spot: abs(spot[1]) + 1.2 * abs(spot[2]),
)


def _roof_boxes(picture: RooflinePicture, x: Scale, y: Scale) -> Iterator[_Box]:
    """The areas of the roof's lines and labels."""
    roof, right = picture.roof, WIDTH - _RIGHT
    for name, top in roof.heights:
        width = _CHAR * len(f"{name} {quantity(top, 'FLOP/s')}") + 12
        yield _Box(right - width, y(top) - 24, right, y(top) - 2)
    for number, (ridge, (_, top)) in enumerate(zip(roof.ridges, roof.heights, strict=True)):
        low = HEIGHT - _BOTTOM - 22 - 16 * number
        yield _Box(x(ridge), low, x(ridge) + 80, low + 18)
        yield _Box(x(ridge), y(top) - 3, right, y(top) + 3)
    value = x.low
    end = roof.ridges[-1] if roof.ridges else x.high
    while value < min(end, x.high):
        at, height = x(value), y(roof.at(value))
        yield _Box(at - 6, height - 8, at + 6, height + 8)
        value *= 1.08


SUFFIXES = (".svg", ".png")
_DOTS = 160  # per inch


def check(path: Path) -> None:
    """Raise if a picture cannot be written there, before the work starts."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is no picture: its name must end in .svg or .png.")
    if path.suffix.lower() == ".png":
        _matplotlib()


def write(picture: RooflinePicture, path: Path) -> None:
    """Write the picture as SVG or PNG, by the ending of the path."""
    check(path)
    data = svg(picture).encode() if path.suffix.lower() == ".svg" else png(picture)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as refused:
        raise UsageError(f"{path} cannot be written ({refused.strerror}); give another --out.") from None


def png(picture: RooflinePicture) -> bytes:
    """The picture as PNG; matplotlib needs no display for it."""
    figures: Any = _matplotlib()
    figure = figures.Figure(figsize=(WIDTH / 100, HEIGHT / 100), layout="constrained")
    axes = figure.add_subplot()
    (x_low, x_high), (y_low, y_high) = axis_ranges(picture)
    axes.set(xscale="log", yscale="log", xlim=(x_low, x_high), ylim=(y_low, y_high))
    axes.set_xlabel(X_LABEL)
    axes.set_ylabel("FLOP per second")
    axes.set_title(f"{picture.title}\n{picture.device}", loc="left", fontsize=11)
    axes.grid(True, which="major", color="#e6e8eb")
    _draw_roof(axes, picture.roof, x_low, x_high)
    at, main = point_positions(picture), ancestors_of_best(picture.points)
    for point in picture.points:
        for parent in point.parents:
            if parent in at and point.id in at and parent != point.id:
                colour, strength = ("#2f855a", 0.9) if {parent, point.id} <= main else ("#8a94a0", 0.25)
                arrow = {"arrowstyle": "->", "color": colour, "alpha": strength, "shrinkA": 3, "shrinkB": 5}
                axes.annotate("", at[point.id], at[parent], arrowprops=arrow)
    for point in picture.points:
        if point.id not in at:
            continue
        colour, size, mark = ("#2f855a", 70, "o") if point.best else ("#dd6b20", 24, "o")
        if point.baseline:
            colour, size, mark = "#805ad5", 50, "D"
        axes.scatter(*at[point.id], s=size, c=colour, marker=mark, edgecolors="white", zorder=3)
        if point.label:
            words = {"color": colour, "fontsize": 9, "textcoords": "offset points", "zorder": 4}
            paper = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.85}
            offset = (12, -26) if point.best else (10, -4)
            axes.annotate(point.label, at[point.id], offset, bbox=paper, **words)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=_DOTS)
    return data.getvalue()


def _draw_roof(axes: Any, roof: Roof, x_low: float, x_high: float) -> None:
    turn = min(roof.ridges[-1], x_high) if roof.ridges else x_high
    axes.plot([x_low, turn, x_high], [roof.at(x_low), roof.at(turn), roof.at(x_high)], color="#2b6cb0", lw=2.2)
    names = [f"memory {quantity(roof.bandwidth_bytes_s, 'B/s')}"]
    for number, ((name, height), ridge) in enumerate(zip(roof.heights, roof.ridges, strict=True)):
        names.append(f"{name} {quantity(height, 'FLOP/s')}, ridge at {ridge:.3g}")
        if number < len(roof.heights) - 1:
            axes.plot([ridge, x_high], [height, height], color="#2b6cb0", lw=1.8, ls="--")
        axes.plot([ridge, ridge], [axes.get_ylim()[0], height], color="#2b6cb0", lw=0.8, ls=":")
    # The corner above the slope is always empty.
    axes.text(0.02, 0.97, "\n".join(names), transform=axes.transAxes, va="top", color="#2b6cb0", fontsize=9)


def _matplotlib() -> Any:
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError:
        raise ToolMissing(
            "PNG pictures need matplotlib: install warpsmith[report], or choose a name that ends in .svg."
        ) from None
