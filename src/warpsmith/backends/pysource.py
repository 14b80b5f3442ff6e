"""What a Python candidate is, read from its text. Nothing here runs or imports it.

Words in a text are no proof of anything: they decide which process a candidate goes through, never a verdict.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from warpsmith.core.candidate import SourceFile
from warpsmith.core.pytext import parsed

MODEL = "ModelNew"
LAUNCH = "launch"

_MODEL = re.compile(rf"^(?:class\s+{MODEL}\b|{MODEL}\s*[:=])", re.MULTILINE)
_LAUNCH = re.compile(rf"^(?:def\s+{LAUNCH}\b|{LAUNCH}\s*[:=])", re.MULTILINE)
_TRITON = re.compile(r"^\s*(?:import|from)\s+triton\b", re.MULTILINE)
_EXTENSION = re.compile(r"\bcpp_extension\b|\bload_inline\b")
_CUDA = re.compile(r"\bcuda_sources\b|\.cu['\"]|\bwith_cuda\s*=\s*True|__global__")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class Traits:
    """What a Python file seems to hold."""

    model: bool  # the class ModelNew
    launch: bool  # the contract's function
    triton: bool  # Triton kernels, compiled when they are first called
    extension: bool  # C++ or CUDA, compiled when the file is imported
    cuda: bool  # it can only run on a GPU


def traits_of(text: str) -> Traits:
    """A look at the text; a file that cannot be parsed has traits too."""
    triton = _TRITON.search(text) is not None
    return Traits(
        model=_MODEL.search(text) is not None,
        launch=_LAUNCH.search(text) is not None,
        triton=triton,
        extension=_EXTENSION.search(text) is not None,
        cuda=triton or _CUDA.search(text) is not None,
    )


def fault_in(file: SourceFile, name: str, wanted: str) -> str | None:
    """Why a file cannot be imported or lacks `name` at its top level; None where it seems right.

    `wanted` is what to define, as the message quotes it.
    """
    try:
        tree = parsed(file.text, file.name)
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
    """Modules that a file imports, and texts in it that could be names of some; () where it cannot be parsed."""
    try:
        tree = parsed(text)
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
    """Names bound at the top level, inside `if` and `try` too."""
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
