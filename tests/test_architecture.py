"""The rules of the house that no single module can check: who may import whom, and what stays out of which process."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import warpsmith

PACKAGE = Path(warpsmith.__file__).resolve().parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = (
    *(
        "model",
        "system",
        "hardware",
        "tasks",
        "backends",
        "lowering",
        "kernels",
        "evaluator",
        "verification",
        "profiling",
        "runtime",
        "engine",
    ),
    *("run_log", "populations", "methods", "strategies", "kernel_templates", "prompts", "llm", "proposers"),
    *("search", "experiments", "report", "loggers", "agents", "server", "cli"),
)
DATA = ("examples", "suites")  # shipped, shown and evaluated, never imported
FRONT_DOOR = ("__init__.py", "__main__.py", "_version.py")  # above all rooms: they only point into them


def room_of(path: Path) -> str:
    """The room a file lies in; its own name for a file of the front door."""
    return path.relative_to(PACKAGE).parts[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def dotted_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> tuple[tuple[int, str], ...]:
    """Every module a file imports anywhere, lazily and for type checkers too, with the line."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
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


def test_a_room_imports_only_from_itself_and_the_rooms_above() -> None:
    in_rooms = [path for path in MODULES if path.parent != PACKAGE and room_of(path) not in DATA]
    allowed = {room: {*ROOMS[: number + 1], "_version", "__version__"} for number, room in enumerate(ROOMS)}

    wrong = [
        f"{dotted_name(path)} line {line}: {name}"
        for path in in_rooms
        for line, name in imported(path)
        if name.split(".")[0] == "warpsmith" and name.split(".")[1] not in allowed[room_of(path)]
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


def test_model_needs_only_the_standard_library() -> None:
    foreign = [
        f"{path.name} line {line}: {name}"
        for path in (PACKAGE / "model").glob("*.py")
        for line, name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("warpsmith.model.")
    ]

    assert foreign == []


def test_python_texts_are_read_in_one_place() -> None:
    """`ast.parse` fails now and then with threads about; `model.source_text` says why and does not."""
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in ("parse", "PyCF_ONLY_AST")
        if isinstance(node.value, ast.Name) and node.value.id == "ast"
    }

    assert readers == {"model/source_text.py"}


SUPERVISED = sorted(
    {
        dotted_name(path)
        for room in ("model", "system", "backends", "kernels", *ROOMS[ROOMS.index("run_log") :])
        for path in (PACKAGE / room).rglob("*.py")
    }
    | {f"warpsmith.hardware.{name}" for name in ("device", "roofline")}
    | {dotted_name(path) for path in (PACKAGE / "evaluator" / "supervisor").glob("*.py")}
    | {dotted_name(path) for path in (PACKAGE / "evaluator" / "protocol").glob("*.py")}
    | {"warpsmith.evaluator.candidate.native_host"}
    | {f"warpsmith.evaluator.judge.{name}" for name in ("records",)}
    | {"warpsmith", "warpsmith.evaluator.sandbox.policy", "warpsmith.runtime.bundle"}
)


def test_the_supervising_process_never_imports_torch() -> None:
    script = (
        "import importlib, sys\n"
        f"for name in {SUPERVISED!r}:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name"
    )

    assert set(SUPERVISED) <= modules_after(script)


def test_the_command_starts_without_torch_and_lists_runs_without_what_judges() -> None:
    loaded = modules_after("import warpsmith.cli.main, warpsmith.cli.runs")
    heavy = {"torch", "jinja2", "warpsmith.evaluator.supervisor", "warpsmith.profiling", "warpsmith.kernel_templates"}
    assert not heavy & loaded


def test_the_candidates_process_holds_only_the_standard_library_and_our_own_modules() -> None:
    loaded = modules_after("import warpsmith.evaluator.candidate.native_host") - modules_after("pass")

    foreign = {name for name in loaded if name.split(".")[0] not in {*sys.stdlib_module_names, "warpsmith"}}
    own = {name.split(".")[1] for name in loaded if name.startswith("warpsmith.")}

    assert foreign == set()
    # No task, no reference, no rule by which it is judged.
    assert own <= {"model", "system", "evaluator", "_version"}
    assert not {name for name in loaded if name.startswith("warpsmith.evaluator.judge")}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions are left out: they are how a circle is avoided."""
    names = {dotted_name(path): path for path in MODULES}
    imports = {name: sorted(_imported_at_top(path, names)) for name, path in names.items()}
    done: set[str] = set()

    def circle_from(name: str, above: tuple[str, ...]) -> tuple[str, ...]:
        if name in above:
            return (*above[above.index(name) :], name)
        if name in done:
            return ()
        found = next(filter(None, (circle_from(other, (*above, name)) for other in imports[name])), ())
        done.add(name)
        return found

    assert [circle for name in imports if (circle := circle_from(name, ()))] == []


def _imported_at_top(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of ours that a module imports when it is imported itself, and for type checkers."""
    for node in parsed(path).body:
        for statement in node.body if isinstance(node, ast.If) else [node]:
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("warpsmith."):
                for alias in statement.names:
                    name = f"{statement.module}.{alias.name}"
                    yield name if name in known else str(statement.module)


def test_no_public_class_name_means_two_things() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        if room_of(path) not in DATA:
            for node in parsed(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(dotted_name(path))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [dotted_name(path) for path in MODULES if not ast.get_docstring(parsed(path))] == []


def test_errors_are_caught_by_name() -> None:
    texts = {path: path.read_text(encoding="utf-8").splitlines() for path in MODULES}
    broad = [
        f"{dotted_name(path)} line {handler.lineno}: {lines[handler.lineno - 1].strip()}"
        for path, lines in texts.items()
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


def test_the_map_names_files_and_methods_that_exist() -> None:
    text = (Path(__file__).resolve().parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = ["/" + path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.is_file()]
    methods = {
        f"{node.name}.{member.name}"
        for path in MODULES
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
        for member in node.body
        if isinstance(member, ast.FunctionDef)
    }

    named = re.findall(r"`([\w/]+\.(?:py|toml))`", text)
    called = re.findall(r"`([A-Z]\w+\.\w+)`", text)

    assert len(named) > 30
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []
    assert "Examiner.examine" in called
    assert [name for name in called if name not in methods] == []
