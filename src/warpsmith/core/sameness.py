"""Recognises a program that was tried before, although somebody wrote it a little differently.

Two candidates have one fingerprint when they differ only in comments, white space, the order of includes and the names
of what they themselves declare. A doubt is decided for "different": a duplicate that is missed costs one evaluation, a
new idea that is taken for an old one is lost.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Sequence

from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.declared import Word, declared_names
from warpsmith.core.pynames import renamed_tree
from warpsmith.core.pytext import parsed
from warpsmith.core.tokens import Token, tokens

_INCLUDE = re.compile(r"#[ \t]*include[ \t]*(<[^>\n]*>|\"[^\"\n]*\")")
_DEFINE = re.compile(r"#[ \t]*define[ \t]+(\w+)(\(?)")
_GLUED = re.compile(r"\w\\[ \t]*\r?\n\w")
_LONGEST = 200_000  # characters; beyond that nobody writes by hand, and a plain comparison must do
_ENTRIES = ("launch", "workspace_bytes", "main", "ModelNew", "forward")  # names that a harness calls by


def fingerprint(candidate: Candidate) -> str:
    """Sixteen hex digits, equal for programs that are as good as the same."""
    fixed = frozenset((*_ENTRIES, *re.findall(r"\w+", candidate.entry), *(name for name, _ in candidate.defines)))
    python = [file for file in candidate.files if file.name.endswith(".py")]
    native = [file for file in candidate.files if not file.name.endswith(".py")]
    # The main file's own name means nothing, its ending does; other files are found by their names.
    names = [candidate.main.name.rpartition(".")[2], *(file.name for file in candidate.files[1:])]
    content = (
        candidate.backend,
        sorted(candidate.defines),
        candidate.entry.split(),
        names,
        [_python_form(file.text, fixed) for file in python],
        _native_form(native, fixed),
    )
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _python_form(text: str, fixed: frozenset[str]) -> str:
    if len(text) > _LONGEST:
        return _plain_form(text)
    try:
        return ast.dump(renamed_tree(parsed(text), fixed))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _plain_form(text)


def _plain_form(text: str) -> str:
    """Indentation and blank lines inside strings may count: nothing but the ends of lines is safe to touch."""
    return "\n".join(line.rstrip() for line in text.splitlines())


def _native_form(files: Sequence[SourceFile], fixed: frozenset[str]) -> list[str]:
    """Words of all files in a row: what one declares, another may use."""
    if sum(len(file.text) for file in files) > _LONGEST:
        return [_plain_form(file.text) for file in files]
    words: list[Word] = []
    for file in files:
        words += _sorted_includes(_words(file.text))
        words.append(Word("file", "", True))
    names = declared_names(words, fixed)
    known: dict[str, str] = {}
    form = []
    for word in words:
        if word.kind == "name" and word.text in names:
            # Not a name that C could spell, so that it never meets one of the source's own.
            form.append(known.setdefault(word.text, f"%{len(known)}"))
        else:
            form.append(word.text)
    return form


def _words(text: str) -> list[Word]:
    """What a compiler sees, and `// tune:` lines, which declare macros although they are comments."""
    found: list[Word] = []
    directive, fresh, position = False, True, 0
    while position < len(text):
        for token in tokens(text, position):
            if token.start < position:
                continue  # within a directive that was taken as a whole
            if token.start > position:
                break  # it ended within a word: from there words are others
            position = token.start + len(token.text)
            if token.kind == "newline":
                if directive:
                    found.append(Word("end", "\n", True))
                directive, fresh = False, True
            elif token.kind == "comment":
                if "tune:" in token.text:
                    found.append(Word("tune", _tune(text, token), True))
            elif token.kind == "space":
                if "\\" in token.text and _GLUED.match(text, token.start - 1):
                    found.append(Word("other", "\\", directive))  # a name in two halves is not two names
            elif token.text == "#" and fresh:
                directive, fresh = True, False
                position = _directive(text, token.start, found)
            else:
                kind = "name" if token.kind == "name" else "other"
                if kind == "name" and found and found[-1].text in (".", "->", "::"):
                    kind = "member"
                found.append(Word(kind, token.text, directive))
                fresh = False
    return [*found, Word("end", "\n", True)] if directive else found


def _tune(text: str, comment: Token) -> str:
    """Such a comment line by line; it declares something only where it begins its line."""
    alone = not text[text.rfind("\n", 0, comment.start) + 1 : comment.start].strip()
    lines = (" ".join(line.split()) for line in comment.text.split("\n"))
    return "\n".join(("alone" if alone else "behind", *lines))


def _directive(text: str, start: int, found: list[Word]) -> int:
    """Takes the beginning of a directive where white space counts; returns where ordinary words go on."""
    include = _INCLUDE.match(text, start)
    if include is not None:
        found.append(Word("include", include[1], True))
        return include.end()
    define = _DEFINE.match(text, start)
    if define is not None:
        # `F(x)` is a macro with a parameter, `F (x)` one whose value is in parentheses.
        found += [Word("other", f"#define{define[2]}", True), Word("macro", define[1], True)]
        return define.end()
    found.append(Word("other", "#", True))
    return start + 1


def _sorted_includes(words: list[Word]) -> list[Word]:
    """System headers that stand together have no order; the candidate's own files may depend on theirs."""
    done: list[Word] = []
    run: list[Word] = []
    for word in words:
        if word.kind == "include" or (word.kind == "end" and run):
            run.append(word)
            continue
        if run:
            done += _one_run(run)
            run = []
        done.append(word)
    return done + _one_run(run)


def _one_run(run: list[Word]) -> list[Word]:
    included = [word for word in run if word.kind == "include"]
    system = {word.text: word for word in included if word.text.startswith("<")}
    return [*(system[text] for text in sorted(system)), *(w for w in included if not w.text.startswith("<"))]
