"""Replies that change a program instead of writing it: SEARCH/REPLACE blocks and unified diffs.

An edit is applied where its text is found exactly once. Line numbers that models write are often wrong, so a hunk is
found by its context. A text that is missing or found twice is a failure that names the edit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MOST_EDITS = 100
_SEARCH = re.compile(r"[ \t]*<{5,}+[ \t]*+(?:SEARCH|ORIGINAL|HEAD|OLD|BEFORE)\b.*", re.IGNORECASE)
_MIDDLE = re.compile(r"[ \t]*={5,}+[ \t]*")
_REPLACE = re.compile(r"[ \t]*>{5,}.*")
_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[\w+.-]*[ \t]*")
_HUNK = re.compile(r"@@(?:[ \t]*-(\d+)(?:,\d+)?[ \t]+\+\d+(?:,\d+)?[ \t]*@@)?.*")
_HEADER = ("--- ", "+++ ", "diff ", "index ", "*** ", "\\ No newline")


@dataclass(frozen=True)
class Edit:
    """A piece of text and its replacement."""

    number: int  # from 1
    search: str
    replace: str
    line: int | None = None  # the line number that a hunk names, from 1


class EditFailed(Exception):
    """An edit cannot be applied; the message names the edit and the reason. Caught inside `prompts`."""


def search_replace_edits(text: str) -> tuple[Edit, ...]:
    """All SEARCH/REPLACE blocks of a reply, fenced or not; raises `EditFailed` for a block without an end."""
    edits: list[Edit] = []
    parts: tuple[list[str], list[str]] | None = None
    current: list[str] = []
    for line in text.split("\n"):
        if parts is None:
            if _SEARCH.fullmatch(line):
                parts = ([], [])
                current = parts[0]
        elif _MIDDLE.fullmatch(line) and current is parts[0]:
            current = parts[1]
        elif _REPLACE.fullmatch(line) and current is parts[1]:
            edits.append(Edit(len(edits) + 1, _body(parts[0]), _body(parts[1])))
            parts = None
            if len(edits) > MOST_EDITS:
                raise EditFailed(f"There are more than {MOST_EDITS} SEARCH/REPLACE blocks.")
        else:
            current.append(line)
    if parts is not None and edits:
        raise EditFailed(f"SEARCH/REPLACE block {len(edits) + 1} has no end.")
    return tuple(edits)


def diff_edits(text: str) -> tuple[Edit, ...]:
    """The hunks of a unified diff; () for other text."""
    lines = text.split("\n")
    hunks: list[tuple[int | None, list[str]]] = []
    if not any(line.startswith("@@") for line in lines):
        hunks.append((None, []))
    for line in lines:
        found = _HUNK.fullmatch(line)
        if found is not None:
            hunks.append((int(found[1]) if found[1] and len(found[1]) < 9 else None, []))
        elif hunks and not line.startswith(_HEADER):
            hunks[-1][1].append(line)
    if len(hunks) > MOST_EDITS:
        raise EditFailed(f"The diff has more than {MOST_EDITS} hunks.")
    changed = [(line, body) for line, body in hunks if any(text.startswith(("+", "-")) for text in body)]
    return tuple(
        Edit(
            number,
            _body([_unmarked(text) for text in body if not text.startswith("+")]),
            _body([_unmarked(text) for text in body if not text.startswith("-")]),
            line,
        )
        for number, (line, body) in enumerate(changed, start=1)
    )


def _unmarked(line: str) -> str:
    """A line of a hunk without its mark; models often omit the space before unchanged lines."""
    return line[1:] if line.startswith((" ", "+", "-")) else line


def has_search_replace(text: str) -> bool:
    """Whether a block contains a SEARCH/REPLACE edit."""
    return "<<<<<" in text and any(_SEARCH.fullmatch(line) for line in text.split("\n"))


def looks_like_diff(text: str, label: str = "") -> bool:
    """Whether a block is a diff."""
    lines = text.split("\n")
    changed = any(line.startswith(("+", "-")) for line in lines)
    return changed and (label in ("diff", "patch") or any(line.startswith(("@@", "--- a/")) for line in lines))


def new_file(diff: str) -> str:
    """The content of a file that a diff adds; "" where it changes an existing file."""
    lines = [line for line in diff.split("\n") if not line.startswith(_HEADER) and not _HUNK.fullmatch(line)]
    return "\n".join(map(_unmarked, lines)) if all(line.startswith("+") for line in lines if line.strip()) else ""


def edited(text: str, edits: Sequence[Edit], *, indented: bool) -> str:
    """The text after all edits, in order. `indented`: white space at the start of a line counts."""
    for edit in edits:
        text = _done(text, edit, indented)
    return text


def _body(lines: list[str]) -> str:
    kept = [line for line in lines if not _FENCE.fullmatch(line)]
    return "\n".join(kept).strip("\n")


def _done(text: str, edit: Edit, indented: bool) -> str:
    if not edit.search.strip():
        raise EditFailed(f"Edit {edit.number} names no text to replace.")
    if text.count(edit.search) == 1:
        return text.replace(edit.search, edit.replace)
    lines = text.split("\n")
    wanted = edit.search.split("\n")
    for form in (str, str.rstrip) if indented else (str, str.rstrip, str.strip):
        places = _places([form(line) for line in lines], [form(line) for line in wanted])
        if edit.line is not None and edit.line - 1 in places:
            places = [edit.line - 1]
        if len(places) == 1:
            after = edit.replace.split("\n") if edit.replace else []
            return "\n".join((*lines[: places[0]], *after, *lines[places[0] + len(wanted) :]))
    count = text.count(edit.search) or len(places)
    first = next(line for line in wanted if line.strip()).strip()[:100]
    found = f"is found {count} times" if count else "is not found"
    raise EditFailed(f"The text of edit {edit.number}, which begins with `{first}`, {found} in the kernel shown.")


def _places(lines: list[str], wanted: list[str]) -> list[int]:
    """The indices at which the wanted lines begin, at most a few."""
    found: list[int] = []
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted:
            found.append(start)
            if len(found) > 50:
                break
    return found
