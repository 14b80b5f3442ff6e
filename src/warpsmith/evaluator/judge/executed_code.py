"""Looks from outside at the code that a Python candidate's process executes, to find work of libraries.

Whatever runs inside the process can be hidden from tools inside the process: in another thread, below the dispatcher,
by calling a symbol. But while a process is stopped, /proc/PID/task/TID/syscall shows where each thread was in its
program, and /proc/PID/maps shows the file of that code. The interpreter, the C and C++ runtime and the bindings of
PyTorch are nobody's kernels, and the extensions that were built for the candidate are its own; OpenMP's threads wait
in the code of OpenMP; all other code is a library's. So is every other file in a folder that the candidate can write
to: it may be a copy of a library, under any name. The looks need the right to read about the host's process, as root
has: without it they see nothing.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpsmith.evaluator.judge.timing.process_usage import ProcessUsage
from warpsmith.model.build import EXTENSIONS
from warpsmith.model.evidence import LibraryTime

_NEUTRAL = re.compile(
    r"lib(?:m|mvec|pthread|dl|rt|gcc_s|stdc\+\+|atomic|ffi|c10|torch_python|python3\.\d+)[.-][\w.+-]*"
    r"|\[vdso\]|(?:python|pypy)[\d.]*"
)
_WAITING = re.compile(r"lib(?:c|gomp|omp|iomp5)[.-][\w.+-]*|ld-[\w.-]+")
_STANDARD = re.compile(r"/lib-dynload/[^/]+$")
_IN_USER_MODE = "-1"  # instead of the number of a system call
_NO_FILE = "code that no file holds"
_OWN, _IDLE = "", "idle"  # kinds of code beside the names of libraries


class ExecutedCode:
    """Counts in which code the threads of one process were found."""

    def __init__(self, pid: int, candidate: str) -> None:
        """`candidate`: the folder of its files, which lies in the folder that its process can write to."""
        self._pid = pid
        self._written = f"{Path(candidate).parent}/"
        self._built = f"{candidate}/{EXTENSIONS}/"
        self._usage = ProcessUsage(pid)
        self._starts: list[int] = []
        self._code: list[tuple[int, str]] = []  # the end and the kind of each mapping
        self._found: Counter[str] = Counter()  # in how many looks each kind of code was found
        self._inside = 0  # in how many looks any library was found
        self._calls = self._cpu_ns = 0
        self.count = 0
        self.at_work = 0  # looks that found a thread that does not wait

    @contextmanager
    def request(self, calls: int) -> Iterator[None]:
        """Count the CPU time of a request that makes this many calls."""
        before_ns = self._usage.total_ns()
        yield
        self._cpu_ns += self._usage.total_ns() - before_ns
        self._calls += calls

    def look(self) -> None:
        """Note in which code the threads of the stopped process are."""
        seen = {self._kind(address) for address in map(self._address, self._usage.threads()) if address}
        self._found.update(seen)
        self._inside += bool(seen - {_OWN, _IDLE})
        self.at_work += bool(seen - {_IDLE})
        self.count += 1

    def library(self) -> LibraryTime:
        """What was found."""
        files = tuple(name for name, _ in self._found.most_common() if name not in (_OWN, _IDLE))
        call_ns = self._cpu_ns / max(1, self._calls)
        return LibraryTime(
            files, self._inside, self._inside / max(1, self.at_work), call_ns * self._inside / max(1, self.count)
        )

    def _address(self, thread: str) -> int:
        """The address at which a stopped thread executes its program; 0 if it waits in the kernel, or is not known."""
        try:
            with open(f"/proc/{self._pid}/task/{thread}/syscall", encoding="utf-8") as file:
                words = file.read().split()
        except OSError:
            return 0
        return int(words[2], 16) if len(words) == 3 and words[0] == _IN_USER_MODE else 0

    def _kind(self, address: int) -> str:
        place = self._mapping(address)
        if place is None:
            self._read_mappings()
            place = self._mapping(address)
        return _NO_FILE if place is None else place

    def _mapping(self, address: int) -> str | None:
        number = bisect_right(self._starts, address) - 1
        if number < 0 or address >= self._code[number][0]:
            return None
        return self._code[number][1]

    def _read_mappings(self) -> None:
        self._starts, self._code = [], []
        try:
            lines = Path(f"/proc/{self._pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            span, rights, _offset, _device, _inode, *path = line.split(maxsplit=5)
            if "x" in rights:
                start, end = (int(part, 16) for part in span.split("-"))
                self._starts.append(start)
                self._code.append((end, self._kind_of(path[0] if path else "")))

    def _kind_of(self, path: str) -> str:
        name = path.rpartition("/")[2]
        if path.startswith(self._written):
            return _OWN if path.startswith(self._built) and _is_ours(path) else name
        if _NEUTRAL.fullmatch(name) or _STANDARD.search(path):
            return _OWN
        if _WAITING.fullmatch(name):
            return _IDLE
        return name if path.startswith(("/", "[")) else _NO_FILE


def _is_ours(path: str) -> bool:
    """Whether a file is a library that this user has put there, after its imports were checked, and no other."""
    try:
        return path.endswith(".so") and os.stat(path, follow_symlinks=False).st_uid == os.geteuid()
    except OSError:
        return False
