"""Whether the code in a candidate's process is still what its files say, seen from outside.

Code that was there before the candidate lies in pages that are mapped from files. Whoever changes an instruction gets a
private copy of its page, which the kernel shows; whoever maps something else there changes the list of mappings. Data
(tables of addresses, Python's objects) is written all the time and is not looked at. Reading about another user's
process is a privilege: where it is missing, nothing is found.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch

_ENTRY_BYTES = 8
_PRESENT_OR_SWAPPED, _OF_FILE = -1 << 62, 1 << 61  # Documentation/admin-guide/mm/pagemap.rst
_FROM_FILES = ("/", "[vdso]")


@dataclass(frozen=True)
class _Mapping:
    start: int
    end: int
    writable: bool
    executable: bool
    offset: int  # of the start, in its file
    inode: int
    path: str


class Code:
    """Of one process, from before its candidate is loaded."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known = [m for m in self._mappings() if m.executable and m.path.startswith(_FROM_FILES)]
        self._copied = self._copies()

    def altered(self) -> str:
        """The file whose code is no longer what it was; "" where all is, or where nothing can be seen."""
        now = list(self._mappings())
        if not now or self._copied is None:
            return ""  # it has ended: the next request says so
        for known in self._known:
            if not _still_there(known, now):
                return known.path
        copied = self._copies()
        if copied is None:
            return ""
        found = min(copied - self._copied, default=None)
        return next((m.path for m in self._known if found is not None and m.start <= found < m.end), "")

    def _mappings(self) -> Iterator[_Mapping]:
        try:
            with open(f"/proc/{self._pid}/maps", encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except OSError:
            return
        for line in lines:
            span, rights, offset, _device, inode, *path = line.rstrip("\n").split(maxsplit=5)
            start, end = (int(part, 16) for part in span.split("-"))
            name = path[0] if path else ""
            yield _Mapping(start, end, "w" in rights, "x" in rights, int(offset, 16), int(inode), name)

    def _copies(self) -> set[int] | None:
        """Addresses of pages of known code that are copies of this process's own; None where that cannot be seen."""
        found: set[int] = set()
        try:
            with open(f"/proc/{self._pid}/pagemap", "rb", buffering=0) as file:
                for known in self._known:
                    said = bytearray(os.pread(file.fileno(), *_whereabouts(known)))
                    if not said:
                        continue
                    entries = torch.frombuffer(said, dtype=torch.int64)
                    own = ((entries & _PRESENT_OR_SWAPPED) != 0) & ((entries & _OF_FILE) == 0)
                    found |= {known.start + mmap.PAGESIZE * number for (number,) in own.nonzero().tolist()}
        except OSError:
            return None
        return found


def _whereabouts(known: _Mapping) -> tuple[int, int]:
    """How many bytes about a mapping's pages there are, and where."""
    pages = (known.end - known.start) // mmap.PAGESIZE
    return pages * _ENTRY_BYTES, known.start // mmap.PAGESIZE * _ENTRY_BYTES


def _still_there(known: _Mapping, now: list[_Mapping]) -> bool:
    """Whether every address of it is still mapped from the same place of the same file, and not to be written."""
    at = known.start
    for each in now:  # in the order of addresses
        if each.end <= at:
            continue
        if each.start > at or (each.inode, each.path) != (known.inode, known.path) or each.writable:
            return False
        if each.offset - each.start != known.offset - known.start:
            return False
        at = each.end
        if at >= known.end:
            return True
    return False
