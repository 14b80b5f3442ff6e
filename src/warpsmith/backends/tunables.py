"""Reads `// tune: BLOCK = 128, 256, 512` lines: macros of a candidate and the values that tuning may give them.

Each becomes a macro on the compiler's command line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpsmith.model.candidate import Candidate

_LINE = re.compile(r"^[ \t]*//[ \t]*tune:[ \t]*([A-Za-z_]\w*)[ \t]*=[ \t]*(.+?)[ \t]*$", re.MULTILINE)
# Compiler drivers pass macros through a shell: characters that are special in a shell are not allowed.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_VALUE = re.compile(r"[\w.+-]+", re.ASCII)
_DECLARES = re.compile(r"\b(?:constexpr|const|enum|int|unsigned)\b")
_DECLARATION_CHARS = 200  # before a name, in which its declaration is searched


@dataclass(frozen=True)
class Tunable:
    """One macro and the values it may take; the first is the default."""

    name: str
    values: tuple[str, ...]


def tunables(source: str) -> tuple[Tunable, ...]:
    """All tunables of a source text, in order. A line with prose instead of a list is no tunable.

    Neither is a name that the source declares itself, which no macro may have: it keeps its declared value.
    """
    found: dict[str, Tunable] = {}
    for name, listed in _LINE.findall(source):
        values = tuple(dict.fromkeys(value.strip() for value in listed.split(",") if value.strip()))
        usable = _NAME.fullmatch(name) and values and all(_VALUE.fullmatch(v) for v in values)
        if usable and name not in found and not redefined(source, name):
            found[name] = Tunable(name, values)
    return tuple(found.values())


def macros(candidate: Candidate) -> tuple[tuple[str, str], ...]:
    """The macros to compile a candidate with: the candidate's chosen values, else the defaults of its tunables."""
    chosen = {t.name: t.values[0] for file in reversed(candidate.files) for t in tunables(file.text)}
    chosen.update(candidate.defines)
    return tuple(sorted(chosen.items()))


def bad_macro(name: str, value: str) -> bool:
    """Whether a macro may not be put on a command line."""
    return not (_NAME.fullmatch(name) and _VALUE.fullmatch(value))


def redefined(source: str, name: str) -> bool:
    """Whether a source declares the name of a macro itself, e.g. `constexpr int BLOCK = 128;`."""
    for use in re.finditer(rf"\b{re.escape(name)}\s{{0,20}}=[^=]", source):
        before = re.split(r"[;\n#]", source[max(0, use.start() - _DECLARATION_CHARS) : use.start()])[-1]
        if _DECLARES.search(before):
            return True
    return False
