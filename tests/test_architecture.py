"""The rules of the house that no single module can check: who may import whom, and what stays out of which process."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import warpsmith

PACKAGE = Path(warpsmith.__file__).resolve().parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = (
    *("core", "hardware", "tasks", "backends", "guards", "evaluate", "use", "archive", "populations", "methods"),
    *("strategies", "prompts", "llm", "propose", "run", "report", "cli"),
)
DATA = ("examples", "suites")  # shipped, shown and evaluated, never imported
FRONT_DOOR = ("__init__.py", "__main__.py", "_version.py")  # above all rooms: they only point into them
MOST_LINES = 400

by_path = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))


def room_of(path: Path) -> str:
    """The room a file lies in; its own name for a file of the front door."""
    return path.relative_to(PACKAGE).parts[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def dotted_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports anywhere, lazily and for type checkers too, with the line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                package = dotted_name(path).split(".")
                up = node.level - (path.name == "__init__.py")
                origin = ".".join([*package[: len(package) - up], *filter(None, [node.module])])
            # `from warpsmith import evaluate` names a room only in its aliases.
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after a statement."""
    script = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_every_folder_is_a_known_room() -> None:
    folders = {room_of(path) for path in MODULES if path.parent != PACKAGE}

    assert folders <= {*ROOMS, *DATA}
    assert {*ROOMS} - {"report"} <= folders


@by_path
def test_a_room_imports_only_from_itself_and_the_rooms_above(path: Path) -> None:
    room = room_of(path)
    if path.parent == PACKAGE or room in DATA:
        return
    allowed = {*ROOMS[: ROOMS.index(room) + 1], "_version", "__version__"}

    wrong = [
        f"line {line}: {name}"
        for line, name in imported(path)
        if name.split(".")[0] == "warpsmith" and name.split(".")[1] not in allowed
    ]

    assert wrong == []


def test_nothing_imports_the_examples_and_the_suites() -> None:
    users = [
        f"{dotted_name(path)} line {line}"
        for path in MODULES
        for line, name in imported(path)
        if name.startswith(tuple(f"warpsmith.{folder}" for folder in DATA))
    ]

    assert users == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*.py")), ids=lambda path: path.stem)
def test_core_needs_only_the_standard_library(path: Path) -> None:
    foreign = [
        f"line {line}: {name}"
        for line, name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("warpsmith.core.")
    ]

    assert foreign == []


def test_python_texts_are_read_in_one_place() -> None:
    """`ast.parse` fails now and then with threads about; `core.pytext` says why and does not."""
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in ("parse", "PyCF_ONLY_AST")
        if isinstance(node.value, ast.Name) and node.value.id == "ast"
    }

    assert readers == {"core/pytext.py"}


SUPERVISED = sorted(
    {
        dotted_name(path)
        for room in ("core", "backends", *ROOMS[ROOMS.index("archive") :])
        for path in (PACKAGE / room).rglob("*.py")
    }
    | {f"warpsmith.hardware.{name}" for name in ("device", "roofline")}
    | {dotted_name(path) for path in (PACKAGE / "evaluate" / "supervising").glob("*.py")}
    | {f"warpsmith.evaluate.{name}" for name in ("evaluator", "wire", "messages", "layout", "hosts.host")}
    | {f"warpsmith.evaluate.judging.{name}" for name in ("findings", "judge")}
    | {"warpsmith", "warpsmith.evaluate.confinement.sandbox", "warpsmith.use.bundle"}
)


def test_the_supervising_process_never_imports_torch() -> None:
    script = (
        "import importlib, sys\n"
        f"for name in {SUPERVISED!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name"
    )

    assert set(SUPERVISED) <= modules_after(script)


def test_the_command_starts_without_torch() -> None:
    assert "torch" not in modules_after("import warpsmith.cli.main")


def test_the_candidates_process_holds_only_the_standard_library_and_our_own_modules() -> None:
    loaded = modules_after("import warpsmith.evaluate.hosts.host") - modules_after("pass")

    foreign = {name for name in loaded if name.split(".")[0] not in {*sys.stdlib_module_names, "warpsmith"}}
    own = {name.split(".")[1] for name in loaded if name.startswith("warpsmith.")}

    assert foreign == set()
    # No task, no reference, no rule by which it is judged.
    assert own <= {"core", "evaluate", "_version"}
    assert not {
        name for name in loaded if name.startswith(("warpsmith.evaluate.judging", "warpsmith.evaluate.correct"))
    }


@by_path
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(parsed(path))


@by_path
def test_no_file_outgrows_its_noun(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@by_path
def test_errors_are_caught_by_name(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    broad = [
        f"line {handler.lineno}: {lines[handler.lineno - 1].strip()}"
        for handler in ast.walk(parsed(path))
        if isinstance(handler, ast.ExceptHandler)
        and _is_broad(handler)
        and "noqa: BLE001" not in lines[handler.lineno - 1]
    ]

    assert broad == []


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind) if kind is not None else "everything" for kind in caught}
    # What is raised again is not swallowed: the handler only cleans up.
    passes_on = isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None
    return bool(names & {"everything", "Exception", "BaseException"}) and not passes_on
