"""A reply as text: thinking removed, then told apart into fenced blocks and the words around them.

Line by line and in linear time, whatever comes in. What the blocks mean, `parser` decides.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

_INVISIBLE = re.compile("[\ufeff\u200b\u2060]")
_THINKING = r"(?:think|thinking|reasoning|reflection|scratchpad|analysis)"
_THINKING_TAG = re.compile(rf"(?m:^[ \t]*)<{_THINKING}>|</{_THINKING}>", re.IGNORECASE)
_FINAL_CHANNEL = "<|channel|>final<|message|>"
# Every repetition is bounded or takes all it can get: no line, however long, is looked at more than a few times.
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
    """The inside of a fence."""

    label: str  # "cpp", "json"; "" where there is none
    text: str
    closed: bool = True


@dataclass(frozen=True)
class Parts:
    """A reply in pieces."""

    blocks: tuple[Block, ...]
    prose: tuple[str, ...]  # lines outside; an empty line where a block stood


def cleaned(text: str) -> str:
    """The same text with line ends and characters that every tool can take."""
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
        # Behind a closing tag without its opening one, which was part of the prompt, the answer begins as well.
        thinking, position = opens, tag.end()
    if thinking:
        return "".join(kept), text[position:]
    return "".join((*kept, text[position:])), ""


def split(text: str) -> Parts:
    """Blocks and prose. A fence that is never closed lasts to the next labelled one, or to the end."""
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
            if found["info"].strip():  # the last one was forgotten open
                fence, label, inside = found["fence"], *_opened(found["info"])
            else:
                inside = None
        elif line.rstrip().endswith(fence) and line.count("`") + line.count("~") == len(fence):
            inside.append(line.rstrip()[: -len(fence)])  # the end of a fence behind the end of the code
            blocks.append(_block(label, inside, closed=True))
            prose.append("")
            inside = None
        else:
            inside.append(line)
    if inside is not None:
        blocks.append(_block(label, inside, closed=False))
    return Parts(tuple(blocks), tuple(prose))


def _opened(info: str) -> tuple[str, list[str]]:
    """The label, and the first line of code where it stands behind the fence."""
    info = info.strip()
    found = _LABEL.match(info)
    label = found[0].lower() if found else ""
    rest = info[len(label) :].strip()
    return label, [rest] if rest.startswith("#") else []


def _block(label: str, lines: list[str], closed: bool) -> Block:
    return Block(label, textwrap.dedent("\n".join(lines)).strip("\n"), closed)
