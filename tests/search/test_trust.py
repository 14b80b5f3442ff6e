"""Whose run it is: nothing is executed, sent or judged by other rules because a folder says so."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from tests.experiments.test_plan import planned
from tests.processes import KilledProcess
from tests.searching import PROBLEM, answered, judged, new_session, run_setup, source, valid
from warpsmith import api
from warpsmith.cli.main import app
from warpsmith.cli.resume import confirm_bench, confirm_task
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.experiments.plan import PLAN, BenchPlan, is_own, keep_plan, read_plan, write_plan
from warpsmith.methods.load import load
from warpsmith.model.brief import Problem
from warpsmith.model.errors import RunError, TaskError, UsageError
from warpsmith.model.settings import Settings
from warpsmith.proposers.choose import ProposerOptions
from warpsmith.run_log.events import Budget, RunCreated, RunOpened
from warpsmith.run_log.log import LOG_FILE, RunLog
from warpsmith.search import open_run
from warpsmith.search.open_run import config_of
from warpsmith.search.options import RunOptions
from warpsmith.search.trust import (
    TASK_FILE,
    UntrustedTask,
    allow_proposer,
    allow_task,
    proposer_of,
    settings_of,
    sign_run,
    task_of,
    task_to_execute,
)
from warpsmith.system.signatures import SIGNATURES

FULL = load("evoengineer-full")


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Become a user with a key of their own."""

    def become(name: str) -> None:
        monkeypatch.setenv("WARPSMITH_CONFIG", str(tmp_path / f"config-{name}"))

    become("me")
    return become


def made(folder: Path, *, own: bool, mark: str = "executed") -> RunCreated:
    """A run with a pending kernel, whose task file and command leave a mark when they are executed."""
    with new_session(folder, FULL) as session:
        answered(session, 1)
        judged(session, lambda candidate: valid(candidate, 2.0))
        answered(session, 2)
        setup = session.state.setup
    (folder / TASK_FILE).write_text(f"open({str(folder.parent / mark)!r}, 'w')\n")
    if own:
        sign_run(folder, setup)
    return setup


