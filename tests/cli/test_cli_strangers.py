"""What comes from others: shown without steering a terminal, written through no link, named as it was judged."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.text import Text
from tests.experiments.test_collect import cell_of, certificate, rising, searched
from tests.experiments.test_plan import planned
from tests.runtime.bundling import DOUBLE, TRIPLE, made_of, put
from tests.search.test_trust import FULL
from tests.searching import answered, judged, new_session, run_setup, source, valid
from typer.testing import CliRunner

from warpsmith.cli import cards
from warpsmith.cli.live import verdict_line
from warpsmith.cli.main import app
from warpsmith.cli.terminal import PrintableConsole, Reason, write
from warpsmith.experiments import formats
from warpsmith.experiments.best_kernels import EVALUATION, checks_folder, write_evaluation
from warpsmith.experiments.plan import cell_folder
from warpsmith.experiments.tables import Column, ColumnKind, Table
from warpsmith.methods.load import load
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import Measurement
from warpsmith.model.errors import RunError, UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.text import one_line, plain_name, printable
from warpsmith.report.run_page import run_page
from warpsmith.run_log import log as run_log
from warpsmith.run_log.log import LOG_FILE, RunLog
from warpsmith.runtime.bundle import MANIFEST, read_bundle
from warpsmith.search.best_kernel import write_best
from warpsmith.search.session import Session
from warpsmith.search.trust import sign_run
from warpsmith.system.files import put_in_place, read_file
from warpsmith.verification.certificate import write_certificate

STEERING = ("\x1b]0;title\x07", "\x1b[2J", "\x1b]52;c;aGk=\x1b\\", "\x9b31m", "\u202etxt.exe", "\r over", "\x08\x08")


# --- printing ---


@pytest.mark.parametrize("text", STEERING)
def test_nothing_that_others_wrote_steers_a_terminal(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    console = PrintableConsole(file=shown, force_terminal=True, width=80, highlight=False)
    console.print(Text(f"reason: {text}", "bold"))
    console.print(Reason(f"a\n 3 | {text}"))
    styled = shown.getvalue()
    plain = styled.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert styled != plain  # our own styles stay
    assert printable(plain) == plain
    monkeypatch.setattr(sys, "stdout", shown := io.StringIO())
    write(text)
    assert shown.getvalue() == printable(text) != text
    write(text, exact=True)  # a program that goes to a file
    assert shown.getvalue().endswith(text)
    monkeypatch.setattr(shown, "isatty", lambda: True)
    write(text, exact=True)
    assert shown.getvalue().endswith(printable(text))
    assert str(RunError(text)) == printable(text)


@pytest.mark.parametrize("text", ["plain", "two\nlines\tand a tab", "é ü 漢字 👩‍🚀 שלום", "a\u00a0b", "ﬁ"])
def test_what_people_write_stays(text: str) -> None:
    assert printable(text) == text
    assert one_line("a\n b\x1b") == "a b␛"


@pytest.mark.parametrize(
    "name", ["../x.cpp", "/etc/x", "a/b", "..", ".", "", ".hidden", "-x.cpp", "@args", "a b", "$(id)", "a\n", "x" * 200]
)
def test_a_name_is_one_plain_component(name: str) -> None:
    with pytest.raises(ValueError, match="plain file name"):
        plain_name(name)
    with pytest.raises(ValueError, match="plain file name"):
        SourceFile(name, "")


@pytest.mark.parametrize("name", ["kernel.cpp", "23_Softmax.py", "my-kernel+2.cu", "load_extension.py"])
def test_usual_names_are_plain(name: str) -> None:
    assert plain_name(name) == name


def test_a_cell_of_a_spreadsheet_is_no_formula() -> None:
    columns = (Column("=1+1", ColumnKind.TEXT), Column("x", ColumnKind.RATIO))
    texts = ("=cmd|'/c calc'!A1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "plain", "a=b")
    table = Table("t", "", columns, tuple((text, -2.5) for text in texts))
    lines = formats.as_csv(table).splitlines()
    assert lines[0] == "'=1+1,x"
    assert [line.rpartition(",")[0].strip('"')[:1] == "'" for line in lines[1:]] == [True] * 6 + [False] * 2
    assert all(line.endswith(",-2.5") for line in lines[1:])  # a number is a number


# --- writing ---


def test_the_best_kernel_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("mine")
    (tmp_path / "folder").mkdir()
    with new_session(tmp_path / "run", FULL) as session:
        answered(session, 1)
        judged(session, lambda candidate: valid(candidate, 2.0))
        (tmp_path / "run" / "task.py").write_text("# the task")
        (tmp_path / "run" / "best.cpp").symlink_to(tmp_path / "own")
        (tmp_path / "run" / "best").symlink_to(tmp_path / "folder")
        path = write_best(session)
    assert path is not None
    assert not path.is_symlink()
    assert not (tmp_path / "run" / "best").is_symlink()
    assert read_bundle(tmp_path / "run" / "best").candidate.main.text == source(1)
    assert (tmp_path / "own").read_text() == "mine"
    assert not any((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("linked", ["a", "a/b", "a/b/c"])
def test_a_link_on_the_way_is_not_followed(linked: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    root = tmp_path / "root"
    (root / linked).parent.mkdir(parents=True)
    (root / linked).symlink_to(tmp_path / "out")
    with pytest.raises(OSError, match="is a link"):
        put_in_place(root / "a" / "b" / "c" / "file", b"x", below=root)
    assert not any((tmp_path / "out").iterdir())
    put_in_place(root / "other" / "file", b"x", below=root)


def test_a_cell_behind_a_link_is_none(tmp_path: Path) -> None:
    plan = replace(planned(["relu@small"]), repeats=1)
    searched(tmp_path / "elsewhere", plan.cells[0], rising)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "cells").symlink_to(tmp_path / "elsewhere" / "cells")
    with pytest.raises(RunError, match="cells in it is a link"):
        cell_folder(tmp_path / "bench", plan.cells[0])
    assert "is a link" in cell_of(plan, tmp_path / "bench").reason


# --- reading ---


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_waited_for(make: object, tmp_path: Path) -> None:
    assert callable(make)
    bundle = put(tmp_path, made_of(tmp_path / "made", DOUBLE, TRIPLE))
    (bundle / MANIFEST).unlink()
    make(bundle / MANIFEST)
    with pytest.raises(UsageError, match="cannot be read"):
        read_bundle(bundle)
    with pytest.raises(OSError, match=r"."):
        read_file(bundle / MANIFEST)


def test_a_query_without_end_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_log, "_LONGEST_WAIT_S", 0.2)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'x' FROM n WHERE i < 0"
    with RunLog.create(tmp_path) as log:
        begun = time.monotonic()
        with pytest.raises(RunError, match="interrupted"):
            log._rows(endless, ())
        assert time.monotonic() - begun < 5
        monkeypatch.setattr(run_log, "_LONGEST_WAIT_S", 60.0)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            log._rows(endless, ())
        signal.signal(signal.SIGINT, before)
        assert log._rows("SELECT 1, 'x'", ()) == [(1, "x")]  # and the log works on


def test_a_forged_journal_is_not_played_back(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        answered(session, 1)
    (tmp_path / "run" / f"{LOG_FILE}-journal").write_bytes(bytes(600) + b"/victim" + bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(RunError, match=r"run.db-journal does not belong to the log of a run; remove it"):
        RunLog.open(tmp_path / "run")


@pytest.mark.parametrize("wording", ["{folder}/evil.j2", "../../../../../../../..{folder}/evil", "{folder}/secret"])
def test_a_log_names_no_template_of_prompts(wording: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("PRIVATE KEY")
    (tmp_path / "evil.j2").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    method = load("evoengineer-full")
    stage = method.stages[0]
    foreign = replace(stage.operators[0], wording=wording.format(folder=tmp_path))
    method = replace(method, stages=(replace(stage, operators=(foreign, *stage.operators[1:])), *method.stages[1:]))
    setup = run_setup(method)
    Session.create(tmp_path / "run", setup).__exit__(None, None, None)
    result = CliRunner().invoke(app, ["ask", str(tmp_path / "run")], prog_name="warpsmith")
    assert result.exit_code == 2
    assert "files that a log names are not read" in result.stderr
    assert "PRIVATE" not in result.output
    sign_run(tmp_path / "run", setup)  # this user's own method
    own = CliRunner().invoke(app, ["ask", str(tmp_path / "run")], prog_name="warpsmith")
    assert "files that a log names" not in own.stderr
    assert "subclasses" not in own.stdout


# --- guards that were left out ---


def careless(candidate: Candidate) -> Evaluation:
    return replace(rising(candidate), without=("imports", "floor"))


SAID = "judged without the guards imports, floor; not to be trusted."


def test_a_verdict_names_the_guards_that_were_missing(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        answered(session, 3)
        judged(session, careless)
        evaluation = session.evaluation(1)
        assert evaluation is not None
        assert evaluation.without == ("imports", "floor")  # the log keeps it
        line = verdict_line(session.record(1), evaluation, session.state)
        assert line is not None
        assert SAID in line.plain
        (tmp_path / "run" / "task.py").write_text("# the task")
        path = write_best(session)
        assert path is not None
        assert SAID in path.read_text()
        assert read_bundle(tmp_path / "run" / "best").manifest.measurement is None
    page, _ = run_page(tmp_path / "run")
    assert any(SAID in remark for remark in page.remarks)
    assert SAID in page.trials[0].notes
    shown = io.StringIO()
    console = PrintableConsole(file=shown, width=100, highlight=False)
    judged_file = cards.JudgedFile("k.cpp", evaluation)
    cards.show(console, cards.card(judged_file), cards.overview([judged_file, judged_file]))
    assert shown.getvalue().count(SAID) == 1
    assert "k.cpp (without imports, floor)" in shown.getvalue()
    assert Measurement.of(evaluation) is None


def test_it_never_counts_as_verified(tmp_path: Path) -> None:
    plan = replace(planned(["relu@small"]), repeats=1)
    winner = searched(tmp_path, plan.cells[0], careless)
    where = checks_folder(tmp_path, plan.cells[0].task, winner.id)
    write_certificate(certificate(winner, rising(winner), verified=True), where / "certificate.json")
    for measured in (careless(winner), rising(winner)):
        write_evaluation(measured, where / EVALUATION)
        best = cell_of(plan, tmp_path).best
        assert best is not None
        assert (best.verified, best.why_not) == (False, SAID)
    searched(tmp_path / "honest", plan.cells[0], rising)
    honest = checks_folder(tmp_path / "honest", plan.cells[0].task, winner.id)
    write_evaluation(rising(winner), honest / EVALUATION)
    write_certificate(certificate(winner, rising(winner), verified=True), honest / "certificate.json")
    best = cell_of(plan, tmp_path / "honest").best
    assert best is not None
    assert best.verified


def test_commands_print_through_one_place() -> None:
    """Only these write by themselves: what they write is their own text, JSON, or made printable there."""
    own = {
        "app.py",
        "main.py",
        "terminal.py",
        "json_documents.py",
        "contract.py",
        "doctor.py",
        "kernels.py",
        "serve.py",
    }
    writing = re.compile(r"\bsys\.(stdout|stderr)\.write\(|(?<![.\w])print\(|\bConsole\(")
    folder = Path(cards.__file__).parent
    assert {path.name for path in folder.glob("*.py") if writing.search(path.read_text())} == own
