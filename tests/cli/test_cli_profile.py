"""`profile` and `pool` by their modules: a real evaluation and a compiler's report, and runs without a judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.searching import PROBLEM, answered, factor, invalid, judged, new_session, valid
from tests.strategies.problems import make_problem
from typer.testing import CliRunner

from warpsmith.backends.source import backend_named
from warpsmith.cli import profile as profile_command
from warpsmith.cli.main import app
from warpsmith.cli.pool import PoolAction, pool, show_matches
from warpsmith.hardware.device import select_device
from warpsmith.methods.load import load
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import RunError, TaskError, UsageError
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Status, WorkloadResult
from warpsmith.model.settings import Paths
from warpsmith.profiling.digest import Bottleneck
from warpsmith.strategies.pool import pool_records

SLOW = """\
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {
  for (int64_t r = 0; r < rows; ++r) {
    float top = -INFINITY, sum = 0.0f;
    for (int64_t c = 0; c < cols; ++c) top = std::max(top, x[r * cols + c]);
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(x[r * cols + c] - top);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = std::exp(x[r * cols + c] - top) / sum;
  }
  return 0;
}
"""

ADD, LIST, REMOVE = PoolAction.ADD, PoolAction.LIST, PoolAction.REMOVE


def judgement() -> Evaluation:
    environment = Environment("a CPU", "cpu", "g++", "2", threads=8)
    baseline = Baseline("eager", 0.02, 0.5, Interval(0.4, 0.6), 10)
    axes = (("rows", 1024), ("cols", 1024))
    result = WorkloadResult("1024x1024", axes, 0.04, "single", (baseline,), 0.0, 1.0, 0.01, 8 << 20, 1 << 20, 2, "fp64")
    return Evaluation("softmax", "0", Status.OK, "", environment, "fp32", (result,))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pool of a test is."""
    path = tmp_path / "pool.jsonl"
    monkeypatch.setenv("WARPSMITH_POOL", str(path))
    return path


