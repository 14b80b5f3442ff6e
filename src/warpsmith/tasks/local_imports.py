"""Modules that a task file imports from its own folder, found without executing anything: runs and bundles have them.

A judge and `load` put the folder of a task file first on Python's path.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path

from warpsmith.model.errors import UsageError
from warpsmith.model.source_text import parse_python

_MOST_FILES = 100
_MOST_BYTES = 4 << 20


def local_modules(file: Path) -> dict[str, str]:
    """The text of every module that a Python file imports from its folder, and that those import, by path below it.

    Of a package all modules are taken.
    """
    found: dict[str, str] = {}
    waiting = [file]
    while waiting:
        for root in sorted(_imported_roots(waiting.pop())):
            for path in _files_of(file.parent, root):
                name = path.relative_to(file.parent).as_posix()
                if path != file and name not in found:
                    with path.open(encoding="utf-8-sig", errors="replace") as opened:
                        found[name] = opened.read(_MOST_BYTES + 1)
                    waiting.append(path)
        if len(found) > _MOST_FILES or sum(map(len, found.values())) > _MOST_BYTES:
            raise UsageError(
                f"{file} imports more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MiB of its folder; install them "
                "as a package, or move what the task needs into its file."
            )
    return found


@contextmanager
def importing_beside(file: Path) -> Iterator[None]:
    """Let a task file import the modules beside it, whatever modules of the same names were imported before.

    Modules whose names were free stay imported, for imports inside of functions.
    """
    roots = {name.partition("/")[0].removesuffix(".py") for name in local_modules(file)}
    if not roots:
        yield
        return
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in roots}
    taken = {name.partition(".")[0] for name in hidden}
    sys.path.insert(0, str(file.parent))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(file.parent))
        for name in [name for name in sys.modules if name.partition(".")[0] in taken]:
            del sys.modules[name]
        sys.modules.update(hidden)


def _imported_roots(file: Path) -> frozenset[str]:
    """The first parts of the names of all modules that a file imports; none if it cannot be read as Python."""
    try:
        return _roots_in(file.read_text(encoding="utf-8-sig"), str(file))
    except (OSError, ValueError, SyntaxError):
        return frozenset()


@lru_cache(maxsize=256)  # a bench asks about each task file many times
def _roots_in(text: str, file: str) -> frozenset[str]:
    tree = parse_python(text, file)
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:  # relative ones are of the same package
            names.add(node.module or "")
    return frozenset(name.partition(".")[0] for name in names) - sys.stdlib_module_names - {"", "torch", "warpsmith"}


def _files_of(folder: Path, root: str) -> list[Path]:
    """The files of a module or package in the folder; none if Python would import an installed one."""
    package = folder / root
    if (package / "__init__.py").is_file() or (package.is_dir() and not _is_installed(root)):
        return sorted(islice((path for path in package.rglob("*.py") if path.is_file()), _MOST_FILES + 1))
    return [module] if (module := folder / f"{root}.py").is_file() else []


def _is_installed(root: str) -> bool:
    """Whether a module or a package with `__init__.py` of this name can be imported: it comes before a plain folder."""
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None
