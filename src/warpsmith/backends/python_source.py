"""Reads Python candidates without running them, and puts their files into the build cache.

What a source contains decides how a candidate is compiled, never a verdict. Extensions and Triton kernels are compiled
later, in a process of their own. `model.build` names the files of a cached folder.
"""

from __future__ import annotations

import ast
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from warpsmith._version import __version__
from warpsmith.backends.build_cache import content_key
from warpsmith.backends.builder import Builder
from warpsmith.model.build import MAIN, SOURCES, Artifact, ArtifactKind, BuildFailure
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.source_text import parse_python

MODEL = "ModelNew"
LAUNCH = "launch"

_MODEL = re.compile(rf"^(?:class\s+{MODEL}\b|{MODEL}\s*[:=])", re.MULTILINE)
_LAUNCH = re.compile(rf"^(?:def\s+{LAUNCH}\b|{LAUNCH}\s*[:=])", re.MULTILINE)
_TRITON = re.compile(r"^\s*(?:import|from)\s+triton\b", re.MULTILINE)
_EXTENSION = re.compile(r"\bcpp_extension\b|\bload_inline\b")
_CUDA = re.compile(r"\bcuda_sources\b|\.cu['\"]|\bwith_cuda\s*=\s*True|__global__")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class PythonTraits:
    """The contents of a Python file, found by patterns in its text."""

    model: bool  # the class ModelNew
    launch: bool  # the contract's function
    triton: bool  # Triton kernels, compiled when they are first called
    extension: bool  # C++ or CUDA, compiled when the file is imported
    cuda: bool  # it runs on a GPU only


def python_traits(text: str) -> PythonTraits:
    """The traits of a Python file, which need not be valid Python."""
    triton = _TRITON.search(text) is not None
    return PythonTraits(
        model=_MODEL.search(text) is not None,
        launch=_LAUNCH.search(text) is not None,
        triton=triton,
        extension=_EXTENSION.search(text) is not None,
        cuda=triton or _CUDA.search(text) is not None,
    )


def import_problem(file: SourceFile, name: str, wanted: str) -> str | None:
    """Why a file cannot be imported or lacks `name` at its top level; None if nothing is wrong.

    The message quotes `wanted`, the definition to write.
    """
    try:
        tree = parse_python(file.text, file.name)
    except SyntaxError as error:
        line = (error.text or "").rstrip()
        shown = f"\n{line[:200]}" if line.strip() else ""
        return f"{file.name}:{error.lineno or 1}: {error.msg}{shown}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{file.name} cannot be parsed: {str(error) or type(error).__name__}"
    if name in _defined(tree):
        return None
    return f"{file.name} does not define {name}: define\n{wanted}"


def modules_named(text: str) -> tuple[str, ...]:
    """Modules that a file imports, and strings in it that could be module names; () where it cannot be parsed."""
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            found.add(node.value)
    return tuple(sorted(found))


def _defined(tree: ast.Module) -> set[str]:
    """Names bound at the top level, also inside `if` and `try`."""
    found: set[str] = set()
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        else:
            parts = (getattr(node, field, []) for field in ("body", "orelse", "finalbody"))
            todo += [statement for part in parts if isinstance(part, list) for statement in part]
            todo += [s for handler in getattr(node, "handlers", []) for s in handler.body]
    return found


def python_name() -> str:
    """The name and version of the Python interpreter, for messages."""
    return f"python {platform.python_version()}"


def package_version(name: str) -> str:
    """An installed package's version without importing it; "" where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def cache_key(parts: Sequence[str]) -> str:
    """The key of a Python build."""
    return content_key((__version__, "python", *parts))


def store_sources(
    builder: Builder, candidate: Candidate, files: Sequence[SourceFile], main: str, kind: ArtifactKind, compiler: str
) -> Artifact | BuildFailure:
    """An artifact of this kind with the files; equal files give the same folder where builds are used again."""
    words = [kind, candidate.backend, main, compiler, *(word for f in files for word in (f.name, f.text))]
    key = builder.cache.key(cache_key(words))

    def write() -> Artifact | BuildFailure:
        with builder.cache.work_folder() as work:
            folder = work / "made"
            _write(folder, files, main)
            return builder.cache.publish(key, Artifact(folder, compiler, kind=kind), work)

    return builder.cache.load_or_make(key, write)


def _write(folder: Path, files: Sequence[SourceFile], main: str) -> None:
    (folder / SOURCES).mkdir(parents=True)
    (folder / MAIN).write_text(main, encoding="utf-8")
    for file in files:
        (folder / SOURCES / file.name).write_text(file.text, encoding="utf-8", errors="replace")
