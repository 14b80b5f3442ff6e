"""One program that claims to compute a task. Its id is a hash of what it says, not of where it came from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SourceFile:
    """One file of a candidate."""

    name: str  # a plain file name, no folders
    text: str


@dataclass(frozen=True)
class Candidate:
    """A program: sources, the backend that understands them, and where the idea came from."""

    files: tuple[SourceFile, ...]  # the first holds the entry point
    backend: str
    defines: tuple[tuple[str, str], ...] = ()  # values of its tunables, passed as macros
    parents: tuple[str, ...] = field(default=(), compare=False)
    operator: str = field(default="", compare=False)  # which operator of a method made it
    thought: str = field(default="", compare=False)
    strategy: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """Twelve hex digits of the content: same program, same id, whatever its origin."""
        digest = hashlib.sha256()
        for part in (self.backend, *(f"{k}={v}" for k, v in self.defines)):
            digest.update(part.encode() + b"\0")
        for file in self.files:
            digest.update(file.name.encode() + b"\0" + file.text.encode() + b"\0")
        return digest.hexdigest()[:12]

    @property
    def main(self) -> SourceFile:
        """The file with the entry point."""
        return self.files[0]
