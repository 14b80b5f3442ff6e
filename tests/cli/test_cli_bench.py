"""`warpsmith bench` as a user runs it: real processes and compilers, the offline catalogue, kill -9 in the middle."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.test_cli_commands import RIGHT, WRONG, Desk, desk
from typer.testing import CliRunner

from warpsmith.cli.main import app
from warpsmith.experiments.collect import collect
from warpsmith.experiments.plan import BenchPlan, keep_plan, read_plan
from warpsmith.experiments.results import BenchResults, CellStatus
from warpsmith.experiments.runner import BenchRunner
from warpsmith.experiments.selection import select
from warpsmith.methods.load import load
from warpsmith.model.settings import Settings
from warpsmith.run_log.events import Budget
from warpsmith.run_log.log import RunLog

__all__ = ["desk"]  # the fixture: a folder with a cache of its own

METHODS = ("evoengineer-free", "evoengineer-insight", "evoengineer-full")
BODIES = {"twice": "x * 2", "plus_one": "x + 1", "minus": "-x", "squared": "x * x"}
TASK = """
import torch
from warpsmith import normal, task
from warpsmith.tasks.listing import listed

@listed(family="activation")
@task(x=normal("rows, cols"), workloads=[{{"rows": 8, "cols": 64}}])
def {name}(x: torch.Tensor) -> torch.Tensor:
    return {body}
