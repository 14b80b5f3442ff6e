"""The words of a reply: name, strategy and thought, as models really head them.

`name: x`, `**Name:** x`, `### Strategy`, `1. **Thought**: x` are all read; what is not there is empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

NAME_CHARS, STRATEGY_CHARS, THOUGHT_CHARS = 80, 1000, 4000

_WORDS = {
    **dict.fromkeys(("name", "kernel name"), "name"),
    **dict.fromkeys(("strategy", "strategies", "plan", "approach"), "strategy"),
    **dict.fromkeys(("thought", "thoughts", "explanation", "rationale", "reasoning"), "thought"),
    **dict.fromkeys(("code", "complete code", "kernel code", "full code"), "code"),
}
_HEAD = "|".join(sorted(_WORDS, key=len, reverse=True))
_FIELD = re.compile(
    rf"[ \t>]{{0,8}}(?:[-*+][ \t]+|\d+[.)][ \t]+)?(?P<mark>[#*_` \t]{{0,8}})(?P<word>{_HEAD})[*_` \t]{{0,6}}"
    r"(?P<colon>:?)[*_` \t]{0,6}(?P<rest>.*)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fields:
    """What a reply says about its kernel."""

    name: str = ""
    strategy: str = ""
    thought: str = ""


def field_of(line: str) -> tuple[str, str] | None:
    """The field that a line begins, and the rest of the line; None where it begins none."""
    found = _FIELD.fullmatch(line)
    if found is None:
        return None
    # Without a colon it is a heading, and then nothing follows it.
    if not found["colon"] and (found["rest"].strip() or not found["mark"].strip()):
        return None
    return _WORDS[found["word"].lower()], found["rest"].strip()


def fields_in(prose: Sequence[str]) -> Fields:
    """Fields by their headings; a thought that has none is whatever else was said."""
    found: dict[str, list[str]] = {}
    other: list[str] = []
    current: list[str] = other
    for line in prose:
        begun = field_of(line)
        if begun is None:
            current.append(line)
            continue
        key, rest = begun
        current = [rest]
        if key != "code":
            found[key] = current  # the last one counts: before it stood drafts
        else:
            current = []
    thought = found.get("thought") or other
    return tidy("\n".join(found.get("name", [])), "\n".join(found.get("strategy", [])), "\n".join(thought))


def tidy(name: str, strategy: str, thought: str) -> Fields:
    """Fields of bounded length, a name on one line."""
    first = next((line for line in name.splitlines() if line.strip()), "")
    return Fields(
        first.strip(" \t*_`\"'")[:NAME_CHARS].strip(),
        strategy.strip(" \t\n*_")[:STRATEGY_CHARS].strip(),
        thought.strip(" \t\n*_")[:THOUGHT_CHARS].strip(),
    )
