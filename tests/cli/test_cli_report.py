"""`warpsmith report`, as a user runs it, without a browser."""

from __future__ import annotations

import json
import webbrowser
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.benches import make_bench
from tests.report.synthetic import Maker, make_archive, problem
from typer.testing import CliRunner

from warpsmith.cli.main import app
from warpsmith.experiments.results import write_results
from warpsmith.hardware.device import select_device
from warpsmith.hardware.roofline import ceilings, known_peaks
from warpsmith.model.build import DeviceKind


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run under `runs` and the results of a bench."""
    root = tmp_path_factory.mktemp("desk")
    make_archive(root / "runs" / "softmax-1", 8, Maker(lines=4))
    write_results(make_bench(("cupilot",), repeats=1), root / "bench" / "results.json")
    return root


@pytest.fixture(autouse=True)
def at_the_desk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_a_run_is_written_beside_its_log(folder: Path) -> None:
    for name in ("runs/softmax-1", "softmax-1", "last"):
        done = CliRunner().invoke(app, ["report", name])
        assert (done.exit_code, done.stdout) == (0, "runs/softmax-1/report.html\n"), done.output
    assert "<title>softmax: " in (folder / "runs/softmax-1/report.html").read_text()


def test_a_bench_is_known_by_its_folder_and_by_its_results(folder: Path) -> None:
    for name, out in (("bench", "a.html"), ("bench/results.json", "b.html")):
        done = CliRunner().invoke(app, ["report", name, "--out", out, "--json"])
        assert done.exit_code == 0, done.output
        written = json.loads(done.stdout)
        assert written == {"report": out, "kind": "bench", "bytes": (folder / out).stat().st_size}
    assert (folder / "a.html").read_bytes() == (folder / "b.html").read_bytes()


def test_a_bench_links_to_the_reports_of_its_runs(folder: Path, tmp_path: Path) -> None:
    bench = make_bench(("cupilot",), repeats=1)
    inside, outside = (replace(bench.cells[0], run=run) for run in ("cells/a b:c/1", "../bench/cells/a b:c/1"))
    write_results(replace(bench, cells=(inside, outside)), tmp_path / "bench" / "results.json")
    make_archive(tmp_path / "bench" / inside.run, 2, Maker(lines=4))
    plain = CliRunner().invoke(app, ["report", str(tmp_path / "bench")])
    assert plain.exit_code == 0, plain.output
    page = tmp_path / "bench" / "report.html"
    assert '"report":"./' not in page.read_text()

    linked = CliRunner().invoke(app, ["report", str(tmp_path / "bench"), "--runs"])
    assert linked.exit_code == 0, linked.output
    assert (tmp_path / "bench" / inside.run / "report.html").is_file()
    assert page.read_text().count('"report":"./') == 1
    assert '"report":"./cells/a%20b%3Ac/1/report.html"' in page.read_text()
    refused = CliRunner().invoke(app, ["report", "last", "--runs"])
    assert refused.stderr == "error: --runs is for a bench, and last is a run; leave it out.\n"


def test_it_is_opened_where_that_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address))

    done = CliRunner().invoke(app, ["report", "last", "--out", "c.html", "--open"])

    assert done.exit_code == 0, done.output
    assert opened == [(folder / "c.html").as_uri()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "there is no folder nowhere"),
        (["report", "last", "--out", "bench/results.json/x.html"], "give another --out"),
        (["report", "runs/softmax-1/run.db"], "cannot be read as results of a bench"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "internal" not in done.stderr


@pytest.mark.parametrize(("slower", "known"), [(1.0, True), (2.0, False)])
def test_the_whole_roof_is_drawn_where_its_peaks_are_those_of_the_run(
    cache_folder: Path, tmp_path: Path, slower: float, known: bool
) -> None:
    here = select_device("cpu")
    peaks = known_peaks(cache_folder, here.key)
    assert peaks is not None
    roof = ceilings(problem(), peaks)
    assert roof.bandwidth_bytes_s is not None
    assert roof.best_flops_s is not None
    bound = problem().bounds[0]
    # Bound by arithmetic: from this floor alone nobody knows the bandwidth.
    flops = int(1000 * bound.bytes * roof.best_flops_s / roof.bandwidth_bytes_s)
    bound = replace(bound, flops=flops, floor_ms=slower * 1e3 * flops / roof.best_flops_s, zone="compute")
    judged_here = replace(problem(), device=here.label, kind=DeviceKind.CPU, bounds=(bound,))
    make_archive(tmp_path / "run", 6, Maker(lines=4), judged_here)

    done = CliRunner().invoke(app, ["report", str(tmp_path / "run")])

    assert done.exit_code == 0, done.output
    text = (tmp_path / "run" / "report.html").read_text()
    assert f'"slope_known":{str(known).lower()}' in text
