"""Tokens of C, C++ and CUDA texts, and syntax trees of Python texts.

The tokenizer takes linear time for any text. It serves to strip comments, match brackets and compare programs; it is no
preprocessor and no parser.

Python texts are parsed under a lock: Python 3.11 counts the depth of the tree being built in one place for all threads,
and raises SystemError about a correct text if another thread parses at the same time. A parse that code of other
packages disturbed is repeated.
"""

from __future__ import annotations

import ast
import contextlib
import re
import threading
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple


class Token(NamedTuple):
    """One word of a source; all of them together are the text."""

    kind: str  # "space", "newline", "comment", "string", "number", "name" or "sign"
    text: str
    start: int


# No alternative can fail after a long look ahead: what is not closed runs to its line's or the text's end.
_TOKEN = re.compile(
    r"""
      (?P<space>(?:[ \t\f\v\r]|\\[ \t]*\r?\n)+)
    | (?P<newline>\n)
    | (?P<comment>//(?:[^\n\\]|\\[ \t\r]*\n|\\)*+|/\*.*?(?:\*/|\Z))
    | (?P<string>(?:u8|[uUL])?(?:R"(?P<mark>[^()\\\s"]{0,16})\(.*?(?:\)(?P=mark)"|\Z)
                 |"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?))
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*+)
    | (?P<name>[^\W\d]\w*+)
    | (?P<sign><<<|>>>|<<=|>>=|->\*|\.\.\.|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SILENT = ("space", "newline", "comment")


_KEPT_CHARS = 50_000  # longer texts are rare, and not worth the memory


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """The words of a text, spaces and comments among them."""
    if start == 0 and len(text) <= _KEPT_CHARS:
        return iter(_kept(text))
    return iter(_read_tokens(text, start))


def _read_tokens(text: str, start: int) -> tuple[Token, ...]:
    # Groups nested in another are never the last one to close, so `lastgroup` is always the kind. `Token(...)` would
    # take twice as long.
    make = tuple.__new__
    return tuple([make(Token, (each.lastgroup, each[0], each.start())) for each in _TOKEN.finditer(text, start)])


@lru_cache(maxsize=16)
def _kept(text: str) -> tuple[Token, ...]:
    """A reply is looked at several times in a row, from one question to the next, those of several runs in turn."""
    return _read_tokens(text, 0)


def code_tokens(text: str) -> list[Token]:
    """The words a compiler would see."""
    return [token for token in tokens(text) if token.kind not in _SILENT]


_TURN = threading.RLock()  # garbage collected during a reading may read something itself
_ATTEMPTS = 20


def parse_python(text: str, name: str = "<text>") -> ast.Module:
    """The tree of a Python file, without the warnings about it.

    Raises SyntaxError, ValueError, RecursionError or MemoryError, as `ast.parse` does.
    """
    tree = _read_tree(text, name, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def parse_python_expression(text: str, name: str = "<text>") -> ast.expr:
    """The tree of one Python expression."""
    tree = _read_tree(text, name, "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def _read_tree(text: str, name: str, mode: str) -> ast.AST:
    with _TURN, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes, nobody needs to hear
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(SystemError):
                return compile(text, name, mode, ast.PyCF_ONLY_AST)
        return compile(text, name, mode, ast.PyCF_ONLY_AST)
