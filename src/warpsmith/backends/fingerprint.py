"""Recognises programs that were evaluated before and differ only in comments, white space or include order.

A missed duplicate costs one evaluation, a new program taken for a duplicate is lost. So programs whose normal form is
uncertain count as different.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from itertools import groupby

from warpsmith.backends.tunables import tunables
from warpsmith.model.candidate import Candidate
from warpsmith.model.source_text import parse_python, tokens

_MAX_CHARS = 200_000  # of a file; longer texts are compared line by line
_COMMENT_IN_INCLUDE = re.compile(r"#[ \t]*include[ \t]*[<\"][^>\"\n]*(?:/\*|//)")
_SYSTEM_INCLUDE = re.compile(r"# ?include ?<([^>]*)>")


def fingerprint(candidate: Candidate) -> str:
    """Sixteen hex digits, equal for programs that differ only in comments, white space and the order of includes."""
    # Of the main file only the suffix matters; other files are included by name.
    names = [candidate.main.name.rpartition(".")[2], *(file.name for file in candidate.files[1:])]
    content = (
        candidate.backend,
        sorted(candidate.defines),
        candidate.entry.split(),
        names,
        [_python_form(f.text) if f.name.endswith(".py") else _native_form(f.text) for f in candidate.files],
    )
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _lines(text: str) -> list[str]:
    """Lines without trailing white space: the normal form of a text that cannot be parsed."""
    return [line.rstrip() for line in text.splitlines()]


def _python_form(text: str) -> list[str]:
    """The normal form of Python: the syntax tree without docstrings."""
    if len(text) > _MAX_CHARS:
        return _lines(text)
    try:
        tree = parse_python(text)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and ast.get_docstring(node, clean=False) is not None
            ):
                del node.body[0]
        return [ast.dump(tree)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _lines(text)


def _native_form(text: str) -> list[str]:
    """The normal form of C++: `// tune:` lines and tokens, with neighbouring system includes in alphabetical order."""
    if len(text) > _MAX_CHARS or _COMMENT_IN_INCLUDE.search(text):
        return _lines(text)
    form = [f"{tunable.name} = {tunable.values}" for tunable in tunables(text)]
    for is_include, group in groupby(_words(text), _is_system_include):
        words = [_SYSTEM_INCLUDE.sub(r"#include <\1>", word) if word[0] == "#" else word for word in group]
        form += sorted(set(words)) if is_include else words
    return form


def _is_system_include(word: str) -> bool:
    return word[0] == "#" and _SYSTEM_INCLUDE.fullmatch(word) is not None


def _words(text: str) -> Iterator[str]:
    """Every token outside directives, and every directive as one word, in which white space matters."""
    directive = ""
    line_start = True
    for token in tokens(text):
        if token.kind == "newline":
            if directive:
                yield directive.rstrip()
            directive, line_start = "", True
        elif token.kind in ("space", "comment"):
            if token.kind == "space" and "\\" in token.text:
                yield "\\"  # a line continuation may divide a name
            if directive and not directive.endswith(" "):
                directive += " "
        elif directive or (token.text == "#" and line_start):
            directive += token.text
            line_start = False
        else:
            yield token.text
            line_start = False
    if directive:
        yield directive.rstrip()
