"""`optimize --resume`: what a run takes anew, and what it was begun with and keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.test_cli_advice import finished
from tests.searching import judged, new_session, proposed, run_setup, valid
from typer.testing import CliRunner

from warpsmith import Run, RunOptions
from warpsmith.cli.main import app
from warpsmith.methods.load import ablated, load
from warpsmith.model.errors import UsageError
from warpsmith.run_log.events import Budget
from warpsmith.search.session import Session

FULL = load("evoengineer-full")


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("--seed 1234567", "--seed 0"),
        ("--repairs 7", "--repairs 1"),
        ("--baseline eager,compile", "--baseline eager"),
        ("--time-budget 0.25", "--time-budget 1"),
        ("--precision fp16", "--precision fp32"),
        ("--backend cuda", "--backend cpu"),
        ("--method eoh", "--method evoengineer-full"),
        ("--no-roofline", "--roofline"),
        ("--no-retrieval", "--retrieval"),
        ("--no-alignment", "--alignment"),
    ],
)
def test_an_option_that_a_run_cannot_change_is_refused(
    given: str, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished(Path("run")).__exit__(None, None, None)
    result = CliRunner().invoke(app, ["optimize", "--resume", "run", *given.split()], prog_name="warpsmith")
    why = f"run was begun with {own}; leave it out, or start a new run."
    assert result.stderr == f"error: {given} does not go with --resume: {why}\n"
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_limit_of_trials_below_those_done_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finished(Path("run"), trials=3).__exit__(None, None, None)
    result = CliRunner().invoke(app, ["optimize", "--resume", "run", "--trials", "2"], prog_name="warpsmith")
    said = "--trials 2 counts all trials of run, and 3 are done; give more than 3, as in --trials 6."
    assert (result.exit_code, result.stderr) == (2, f"error: {said}\n")
    with pytest.raises(UsageError, match=said):
        Run.open("run", options=RunOptions(trials=2))


def test_the_folder_of_a_new_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finished(Path("run")).__exit__(None, None, None)
    result = CliRunner().invoke(app, ["optimize", "--resume", "run", "--run", "other"], prog_name="warpsmith")
    assert result.stderr == "error: --run other names the folder of a new run; leave it out to continue run.\n"
    assert result.exit_code == 2


def test_a_part_taken_away_stays_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new_session(Path("run"), ablated(FULL, roofline=False, alignment=False)).__exit__(None, None, None)
    words = ["optimize", "--resume", "run", "--method", "evoengineer-full", "--no-roofline"]
    result = CliRunner().invoke(app, [*words, "--alignment"], prog_name="warpsmith")
    assert "--alignment does not go with --resume: run was begun with --no-alignment" in result.stderr


def test_limits_are_taken_and_what_the_run_has_anyway_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished(Path("run")).__exit__(None, None, None)  # its best kernel is at half the hardware limit
    Path("run/task.py").write_text("")
    own = "--seed 0 --repairs 1 --baseline eager --time-budget 1 --precision fp32 --backend cpu --run run --roofline"
    told = "--method evoengineer-full --proposer template --no-pool --no-profile --json"
    limits = "--trials 50 --time 9999 --tokens 9999 --device-time 999 --stop-at 0.4"
    words = f"optimize --resume run --trust {own} {told} {limits}".split()
    result = CliRunner().invoke(app, words, prog_name="warpsmith")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["stopped_because"] == "speed_of_light"
    with Session.read(Path("run")) as seen:
        assert seen.budget == Budget(trials=50, seconds=9999, tokens=9999, device_seconds=999)
        assert seen.state.setup.config.enough_share is None  # as it was begun: kept, and not what counts


def test_the_share_to_stop_at_holds_until_it_is_given_anew(tmp_path: Path) -> None:
    folder, start = tmp_path / "run", run_setup(FULL)
    with Session.create(folder, replace(start, config=replace(start.config, enough_share=0.9))) as session:
        proposed(session, 1)
        judged(session, lambda candidate: valid(candidate, 2.0, share=0.5))
        assert session.stop_reason is None
    for given, reason in ((None, None), (0.4, "speed_of_light"), (None, "speed_of_light"), (0.0, None), (None, None)):
        with Session.resume(folder, enough_share=given) as session:
            assert session.stop_reason == reason


def test_a_limit_of_cost_must_hold_for_whoever_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WARPSMITH_PRICES", raising=False)
    finished(Path("run"), budget=Budget(trials=2, usd=5.0)).__exit__(None, None, None)
    words = ["optimize", "--resume", "run", "--proposer", "openai:mine", "--base-url", "http://127.0.0.1:9/v1"]
    result = CliRunner().invoke(app, words, prog_name="warpsmith")
    assert result.stderr.startswith("error: --cost 5 cannot hold: the price of openai:mine is not known; give it with")
    assert result.exit_code == 2
    Path("prices.toml").write_text("[openai.mine]\ninput = 1\noutput = 1\n")
    Path("run/task.py").write_text("")
    result = CliRunner().invoke(app, [*words, "--trust", "--prices", "prices.toml", "--no-tune", "--no-pool"])
    assert "Stopped: all trials are spent." in result.stdout
    assert "Stopped" not in result.stderr