"""
QUICK = Settings(seeds=1, min_samples=3, max_samples=4, target_width=1.0, timing_budget_s=0.0)
TWICE = RIGHT.replace("rows * cols; ++i", "rows * cols; i += 1")


@pytest.fixture(scope="module")
def shop(desk: Desk) -> Desk:
    """The desk with a suite of four tiny tasks."""
    folder = desk.folder / "tasks"
    folder.mkdir()
    for name, body in BODIES.items():
        (folder / f"{name}.py").write_text(TASK.format(name=name, body=body))
    return desk


@pytest.fixture(scope="module")
def bench(shop: Desk) -> BenchResults:
    """Three methods on four tasks, killed in the middle and gone on with."""
    out = shop.folder / "out"
    keep_plan(plan(shop.folder / "tasks"), out)
    with shop.start("bench", "resume", "out") as process:
        wait_for(lambda: len(list(out.glob("cells/*/*/best.*"))) >= 4 and len(begun(out)) >= 5, process.poll)
    before = collect(out)
    finished = [cell for cell in before.cells if cell.status is CellStatus.DONE]
    assert 3 <= len(finished) < 12, [cell.status for cell in before.cells]
    logs = {cell.run: events(out / cell.run) for cell in finished}

    resumed = shop.run("bench", "resume", "out")

    assert resumed.status == 0, resumed.err
    assert f"Continuing: {len(finished)} of 12 cells" in resumed.err
    # What was finished is as it was; the cell that was under way went on in its own log.
    assert {run: events(out / run) for run in logs} == logs
    sittings = sorted(events(folder).count("RunOpened") for folder in begun(out))
    assert sittings[:10] == [1] * 10
    assert max(sittings) <= 2
    return collect(out)


def plan(tasks: Path) -> BenchPlan:
    """The catalogue with three methods, as `warpsmith bench tasks --no-tune --no-verify` would plan it, and quicker."""
    return BenchPlan(
        name="tasks",
        created="2026-01-02T03:04:05+00:00",
        version="1",
        tasks=select([str(tasks)]),
        methods=tuple(map(load, METHODS)),
        proposers=("template",),
        repeats=1,
        seed=0,
        budget=Budget(trials=2),
        settings=QUICK,
        device="cpu",
        backend="cpu",
        enough_share=None,
        tune=False,
        verify=False,
    )


def wait_for(ready: Callable[[], bool], ended: Callable[[], int | None]) -> None:
    deadline = time.monotonic() + 200
    while not ready():
        assert ended() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def begun(out: Path) -> list[Path]:
    return [path.parent for path in out.glob("cells/*/*/run.db")]


def events(folder: Path) -> list[str]:
    with RunLog.read(folder) as log:
        return [type(entry.event).__name__ for entry in log.entries()]


@pytest.mark.slow
@pytest.mark.slow
def test_a_bench_that_was_killed_gives_the_full_table(shop: Desk, bench: BenchResults) -> None:
    assert {cell.status for cell in bench.cells} == {CellStatus.DONE}
    assert {(cell.task, cell.method) for cell in bench.cells} == {(t, m) for t in BODIES for m in METHODS}
    assert {cell.trials for cell in bench.cells} == {2}
    assert all(cell.valid >= 1 and cell.best is not None and cell.curve for cell in bench.cells)
    shown = shop.run("bench", "show", "out", "--unverified")
    assert shown.status == 0, shown.err
    assert "3 methods × 1 proposer × 4 tasks × 1 repeat, 2 trials each: 12 of 12 cells done" in shown.out
    assert all(name in shown.out for name in (*BODIES, *METHODS))
    assert "How fast" in shown.out
    assert "12 best kernels counted that were not verified" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.slow
def test_only_verified_winners_count_unless_told(
    shop: Desk, bench: BenchResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.folder)
    strict, loose = (json.loads(printed("show", "out", "--format", "json", *more)) for more in ((), ("--unverified",)))

    assert [each["winners"] for each in strict["summaries"]] == [0, 0, 0]
    assert len(strict["unverified"]) == 12
    assert [each["winners"] for each in loose["summaries"]] == [4, 4, 4]
    assert all(each["eager"]["geometric"]["value"] > 0 for each in loose["summaries"])
    assert len(loose["duels"]) == 3
    assert len(loose["bench"]["cells"]) == 12


@pytest.mark.slow
def test_tables_in_every_format(shop: Desk, bench: BenchResults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.folder)
    rows = list(csv.DictReader(io.StringIO(printed("show", "out", "--format", "csv"))))
    assert [row["status"] for row in rows] == ["done"] * 12
    assert all(float(row["eager low"]) <= float(row["eager"]) <= float(row["eager high"]) for row in rows)
    markdown = printed("show", "out", "--format", "markdown", "--part", "tasks", "--unverified")
    assert markdown.count("\n| ") == 2 + len(BODIES)
    assert r"\begin{tabular}" in printed("show", "out", "--format", "latex", "--part", "speed")
    compared = printed("compare", "out", "out/results.json", "--unverified")
    assert "B against A" in compared
    assert compared.count(" tie") >= 12


def printed(*words: str) -> str:
    result = CliRunner().invoke(app, ["bench", *words], prog_name="warpsmith")
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_the_same_command_goes_on_with_the_same_bench(
    shop: Desk, bench: BenchResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.folder)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["tasks", "--methods", "cupilot-no-roofline", "--proposers", "template", "--trials", "3", "--time", "60"]
    command = ["bench", *words, "--no-verify", "--devices", "cpu"]

    def begin_only(self: BenchRunner) -> BenchResults:
        return self.bench

    monkeypatch.setattr(BenchRunner, "run", begin_only)
    outcomes = [CliRunner().invoke(app, command, prog_name="warpsmith") for _ in range(2)]

    assert [outcome.exit_code for outcome in outcomes] == [1, 1], outcomes[0].output  # nothing of it is done
    (folder,) = (shop.folder / "benches").iterdir()  # one for both
    kept = read_plan(folder)
    assert [method.name for method in kept.methods] == ["cupilot-no-roofline"]
    assert (kept.budget.trials, kept.budget.seconds, kept.verify, kept.compile_baseline) == (3, 60.0, False, False)
    assert "4 cells in benches/tasks-" in outcomes[0].stderr
    other = CliRunner().invoke(app, [*command, "--seed", "1", "--out", str(folder)], prog_name="warpsmith")
    assert other.exit_code == 2
    assert "holds another bench, which differs in seed" in other.stderr


@pytest.mark.slow  # tests/experiments/test_published.py judges and verifies in one process
def test_others_kernels_are_judged_and_verified(shop: Desk) -> None:
    theirs = shop.folder / "theirs"
    theirs.mkdir()
    (theirs / "twice.cpp").write_text(TWICE)
    (theirs / "plus_one.cpp").write_text(WRONG)
    (theirs / "unknown.cpp").write_text(RIGHT)
    (shop.folder / "claims.csv").write_text("task,speedup\ntwice,100000\nplus_one,2\n")

    judged = shop.run("bench", "judge", "theirs", "--suite", "tasks", "--claims", "claims.csv", "--json")

    assert judged.status == 1, judged.err
    assert "unknown.cpp is named after no task" in judged.err
    found = {document["task"]: document for document in map(json.loads, judged.out.splitlines())}
    assert set(found) == {"twice", "plus_one"}
    assert found["twice"]["status"] == "ok"
    assert found["twice"]["verified"] or "remeasurement" in found["twice"]["why_not"]  # on a busy machine
    assert (found["twice"]["claim"], found["twice"]["holding"]) in ((100000, "too high"), (100000, "invalid"))
    assert (found["plus_one"]["status"], found["plus_one"]["holding"]) == ("wrong", "invalid")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-suite",), "is called 'no-such-suite'"),
        (("relu", "--methods", "no-such"), "unknown method 'no-such'"),
        (("relu", "--methods", "eoh,eoh"), "named twice"),
        (("relu", "--proposers", "no-such"), "unknown proposer"),
        (("relu", "--devices", "cpu,cpu"), "names a device twice"),
        (("relu", "--trials", "0"), "a budget of 0 trials leaves nothing to try"),
        (("relu", "--family", "pooling"), "no task chosen has the family 'pooling'"),
        (("relu", "--out", "full"), "holds something that is no bench"),
        (("resume", "full"), "holds no bench"),
        (("show", "absent"), "holds no bench"),
        (("show", "full/notes.json"), "cannot be read as results"),
        (("judge", "full", "--suite", "warpsmith-100"), "holds no kernel"),
        (("judge", "absent.cu", "--suite", "warpsmith-100"), "there is no file or folder absent.cu"),
        (
            ("judge", "full/relu.cpp", "--suite", "warpsmith-100", "--entries", "full/calls.csv"),
            "full/calls.csv:2: 'tanh.cpp' is none of the files to judge",
        ),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Path("full").mkdir()
    Path("full/notes.json").write_text("{}")
    if "--entries" in words:
        Path("full/relu.cpp").write_text(RIGHT)
        Path("full/calls.csv").write_text("file,entry\ntanh.cpp,f\n")

    device = () if words[0] in ("resume", "show", "judge") or "--devices" in words else ("--devices", "cpu")
    result = CliRunner().invoke(app, ["bench", *words, *device], prog_name="warpsmith")

    lines = [line for line in result.stderr.strip().splitlines() if not line.startswith("Proposer: ")]
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    assert os.listdir(tmp_path) == ["full"]
