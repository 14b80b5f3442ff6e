"""Sentences for people: on a terminal, and within a card, broken between words; by themselves in a file not at all.

A path, a name or a command in backquotes is never broken, however long: a terminal shows it over several rows and still
gives it back whole to whoever copies it. Cards and tables are the part of `render`.
"""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

_WORD = re.compile(r"`[^`]*`\S*|\S+")


class Sentence:
    """A text that may stand in a group of other things; `show` prints it."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line, of which those with one long word are wider than there is room."""
        for line in self._text.split("\n", allow_blank=True):
            for part in line.divide(breaks(line.plain, options.max_width)):
                part.rstrip()
                part.no_wrap, part.overflow = True, "ignore"
                yield part


def breaks(line: str, width: int) -> list[int]:
    """Where new lines begin: at words that would end behind the width, unless nothing is before them."""
    found: list[int] = []
    start, indented = 0, True  # of the line in hand, and whether it has no word yet
    for word in _WORD.finditer(line):
        if not indented and cell_len(line[start : word.end()]) > width:
            start = word.start()
            found.append(start)
        indented = False
    return found


def say(console: Console, line: Text | str, style: str = "", *, whole: bool = False) -> None:
    """A sentence; `whole`: in one line even on a terminal, where it ends in a command to be copied."""
    text = Text(line, style) if isinstance(line, str) else line
    if whole or not console.is_terminal:
        console.print(text, soft_wrap=True)
    else:
        show(console, Sentence(text))


def show(console: Console, *parts: RenderableType) -> None:
    """Cards and whatever else holds sentences, below each other."""
    console.print(*parts, sep="\n", crop=False)


def complain(line: str) -> None:
    """An error, on standard error."""
    say(Console(stderr=True, highlight=False, markup=False, emoji=False), line)
