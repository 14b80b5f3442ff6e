"""`warpsmith report RUN|BENCH`: one HTML file that shows a run or a bench, with everything in it."""

from __future__ import annotations

import json as jsonlib
import sys
import webbrowser
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warpsmith.cli.app import app, reported
from warpsmith.cli.options import AsJson

if TYPE_CHECKING:
    from warpsmith.core.search import Problem
    from warpsmith.hardware.roofline import Peaks

NAME = "report.html"
_AGREE = 0.05  # how far peaks may be from a run's own floors and still be those it was judged by


@dataclass(frozen=True)
class ReportDocument:
    """`warpsmith report --json`; field names are a promise to programs."""

    report: str  # the file
    kind: str  # "run" or "bench"
    bytes: int


@app.command(short_help="Write a run or a bench as one HTML file.")
def report(
    what: Annotated[
        str, typer.Argument(metavar="RUN|BENCH", help="The folder of a run or a bench, results.json, or last.")
    ],
    out: Annotated[
        str, typer.Option(metavar="FILE", help="Where to write it.  [default: report.html in that folder]")
    ] = "",
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: AsJson = False,
) -> None:
    """Write one HTML file with charts, every candidate's code, verdict and prompt; it needs no network to be read."""
    with reported():
        document = _write(what, out)
        if json:
            sys.stdout.write(jsonlib.dumps(asdict(document), ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(f"{document.report}\n")
        if show:
            webbrowser.open(Path(document.report).resolve().as_uri())


def _write(what: str, out: str) -> ReportDocument:
    # Imported here: `--help` must not wait for pydantic and numpy.
    from warpsmith.report import page
    from warpsmith.run import opening

    bench = _bench(what)
    if bench is not None:
        from warpsmith.report.bench_page import bench_page
        from warpsmith.run.bench.folding import results_of

        path = Path(out) if out else (bench.parent if bench.is_file() else bench) / NAME
        return ReportDocument(str(path), "bench", page.write(bench_page(results_of(str(bench))), path))
    from warpsmith.report.run_page import run_page

    folder = opening.find(what)
    path = Path(out) if out else folder / NAME
    document, texts = run_page(folder, _peaks(opening.config_of(folder).problem))
    return ReportDocument(str(path), "run", page.write(document, path, texts))


def _bench(what: str) -> Path | None:
    """The bench that a user names, if it is one."""
    from warpsmith.run.bench.plan import BENCHES, PLAN
    from warpsmith.run.bench.results import RESULTS

    for path in (Path(what), Path(BENCHES) / what):
        if path.is_file() or (path / PLAN).is_file() or (path / RESULTS).is_file():
            return path
    return None


def _peaks(problem: Problem) -> Peaks | None:
    """The whole roof, where this is the machine the run was judged on and what was measured is still here."""
    from warpsmith.core.config import Paths
    from warpsmith.hardware.analysis import ceilings, known_peaks
    from warpsmith.hardware.device import gpus, select_device

    cache = Paths.from_environment().cache
    for spec in ("cpu",) if problem.kind == "cpu" else tuple(f"cuda:{gpu.index}" for gpu in gpus()):
        device = select_device(spec)
        if device.label != problem.device:
            continue
        peaks = known_peaks(cache, device.key)
        roof = ceilings(problem, peaks) if peaks else None
        if roof is None or not roof.bandwidth_bytes_s or not roof.best_flops_s:
            continue
        floors = [1e3 * max(b.bytes / roof.bandwidth_bytes_s, b.flops / roof.best_flops_s) for b in problem.bounds]
        pairs = zip(problem.bounds, floors, strict=True)
        if all(abs(floor - bound.floor_ms) <= _AGREE * bound.floor_ms for bound, floor in pairs):
            return peaks
    return None
