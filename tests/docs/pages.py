"""Reads the documentation: fenced blocks, the commands and programs in them, code in running text, links.

A block may be a file: then the line before it names it, in backquotes and with a colon. Nothing is run here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\s*$")
_FILE = re.compile(r"^`(?P<name>[\w./-]+\.\w+)`:$")
_COMMENT = re.compile(r"(?:^|\s{2,})#.*$")
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$")
SHELLS = ("bash", "console")


@dataclass(frozen=True)
class Fence:
    """A fenced block."""

    page: str  # relative to the repository
    line: int  # of its first line
    language: str
    text: str
    file: str = ""  # the file it shows, where it is one

    @property
    def title(self) -> str:
        """Its first line that is no comment and no docstring: what a table calls it by."""
        return next(line for line in self.text.splitlines() if line.strip() and not line.startswith(("#", '"""')))


@dataclass(frozen=True)
class Part:
    """Something to be done: a command, or a Python block."""

    page: str
    line: int
    text: str  # of a Python block its title
    program: str = ""  # of a Python block the whole

    @property
    def where(self) -> str:
        """For a message."""
        return f"{self.page}:{self.line}: {self.text}"


def fences(path: Path) -> list[Fence]:
    """All fenced blocks of a page, in order."""
    page = path.relative_to(ROOT).as_posix()
    found: list[Fence] = []
    opened: tuple[int, str, str] | None = None
    body: list[str] = []
    said = ""  # the last line with something on it, before the block
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _FENCE.match(line)
        if match and opened is None:
            named = _FILE.match(said)
            opened, body = (number + 1, match["language"], named["name"] if named else ""), []
        elif match and opened is not None and not match["language"]:
            found.append(Fence(page, opened[0], opened[1], "\n".join(body) + "\n", opened[2]))
            opened, said = None, ""
        elif opened is not None:
            body.append(line)
        elif line.strip():
            said = line.strip()
    assert opened is None, f"{page}:{opened[0]}: a block that does not end"
    return found


def commands(fence: Fence) -> Iterator[Part]:
    """The commands of a block: all lines of `bash`, those after a prompt of `console`; comments left out."""
    for number, line in enumerate(fence.text.splitlines(), fence.line):
        if fence.language == "console" and not line.startswith("$ "):
            continue
        text = _COMMENT.sub("", line.removeprefix("$ ")).strip()
        if text:
            yield Part(fence.page, number, text)


def parts(path: Path) -> list[Part]:
    """Everything on a page that can be done, in order. A block that shows a file is none: commands use the file."""
    found: list[Part] = []
    for fence in fences(path):
        if fence.language in SHELLS:
            found.extend(commands(fence))
        elif fence.language == "python" and not fence.file:
            found.append(Part(fence.page, fence.line, fence.title, fence.text))
    return found


def running_text(path: Path) -> str:
    """A page without its fenced blocks."""
    kept, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def inline_code(path: Path) -> list[str]:
    """What stands in backquotes in the running text."""
    return _INLINE.findall(running_text(path))


def links(path: Path) -> list[str]:
    """Where a page points to."""
    return _LINK.findall(running_text(path))


def anchors(path: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    found = set()
    for line in running_text(path).splitlines():
        match = _HEADING.match(line)
        if match:
            words = re.sub(r"[^\w\- ]", "", match[1].lower())
            found.add(words.strip().replace(" ", "-"))
    return found
