"""Takes the pictures of docs/dashboard.md: the dashboard of a folder of runs, in a real Chromium.

    python benchmarks/dashboard_pictures.py RUNS RUN [--diff RUN]

RUNS is a folder with at least two runs, RUN the name of the one to open; it may be running. The difference is that of
the best kernel of --diff, or of RUN, to its parent. Desk and phone: docs/images/dashboard-*.png.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.report import browser

from warpsmith.server.live_page import LivePage, names_of, serving
from warpsmith.server.served_runs import ServedRuns

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
DESK, PHONE = ViewportSize(width=1200, height=1150), ViewportSize(width=390, height=844)


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("run")
    parser.add_argument("--diff", default="", help="the run whose best kernel is shown beside its parent")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light", help="of all but the list of runs")
    parser.add_argument("--out", type=Path, default=IMAGES)
    options = parser.parse_args()
    found = browser.find()
    if found is None:
        raise SystemExit("no Chromium on this machine; install Debian's chromium package.")
    page = LivePage(ServedRuns([options.runs]), hosts=names_of("127.0.0.1"))
    with serving(page, "127.0.0.1", 0) as port, sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        home = f"http://127.0.0.1:{port}/dashboard"
        run = f"{home}/runs/{options.runs.name}/{options.run}"
        reader = opened(chromium, "dark", DESK)
        reader.goto(home)
        reader.wait_for_selector("#runs tbody tr")
        reader.wait_for_timeout(2500)  # until all rows are there
        for box in reader.locator("#runs tbody input:enabled").all():
            box.check()
        picture(reader, options.out / "dashboard-list.png")
        reader = opened(chromium, options.scheme, DESK)
        reader.goto(run)
        reader.wait_for_selector('html[data-connected="yes"]')
        picture(reader, options.out / "dashboard-run.png")
        other = f"{home}/runs/{options.runs.name}/{options.diff or options.run}"
        reader.goto(other)
        reader.wait_for_selector("#candidates tr.chosen", state="attached")
        trial = reader.evaluate("Number(document.querySelector('#candidates tr.chosen th').textContent)")
        reader.goto(f"{other}#trial-{trial}")
        reader.get_by_role("tab", name="Diff").click()
        reader.evaluate("document.querySelector('[role=tablist]').scrollIntoView({block: 'center'})")
        picture(reader, options.out / "dashboard-diff.png")
        reader = opened(chromium, options.scheme, PHONE)
        reader.goto(run)
        reader.wait_for_selector('html[data-connected="yes"]')
        picture(reader, options.out / "dashboard-phone.png")
        chromium.close()


def opened(chromium: Browser, scheme: str, screen: ViewportSize) -> Page:
    """A page in light or dark."""
    return chromium.new_page(viewport=screen, color_scheme="dark" if scheme == "dark" else "light")


def picture(reader: Page, path: Path) -> None:
    """What fits the screen."""
    reader.wait_for_timeout(400)
    reader.screenshot(path=path)


if __name__ == "__main__":
    main()
