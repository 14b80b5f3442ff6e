"""One program that claims to compute a task. Its id is a hash of what it says, not of where it came from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property

from warpsmith.model.text import plain_name


@dataclass(frozen=True)
class SourceFile:
    """One file of a candidate."""

    name: str  # a plain file name, no folders
    text: str

    def __post_init__(self) -> None:
        plain_name(self.name)


@dataclass(frozen=True)
class Candidate:
    """A program: sources, the backend that understands them, and where the idea came from."""

    files: tuple[SourceFile, ...]  # the first holds the entry point
    backend: str
    defines: tuple[tuple[str, str], ...] = ()  # values of its tunables, passed as macros
    entry: str = ""  # the function to call and its arguments, "softmax(x, 1)", where it is not the contract's own
    parents: tuple[str, ...] = field(default=(), compare=False)
    operator: str = field(default="", compare=False)  # which operator of a method made it
    thought: str = field(default="", compare=False)
    strategy: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        names = [file.name for file in self.files]
        if not names or len(set(names)) < len(names):
            raise ValueError("a candidate has at least one file, and each name once")

    @cached_property
    def digest(self) -> str:
        """The hash of the content, in full: for caches, where nobody may construct a second program with it."""
        content = (self.backend, self.defines, self.entry, [(file.name, file.text) for file in self.files])
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def id(self) -> str:
        """Twelve hex digits of the content: same program, same id, whatever its origin. A name, for people."""
        return self.digest[:12]

    @property
    def main(self) -> SourceFile:
        """The file with the entry point."""
        return self.files[0]
