"""What is printed on a narrow terminal: broken between words, so that a path, a name or a command can be copied."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from tests.cli.test_cli_advice import finished, paper
from tests.cli.test_cli_verify import certificate
from tests.experiments.making import bench, best, cell
from tests.searching import valid

from warpsmith.cli import bench_show, cards, certificate_card, export, pool, suite, verify
from warpsmith.cli.terminal import Sentence, breaks
from warpsmith.experiments.results import CellStatus, write_results
from warpsmith.model.candidate import Candidate, SourceFile

WIDTH = 60
LONG = "a-folder-with-a-rather-long-name/and-another-one-in-it-that-is-long-too"  # wider than the terminal


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What commands print, on a terminal of 60 columns."""
    console, text = paper(WIDTH, terminal=True)
    monkeypatch.setattr(cards, "console", lambda **_: console)
    return text


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path(LONG).mkdir(parents=True)
    return Path(LONG)


def unbroken(text: str) -> list[str]:
    """The lines that are wider than the terminal: those that hold something to be copied."""
    return [line.rstrip() for line in text.splitlines() if len(line.rstrip()) > WIDTH]


# --- sentences ---


@given(st.text(alphabet="ab `\t.é→", max_size=80), st.integers(1, 30))
def test_breaking_loses_nothing_and_breaks_no_word(text: str, width: int) -> None:
    places = [0, *breaks(text, width), len(text)]
    lines = [text[start:end] for start, end in pairwise(places)]
    assert "".join(lines) == text
    assert [word for line in lines for word in line.split()] == text.split()
    if "`" not in text and "\t" not in text:
        for line in lines:
            assert len(line.rstrip()) <= width or len(line.split()) == 1
        for one, other in pairwise(lines):
            assert len(one) + len(other.split()[0]) > width  # no line ends too soon


def test_a_command_in_backquotes_is_one_word() -> None:
    console, text = paper(30, terminal=True)
    cards.say(console, "there is none; start one with `warpsmith optimize TASK --run DIR`, or two.")
    assert "\n`warpsmith optimize TASK --run DIR`,\n" in text.getvalue()


def test_styles_stay_where_they_were() -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, width=10, _environ={"TERM": "xterm"}, color_system="standard"
    )
    cards.show(console, Sentence(Text.assemble("one ", ("two three", "bold"), " four")))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "one \x1b[1mtwo\x1b[0m\n\x1b[1mthree\x1b[0m four\n"


def test_an_error_is_broken_between_words_on_a_terminal(place: Path) -> None:
    leader, follower = pty.openpty()
    words = [sys.executable, "-m", "warpsmith", "show", LONG]
    environ = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm"}
    status = subprocess.run(words, stderr=follower, stdout=subprocess.DEVNULL, env=environ, timeout=60).returncode
    os.close(follower)
    lines = os.read(leader, 4096).decode().splitlines()
    os.close(leader)
    assert status == 2
    assert lines[0] == "error: there is no run.db in"
    assert lines[1] == f"{LONG}:"
    assert all(len(line) <= WIDTH for line in lines[2:])
    assert "`warpsmith runs`" in "\n".join(lines[2:])


# --- commands ---


def test_the_pool_names_its_file_and_the_run_whole(
    place: Path, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPSMITH_POOL", f"{LONG}/pool.jsonl")
    pool.pool(pool.PoolAction.LIST)
    assert unbroken(screen.getvalue()) == [f"{LONG}/pool.jsonl"]
    assert "`warpsmith pool add RUN`" in screen.getvalue()
    finished(place / "run").__exit__(None, None, None)
    pool.pool(pool.PoolAction.ADD, f"{LONG}/run")
    assert unbroken(screen.getvalue())[1:] == [f"{LONG}/run", f"{LONG}/pool.jsonl."]


def test_an_export_is_used_by_a_line_that_can_be_copied(place: Path, screen: io.StringIO) -> None:
    finished(place / "run").__exit__(None, None, None)
    (place / "run" / "task.py").write_text("")
    export.export(f"{LONG}/run", out=f"{LONG}/bundle")
    used = f'Use it: from warpsmith import load; op = load("{LONG}/bundle")'
    verified = f"To verify it: warpsmith export {LONG}/run --out {LONG}/bundle --verify"
    assert unbroken(screen.getvalue()) == [f"{LONG}/bundle:", verified, used]


def test_a_certificate_names_its_file_whole(screen: io.StringIO) -> None:
    kernel, kept = f"{LONG}/kernel.cu", f"{LONG}/certificate.json"
    cards.show(cards.console(), certificate_card.card(certificate(), kernel, kept))
    assert unbroken(screen.getvalue()) == [kernel, f"  certificate  {kept}"]
    cards.show(cards.console(), certificate_card.overview([(kernel, certificate(), kept)]))
    assert unbroken(screen.getvalue())[2:] == [kernel, kept]


def test_a_verdict_names_its_file_whole(screen: io.StringIO) -> None:
    kernel = Candidate((SourceFile("k.cpp", ""),), "cpu")
    judged = cards.JudgedFile(f"{LONG}/k.cpp", valid(kernel, 2.0))
    cards.show(cards.console(), cards.card(judged))
    cards.show(cards.console(), cards.overview([judged, judged]))
    assert unbroken(screen.getvalue()) == [f"{LONG}/k.cpp", f"{LONG}/k.cpp:"]


def test_messages_of_commands_are_broken_between_words(screen: io.StringIO) -> None:
    said = f"waiting: another evaluation is using the device that you have named, and {LONG}/k.cpp comes next"
    verify.VerifyProgress(cards.console()).message(said)
    assert screen.getvalue().split() == said.split()
    assert unbroken(screen.getvalue()) == [f"{LONG}/k.cpp"]


@pytest.mark.parametrize("width", [40, WIDTH, 80])
def test_names_of_tasks_stay_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console, text = paper(width, terminal=True)
    monkeypatch.setattr(cards, "console", lambda **_: console)
    suite.suite_list(["warpsmith-fused"])
    lines = text.getvalue().splitlines()
    for name in ("softmax_cross_entropy", "quantize_dequantize", "adam_step"):
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert (
        "Optimise one: warpsmith optimize warpsmith-fused/adam_step, or warpsmith-fused/adam_step@small on a CPU"
        in lines
    )
    assert ("Not shown: precision" in text.getvalue()) is (width < 80)


def test_a_bench_is_resumed_by_a_command_that_can_be_copied(place: Path, screen: io.StringIO) -> None:
    made = bench(
        [
            cell("softmax", best(2.0, verified=None), method="evo"),
            cell("softmax", None, method="pilot", status=CellStatus.UNFINISHED),
        ],
        name=f"{LONG}/tasks",
    )
    write_results(made, place / "results.json")
    bench_show.print_head(cards.console(), made)
    bench_show.print_notes(cards.console(), made, unverified=False, folder=LONG)
    command = f"1 cell not finished; continue with: warpsmith bench resume {LONG}"
    assert unbroken(screen.getvalue()) == [f"{LONG}/tasks", command]
    bench_show.bench_show(f"{LONG}/results.json")
    assert screen.getvalue().count("bench resume") == 1  # published results cannot be resumed
