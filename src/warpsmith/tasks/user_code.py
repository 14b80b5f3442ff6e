"""Runs the code of a task file, which may raise, exit or print.

Only here are all exceptions of such code caught; elsewhere an unexpected exception is an error of Warpsmith and stays
visible. This is no sandbox: a task file is trusted like any program that its user runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType

from warpsmith.model.errors import TaskError, WarpsmithError

_SENTENCE_LIMIT = 300  # characters of an exception's message that are quoted


@dataclass(frozen=True)
class TaskFile:
    """A task file that has been executed."""

    path: Path
    text: str
    module: ModuleType


class Attempt(contextlib.AbstractContextManager["Attempt"]):
    """Runs code of a task file in a `with` block and keeps the exception in `error`.

    The code prints to stderr, because stdout may carry JSON; its warnings are dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: BaseException | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Attempt:
        self._stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        self._stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._stack.close()
        if isinstance(error, Exception | SystemExit):
            self.error = error
            return True
        return False  # e.g. KeyboardInterrupt

    def complain(self, doing: str) -> None:
        """Raise the exception as a TaskError of one sentence that names the line; do nothing without an exception."""
        if self.error is not None:
            raise TaskError(error_sentence(self.error, self.path, doing)) from self.error


def error_sentence(error: BaseException, path: Path, doing: str) -> str:
    """One sentence for an exception in a task file, with the line of the file."""
    line = _line_in(error, path)
    where = f"{path}:{line}" if line else str(path)
    if isinstance(error, WarpsmithError):
        text = str(error)
        return text if text.startswith(str(path)) else f"{where}: {text}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.split(".")[0]
        return f"{where}: it imports {error.name!r}, which is not installed; install {package!r} and try again."
    if isinstance(error, SystemExit):
        return f"{where}: {doing} ended the program (SystemExit); a task file must not exit."
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    detail = lines[0][:_SENTENCE_LIMIT].rstrip(" .:") if lines else ""
    kind = type(error).__name__
    return f"{where}: {doing} raised {kind}: {detail}." if detail else f"{where}: {doing} raised {kind}."


def execute(path: Path, text: str) -> TaskFile:
    """Execute a task file as a module, which `sys.modules` has under a private name.

    The module stays there for dataclasses, pickling and `inspect`; that of a file that fails is removed.
    """
    content = hashlib.sha256(f"{path}\0{text}".encode()).hexdigest()[:16]
    name = f"_warpsmith_task_{content}"
    module = ModuleType(name)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    sys.modules[name] = module
    with Attempt(path) as attempt:
        exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
    if attempt.error is not None:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
    attempt.complain("executing it")
    return TaskFile(path, text, module)


def _line_in(error: BaseException, path: Path) -> int | None:
    """The innermost line of the file in the traceback; None if it has none."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else None