def changed(folder: Path, **changes: object) -> RunCreated:
    """The run after somebody changed its configuration in the log."""
    with closing(sqlite3.connect(folder / LOG_FILE)) as connection, connection:
        (body,) = connection.execute("SELECT body FROM events WHERE seq = 1").fetchone()
        document = json.loads(body)
        document["config"].update(changes)
        (stay,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'events_stay'").fetchone()
        connection.execute("DROP TRIGGER events_stay")
        connection.execute("UPDATE events SET body = ? WHERE seq = 1", (json.dumps(document),))
        connection.execute(stay)
    return config_of(folder)


# --- who proposes ---


@pytest.mark.parametrize("proposer", ["command:touch executed", "openai:gpt-5", "recorded:../other", "auto"])
def test_a_strangers_proposer_is_not_taken_from_the_log(
    proposer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    made(Path("run"), own=False)
    with RunLog.open(Path("run")) as log:
        log.append(RunOpened(proposer, Budget(trials=9)))
    result = CliRunner().invoke(app, ["optimize", "--resume", "run", "--trials", "9", "--trust"], prog_name="warpsmith")
    assert result.exit_code == 2, result.output
    assert "not given on this machine; name one with --proposer" in result.stderr
    with api.Run.open("run", trust=True) as run, pytest.raises(UsageError, match="--proposer"):
        run.optimize(progress=False)
    assert not Path("executed").exists()


def test_ones_own_proposer_is(tmp_path: Path, user: Callable[[str], None]) -> None:
    setup = made(tmp_path / "run", own=True)
    assert proposer_of(tmp_path / "run", setup, setup.config.proposer) == setup.config.proposer
    allow_proposer(tmp_path / "run", setup, "command:my-agent --print")
    assert proposer_of(tmp_path / "run", setup, "command:my-agent --print")
    with pytest.raises(UsageError):  # a log that somebody changed afterwards
        proposer_of(tmp_path / "run", setup, "command:my-agent --print; touch x")
    with pytest.raises(UsageError):  # the same words in a run with another task or method
        proposer_of(tmp_path / "run", changed(tmp_path / "run", seed=7), "command:my-agent --print")
    user("somebody else")
    with pytest.raises(UsageError):
        proposer_of(tmp_path / "run", setup, "command:my-agent --print")
    assert proposer_of(tmp_path / "run", setup, "template") == "template"  # starts nothing and sends nothing


# --- what is executed ---


class Surveyor:
    """Reads the task, and judges nothing."""

    def survey(self, *_: object) -> Problem:
        return PROBLEM


def begun(task: Path, folder: Path) -> RunCreated:
    setup = run_setup(FULL)
    config = replace(setup.config, task=str(task))
    with open_run.begin(config, FULL, cast(Evaluator, Surveyor()), folder=folder) as session:
        return session.state.setup


def test_a_run_on_a_task_that_is_not_calibrated_needs_an_option(tmp_path: Path) -> None:
    class Doubtful(Surveyor):
        def survey(self, *_: object) -> Problem:
            return replace(PROBLEM, uncalibrated="a kernel that writes 1 would pass double; choose other inputs.")

    (tmp_path / "double.py").write_text("")
    config = replace(run_setup(FULL).config, task=str(tmp_path / "double.py"))
    evaluator = cast(Evaluator, Doubtful())
    with pytest.raises(TaskError, match=r"would pass double; choose other inputs; or .* --accept-uncalibrated\.$"):
        open_run.begin(config, FULL, evaluator, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    accepted = replace(config, accept_uncalibrated=True)
    with open_run.begin(accepted, FULL, evaluator, folder=tmp_path / "run") as session:
        assert session.state.setup.config.accept_uncalibrated
    assert "accept-uncalibrated = true" in (tmp_path / "run" / "config.toml").read_text()


def test_a_run_has_the_modules_that_its_task_imports_and_signs_them(
    tmp_path: Path, user: Callable[[str], None]
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "scale.py").write_text("SCALE = 2\n")
    (tmp_path / "sizes.py").write_text("from parts.scale import SCALE\n")
    (tmp_path / "double.py").write_text("import sizes\n")
    folder = tmp_path / "run"
    setup = begun(tmp_path / "double.py", folder)
    assert (folder / "sizes.py").read_text() == "from parts.scale import SCALE\n"
    assert (folder / "parts" / "scale.py").read_text() == "SCALE = 2\n"
    assert task_to_execute(folder, setup) == str(tmp_path / "double.py")
    (tmp_path / "sizes.py").write_text("SCALE = 3\n")  # the run keeps what it began with
    assert task_to_execute(folder, setup) == str(folder / TASK_FILE)
    (folder / "parts" / "scale.py").write_text("SCALE = 4\n")
    with pytest.raises(UntrustedTask):
        task_to_execute(folder, setup)


def test_a_module_with_a_name_of_a_runs_own_files_is_refused(tmp_path: Path, user: Callable[[str], None]) -> None:
    (tmp_path / "best.py").write_text("")
    (tmp_path / "double.py").write_text("import best\n")
    with pytest.raises(TaskError, match=r"double\.py imports best\.py .* rename it"):
        begun(tmp_path / "double.py", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words", [("step", "run"), ("tell", "run", "kernel.cpp"), ("optimize", "--resume", "run", "--proposer", "template")]
)
def test_a_strangers_task_is_not_executed(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    made(Path("run"), own=False)
    Path("kernel.cpp").write_text(source(5))
    result = CliRunner().invoke(app, list(words), prog_name="warpsmith")
    assert result.exit_code == 2, result.output
    assert "executes its task.py with all your rights" in result.stderr
    assert "--trust" in result.stderr
    with api.Run.open("run", options=RunOptions(proposer="template")) as run:
        with pytest.raises(UntrustedTask):
            run.tell(run.ask(), source(6))
        with pytest.raises(UntrustedTask):
            run.optimize(progress=False)
    assert not Path("executed").exists()


def test_ones_own_task_is_until_somebody_changes_it(tmp_path: Path, user: Callable[[str], None]) -> None:
    folder = tmp_path / "run"
    setup = made(folder, own=True)
    assert task_to_execute(folder, setup) == str(folder / TASK_FILE)
    text = (folder / TASK_FILE).read_text()
    (folder / TASK_FILE).write_text(f"{text}# and more\n")
    with pytest.raises(UntrustedTask):
        task_to_execute(folder, setup)
    (folder / TASK_FILE).write_text(text)
    with pytest.raises(UntrustedTask):
        task_to_execute(folder, changed(folder, task="/etc/shadow::x"))
    other = changed(folder, task="double.py")
    assert task_to_execute(folder, other)  # as it was
    (folder / SIGNATURES).unlink()
    with pytest.raises(UntrustedTask):
        task_to_execute(folder, other)


def test_a_folder_travels_to_another_machine_and_back(tmp_path: Path, user: Callable[[str], None]) -> None:
    folder = tmp_path / "run"
    setup = made(folder, own=True)
    user("me elsewhere")
    with pytest.raises(RunError, match="--trust"):
        confirm_task(folder, setup)
    confirm_task(folder, setup, trust=True)
    assert task_to_execute(folder, setup)  # from now on
    user("me")
    assert task_to_execute(folder, setup)
    assert proposer_of(folder, setup, setup.config.proposer)


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_the_user_is_asked(
    answer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Callable[[str], None]
) -> None:
    setup = made(tmp_path / "run", own=False)
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("typer.confirm", confirm)
    if answer:
        confirm_task(tmp_path / "run", setup)
    else:
        with pytest.raises(UntrustedTask):
            confirm_task(tmp_path / "run", setup)
    (question,) = asked
    assert "executes its task.py with all your rights" in question


@pytest.mark.parametrize(("answer", "status"), [(b"n\n", 2), (b"\x04", 130)])
def test_the_question_is_asked_where_there_is_a_terminal(
    answer: bytes, status: int, tmp_path: Path, user: Callable[[str], None]
) -> None:
    made(tmp_path / "run", own=False)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "warpsmith", "step", str(tmp_path / "run")]
    with KilledProcess(command, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        os.write(ours, answer)
        assert process.wait(timeout=120) == status
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert "executes its task.py with all your rights. Execute? [y/N]" in shown.replace("\r\n", " ").replace("\n", " ")
    assert not (tmp_path / "executed").exists()


def test_the_path_in_a_log_is_no_way_to_another_file(tmp_path: Path, user: Callable[[str], None]) -> None:
    folder = tmp_path / "run"
    made(folder, own=False)
    (tmp_path / "secret.py").write_text("SECRET")
    setup = changed(folder, task=str(tmp_path / "secret.py"))
    assert task_of(folder, setup.config) == str(folder / TASK_FILE)
    (folder / TASK_FILE).unlink()
    with pytest.raises(RunError, match="put the task file back"):
        task_of(folder, setup.config)
    (folder / TASK_FILE).symlink_to(tmp_path / "secret.py")
    with pytest.raises(RunError, match="cannot be read"):
        task_of(folder, setup.config)


# --- the key ---


@pytest.mark.parametrize("spoil", ["readable", "short", "link", "folder"])
def test_a_key_that_others_know_confirms_nothing(spoil: str, tmp_path: Path, user: Callable[[str], None]) -> None:
    setup = made(tmp_path / "run", own=True)
    prepared = tmp_path / "config-prepared"
    prepared.mkdir()
    key = prepared / "key"
    if spoil == "link":
        key.symlink_to(tmp_path / "config-me" / "key")
    elif spoil == "folder":
        key.mkdir()
    else:
        key.write_bytes((tmp_path / "config-me" / "key").read_bytes()[: 7 if spoil == "short" else 32])
        key.chmod(0o644 if spoil == "readable" else 0o600)
    user("prepared")
    with pytest.raises(UntrustedTask):
        task_to_execute(tmp_path / "run", setup)
    allow_task(tmp_path / "run", setup)
    assert task_to_execute(tmp_path / "run", setup)  # in this process


def test_the_key_is_private(tmp_path: Path, user: Callable[[str], None]) -> None:
    made(tmp_path / "run", own=True)
    found = (tmp_path / "config-me" / "key").stat()
    assert (found.st_mode & 0o777, found.st_size, found.st_uid) == (0o600, 32, os.geteuid())


# --- how kernels are judged ---


def test_guards_are_never_left_out_because_a_log_says_so(tmp_path: Path, user: Callable[[str], None]) -> None:
    folder = tmp_path / "run"
    made(folder, own=False)
    careless = {"without": ["imports"], "error_factor": 1e9, "seeds": 0, "allow": ["torch"], "timing_budget_s": 0.5}
    setup = changed(folder, settings=careless)
    assert setup.config.settings.without == ("imports",)
    assert settings_of(folder, setup) == replace(Settings(), timing_budget_s=0.5)
    allow_task(folder, setup)  # allows the task, not other rules
    assert settings_of(folder, setup) == replace(Settings(), timing_budget_s=0.5)
    sign_run(folder, setup)  # this user's own run: these rules, and all guards
    assert settings_of(folder, setup) == replace(setup.config.settings, without=())


@pytest.mark.parametrize(("name", "value"), [("timing_budget_s", 1e9), ("baselines", ["eager", "nothing"])])
def test_settings_of_a_stranger_that_no_option_gives_are_refused(
    name: str, value: object, tmp_path: Path, user: Callable[[str], None]
) -> None:
    made(tmp_path / "run", own=False)
    setup = changed(tmp_path / "run", settings={name: value})
    with pytest.raises((RunError, UsageError)):
        settings_of(tmp_path / "run", setup)


# --- benches ---


@pytest.mark.parametrize(
    "foreign",
    [
        {"proposers": ("command:touch executed",)},
        {"proposers": ("template", "openai:gpt-5")},
        {"options": ProposerOptions(base_url="http://127.0.0.1:9/v1")},
        {"options": ProposerOptions(key_file="/home/somebody/.keys")},
        {"settings": replace(Settings(), without=("imports",))},
        {"settings": replace(Settings(), error_factor=1e6)},
    ],
    ids=["command", "model", "address", "key file", "guards", "limits"],
)
def test_a_strangers_plan_runs_and_sends_nothing(
    foreign: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    user("a stranger")
    write_plan(replace(planned(), **foreign), Path("bench"))  # type: ignore[arg-type]
    user("me")
    for words in (["bench", "resume", "bench"], ["bench", "resume", "bench", "--trust"]):
        result = CliRunner().invoke(app, words, prog_name="warpsmith")
        assert result.exit_code == 2, result.output
        assert "are not taken from there: give them again" in result.stderr
    assert not Path("executed").exists()


def test_a_plan_without_commands_needs_a_word_of_the_user(tmp_path: Path, user: Callable[[str], None]) -> None:
    user("a stranger")
    plan = planned()
    write_plan(plan, tmp_path)
    assert is_own(plan, tmp_path)
    user("me")
    with pytest.raises(UsageError, match=r"executes the task files .*relu.py with all your rights: .* --trust"):
        confirm_bench(tmp_path, read_plan(tmp_path))
    confirm_bench(tmp_path, read_plan(tmp_path), trust=True)


def test_a_plan_given_again_on_the_command_line_is_ones_own(tmp_path: Path, user: Callable[[str], None]) -> None:
    plan: BenchPlan = replace(planned(), proposers=("command:my-agent",))
    user("me elsewhere")
    write_plan(plan, tmp_path)
    user("me")
    assert not is_own(plan, tmp_path)
    assert keep_plan(replace(plan, created="later"), tmp_path) == plan
    confirm_bench(tmp_path, read_plan(tmp_path))
    changed_plan = (tmp_path / PLAN).read_text().replace("command:my-agent", "command:my-agent; touch x")
    (tmp_path / PLAN).write_text(changed_plan)
    with pytest.raises(UsageError, match="give them again"):
        confirm_bench(tmp_path, read_plan(tmp_path), trust=True)
