"""Methods by name and from a user's own file: what is accepted, and what is said about what is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.methods.table import PAGE
from warpsmith.methods.load import load, methods
from warpsmith.model.errors import UsageError
from warpsmith.model.method import Move, Show

HEAD = "from warpsmith.model.method import Method, Move, MethodOperator, PopulationSpec, Show, Stage, Until\n"


def declaration(
    operators: str = "MethodOperator('go', Move.INIT, 'evoengineer/init'),",
    stages: str = "(Stage((GO)),)",
    population: str = "PopulationSpec('best')",
    name: str = "'mine'",
    more: str = "",
) -> str:
    """A file with one method; each part can be spoilt."""
    stages = stages.replace("GO", operators)
    return f"{HEAD}METHOD = Method({name}, 'Mine', 'none', 'Tries.', {stages}, {population}{more})\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


def complaint(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load(str(file))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(file))
    return message.removeprefix(str(file))


@pytest.mark.parametrize("name", methods())
def test_a_known_method_is_found_by_its_name(name: str) -> None:
    assert load(name).name == name


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r"unknown method 'evoengineer'; known: agentic, ai-cuda-engineer, cupilot, eoh, .*a \.py file"
    ):
        load("evoengineer")


def test_a_method_is_read_from_a_file(file: Path) -> None:
    file.write_text(declaration(), encoding="utf-8")

    method = load(str(file))

    assert method.name == "mine"
    assert [each.move for each in method.operators] == [Move.INIT]


def test_a_file_may_call_it_plugin_as_ours_do(file: Path) -> None:
    file.write_text(declaration().replace("METHOD", "PLUGIN"), encoding="utf-8")

    assert load(str(file)).name == "mine"


def test_the_pages_example_is_complete(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"`(\w+\.(?:py|j2))`:\n\n```\w+\n(.*?)```", text, re.DOTALL)
    for name, content in blocks:
        (tmp_path / name).write_text(content, encoding="utf-8")

    (path,) = tmp_path.glob("*.py")
    method = load(str(path))

    assert method.name not in methods()
    wordings = [Path(each.wording) for each in method.operators if each.wording.endswith(".j2")]
    assert wordings == list(tmp_path.glob("*.j2"))
    assert any(Show.ROOFLINE in each.shows for each in method.operators)


def test_a_wording_is_looked_for_beside_the_file_and_named_in_full(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ask.j2").write_text("Write it.", encoding="utf-8")
    file.write_text(declaration("MethodOperator('go', Move.INIT, 'ask.j2'),"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    assert load("mine.py").operators[0].wording == str((tmp_path / "ask.j2").resolve())


def test_a_wording_that_is_not_there_is_named(file: Path) -> None:
    said = complaint(file, declaration("MethodOperator('go', Move.INIT, 'ask.j2'),"))

    assert "the operator 'go' is worded in 'ask.j2', and there is no file" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("METHOD = 1 / 0\n", ":1: executing it raised ZeroDivisionError: division by zero."),
        ("\n\nMETHOD = (\n", r":3: executing it raised SyntaxError: .*never closed"),
        (HEAD + "METHOD = Method('mine')\n", r":2: executing it raised TypeError: .*missing"),
        ("import nowhere_to_be_found\n", ":1: it imports 'nowhere_to_be_found', which is not installed"),
        ("raise SystemExit(3)\n", ": executing it ended the program; a method's file must not exit."),
        ("", " declares no method; write METHOD = "),
        ("METHOD = 'evoengineer-full'\n", ": METHOD is of type str; make it a warpsmith.model.method.Method."),
    ],
    ids=["raises", "syntax", "arguments", "import", "exit", "empty", "text"],
)
def test_what_is_wrong_with_a_file_is_one_sentence_with_the_line(file: Path, text: str, says: str) -> None:
    assert re.match(says, complaint(file, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (declaration(stages="()"), "has no stages"),
        (declaration(stages="Stage((GO))"), "stages that are not a tuple"),
        (declaration(stages="(Stage(()),)"), "a stage 1 without operators"),
        (declaration(operators="MethodOperator('go', Move.INIT, 'a/b')"), "whose operators are not a tuple"),
        (declaration(stages="(Stage((GO), 3),)"), "whose end is no Until"),
        (declaration(stages="(Stage((GO), Until(valid=0)), Stage((GO)))"), "a stage 1 that lasts until valid = 0"),
        (
            declaration(stages="(Stage((GO), Until(share=1.5)), Stage((GO)))"),
            "share = 1.5: give a number above 0 and up to 1",
        ),
        (declaration(stages="(Stage((GO), Until(valid=9)),)"), "an `until` for its last stage"),
        (
            declaration("MethodOperator('go', Move.INIT, 'a/b'), MethodOperator('go', Move.TUNE, 'a/c'),"),
            "two different operators named 'go'",
        ),
        (declaration("MethodOperator('go', 'init', 'a/b'),"), "'go' whose move is no Move"),
        (declaration("MethodOperator('go', Move.INIT, ''),"), "'go' whose name, wording or order is empty"),
        (
            declaration("MethodOperator('go', Move.INIT, 'a/b', {Show.BEST}),"),
            "something else than a frozenset of Show",
        ),
        (
            declaration("MethodOperator('go', Move.INIT, 'a/b', parents=2),"),
            "'go' with parents = 2 that does not show them",
        ),
        (
            declaration("MethodOperator('go', Move.INIT, 'a/b', frozenset({Show.PARENTS})),"),
            "shows parents and asks for none",
        ),
        (declaration("MethodOperator('go', Move.INIT, 'a/b', insights=3),"), "add Show.INSIGHTS"),
        (
            declaration("MethodOperator('go', Move.INIT, 'a/b', times=0),"),
            "times = 0: give a whole number of at least 1",
        ),
        (declaration("MethodOperator('go', Move.INIT, 'a/b', fewest_parents=1),"), "needs 1 parents and takes 0"),
        (declaration("MethodOperator('go', Move.INIT, 'a/b', order='fast'),"), "the order 'fast': give best_first or"),
        (declaration(population="PopulationSpec('herd')"), "unknown population 'herd'; known: best, elite, islands"),
        (declaration(population="PopulationSpec('elite', (('size', 0),))"), "size = 0 is not possible"),
        (declaration(population="PopulationSpec('elite', (('size', 'x'),))"), "size = 'x' is not possible"),
        (declaration(population="PopulationSpec('elite', ('size', 5))"), "options that are not a tuple of pairs"),
        (declaration(population="PopulationSpec('elite', (('size', 5), ('size', 6)))"), "each name once"),
        (declaration(population="'elite'"), "a population that is no PopulationSpec"),
        (declaration(more=", repairs=-1"), "repairs = -1"),
        (declaration(name="'My method'"), "the name 'My method': give one of lower-case"),
        (declaration(name="7"), "a name that is no text"),
        (declaration(name="'eoh'"), "the method's name 'eoh' is that of a known one; choose another"),
    ],
)
def test_what_makes_no_sense_is_said_before_a_run(file: Path, text: str, says: str) -> None:
    assert says in complaint(file, text)


def test_one_operator_may_serve_in_two_stages(file: Path) -> None:
    file.write_text(declaration(stages="(Stage((GO), Until(valid=1)), Stage((GO)))"), encoding="utf-8")

    assert [each.name for each in load(str(file)).operators] == ["go"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00\x01")

    for path, says in ((tmp_path / "absent.py", "there is no file"), (tmp_path, "Is a directory"), (file, "text file")):
        with pytest.raises(UsageError, match=says):
            load(str(path))


def test_loading_needs_no_torch() -> None:
    script = "import sys; from warpsmith.methods.load import load; load('eoh'); sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
