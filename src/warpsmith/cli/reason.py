"""Why a kernel is not valid, at the width of a terminal. Not for tables, which show its beginning (`render.short`)."""

from __future__ import annotations

import re

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_QUOTED = re.compile(r"\s*\d* \|")  # as g++ and clang quote the source, and set marks below it


class Reason:
    """A text of sentences, which wrap, and of lines that a compiler quotes, which are cut: marks stand under places."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Line by line."""
        for line in self._lines:
            if not _QUOTED.match(line) or len(line) <= options.max_width:
                yield Text(line)
            elif line.partition("|")[2][: options.max_width - line.index("|") - 1].strip():
                yield Text(line, no_wrap=True, overflow="ellipsis")  # a mark that is out of sight is left out
