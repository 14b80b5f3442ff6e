"""The roofline picture: what is drawn, where, and that words do not lie on one another."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.searching import PROBLEM, answered, factor, judged, new_session, valid
from warpsmith.hardware.roofline import Ceilings
from warpsmith.methods.load import load
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.report import roofline_svg
from warpsmith.report.page import ASSETS
from warpsmith.report.roofline import (
    BASELINE,
    BEST,
    LEAST_INTENSITY,
    POINT,
    DrawnCandidate,
    Point,
    Roof,
    RooflinePicture,
    ancestors_of_best,
    axis_ranges,
    picture_of,
    point_positions,
    text_lines,
)
from warpsmith.report.roofline_svg import HEIGHT, WIDTH, svg
from warpsmith.report.run_history import read_history
from warpsmith.report.run_page import roofline_view

ROOF = Roof(4e12, 50e12, 400e12)
SVG = "{http://www.w3.org/2000/svg}"


def searched(count: int = 30, intensity: float = 1.2) -> RooflinePicture:
    """A run whose candidates get better; the last but one is the best."""
    points = [Point("eager", "PyTorch eager", intensity, 1.5e12, baseline=True)]
    for number in range(1, count + 1):
        best = number == count - 1
        parents = (f"c{number - 1}",) if number > 1 else ()
        rate = 3.8e12 if best else 3.6e12 * number / count
        label = "best: trial 29, 2.53x PyTorch" if best else ""
        points.append(Point(f"c{number}", label, intensity, rate, parents, number, best))
    return RooflinePicture("softmax <fp32> & more", "a GPU", ROOF, tuple(points))


def texts(document: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(document).iter(f"{SVG}text"))


def test_the_svg_holds_every_candidate_and_every_descent() -> None:
    root = ElementTree.fromstring(svg(searched()))  # well-formed, with the title escaped

    assert len(list(root.iter(f"{SVG}circle"))) == 30
    kinds = [each.get("class") for each in root.iter(f"{SVG}path")]
    assert kinds.count("arrow") + kinds.count("arrow line") == 29
    assert kinds.count("arrow line") == 28  # what leads to the best; the last step is not on its way
    assert kinds.count("baseline") == 1
    words = [each.text for each in texts(svg(searched()))]
    assert {"softmax <fp32> & more", "ridge 12.5", "ridge 100", "memory 4 TB/s", "PyTorch eager"} <= set(words)
    assert "plain arithmetic 50 TFLOP/s" in words
    assert "best: trial 29, 2.53x PyTorch" in words
    assert "prefers-color-scheme: dark" in svg(searched())


@pytest.mark.parametrize("intensity", [0.0, 0.25, 1.2, 12.5, 90.0, 700.0])
def test_words_lie_inside_and_not_on_one_another(intensity: float) -> None:
    boxes = []
    for each in texts(svg(searched(intensity=intensity))):
        if each.get("transform"):
            continue  # along the roof and the axis
        width, left, top = 6.2 * len(each.text or ""), float(each.get("x", 0)), float(each.get("y", 0))
        left -= {"end": width, "middle": width / 2}.get(each.get("text-anchor", ""), 0.0)
        boxes.append((left, top - 10, left + width, top + 2, each.text))

    assert all(left >= 0 and right <= WIDTH and top >= 0 and bottom <= HEIGHT for left, top, right, bottom, _ in boxes)
    clashes = [
        (one[4], other[4])
        for index, one in enumerate(boxes)
        for other in boxes[index + 1 :]
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]
    assert clashes == []


def test_every_picture_says_that_positions_along_the_axis_are_not_measured() -> None:
    picture = searched(intensity=11.0)
    said = "FLOP per byte (counted; candidates side by side by trial)"
    assert any(said in line for line in text_lines(picture))
    assert said in roofline_svg.svg(picture)
    assert said in (ASSETS / "roof.js").read_text(encoding="utf-8")


def test_spreading_points_keeps_their_distance_to_the_roof() -> None:
    for intensity in (0.25, 11.0, 90.0, 700.0):
        picture = searched(intensity=intensity)
        at = point_positions(picture)
        for point in picture.points:
            x, y = at[point.id]
            assert y / ROOF.at(x) == pytest.approx(point.y / ROOF.at(point.x))
        order = [at[f"c{number}"][0] for number in range(1, 31)]
        assert order == sorted(order)
        (x_low, x_high), (y_low, y_high) = axis_ranges(picture)
        assert all(x_low < x < x_high and y_low < y < y_high for x, y in at.values())
        assert x_low < 12.5 < 100 < x_high  # both ridges are in the picture


def test_a_roof_with_one_height_and_one_with_none() -> None:
    cpu = Roof(18e9, 95e9, 95e9)

    assert cpu.ridges == pytest.approx((95 / 18,))
    assert cpu.at(100.0) == 95e9
    assert Roof(18e9).ridges == ()
    point = (Point("c", "c", 0.5, 9e9, best=True),)
    for roof in (cpu, Roof(18e9)):
        picture = RooflinePicture("t", "a CPU", roof, point)
        assert "tensor" not in svg(picture)
        assert text_lines(picture)
    assert svg(RooflinePicture("nothing measured", "a CPU", cpu, ()))


def test_a_task_that_only_moves_data_is_drawn_too() -> None:
    point = Point("copy", "copy", 0.0, 2e12, best=True)

    assert point.x == LEAST_INTENSITY
    assert point.y / ROOF.at(point.x) == pytest.approx(0.5)


def test_the_terminal_picture_fits_and_says_what_its_signs_mean() -> None:
    for width in (60, 80, 100):
        rows = text_lines(searched(), width)
        assert max(map(len, rows)) <= max(width, 60)
    text = "\n".join(rows)
    plot = "\n".join(row for row in rows if "│" in row)
    assert plot.count(BEST) == 1
    assert plot.count(BASELINE) == 1
    assert plot.count(POINT) >= 10
    assert "A" in plot
    assert "B" in plot
    assert "ridge A at 12.5" in text
    assert "ridge B at 100" in text
    assert re.search(r"@ best: trial 29", text)


def test_descent_goes_back_to_the_first() -> None:
    loop = (Point("a", "", 1, 1, ("b",)), Point("b", "", 1, 1, ("a", "x"), best=True), Point("c", "", 1, 1, ("b",)))

    assert ancestors_of_best(loop) == {"a", "b", "x"}


def test_files(tmp_path: Path) -> None:
    roofline_svg.write(searched(), tmp_path / "new" / "a.svg")
    assert (tmp_path / "new" / "a.svg").read_text() == svg(searched())
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        roofline_svg.write(searched(), tmp_path / "a.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        roofline_svg.write(searched(), tmp_path / "file" / "a.svg")


def test_a_png_needs_matplotlib(tmp_path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(ToolMissing, match=r"warpsmith\[report\]"):
            roofline_svg.check(tmp_path / "a.png")
    else:
        roofline_svg.write(searched(), tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


# --- from what was measured ---


def test_a_run_is_drawn_with_its_descent(tmp_path: Path) -> None:
    method = load("evoengineer-full")
    with new_session(tmp_path / "run", method) as session:
        for number in (1, 5, 3, 8):
            answered(session, number)
            judged(session, lambda c: valid(c, factor(c) / 2, share=factor(c) / 10))
        best = session.state.best
    view = roofline_view(read_history(tmp_path / "run"), None)

    assert view is not None
    points = {point.trial: point for point in view.points}
    assert points.keys() == {0, 1, 2, 3, 4}  # four candidates and PyTorch
    assert all(set(point.parents) <= points.keys() for point in view.points)
    assert any(point.parents for point in view.points)
    # The bandwidth follows from the floor: 8192 bytes in a microsecond.
    assert view.bandwidth_bytes_s == pytest.approx(8.192e9)
    roof = min([points[best].x * view.bandwidth_bytes_s, *(height for _, height in view.heights[-1:])])
    assert points[best].y / roof == pytest.approx(0.8)


def test_without_a_bandwidth_there_is_no_picture() -> None:
    from warpsmith.model.candidate import Candidate, SourceFile

    candidate = Candidate((SourceFile("k.cpp", "x"),), "cpu")
    shown = [DrawnCandidate("k", "k", valid(candidate, 2.0), best=True)]

    assert picture_of(PROBLEM, Ceilings(None, 1e9, 1e9), shown) is None
    assert picture_of(PROBLEM, Ceilings(8e9, None, None), shown) is not None
