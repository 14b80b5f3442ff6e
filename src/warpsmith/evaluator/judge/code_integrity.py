"""Checks from outside that the code in a candidate's process is still what its files contain.

Code that was loaded before the candidate lies in pages that are mapped from files. Changing an instruction gives the
process a private copy of the page, which /proc/PID/pagemap shows; mapping something else there changes the list of
mappings. Data (tables of addresses, Python's objects) is written all the time and is not checked. The check needs the
right to read about the host's process: without it nothing is found.
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
    offset: int  # in the file, of the start
    inode: int
    path: str


class CodePages:
    """The code of one process, from before its candidate is loaded."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known = [m for m in self._mappings() if m.executable and m.path.startswith(_FROM_FILES)]
        self._copied = self._copies()

    def changed_file(self) -> str:
        """A file whose code has changed in this process; "" if there is none, or if it cannot be seen."""
        now = list(self._mappings())
        if not now or self._copied is None:
            return ""  # the process has ended: the next request reports that
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
        """Addresses of code pages that are private copies; None if the kernel does not say."""
        found: set[int] = set()
        try:
            with open(f"/proc/{self._pid}/pagemap", "rb", buffering=0) as file:
                for known in self._known:
                    raw = bytearray(os.pread(file.fileno(), *_pagemap_range(known)))
                    if not raw:
                        continue
                    entries = torch.frombuffer(raw, dtype=torch.int64)
                    private = ((entries & _PRESENT_OR_SWAPPED) != 0) & ((entries & _OF_FILE) == 0)
                    found |= {known.start + mmap.PAGESIZE * number for (number,) in private.nonzero().tolist()}
        except OSError:
            return None
        return found


def _pagemap_range(known: _Mapping) -> tuple[int, int]:
    """The size and the position of a mapping's entries in pagemap."""
    pages = (known.end - known.start) // mmap.PAGESIZE
    return pages * _ENTRY_BYTES, known.start // mmap.PAGESIZE * _ENTRY_BYTES


def _still_there(known: _Mapping, now: list[_Mapping]) -> bool:
    """Whether every address is still mapped from the same place of the same file, and not writable."""
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
