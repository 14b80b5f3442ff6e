"""Loads a task file as a `Program`: finds the kind of the file, or says in one sentence why it is no task."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from warpsmith.model.errors import TaskError
from warpsmith.model.source_text import parse_python
from warpsmith.model.task import Precision, TaskKind
from warpsmith.tasks import kernelbench, native
from warpsmith.tasks.declare import ATTRIBUTE, TaskDeclaration
from warpsmith.tasks.listing import FULL, sized, without_listing
from warpsmith.tasks.program import Program
from warpsmith.tasks.user_code import Attempt, TaskFile, execute


def load_task(path: Path | str, precision: Precision | None = None) -> Program:
    """The program of a task file; `file.py::name` picks one of several @task functions, `@small` its small workload.

    `precision` overrides that of the file; for a KernelBench file fp16 and bf16 also cast its tensors.
    """
    file, _, wanted = str(path).partition("::")
    text = _read(Path(file))
    kind = _kind(Path(file), text)
    executed = execute(Path(file), text)
    if kind is TaskKind.NATIVE:
        declaration, size = _pick(executed, wanted)
        title = f"{declaration.name}@{size}" if size else declaration.name
        digest = _digest(kind, text, precision or declaration.precision, title)
        shown = without_listing(text) if declaration.family else text
        return native.load(sized(declaration, size or FULL), executed.path, shown, precision, digest)
    if wanted:
        raise TaskError(f"{file} is a KernelBench file with one task; leave out '::{wanted}'.")
    return kernelbench.load(executed, precision, _digest(kind, text, precision, executed.path.stem))


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise TaskError(f"{path} is a folder; name a task file in it.")
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}; check the path.") from None
    except UnicodeDecodeError:
        raise TaskError(f"{path} is not a text file; a task is a Python file.") from None
    except (OSError, ValueError) as error:
        raise TaskError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}; check it.") from None
    if "\0" in text:
        raise TaskError(f"{path} is not a text file; a task is a Python file.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _kind(path: Path, text: str) -> TaskKind:
    """The kind of a task file, found without executing it."""
    with Attempt(path) as attempt:
        tree = parse_python(text, str(path))
    if isinstance(attempt.error, SyntaxError):
        line = f":{attempt.error.lineno}" if attempt.error.lineno else ""
        raise TaskError(f"{path}{line}: this is not valid Python: {attempt.error.msg}.") from None
    attempt.complain("reading it as Python")
    names: set[str] = set()
    imports_us = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
            roots = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            imports_us |= any(root.split(".")[0] == "warpsmith" for root in roots)
    if {"Model", "get_inputs"} <= names:
        return TaskKind.KERNELBENCH
    if imports_us:
        return TaskKind.NATIVE
    if "ModelNew" in names:
        raise TaskError(
            f"{path} defines ModelNew, so it is a candidate and not a task; give the file with class Model."
        )
    if "Model" in names:
        raise TaskError(f"{path} defines Model but no get_inputs(); a KernelBench task needs both.")
    raise TaskError(
        f"{path} is not a task: it has neither a function under warpsmith's @task nor class Model with get_inputs()."
    )


def _pick(executed: TaskFile, wanted: str) -> tuple[TaskDeclaration, str]:
    """The only declaration of a native file, or the one that `wanted` names; and its size, "" if none is named."""
    found: dict[str, TaskDeclaration] = {}
    for value in vars(executed.module).values():
        declaration = getattr(value, "__dict__", {}).get(ATTRIBUTE) if callable(value) else None
        if isinstance(declaration, TaskDeclaration):
            found[declaration.name] = declaration
    if not found:
        raise TaskError(f"{executed.path} has no function under @task; put @task(...) above the one to optimise.")
    names = ", ".join(found)
    if wanted:
        name, _, size = (wanted, "", "") if wanted in found else wanted.rpartition("@")
        if name not in found:
            raise TaskError(f"{executed.path} has no task {wanted!r}; it has {names}.")
        return found[name], "" if size == FULL else size
    if len(found) > 1:
        first = next(iter(found))
        raise TaskError(f"{executed.path} has several tasks ({names}); pick one, as in {executed.path}::{first}.")
    return next(iter(found.values())), ""


def _digest(kind: TaskKind, text: str, precision: Precision | None, name: str) -> str:
    """The identity of a task: a hash of its content, independent of its path."""
    parts = (kind, text, str(precision or "own"), name)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
