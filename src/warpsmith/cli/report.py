"""`warpsmith report RUN|BENCH`: write a run or a bench as one HTML file."""

from __future__ import annotations

import os
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import AsJson
from warpsmith.cli.terminal import write
from warpsmith.experiments.collect import results_of
from warpsmith.experiments.plan import BENCHES, PLAN
from warpsmith.experiments.results import RESULTS, BenchResults
from warpsmith.hardware.device import select_device, visible_gpus
from warpsmith.hardware.roofline import Peaks, ceilings, known_peaks
from warpsmith.model.brief import Problem
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.model.settings import Paths
from warpsmith.report import page
from warpsmith.report.bench_page import bench_page
from warpsmith.report.run_page import run_page
from warpsmith.run_log.log import LOG_FILE
from warpsmith.search import open_run
from warpsmith.search.session import consistent
from warpsmith.system.files import check_below

NAME = "report.html"
_TOLERANCE = 0.05  # how far the floors of these peaks may be from those in the run


@dataclass(frozen=True)
class ReportDocument:
    """`report --json`."""

    report: str  # the file
    kind: str  # "run" or "bench"
    bytes: int


def report(
    what: Annotated[
        str, typer.Argument(metavar="RUN|BENCH", help="The folder of a run or a bench, results.json, or last.")
    ],
    out: Annotated[
        str, typer.Option(metavar="FILE", help="Where to write it.  [default: report.html in that folder]")
    ] = "",
    runs: Annotated[
        bool, typer.Option("--runs", help="Of a bench: also write the reports of its runs, to which it links.")
    ] = False,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: AsJson = False,
) -> int:
    """Write one HTML file with charts, and every candidate's code, verdict and prompt; it is readable offline."""
    document = _write(what, out, runs)
    if json:
        print_document(document)
    else:
        write(f"{document.report}\n")
    if show:
        webbrowser.open(Path(document.report).resolve().as_uri())
    return 0


def _write(what: str, out: str, runs: bool) -> ReportDocument:
    bench = _bench(what)
    if bench is not None:
        folder = bench.parent if bench.is_file() else bench
        path, results = Path(out) if out else folder / NAME, results_of(str(bench))
        reports = _reports(folder, results, path, write_all=runs)
        return ReportDocument(str(path), "bench", page.write(bench_page(results, reports), path))
    if runs:
        raise UsageError(f"--runs is for a bench, and {what} is a run; leave it out.")
    folder = open_run.find(what)
    path = Path(out) if out else folder / NAME
    return ReportDocument(str(path), "run", write_run(folder, path))


def write_run(folder: Path, path: Path) -> int:
    with consistent(folder):
        document, texts = run_page(folder, peaks_of(open_run.config_of(folder).problem))
    return page.write(document, path, texts)


def _reports(folder: Path, results: BenchResults, path: Path, *, write_all: bool) -> dict[str, str]:
    """The addresses of the reports of a bench's runs, relative to the page at `path`, by the folder of the run."""
    found = {}
    for cell in results.cells:
        run = folder / cell.run
        if ".." in run.parts[len(folder.parts) :]:  # a folder of somebody else may name any place
            continue
        with suppress(OSError, ValueError, WarpsmithError):  # a run that cannot be read has no report
            check_below(folder, run / NAME)
            if write_all and (run / LOG_FILE).is_file():
                write_run(run, run / NAME)
            if (run / NAME).is_file():
                relative = os.path.relpath(run / NAME, path.parent)
                found[cell.run] = f"./{quote(relative)}"
    return found


def _bench(what: str) -> Path | None:
    """The folder or results of the bench that a user names; None if it is no bench."""
    for path in (Path(what), Path(BENCHES) / what):
        if path.is_file() or (path / PLAN).is_file() or (path / RESULTS).is_file():
            return path
    return None


def peaks_of(problem: Problem) -> Peaks | None:
    """The measured peaks of the run's device, if this machine has that device and its peaks are in the cache."""
    cache = Paths.from_environment().cache
    for spec in ("cpu",) if problem.kind == "cpu" else tuple(f"cuda:{gpu.index}" for gpu in visible_gpus()):
        device = select_device(spec)
        if device.label != problem.device:
            continue
        peaks = known_peaks(cache, device.key)
        roof = ceilings(problem, peaks) if peaks else None
        if roof is None or not roof.bandwidth_bytes_s or not roof.best_flops_s:
            continue
        floors = [1e3 * max(b.bytes / roof.bandwidth_bytes_s, b.flops / roof.best_flops_s) for b in problem.bounds]
        pairs = zip(problem.bounds, floors, strict=True)
        if all(abs(floor - bound.floor_ms) <= _TOLERANCE * bound.floor_ms for bound, floor in pairs):
            return peaks
    return None
