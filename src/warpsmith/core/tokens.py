"""Splits C, C++ and CUDA text into words, in linear time and for any text at all.

Enough to strip comments, match brackets and compare programs; not a preprocessor and not a parser.
"""

from __future__ import annotations

import re
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
    return _read(text, start)


def _read(text: str, start: int) -> Iterator[Token]:
    for found in _TOKEN.finditer(text, start):
        # Groups nested in another are never the last one to close, so this is always the kind.
        yield Token(found.lastgroup or "", found[0], found.start())


@lru_cache(maxsize=8)
def _kept(text: str) -> tuple[Token, ...]:
    """A reply is looked at several times in a row, from one question to the next."""
    return tuple(_read(text, 0))


def meaningful(text: str) -> Iterator[Token]:
    """The words a compiler would see."""
    return (token for token in tokens(text) if token.kind not in _SILENT)
