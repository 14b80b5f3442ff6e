"""The roofline picture in characters, for a terminal and for a log file: nothing is said by colour alone."""

from __future__ import annotations

from warpsmith.report.roofline import RooflinePicture, Scale, places, ranges, short

POINT, BEST, BASELINE = "o", "@", "+"
_LEFT = 12  # columns of the axis


def lines(picture: RooflinePicture, width: int = 78, height: int = 18) -> list[str]:
    """The picture, a line each, and under it what its signs mean."""
    columns = max(width - _LEFT - 1, 24)
    (x_low, x_high), (y_low, y_high) = ranges(picture)
    x, y = Scale(x_low, x_high, 0, columns - 1), Scale(y_low, y_high, height - 1, 0)
    grid = [[" "] * columns for _ in range(height)]
    _draw_roof(picture, grid, x, y)
    at = places(picture)
    for point in sorted(picture.points, key=lambda each: (each.best, each.baseline)):
        if point.id in at:
            sign = BEST if point.best else BASELINE if point.baseline else POINT
            _put(grid, x(at[point.id][0]), y(at[point.id][1]), sign)
    heights = {round(y(value)): short(value, "FLOP/s") for value in y.decades}
    rows = [f"{heights.get(number, ''):>{_LEFT - 1}} │{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    rows.append(f"{'':>{_LEFT - 1}} └{'─' * columns}")
    rows.append(_ticks(x, columns))
    rows.append(f"{'':>{_LEFT}}{'FLOP per byte':^{columns}}".rstrip())
    return [*rows, "", *_legend(picture)]


def _put(grid: list[list[str]], column: float, row: float, sign: str) -> None:
    if 0 <= round(row) < len(grid) and 0 <= round(column) < len(grid[0]):
        grid[round(row)][round(column)] = sign


def _draw_roof(picture: RooflinePicture, grid: list[list[str]], x: Scale, y: Scale) -> None:
    roof = picture.roof
    columns = len(grid[0])
    step = (x.high / x.low) ** (1 / (4 * (columns - 1)))  # finer than a column, so that the slope has no gaps
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
    said = [f"/ memory {short(roof.bandwidth_bytes_s, 'B/s')}"]
    for number, ((name, height), ridge) in enumerate(zip(roof.heights, roof.ridges, strict=True)):
        sign = "=" if number == len(roof.heights) - 1 else "-"
        said.append(f"{sign} {name} {short(height, 'FLOP/s')}, ridge {'AB'[number > 0]} at {ridge:.3g}")
    if best is not None:
        said.append(f"{BEST} {best.label or best.id}")
    if baseline is not None:
        said.append(f"{BASELINE} {baseline.label or 'PyTorch'}")
    if any(not (each.best or each.baseline) for each in picture.points):
        said.append(f"{POINT} candidates, in the order of trials")
    return said
