"""Refuses sources that would make the compiler read files it should not, before it runs.

A compiler quotes what it reads in its messages, and messages go to proposers: `#include "/etc/passwd"`
leaks. This is a filter for the plain cases, no sandbox: a determined author can still hide a name from
it, so builds of hostile sources belong in a container.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from warpsmith.core.candidate import SourceFile

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}", re.ASCII)
_SPLICE = re.compile(r"(?:\\|\?\?/)[ \t]*\r?\n")
# `#` opens a directive at the start of a line or after a comment. A comment may stand after it as well, of any
# length and number: nobody writes that but to hide something, and looking through it could take for ever.
_GAP = r"[ \t\f\v]*"
_DIRECTIVE = re.compile(
    rf"^(?:[^\n]*\*/)?{_GAP}(?:\#|%:|\?\?=){_GAP}"
    rf"(?P<word>(?:include_next|include|import|embed|line|\d+|pragma{_GAP}GCC{_GAP}(?:pch_preprocess|dependency))\b"
    rf"|(?:pragma{_GAP}(?:GCC{_GAP})?)?/\*)"
    rf"{_GAP}(?P<rest>[^\n]*)",
    re.MULTILINE,
)
_ASSEMBLER = re.compile(r"""\.incbin\b|(?:["\s;]|\\[nt])\.include\s""")


def objection(files: Iterable[SourceFile]) -> str | None:
    """Why these files are not given to a compiler, in one sentence; None when they are fine."""
    names: set[str] = set()
    for file in files:
        if not _NAME.fullmatch(file.name):
            return f"the file name {file.name!r} is not usable: use letters, digits, '_', '-' and '.' only."
        if file.name in names:
            return f"two files are named {file.name!r}: give each its own name."
        names.add(file.name)
        found = _objection_to_text(file)
        if found:
            return found
    return None


def _objection_to_text(file: SourceFile) -> str | None:
    text = _SPLICE.sub("", file.text)
    for match in _DIRECTIVE.finditer(text):
        word, rest = match["word"], match["rest"].strip()
        line = text.count("\n", 0, match.start("word")) + 1
        where = f"{file.name}:{line}:"
        if word in ("include", "include_next", "import"):
            target = re.match(r'"([^"\n]*)"|<([^>\n]*)>', rest)
            if target is None:
                return f"{where} error: #include must name its file directly, not through a macro."
            path = target[1] if target[1] is not None else target[2]
            if path.startswith(("/", "~")) or ".." in path.split("/"):
                cure = "name a header of the toolkit or a file of the candidate"
                return f"{where} error: #include of {path!r} leaves the include path: {cure}."
        elif word.endswith("/*"):
            return f"{where} error: comments inside a directive are not allowed: move it out of the line."
        elif word == "embed":
            return f"{where} error: #embed is not allowed: a candidate is source code only."
        else:
            return f"{where} error: #{word.split()[0]} directives of this kind are not allowed: remove the line."
    if _ASSEMBLER.search(text):
        return f"{file.name}: error: the assembler's .incbin and .include are not allowed: remove them."
    return None
