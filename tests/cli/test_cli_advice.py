"""What the commands of a search advise, and how it looks on a terminal: from runs that were judged by nobody."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console
from tests.searching import (
    PROBLEM,
    CannedProposer,
    ScriptedJudge,
    factor,
    invalid,
    judged,
    new_session,
    proposed,
    run_setup,
    source,
    valid,
)
from typer.testing import CliRunner

from warpsmith.backends.source import backend_named
from warpsmith.cli import ask_tell, cards, export, json_documents, optimize, tune
from warpsmith.cli.checks import exit_status, parse_libraries
from warpsmith.cli.contract import choose_backends
from warpsmith.cli.json_documents import RunDocument
from warpsmith.cli.live import LiveRun, best_line, spending, verdict_line, watching
from warpsmith.cli.main import app
from warpsmith.cli.runs import print_runs
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import select_device
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Problem, Reply, TrialOutcome, TrialRecord
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import ProposerRefused, RunError, UsageError
from warpsmith.model.evaluation import Evaluation, Interval, Status
from warpsmith.model.task import Workload
from warpsmith.proposers.choose import ProposerOptions, choose
from warpsmith.report.run_history import read_history
from warpsmith.report.run_page import remarks
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search import open_run
from warpsmith.search.active_run import write_best_somewhere
from warpsmith.search.loop import SearchLoop, SearchObserver, judge_pending
from warpsmith.search.open_run import evaluator_for
from warpsmith.search.session import Session
from warpsmith.search.trials import RunTotals
from warpsmith.search.tuning import MeasuredPoint, TuningResult, TuningRound

FULL = load("evoengineer-full")
RUN = RunDocument(
    run="runs/rms_norm-20261116-212933",
    date="2026-11-16T20:29:33+00:00",
    task="rms_norm",
    method="cupilot",
    proposer="template",
    device="cpu",
    trials=45,
    budget=45,
    valid=41,
    speedup={"eager": 12.5},
    cost_usd=0.0,
    tokens=0,
    pending=0,
    state="speed_of_light",
)


def paper(width: int, *, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    kind = "xterm" if terminal else "dumb"
    return Console(file=text, force_terminal=terminal, width=width, _environ={"TERM": kind}, color_system=None), text


def finished(folder: Path, trials: int = 2, budget: Budget | None = None) -> Session:
    """A run with a best kernel."""
    session = new_session(folder, FULL, budget=budget or Budget(trials=trials))
    proposed(session, *range(1, trials + 1))
    scores = {number: [1 + number / 10] for number in range(1, trials + 1)}
    judge_pending(session, ScriptedJudge(scores), lambda record, evaluation: None)
    assert session.state.best
    return session


# --- nobody to propose ---


class Surveyor:
    """Reads the task, and judges nothing."""

    def survey(self, *_: object) -> Problem:
        return PROBLEM


def test_a_task_that_no_template_fits_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    choice, config = choose("template", ProposerOptions()), run_setup(FULL).config
    new = open_run.NewRun(config, FULL, choice, select_device("cpu"), tmp_path / "run")
    with pytest.raises(ProposerRefused, match=r"no template fits double in cpu: .* or write .* `warpsmith ask TASK`\."):
        new.begin(cast(Evaluator, Surveyor()))
    assert list(tmp_path.iterdir()) == []


def test_the_log_gives_the_reason_that_the_terminal_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with finished(Path("run")) as session:
        session.end(StopReason.PROPOSER_REFUSED, "every plan was tried; end the run here.")
    history = read_history(Path("run"))
    assert "The run stopped after 2 trials: every plan was tried; end the run here." in [*remarks(history, None)]
    result = CliRunner().invoke(app, ["show", "run"], prog_name="warpsmith")
    assert "every plan was tried; end the run here\n" in result.stdout


def test_a_run_that_was_cut_short_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    show = ["show", "run"]
    with finished(Path("run")) as session:
        pass
    assert "Next: warpsmith optimize --resume run" in CliRunner().invoke(app, show, prog_name="warpsmith").stdout
    assert "can be resumed" in CliRunner().invoke(app, ["runs", "."], prog_name="warpsmith").stdout
    with Session.resume(Path("run"), "template", session.budget):  # as another process would
        running = CliRunner().invoke(app, show, prog_name="warpsmith").stdout
        listed = CliRunner().invoke(app, ["runs", ".", "--json"], prog_name="warpsmith").stdout
    assert "\nrunning\n" in running
    assert "resume" not in running
    assert json.loads(listed)["runs"][0]["state"] == "running"
    with Session.resume(Path("run"), "template", session.budget) as session:
        session.end(StopReason.INTERRUPTED)
    assert "it was interrupted\nNext: " in CliRunner().invoke(app, show, prog_name="warpsmith").stdout
    with Session.resume(Path("run"), "template", session.budget) as session:
        session.end(StopReason.TRIALS)
    assert "Next" not in CliRunner().invoke(app, show, prog_name="warpsmith").stdout


# --- one trial ---


def test_a_trial_without_a_name_is_shown_with_its_id_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with new_session(Path("run"), FULL) as session:
        brief = session.ask()
        assert brief is not None
        id = session.answer(brief, Reply(source(1), "me", file="kernel.cpp")).candidate
    head = CliRunner().invoke(app, ["show", "run", "1"], prog_name="warpsmith").stdout.splitlines()[0]
    assert head == f"trial 1: {id}"


def test_a_duplicate_has_a_reason_in_json(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, 1, 1)
        document = json_documents.trial_document(session, session.record(2))
        first = session.state.trials[1].candidate
    assert document["outcome"] == "duplicate"
    assert document["reason"] == f"the same kernel as {first}, so it was not judged again; hand in another one."


def test_a_reply_without_a_strategy_has_no_number_of_a_trial(tmp_path: Path) -> None:
    record = TrialRecord(0, 3, TrialOutcome.UNREADABLE, reason="the reply is empty")
    with new_session(tmp_path / "run", FULL) as session:
        line = verdict_line(record, None, session.state)
    assert line is not None
    assert line.plain == "     ✗ no strategy in the reply: the reply is empty"


def test_a_higher_speedup_that_is_not_the_best_says_why(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, 1, 2, 3)
        speeds = {1: (2.0, 1.8), 2: (3.1, 0.97), 3: (1.5, 1.4)}
        judged(session, lambda c: valid(c, speeds[factor(c)][0], Interval(speeds[factor(c)][1], 9.0)))
        lines = [verdict_line(session.record(n), session.evaluation(n), session.state) for n in (1, 2, 3)]
    said = [line.plain if line else "" for line in lines]
    assert said[0].startswith("   1 ★ 2.00x, at least 1.80x  best so far")
    assert said[1].startswith("   2 ✓ 3.10x, at least 0.970x: times varied")
    assert said[2].startswith("   3 ✓ 1.50x")
    assert "at least" not in said[2]


def test_a_best_with_a_lower_speedup_than_another_says_why(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        said: list[str] = []
        for speedup, low in ((2.61, 0.517), (1.3, 1.2)):
            proposed(session, trial := len(said) // 2 + 1)
            while jobs := session.pending():  # each is measured twice
                session.judge(jobs[0], valid(jobs[0].candidate, speedup, Interval(low, 9.0)))
                line = verdict_line(session.record(trial), session.evaluation(trial), session.state)
                said.append(line.plain if line else "")
    assert said[0].startswith("   1 · 2.61x, the best if")
    assert said[1].startswith("   1 ★ 2.61x  best so far")
    assert said[2].startswith("   2 · 1.30x, at least 1.20x, the best if")
    assert said[3].startswith("   2 ★ 1.30x, at least 1.20x  best so far")


@pytest.mark.parametrize(("tokens", "usd", "said"), [(12345, 0.0123, "tokens: 12 345, $0.012"), (0, 0.0, "")])
def test_tokens_and_money_are_told_apart(tokens: int, usd: float, said: str) -> None:
    assert spending(RunTotals(prompt_tokens=tokens, cost_usd=usd)) == said


@pytest.mark.parametrize("gpus", [(), ("a GPU",)])
def test_contracts_are_for_the_language_that_a_search_takes(
    gpus: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpsmith.engine.engine.visible_gpus", lambda: gpus)
    built = backend_named("cuda").available().build
    assert choose_backends(None) == (("cuda",) if gpus and built else ("cpu",))


# --- where the best kernel goes ---


def test_a_best_kernel_that_cannot_be_put_where_asked_stays_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with finished(tmp_path / "run") as session:
        best, bundle, fault = write_best_somewhere(session, str(tmp_path / "file" / "best.cpp"))
        assert best == tmp_path / "run" / "best.cpp"
        assert best.is_file()
        assert bundle == tmp_path / "run" / "best"
        assert "cannot be written" in fault
        assert write_best_somewhere(session, "")[2] == ""


# --- what is advised ---


def test_going_on_takes_more_than_was_done(tmp_path: Path) -> None:
    with finished(tmp_path / "run", 6) as session:
        session.end(StopReason.TRIALS)
    with Session.resume(tmp_path / "run", None, Budget(trials=3)) as session:
        assert optimize._more(session, StopReason.TRIALS).endswith(f"--resume {tmp_path / 'run'} --trials 12")
        assert optimize._more(session, StopReason.INTERRUPTED).endswith(f"--resume {tmp_path / 'run'}")


@pytest.mark.parametrize(("speedup", "first"), [(1.5, "verify"), (0.5, "optimize --resume")])
def test_a_kernel_that_is_slower_is_not_the_first_thing_to_verify(speedup: float, first: str, tmp_path: Path) -> None:
    console, text = paper(200, terminal=False)
    with new_session(tmp_path / "run", FULL) as session:
        (tmp_path / "run" / "task.py").write_text("")
        proposed(session, 1)
        judged(session, lambda candidate: valid(candidate, speedup))
        optimize._summary(console, session, Path("best.cpp"), StopReason.TRIALS, "", Path("best"))
    commands = re.findall(r"(Next|  or): warpsmith (verify|optimize --resume)", text.getvalue())
    assert [lead for lead, _ in commands] == ["Next", "  or"]
    assert commands[0][1] == first


def test_only_a_command_with_fresh_advises_it() -> None:
    found = replace(valid(Candidate((SourceFile("k.cpp", ""),), "cpu"), 2.0), cached=True)
    for fresh in (True, False):
        console, text = paper(80, terminal=False)
        console.print(cards.card(cards.JudgedFile("k.cpp", found, fresh=fresh)))
        assert "from the cache" in text.getvalue()
        assert ("--fresh" in text.getvalue()) is fresh


def test_two_shares_of_the_roofline_have_two_names(tmp_path: Path) -> None:
    two = replace(PROBLEM.task, workloads=(Workload("small", (("n", 64),)), Workload("large", (("n", 1024),))))
    start = run_setup(FULL)
    start = replace(start, problem=replace(start.problem, task=two))
    with Session.create(tmp_path / "run", start) as session:
        proposed(session, 1)

        def twofold(candidate: Candidate) -> Evaluation:
            (slow,), (fast,) = (valid(candidate, 2.0, share=share).workloads for share in (0.4, 0.9))
            return replace(valid(candidate, 2.0), workloads=(replace(slow, workload="small"), fast))

        judged(session, twofold)
        assert best_line(session.state).endswith("40.0 % of roofline in the worst workload)")
        evaluation = session.evaluation(1)
        assert evaluation is not None
        console, text = paper(80, terminal=False)
        cards.show(console, cards.card(cards.JudgedFile("k.cpp", evaluation)))
        assert re.search(r"of roofline +60\.0 % +\S+ \S+ at best, geometric mean", text.getvalue())
        assert json_documents.share_of_floor(evaluation) == pytest.approx(0.6)
    with finished(tmp_path / "one") as session:
        assert best_line(session.state).endswith("50.0 % of roofline)")


def test_a_run_of_the_cpu_does_not_blame_an_option_that_was_not_given(tmp_path: Path) -> None:
    with finished(tmp_path / "run") as session, pytest.raises(UsageError) as refused:
        evaluator_for(session.folder, session.state.setup, "cuda")
    assert str(refused.value) == "this run's kernels are cpu kernels, which do not run on cuda; leave out --device."


def test_a_folder_that_holds_a_run_is_gone_on_with_by_both_commands(tmp_path: Path) -> None:
    finished(tmp_path / "run").__exit__(None, None, None)
    with pytest.raises(RunError, match=r"`warpsmith ask .*run` or `warpsmith optimize --resume"):
        new_session(tmp_path / "run", FULL)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ask", "run", "--method", "eoh"], "run is a run already; --method is for starting one with a task"),
        (["ask", "run", "--device", "cpu"], "--device is for starting one"),
        (["ask", "run", "--stop-at", "0"], "--stop-at is for starting one"),
        (["ask", "run", "--trials", "9"], "--trials is for starting one"),
        (["ask", "task.py", "--run", "run"], "run holds a run already; `warpsmith ask run` continues it"),
        (["runs", "nosuch"], "there is no folder nosuch"),
        (["runs", "nosuch", "--json"], "there is no folder nosuch"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished(Path("run")).__exit__(None, None, None)
    Path("task.py").write_text("")
    result = CliRunner().invoke(app, words, prog_name="warpsmith")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_step_with_nothing_to_judge_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finished(Path("run")).__exit__(None, None, None)
    result = CliRunner().invoke(app, ["step", "run"])
    assert result.exit_code == 0
    assert "nothing is pending; best: 1.20x" in result.stderr
    assert "Get the next brief: warpsmith ask run\nHand in a kernel: warpsmith tell run FILE\n" in result.stderr


@pytest.mark.parametrize("reason", [StopReason.TRIALS, None])
def test_a_step_leaves_a_run_ended_or_open_as_it_was(
    reason: StopReason | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with finished(Path("run")) as session:
        if reason:
            session.end(reason, "all of them")
    assert CliRunner().invoke(app, ["step", "run"]).exit_code == 0
    with Session.read(Path("run")) as seen:
        closed = seen.state.closed
    assert (closed and (closed.reason, closed.detail)) == ((reason, "all of them") if reason else None)


def test_a_folder_without_runs_is_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["runs"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there are no runs in runs yet" in result.stderr


def test_a_library_is_one_that_is_known_or_that_the_linker_finds() -> None:
    assert parse_libraries("torch, cublas,torch,mkl_rt") == ("torch", "cublas", "mkl_rt")
    assert parse_libraries("m") == ("m",)
    with pytest.raises(UsageError, match=r"--allow nosuchthing: the linker finds no library .* known: torch, cublas"):
        parse_libraries("nosuchthing")


@pytest.mark.parametrize(("first_wins", "said"), [(True, "No point is faster"), (False, "1.50x the speed of the file")])
def test_tuning_says_when_nothing_is_better(first_wins: bool, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = Candidate((SourceFile("k.cpp", "// tune: STEP = 1, 2\n"),), "cpu", defines=(("STEP", "1"),))
    before = valid(kernel, 2.0)
    after = before if first_wins else valid(kernel, 3.0)
    tune._show(TuningResult(kernel, after, before, (), 2, 0, 2), "", "warpsmith tune task.py k.cpp --out tuned.cpp")
    shown = capsys.readouterr().out
    assert said in shown
    assert ("--out tuned.cpp" in shown) is not first_wins
    assert "noise" not in shown


class Impatient(SearchObserver):
    """Interrupts once so many are asked, and lets them answer when it hears that they are waited for."""

    def __init__(self, count: int) -> None:
        self.left, self.said, self.heard = count, "", threading.Event()
        self.interrupt: Callable[[], None] = lambda: None

    def asked(self, brief: Brief) -> None:
        self.left -= 1
        if not self.left:
            self.interrupt()

    def message(self, text: str) -> None:
        self.said += text
        self.heard.set()


@pytest.mark.parametrize(
    ("count", "said"), [(1, "waiting for 1 reply in progress"), (2, "waiting for 2 replies in progress")]
)
def test_replies_are_counted_in_words(tmp_path: Path, count: int, said: str) -> None:
    watcher = Impatient(count)

    def late(brief: Brief) -> str:
        assert watcher.heard.wait(60)
        return ""

    with new_session(tmp_path / "run", FULL) as session:
        proposer = CannedProposer(late, concurrency=count)
        loop = SearchLoop(session, proposer, ScriptedJudge({}), watcher, parallel=count)
        watcher.interrupt = loop.interrupt
        assert loop.run() == "interrupted"
    assert said in watcher.said


def test_one_verdict_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(open_run, "evaluator_for", lambda *_: nullcontext())
    monkeypatch.setattr(open_run, "task_evaluator", lambda *_: ScriptedJudge({1: [Status.WRONG]}))
    monkeypatch.setattr(ask_tell, "_profile", lambda *_: None)
    with new_session(Path("run"), FULL) as session:
        proposed(session, 1)
    Path("run/task.py").write_text("")
    result = CliRunner().invoke(app, ["step", "run", "--trust"])
    assert "1 verdict reached; best: none yet" in result.stderr, result.output


@pytest.mark.parametrize(("verdict", "status"), [(2.0, 0), (Status.WRONG, 1), (Status.NOT_JUDGED, 2)])
def test_what_could_not_be_judged_is_not_called_invalid(
    verdict: float | Status, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(open_run, "evaluator_for", lambda *_: nullcontext())
    monkeypatch.setattr(open_run, "task_evaluator", lambda *_: ScriptedJudge({1: [verdict]}))
    monkeypatch.setattr(ask_tell, "_profile", lambda *_: None)
    new_session(Path("run"), FULL).__exit__(None, None, None)
    Path("run/task.py").write_text("")
    Path("kernel.cpp").write_text(source(1))
    told = CliRunner().invoke(app, ["tell", "run", "kernel.cpp", "--trust"])
    assert told.exit_code == status == exit_status([verdict if isinstance(verdict, Status) else Status.OK]), told.output
    place = ("rank 1 of 1 valid kernel; best: 2.00x PyTorch (trial 1", "wrong; best: none", "not judged; best: none")
    assert f"Trial 1 of 20: {place[status]}" in told.output
    assert "Next: warpsmith " in told.output
    (listed,) = json.loads(CliRunner().invoke(app, ["runs", ".", "--json"]).stdout)["runs"]
    assert datetime.fromisoformat(listed["date"]).year >= 2026
    assert listed["speedup"] == ({"eager": 2.0} if status == 0 else {})


def test_tell_prints_the_rank_and_the_next_step_for_programs_too(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, 1, 2, 3)
        judge_pending(session, ScriptedJudge({1: [1.5], 2: [1.2], 3: [Status.WRONG]}), lambda *_: None)
        second, wrong = (json_documents.trial_document(session, session.record(trial)) for trial in (2, 3))
        assert (second["rank"], second["valid"], second["speedup"]) == (2, 2, {"eager": 1.2})
        assert (wrong["rank"], wrong["speedup"]) == (None, {})
        assert second["next"] == f"warpsmith ask {session.folder}"


def test_exporting_and_tuning_call_it_by_the_same_status() -> None:
    kernel = Candidate((SourceFile("k.cpp", "// tune: STEP = 1, 2\n"),), "cpu")
    for verdict, status in ((Status.WRONG, 1), (Status.NOT_JUDGED, 2)):
        assert export._refuse(export.ExportRequest("k.cpp"), invalid(kernel, verdict), "why") == status
        point = MeasuredPoint(TuningRound.SCREEN, kernel, invalid(kernel, verdict), 1)
        assert tune.status_of(TuningResult(None, None, None, (point,), 1, 1, 2)) == status


# --- on a terminal ---


def test_sentences_are_broken_between_words_on_a_terminal_only() -> None:
    sentence = "Proposer: the offline catalogue of strategies and so forth"
    for terminal, lines in ((True, 3), (False, 1)):
        console, text = paper(24, terminal=terminal)
        cards.say(console, sentence)
        assert len(text.getvalue().splitlines()) == lines
        assert text.getvalue().split() == sentence.split()
        cards.say(console, f"{sentence}.", whole=True)  # one line to be copied
        assert f"{sentence}.\n" in text.getvalue()


@pytest.mark.parametrize(("width", "terminal", "gone"), [(80, False, 0), (80, True, 4), (200, True, 0), (20, True, 5)])
def test_names_of_runs_stay_whole(width: int, terminal: bool, gone: int) -> None:
    console, text = paper(width, terminal=terminal)
    print_runs(console, [RUN, replace(RUN, run="runs/rms_norm-20261116-212934-2", state="open")])
    head, first, second, *rest = text.getvalue().splitlines()
    assert first.startswith(f"{RUN.run} ")
    assert second.startswith("runs/rms_norm-20261116-212934-2 ")
    assert {"run", "trials", "best", "state"} <= set(head.split())
    assert len(head.split()) == 9 - gone
    assert "2026-11-1" in first or "date" not in head
    assert width == 20 or len(first) <= max(width, 120)
    assert bool(rest) is bool(gone)
    assert width != 80 or not terminal or max(map(len, (head, first, second))) <= 80


def test_a_run_driven_by_ask_and_tell_is_said_to_be_made_by_hand() -> None:
    console, text = paper(200, terminal=True)
    print_runs(console, [replace(RUN, proposer="person")])
    assert "by hand" in text.getvalue()
    assert "person" not in text.getvalue()


def test_the_lines_of_trials_stay_when_a_run_has_ended(tmp_path: Path) -> None:
    console, text = paper(60, terminal=True)
    long = "a sentence that is too long for one line of this narrow terminal"
    with finished(tmp_path / "run") as session:
        with watching(console, session) as view:
            view.recorded(session.record(2), session.evaluation(2))
            view.message(long)
            assert "trial 2 of 2" in text.getvalue()
    kept = _screen(text.getvalue())
    assert any(re.match(r"   2 ★ 1.20x  best so far  s2", line) for line in kept), kept
    assert [line[:6] for line in kept if line.strip() and line[5:].strip() in long] == ["     a", "     t"], kept
    assert not any("trial 2 of 2" in line for line in kept)


class Moving(dict[int, float]):
    """What the run's own thread is changing this very moment."""

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("dictionary changed size during iteration")


def test_a_view_draws_what_was_seen_and_not_what_is_being_changed(tmp_path: Path) -> None:
    console, text = paper(80, terminal=True)
    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, 1, 2)
        view = LiveRun(console, session)
        session.judge(session.pending()[0], valid(session.candidate(1), 1.5))
        view.recorded(session.record(1), session.evaluation(1))
        contenders = session.state.confirmation.waiting
        session.state.confirmation.waiting = Moving(contenders)
        console.print(view)  # as another thread would
        assert "best: none yet, 1.50x (trial 1) measured once" in text.getvalue()
        assert "trial 2 of 20" in text.getvalue()
        assert "valid: 1 of 1" in text.getvalue()
        session.state.confirmation.waiting = contenders
        judge_pending(session, ScriptedJudge({1: [1.5], 2: [2.5]}), view.recorded)
        console.print(view)
        assert "best: 2.50x PyTorch (trial 2" in text.getvalue()


def _screen(written: str) -> list[str]:
    """What is left on a terminal, of the control sequences that a live view writes."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[\??\d*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif match := re.fullmatch(r"\x1b\[(\d+)A", part):
            row -= int(match[1])
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b") and part != "\r":
            lines[row] += part
    return [line.rstrip() for line in lines]
