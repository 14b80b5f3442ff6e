"""How fast the live page of a long run opens in a real Chromium, and how soon it shows what happens.

    python benchmarks/live_page.py --trials 500 --json benchmarks/live_page.json

A run of so many trials is open for work. The page is opened with a server that has not read the run yet, and again.
Then trials follow one by one: from the moment at which the log has a verdict until the page shows its row, and the
time of the server alone for the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.report import browser
from tests.server.live_runs import go_on, open_session

from warpsmith.server.live_page import LivePage, names_of, serving
from warpsmith.server.served_runs import ServedRuns


@dataclass(frozen=True)
class Measured:
    """One run of the benchmark."""

    trials: int
    open_first_s: float  # from the list of runs until the page is drawn; the server reads the log for it
    open_s: float  # the same with a server that knows the run, median
    open_worst_s: float
    update_s: float  # from a verdict in the log until the page shows it, median
    update_worst_s: float
    server_update_s: float  # of which reading the event and making the patch, median
    server_cpu_s: float  # of one processor: reading the log, making the list and the page at first
    browser_cpu_s: float  # of one processor: the page's own thread until it is drawn, median
    load: float  # average load of the machine during the benchmark, one minute


def measure(folder: Path, trials: int, repeats: int) -> Measured:
    """Make the run and watch it."""
    run, found = folder / "runs" / "long", browser.find()
    if found is None:
        raise SystemExit("no Chromium on this machine; install Debian's chromium package.")
    with open_session(run, trials + 3 * repeats) as session:
        go_on(session, trials)
        page = LivePage(ServedRuns([folder / "runs"]), hosts=names_of("127.0.0.1"))
        with serving(page, "127.0.0.1", 0) as port, sync_playwright() as driver:
            chromium = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
            reader = chromium.new_page(viewport={"width": 1280, "height": 900})
            address = f"http://127.0.0.1:{port}/dashboard/runs/runs/long"
            reader.goto(f"http://127.0.0.1:{port}/dashboard")  # a reader comes from the list of runs
            reader.wait_for_selector("#runs tbody tr")
            watch = reader.context.new_cdp_session(reader)
            watch.send("Performance.enable", {"timeDomain": "threadTicks"})
            opened, busy = [], []
            for _ in range(repeats):
                opened.append(_opened(reader, address))
                metrics = watch.send("Performance.getMetrics")["metrics"]
                busy.append(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))
                reader.wait_for_selector('html[data-connected="yes"][data-late="0"]')
                time.sleep(0.5)
            first, *others = opened
            updates = []
            for number in range(trials + 1, trials + 1 + repeats):
                go_on(session, number)
                updates.append(_until_shown(reader, number))
                time.sleep(1.0)
            chromium.close()
        begun = time.process_time()
        served, patches = ServedRuns([folder / "runs"]), []
        served.rows()
        watched = served.run("runs/long")
        watched.document()
        server_cpu_s = time.process_time() - begun
        for number in range(trials + 1 + repeats, trials + 1 + 2 * repeats):
            since = watched.update()
            go_on(session, number)
            begun = time.perf_counter()
            watched.update()
            watched.patch(since)
            patches.append(time.perf_counter() - begun)
    return Measured(
        trials,
        first,
        statistics.median(others),
        max(others),
        statistics.median(updates),
        max(updates),
        statistics.median(patches),
        server_cpu_s,
        statistics.median(busy),
        os.getloadavg()[0],
    )


def _opened(reader: Page, address: str) -> float:
    reader.goto("about:blank")
    begun = time.perf_counter()
    reader.goto(address, wait_until="commit")
    reader.wait_for_selector('html[data-drawn="yes"]')
    reader.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return time.perf_counter() - begun


def _until_shown(reader: Page, trial: int) -> float:
    """Seconds from now until the first chart has the point of a trial with its verdict."""
    point = f"document.querySelector(\"#curve .mark[href='#trial-{trial}']\")"
    begun = time.perf_counter()
    while not reader.evaluate(f"{point} !== null && !{point}.getAttribute('aria-label').includes('pending')"):
        time.sleep(0.01)
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.trials, options.repeats)
    print(f"{found.trials} trials: drawn after {found.open_first_s:.2f} s at first, then {found.open_s:.2f} s")
    print(f"a verdict is shown after {found.update_s:.2f} s (worst {found.update_worst_s:.2f} s)")
    if options.json:
        machine = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "cores": psutil.cpu_count(),
        }
        Path(options.json).write_text(json.dumps(machine | asdict(found), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
