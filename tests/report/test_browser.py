"""The pages in a real Chromium: what a reader sees and does. One browser, two runs and a bench for all of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.report.benches import make_bench
from tests.report.browser import Browser
from tests.report.synthetic import NASTY, Maker, make_archive
from warpsmith.report import page as pages
from warpsmith.report.bench_page import bench_page
from warpsmith.report.document import NewBest
from warpsmith.report.run_page import run_page

DESK, PHONE = (1280, 900), (390, 800)
MOST_BYTES = 10_000_000
LARGE = 500


@dataclass(frozen=True)
class Files:
    """Pages on disk."""

    large: Path
    small: Path
    hostile: Path
    bench: Path


@pytest.fixture(scope="module")
def files(chromium: Browser, small_run: Path, hostile_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("pages")
    found = Files(*(folder / f"{name}.html" for name in ("large", "small", "hostile", "bench")))
    large_run = make_archive(folder / "run", LARGE, Maker(lines=40))
    for source, path in ((large_run, found.large), (small_run, found.small), (hostile_run, found.hostile)):
        page, texts = run_page(source)
        pages.write(page, path, texts)
    pages.write(bench_page(make_bench(("evoengineer-full", "cupilot", NASTY), repeats=1)), found.bench)
    return found


def look(
    browser: Browser, path: Path, screen: tuple[int, int] = DESK, fragment: str = "", scheme: str = "light"
) -> None:
    browser.size(*screen)
    browser.prefers(scheme)
    browser.open(path, fragment)


@pytest.mark.parametrize("name", ["small", "hostile", "bench"])
def test_a_page_is_drawn_without_a_complaint_or_a_request(chromium: Browser, files: Files, name: str) -> None:
    look(chromium, getattr(files, name))

    assert chromium.run("document.documentElement.dataset.drawn") == "yes"
    assert chromium.run("document.querySelectorAll('main figure .plot svg').length") >= 4
    assert chromium.seen.complaints == []
    assert chromium.seen.requests == []
    assert chromium.run("document.title") != "taken"
    assert not chromium.run("document.querySelector('main img, main script, dialog img') !== null")


@pytest.mark.parametrize("name", ["large", "hostile", "bench"])
def test_a_phone_scrolls_one_way_only(chromium: Browser, files: Files, name: str) -> None:
    look(chromium, getattr(files, name), PHONE)

    assert chromium.run("document.documentElement.scrollWidth") <= PHONE[0]
    outside = chromium.run(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg')"
        f" && e.getBoundingClientRect().right > {PHONE[0]} + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert outside == []


def test_five_hundred_candidates_are_one_small_file(chromium: Browser, files: Files) -> None:
    look(chromium, files.large)

    assert files.large.stat().st_size < MOST_BYTES
    assert chromium.run("document.querySelectorAll('#candidates tbody tr').length") == LARGE
    assert (chromium.seen.complaints, chromium.seen.requests) == ([], [])
    # Nothing of what is long has been unpacked for that.
    assert chromium.run("document.querySelectorAll('pre').length") == 0


def test_headings_are_in_order_and_charts_have_words(chromium: Browser, files: Files) -> None:
    for path in (files.small, files.bench):
        look(chromium, path)
        levels = chromium.run("[...document.querySelectorAll('h1, h2, h3')].map(e => Number(e.tagName[1]))")
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        unnamed = "[...document.querySelectorAll('main svg[role]')].filter(e => !e.getAttribute('aria-label')).length"
        assert chromium.run(unnamed) == 0
        assert chromium.run("[...document.querySelectorAll('figcaption')].every(e => e.textContent.length > 30)")
        assert chromium.run("[...document.querySelectorAll('table')].every(e => e.caption && e.tHead)")
        unlabelled = "[...document.querySelectorAll('input, select')].filter(e => !e.labels.length).length"
        assert chromium.run(unlabelled) == 0


HIDDEN_BY_NAME = """(() => {
  const labels = [...document.querySelectorAll("#curve .label")];
  const name = labels.find(e => e.textContent === "PyTorch eager").getBBox();
  return [...document.querySelectorAll("#curve .point")].filter(e => {
    const x = e.cx.baseVal.value, y = e.cy.baseVal.value;
    return x > name.x && x < name.x + name.width && y > name.y && y < name.y + name.height;
  }).length;
})()"""
ROOF_ABOVE_AXIS = """(() => {
  const floor = document.querySelector("#roofline .base").y1.baseVal.value;
  const ends = [...document.querySelectorAll("#roofline .roof")].map(e => e.getBBox().y + e.getBBox().height);
  return ends.length > 0 && ends.every(end => end < floor + 1);
})()"""


def test_nothing_is_drawn_over_a_point_below_an_axis_or_outside_a_phone(
    chromium: Browser, small_run: Path, tmp_path: Path
) -> None:
    page, texts = run_page(small_run)
    assert page.roofline is not None
    # The first kernel is about as fast as PyTorch, whose name stands there; the roof begins far below the axis.
    plan = "multiple-accumulators(count=4) + parallel-rows"
    first, *others = (replace(trial, status="ok", speedup=2.0, strategy=plan) for trial in page.trials)
    odd = replace(
        page,
        trials=(replace(first, speedup=1.04), *others),
        steps=(NewBest(1, 1.04), NewBest(2, 2.0)),
        best=2,
        roofline_speedup=None,
        roofline=replace(page.roofline, x=(page.roofline.x[0] / 1000, page.roofline.x[1])),
    )
    pages.write(odd, tmp_path / "odd.html", texts)
    look(chromium, tmp_path / "odd.html")
    assert chromium.run(HIDDEN_BY_NAME) == 0
    assert chromium.run(ROOF_ABOVE_AXIS)
    look(chromium, tmp_path / "odd.html", PHONE)
    chromium.run("document.querySelector('#candidates .scroll').style.contentVisibility = 'visible'")
    assert chromium.run("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#candidates .scroll'))")


def column(browser: Browser, table: str, name: str) -> list[str]:
    """The texts of a column, as they stand."""
    script = f"""(() => {{
      const table = document.querySelector({json.dumps(table)});
      const place = [...table.tHead.rows[0].cells].findIndex(e => e.textContent === {json.dumps(name)});
      return [...table.tBodies[0].rows].map(row => row.cells[place].textContent);
    }})()"""
    found: list[str] = browser.run(script)
    return found


def test_tables_are_sorted_by_any_column_with_the_keyboard(chromium: Browser, files: Files) -> None:
    look(chromium, files.small)
    button = "[...document.querySelectorAll('#candidates thead button')].find(e => e.textContent === 'Speedup')"
    chromium.run(f"{button}.focus()")

    chromium.press("Enter")
    falling = column(chromium, "#candidates table", "Speedup")
    sort = chromium.run(f"{button}.parentElement.getAttribute('aria-sort')")
    chromium.press("Enter")
    rising = column(chromium, "#candidates table", "Speedup")

    def measured(texts: list[str]) -> list[float]:
        return [float(text.rstrip("×")) for text in texts if text != "–"]

    assert sort == "descending"
    assert measured(falling) == sorted(measured(falling), reverse=True)
    assert measured(rising) == sorted(measured(rising))
    assert falling[-1] == rising[-1] == "–"  # what is not known stands last either way

    look(chromium, files.bench)
    under = chromium.run("[...document.querySelectorAll('#matrix text.task')].map(e => e.textContent)")
    assert len(under) == chromium.run("document.querySelectorAll('#tasks tbody tr').length")
    assert all(under)
    names = chromium.run("[...document.querySelectorAll('#tasks thead button')].map(e => e.textContent)")
    for name in names:
        before = column(chromium, "#tasks table", name)
        script = (
            f"[...document.querySelectorAll('#tasks thead button')].find(e => e.textContent === {json.dumps(name)})"
        )
        chromium.run(f"{script}.click()")
        chromium.run(f"{script}.click()")
        assert sorted(column(chromium, "#tasks table", name)) == sorted(before)


def test_candidates_are_found_by_words_and_verdict(chromium: Browser, files: Files) -> None:
    look(chromium, files.small)
    chromium.run("(() => { const s = document.querySelector('#candidates select'); s.value = 'valid';"
                 " s.dispatchEvent(new Event('change')); })()")  # fmt: skip

    verdicts = set(column(chromium, "#candidates table", "Verdict"))

    assert verdicts == {"✓ valid"}
    assert "of 30 trials" in chromium.run("document.querySelector('#candidates [role=status]').textContent")


def focused(browser: Browser, script: str) -> bool:
    return bool(browser.run(f"(e => {script})(document.activeElement)"))


def test_the_keyboard_alone_reaches_a_candidates_code_and_comes_back(chromium: Browser, files: Files) -> None:
    look(chromium, files.small)
    reached = False
    for _ in range(60):  # every stop on the way is one; the points of a chart are one together
        chromium.press("Tab")
        if focused(chromium, "Boolean(e.closest('#candidates')) && e.matches('tbody a')"):
            reached = True
            break
    assert reached
    ring = chromium.run("getComputedStyle(document.activeElement).outlineWidth")
    assert float(ring.removesuffix("px")) >= 2

    chromium.press("Enter")
    chromium.until("document.querySelector('dialog[open] pre.code')")
    first = chromium.run("document.querySelector('dialog pre.code').textContent")
    assert "launch(" in first
    chromium.run("document.querySelector('dialog [role=tab]').focus()")
    kinds = []
    for _ in range(3):
        chromium.press("ArrowRight")
        kinds.append(chromium.run("document.activeElement.textContent"))
        assert chromium.run("document.querySelector('[role=tabpanel]').textContent.length") > 20
    assert {"Prompt", "Reply"} <= set(kinds)
    chromium.press("Escape")
    assert not chromium.run("document.querySelector('dialog').open")
    assert focused(chromium, "e.matches('#candidates tbody a')")


def test_points_of_a_chart_are_one_stop_and_arrows_go_on(chromium: Browser, files: Files) -> None:
    look(chromium, files.small)

    assert chromium.run("document.querySelectorAll('#curve .mark[tabindex=\"0\"]').length") == 1
    chromium.run("document.querySelector('#curve .mark[tabindex=\"0\"]').focus()")
    chromium.press("ArrowRight")
    assert focused(chromium, "e.getAttribute('href') === '#trial-2'")
    assert chromium.run("!document.querySelector('.tip').hidden")
    chromium.press("Enter")
    chromium.until("document.querySelector('dialog[open]')")
    assert chromium.run("document.querySelector('#sheet-title').textContent").startswith("Trial 2")


def test_a_link_to_a_candidate_opens_it_with_its_difference(chromium: Browser, files: Files) -> None:
    look(chromium, files.small)
    page = json.loads(chromium.run("document.getElementById('page-data').textContent"))
    trial = next(t for t in page["trials"] if t["parents"] and t["files"] and t["speedup"])

    look(chromium, files.small, fragment=f"#trial-{trial['number']}")
    chromium.until("document.querySelector('dialog[open] [role=tab]')")
    chromium.run("[...document.querySelectorAll('[role=tab]')].find(e => e.textContent === 'Diff').click()")

    lines = chromium.run("[...document.querySelectorAll('.diff .line')].map(e => e.className)")
    assert any("added" in line for line in lines)
    assert any("removed" in line for line in lines)
    assert chromium.seen.complaints == []


def test_hostile_words_are_shown_as_words(chromium: Browser, files: Files) -> None:
    look(chromium, files.hostile)
    page = json.loads(chromium.run("document.getElementById('page-data').textContent"))
    trial = next(t for t in page["trials"] if t["files"])
    look(chromium, files.hostile, fragment=f"#trial-{trial['number']}")
    for name in ("Code", "Prompt", "Reply"):
        chromium.until("document.querySelector('dialog[open] [role=tab]')")
        chromium.run(f"[...document.querySelectorAll('[role=tab]')].find(e => e.textContent === '{name}').click()")
    shown = chromium.run("document.querySelector('[role=tabpanel]').textContent")

    assert NASTY.split("&lt;")[0] in shown
    assert chromium.run("document.title") != "taken"
    assert chromium.seen.requests == []
    assert chromium.seen.complaints == []


def back(browser: Browser) -> int:
    """How bright the page is, 0 to 255."""
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    return max(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


def test_light_and_dark_follow_the_reader_and_the_switch(chromium: Browser, files: Files) -> None:
    look(chromium, files.bench)
    assert back(chromium) > 200
    chromium.prefers("dark")
    assert back(chromium) < 60
    chromium.run("document.querySelector('#theme input[value=light]').click()")
    assert back(chromium) > 200
    look(chromium, files.bench)
    chromium.run("document.querySelector('#theme input[value=dark]').click()")
    assert back(chromium) < 60
    chromium.run("document.querySelector('#theme input[value=auto]').click()")
    assert back(chromium) > 200