class CannedEvaluator:
    """Has judged already: starting a judge is tested elsewhere, and takes seconds."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> CannedEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def survey(self, *_: object) -> Problem:
        made = make_problem(backend="cpu")
        return replace(made, contract=backend_named("cpu").contract(made.task))

    def evaluate_one(self, task: str, candidate: Candidate, *_: object, fresh: bool) -> Evaluation:
        if "wrong" in candidate.main.text:
            return replace(judgement(), status=Status.WRONG, reason="out[3] is 7, not 8.", workloads=())
        return judgement()


def test_profile_judges_digests_and_draws(
    tmp_path: Path,
    task_file: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profile_command, "Evaluator", CannedEvaluator)
    (tmp_path / "slow.cpp").write_text(SLOW)
    (tmp_path / "wrong.cpp").write_text(f"// wrong\n{SLOW}")
    task, picture = str(task_file("softmax")), tmp_path / "p.svg"

    assert profile_command.profile(task, str(tmp_path / "slow.cpp"), out=str(picture), json=True) == 0
    document = json.loads(capsys.readouterr().out)

    assert (document["status"], document["bottleneck"]) == ("ok", "one thread only")
    assert document["digest"].startswith("Bottleneck: one thread only.")
    assert document["strategies"][0] == "parallel-rows"
    assert len(document["ridges"]) == 2
    (workload,) = document["workloads"]
    assert (workload["zone"], workload["share_of_floor"]) == ("memory", 0.25)
    assert "slow.cpp" in picture.read_text()

    wrong = str(tmp_path / "wrong.cpp")
    assert profile_command.profile(task, wrong, json=True) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["digest"], document["reason"]) == (None, "out[3] is 7, not 8.")
    assert profile_command.profile(task, wrong) == 1
    assert "out[3] is 7, not 8." in capsys.readouterr().out


def test_a_person_sees_the_same_digest_and_a_picture(
    tmp_path: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidate = Candidate((SourceFile("slow.cpp", SLOW),), "cpu")
    made = make_problem(backend="cpu")
    problem = replace(made, contract=backend_named("cpu").contract(made.task))
    device = select_device("cpu")
    found = profile_command.profile_candidate(
        "softmax.py", "slow.cpp", candidate, problem, judgement(), device, Paths(cache_folder)
    )

    assert found.profile.digest is not None
    assert found.profile.digest.bottleneck is Bottleneck.ONE_THREAD
    assert found.profile.digest.also[0].startswith("a loop that is not vectorised (the loop at slow.cpp:")
    profile_command.show("slow.cpp", found, device)
    shown = capsys.readouterr().out
    assert found.profile.digest.text in shown
    assert "1024x1024: memory-bound" in shown
    assert "25.0 % of roofline" in shown
    assert "ridge A at" in shown
    assert "@ slow.cpp" in shown


def test_profile_says_what_is_wrong_before_it_works(tmp_path: Path, task_file: Callable[[str], Path]) -> None:
    (tmp_path / "k.cpp").write_text(SLOW)
    with pytest.raises(TaskError, match="no task file"):
        profile_command.profile("none.py", str(tmp_path / "k.cpp"))
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        profile_command.profile(str(task_file("softmax")), str(tmp_path / "k.cpp"), out="a.gif")


def a_run(folder: Path, *numbers: int) -> str:
    with new_session(folder, load("evoengineer-full")) as session:
        for number in numbers:
            answered(session, number)
            judged(session, lambda c: valid(c, factor(c) / 2) if factor(c) else invalid(c))
    return str(folder)


def test_a_run_goes_into_the_pool_once(tmp_path: Path, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path / "run", 1, 5, 3, 8)

    assert pool(ADD, run, json=True) == 0
    added = json.loads(capsys.readouterr().out)["records"]
    assert (added[0]["strategy"], added[0]["speedup"], added[0]["run"]) == ("s8", {"eager": 4.0}, "run")
    assert all((each["measured"] and each["effect"] is None) or each["effect"] > 1 for each in added)
    assert pool(ADD, run, json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"records": []}
    assert len(pool_records(kept)) == len(added)
    best = pool_records(kept)[0]
    assert "8.0f * x[i]" in best.kernel[0].text
    assert "8.0f" not in best.start[0].text

    assert pool(LIST) == 0
    listed = capsys.readouterr().out
    assert "s8" in listed
    assert "double" in listed
    assert "(catalogue)" not in listed
    assert pool(LIST, catalogue=True) == 0
    assert "(catalogue)" in capsys.readouterr().out

    assert pool(REMOVE, added[0]["key"], json=True) == 0
    assert [each["key"] for each in json.loads(capsys.readouterr().out)["records"]] == [added[0]["key"]]
    assert pool(REMOVE, "run") == 0
    assert pool_records(kept) == ()
    with pytest.raises(UsageError, match="no record with the key or run 'run'"):
        pool(REMOVE, "run")


def test_a_search_finds_what_a_run_left(tmp_path: Path, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_matches(PROBLEM, 3, as_json=False) == 0
    assert "No record for cpu is measured; --backend cuda finds measured ones." in " ".join(
        capsys.readouterr().out.split()
    )
    pool(ADD, a_run(tmp_path / "run", 1, 8))
    capsys.readouterr()

    assert show_matches(PROBLEM, 3, as_json=False) == 0
    assert "No record" not in capsys.readouterr().out
    assert show_matches(PROBLEM, 3, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)["records"]

    assert len(found) == 3
    assert (found[0]["strategy"], found[0]["measured"]) == ("s8", True)
    assert {each["backend"] for each in found} == {"cpu"}
    assert [each["score"] for each in found] == sorted((each["score"] for each in found), reverse=True)


def test_mistakes_with_the_pool_are_said(tmp_path: Path, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunError, match="no valid kernel"):
        pool(ADD, a_run(tmp_path / "empty", 0))
    with pytest.raises(RunError):
        pool(ADD, str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="pool add needs a RUN"):
        pool(ADD)
    wrong = CliRunner().invoke(app, ["pool", "burn"])
    assert wrong.exit_code == 2
    assert "'burn' is not one of 'add', 'list', 'search', 'remove'" in wrong.stderr
    assert pool(LIST) == 0
    assert "is empty" in capsys.readouterr().out
