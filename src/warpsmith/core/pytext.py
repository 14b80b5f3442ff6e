"""Reading Python texts as trees, from any thread.

Python 3.11 counts the depth of the tree it builds in one place for all threads. Where one thread builds a tree while
another is in the middle of one (garbage collected meanwhile may run code, which lets others run), the second finds the
count changed and raises SystemError about a text that is in order. So our own readings take turns, and one that was
disturbed by somebody else's is done again. The switch that silences warnings is one for all threads too.
"""

from __future__ import annotations

import ast
import contextlib
import threading
import warnings

_TURN = threading.RLock()  # garbage collected during a reading may read something itself
_ATTEMPTS = 20


def parsed(text: str, name: str = "<text>") -> ast.Module:
    """The tree of a Python file, without the warnings about it.

    Raises SyntaxError, ValueError, RecursionError or MemoryError, as `ast.parse` does.
    """
    tree = _read(text, name, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def parsed_expression(text: str, name: str = "<text>") -> ast.expr:
    """The tree of one Python expression."""
    tree = _read(text, name, "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def _read(text: str, name: str, mode: str) -> ast.AST:
    with _TURN, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes, nobody needs to hear
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(SystemError):
                return compile(text, name, mode, ast.PyCF_ONLY_AST)
        return compile(text, name, mode, ast.PyCF_ONLY_AST)
