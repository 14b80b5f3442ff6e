"""How large the report of a long run is, and how fast it opens in a real Chromium.

    python benchmarks/report_size.py --trials 500 --json benchmarks/report_size.json

The run goes through the real session with real prompts; its kernels are made up, as long as those of models. Prints the
time to write the report, its size, the time until it is drawn, and the time until the code of a candidate is shown.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.report import browser
from tests.report.browser import Browser
from tests.report.synthetic import Maker, make_run

from warpsmith.report import page
from warpsmith.report.run_page import run_page

_CODE_IS_THERE = "document.querySelector('dialog[open] pre.code')"


@dataclass(frozen=True)
class Measured:
    """One report."""

    trials: int
    lines: int  # of each kernel that are its own
    text_bytes: int  # of all code, prompts and replies
    report_bytes: int
    write_s: float  # reading the log, making the page, writing it
    open_s: float | None  # until it is drawn, median; None where there is no browser
    open_worst_s: float | None
    candidate_s: float | None  # from there until a candidate's code is shown


def measure(folder: Path, trials: int, lines: int, repeats: int) -> Measured:
    """Make a run and its report, and open it a few times."""
    run = make_run(folder / "run", trials, Maker(lines=lines))
    begun = time.perf_counter()
    document, texts = run_page(run)
    path = folder / "report.html"
    size = page.write(document, path, texts)
    write_s = time.perf_counter() - begun
    opened, candidates = open_times(path, repeats)
    return Measured(
        trials=len(document.trials),
        lines=lines,
        text_bytes=sum(map(len, texts)),
        report_bytes=size,
        write_s=write_s,
        open_s=statistics.median(opened) if opened else None,
        open_worst_s=max(opened) if opened else None,
        candidate_s=statistics.median(candidates) if candidates else None,
    )


def open_times(path: Path, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds until the page is drawn, and until a candidate of it is; empty without a browser."""
    chromium = browser.find()
    if chromium is None:
        return [], []
    opened, candidates = [], []
    with Browser(chromium) as started:
        started.size(1280, 900)
        for _ in range(repeats):
            opened.append(started.open(path))
            begun = time.perf_counter()
            started.run("void (location.hash = '#trial-2')")
            started.until(_CODE_IS_THERE)
            candidates.append(time.perf_counter() - begun)
    return opened, candidates


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--lines", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.trials, options.lines, options.repeats)
    print(f"{found.trials} trials, {found.text_bytes / 1e6:.1f} MB of code, prompts and replies")
    print(f"report: {found.report_bytes / 1e6:.2f} MB, written in {found.write_s:.2f} s")
    if found.open_s is None or found.candidate_s is None:
        print("no Chromium here: the time to open was not measured")
    else:
        print(f"drawn after {found.open_s:.2f} s (worst {found.open_worst_s:.2f} s)")
        print(f"a candidate's code shown {found.candidate_s:.2f} s later")
    if options.json:
        machine = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "cores": psutil.cpu_count(),
        }
        document = machine | asdict(found)
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
