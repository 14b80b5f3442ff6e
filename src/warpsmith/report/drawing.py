"""Writes a roofline picture to a file: SVG by ourselves, PNG through matplotlib where that is installed."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

from warpsmith.core.errors import ToolMissing, UsageError
from warpsmith.report.roofline import Roof, RooflinePicture, lineage, places, ranges, short
from warpsmith.report.roofsvg import HEIGHT, WIDTH, svg

SUFFIXES = (".svg", ".png")
_DOTS = 160  # per inch


def check(path: Path) -> None:
    """Raise where a picture cannot be written there, before anybody has waited for it."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is no picture that can be written; let its name end in .svg or .png.")
    if path.suffix.lower() == ".png":
        _matplotlib()


def write(picture: RooflinePicture, path: Path) -> None:
    """The picture as a file; its ending says which kind."""
    check(path)
    data = svg(picture).encode() if path.suffix.lower() == ".svg" else png(picture)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as refused:
        raise UsageError(f"{path} cannot be written ({refused.strerror}); give another --out.") from None


def png(picture: RooflinePicture) -> bytes:
    """The same picture by matplotlib, which draws without a display."""
    figures: Any = _matplotlib()
    figure = figures.Figure(figsize=(WIDTH / 100, HEIGHT / 100), layout="constrained")
    axes = figure.add_subplot()
    (x_low, x_high), (y_low, y_high) = ranges(picture)
    axes.set(xscale="log", yscale="log", xlim=(x_low, x_high), ylim=(y_low, y_high))
    axes.set_xlabel("arithmetic intensity (FLOP per byte)")
    axes.set_ylabel("FLOP per second")
    axes.set_title(f"{picture.title}\n{picture.device}", loc="left", fontsize=11)
    axes.grid(True, which="major", color="#e6e8eb")
    _draw_roof(axes, picture.roof, x_low, x_high)
    at, main = places(picture), lineage(picture.points)
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
    names = [f"memory {short(roof.bandwidth_bytes_s, 'B/s')}"]
    for number, ((name, height), ridge) in enumerate(zip(roof.heights, roof.ridges, strict=True)):
        names.append(f"{name} {short(height, 'FLOP/s')}, ridge at {ridge:.3g}")
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
            "PNG pictures need matplotlib: install warpsmith[report], or let the file's name end in .svg."
        ) from None
