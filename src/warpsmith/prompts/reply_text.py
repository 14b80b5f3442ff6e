"""The text of a reply: removes reasoning, splits code blocks from prose, reads the fields name, strategy and thought.

Works line by line in linear time for any input. Fields are read in the forms that models use: `name: x`,
`**Name:** x`, `### Strategy`, `1. **Thought**: x`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

_INVISIBLE = re.compile("[\ufeff\u200b\u2060]")
_THINKING = r"(?:think|thinking|reasoning|reflection|scratchpad|analysis)"
_THINKING_TAG = re.compile(rf"(?m:^[ \t]*)<{_THINKING}>|</{_THINKING}>", re.IGNORECASE)
_FINAL_CHANNEL = "<|channel|>final<|message|>"
# Every repetition is bounded or possessive, so that matching takes linear time for lines of any length.
_FENCE = re.compile(
    r"[ \t>]{0,16}(?:(?:[-*]|\d{1,3}[.)])[ \t]{1,4})?(?:[*_#]{0,6}[ \t]{0,4}code[*_ \t]{0,6}:[*_ \t]{0,6})?"
    r"(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`]*+)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[\w+.-]*")
_TAGS = r"(?:code|kernel|cuda|cpp|c\+\+|python|triton)"
_OPENING_TAG = re.compile(rf"(?m)^[ \t]*<({_TAGS})>[ \t]*$", re.IGNORECASE)
_CLOSING_TAG = re.compile(rf"(?m)^[ \t]*</{_TAGS}>[ \t]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """The content of a fenced block."""

    label: str  # "cpp", "json"; "" without one
    text: str
    closed: bool = True


@dataclass(frozen=True)
class Parts:
    """The fenced blocks and the prose of a reply."""

    blocks: tuple[Block, ...]
    prose: tuple[str, ...]  # lines outside blocks; an empty line in the place of each block


def cleaned(text: str) -> str:
    """The text with plain line ends and without characters that cannot be encoded."""
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def without_thinking(text: str) -> tuple[str, str]:
    """The answer, and what follows a thinking tag that was never closed."""
    if _FINAL_CHANNEL in text:
        return text.rpartition(_FINAL_CHANNEL)[2], ""
    kept: list[str] = []
    position, thinking = 0, False
    for tag in _THINKING_TAG.finditer(text):
        opens = "</" not in tag[0]
        if opens and not thinking:
            kept.append(text[position : tag.start()])
        # The answer also begins after a closing tag whose opening tag was part of the prompt.
        thinking, position = opens, tag.end()
    if thinking:
        return "".join(kept), text[position:]
    return "".join((*kept, text[position:])), ""


def split(text: str) -> Parts:
    """The blocks and prose of a reply. An unclosed fence ends at the next labelled fence, or at the end."""
    if "```" not in text and "~~~" not in text:
        text = _CLOSING_TAG.sub("```", _OPENING_TAG.sub(r"```\1", text))
    blocks: list[Block] = []
    prose: list[str] = []
    inside: list[str] | None = None
    fence = label = ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if inside is None:
            if found is None:
                prose.append(line)
                continue
            fence, label, inside = found["fence"], *_opened(found["info"])
            continue
        if found is not None and found["fence"].startswith(fence):
            blocks.append(_block(label, inside, closed=not found["info"].strip()))
            prose.append("")
            if found["info"].strip():  # the last fence was not closed
                fence, label, inside = found["fence"], *_opened(found["info"])
            else:
                inside = None
        elif line.rstrip().endswith(fence) and line.count("`") + line.count("~") == len(fence):
            inside.append(line.rstrip()[: -len(fence)])  # the fence ends on the last line of code
            blocks.append(_block(label, inside, closed=True))
            prose.append("")
            inside = None
        else:
            inside.append(line)
    if inside is not None:
        blocks.append(_block(label, inside, closed=False))
    return Parts(tuple(blocks), tuple(prose))


def _opened(info: str) -> tuple[str, list[str]]:
    """The label of a fence, and the first line of code if it is on the same line."""
    info = info.strip()
    found = _LABEL.match(info)
    label = found[0].lower() if found else ""
    rest = info[len(label) :].strip()
    return label, [rest] if rest.startswith("#") else []


def _block(label: str, lines: list[str], closed: bool) -> Block:
    return Block(label, textwrap.dedent("\n".join(lines)).strip("\n"), closed)


NAME_CHARS, STRATEGY_CHARS, THOUGHT_CHARS = 80, 4000, 4000

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
    """The fields of a reply that describe its kernel."""

    name: str = ""
    strategy: str = ""
    thought: str = ""


def field_of(line: str) -> tuple[str, str] | None:
    """The field that a line begins, and the rest of the line; None where it begins none."""
    found = _FIELD.fullmatch(line)
    if found is None:
        return None
    # A field without a colon is a heading: nothing follows on its line.
    if not found["colon"] and (found["rest"].strip() or not found["mark"].strip()):
        return None
    return _WORDS[found["word"].lower()], found["rest"].strip()


def fields_in(prose: Sequence[str]) -> Fields:
    """The fields of a reply by their headings; without a heading, the thought is the remaining prose."""
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
            found[key] = current  # of several the last counts: earlier ones are drafts
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
