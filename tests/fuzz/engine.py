"""Feeds malformed inputs to a border of the program and stops at the first thing that must not happen.

An input is known by target, seed and number, and can be made again from these alone. A border answers with a word
that is counted ("accepted", "refused"); any exception it does not promise, or no answer in time, is a `Failure`.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.mutate import Mutator

BATCH = 500
BUSY = 12  # how much slower than its own processor time a process may be on a machine that others use
_CHILD_MEMORY_BYTES = 8 << 30
_CHILD_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Target:
    """One border."""

    name: str
    make: Callable[[Mutator], Any]
    feed: Callable[[Any], str]
    share: float  # of a run's inputs
    limit_s: float = 5.0  # of processor time, for one input
    forked: bool = False  # in children with limits, because inputs are executed
    prepare: Callable[[], object] = lambda: None  # done once before, e.g. slow imports


class Failure(Exception):
    """What must not happen, with all that is needed to see it again."""

    def __init__(self, target: str, seed: str, number: int, what: str) -> None:
        super().__init__(f"{target}, seed {seed}, input {number}: {what}")
        self.target = target
        self.number = number
        self.what = what


class Hung(BaseException):
    """No answer in time; no `except Exception` may swallow it."""


def run(target: Target, seed: str, numbers: range) -> Counter[str]:
    """Feed these inputs; the answers counted by word."""
    target.prepare()
    if not target.forked:
        return _run(target, seed, numbers, lambda _: None)
    counts: Counter[str] = Counter()
    for start in range(numbers.start, numbers.stop, BATCH):
        counts += _run_forked(target, seed, range(start, min(start + BATCH, numbers.stop)))
    return counts


def one_line(error: BaseException) -> str:
    """An error meant for a person: one line that says something and can be shown."""
    text = str(error)
    if not text.strip() or len(text.splitlines()) != 1 or "Traceback" in text:
        raise AssertionError(f"not one line for a person: {text!r}")
    text.encode("utf-8", "backslashreplace")
    return "refused"


def _run(target: Target, seed: str, numbers: Sequence[int], begin: Callable[[int], None]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number in numbers:
        begin(number)
        given = target.make(Mutator(target.name, seed, number))
        try:
            with deadline(target.limit_s):
                counts[target.feed(given)] += 1
        except Hung:
            raise Failure(target.name, seed, number, f"no answer within {target.limit_s:g} s") from None
        except Exception:  # noqa: BLE001  whatever it is, it is the finding
            raise Failure(target.name, seed, number, traceback.format_exc()) from None
    return counts


@contextlib.contextmanager
def deadline(limit_s: float) -> Iterator[None]:
    """Raise `Hung` in this block after so much processor time, or much more time on a clock."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Hung

    before, begun = signal.signal(signal.SIGALRM, ring), time.monotonic()
    before_too = signal.signal(signal.SIGPROF, ring)
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, limit_s * BUSY)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, before_too)
        signal.signal(signal.SIGALRM, before)
        if left_s:  # somebody else's alarm, e.g. of the test runner
            signal.setitimer(signal.ITIMER_REAL, max(0.01, left_s - (time.monotonic() - begun)))


# --- in a child ---------------------------------------------------------------------------------------------


def _run_forked(target: Target, seed: str, numbers: range) -> Counter[str]:
    """The same in a child that may die: then the input it was at is the finding."""
    at = mmap.mmap(-1, mmap.PAGESIZE)
    reader, writer = os.pipe()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: this child starts none
        child = os.fork()
        if child == 0:
            os.close(reader)
            _be_child(target, seed, numbers, at, writer, Path(scratch))
        os.close(writer)
        text, timed_out = _read_all(reader, time.monotonic() + target.limit_s * BUSY * 2 + len(numbers))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    number = int.from_bytes(at[:8], "little")
    if timed_out or not text:
        what = "it hung" if timed_out else f"its process died (wait status {status})"
        raise Failure(target.name, seed, number, what)
    said = json.loads(text)
    if "what" in said:
        raise Failure(target.name, seed, int(said["number"]), str(said["what"]))
    return Counter(said["counts"])


def _be_child(target: Target, seed: str, numbers: range, at: mmap.mmap, writer: int, scratch: Path) -> None:
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.chdir(scratch)
        tempfile.tempdir = str(scratch)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        for limit, value in (
            (resource.RLIMIT_AS, pages * resource.getpagesize() + _CHILD_MEMORY_BYTES),
            (resource.RLIMIT_FSIZE, _CHILD_FILE_BYTES),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(limit, (value, value))

        def begin(number: int) -> None:
            at[:8] = number.to_bytes(8, "little")

        try:
            said: dict[str, object] = {"counts": _run(target, seed, numbers, begin)}
        except Failure as failure:
            said = {"number": failure.number, "what": failure.what}
        os.write(writer, json.dumps(said).encode()[:60_000])
        status = 0
    finally:
        os._exit(status)


def _read_all(reader: int, deadline: float) -> tuple[bytes, bool]:
    """What the child said, and whether it took too long."""
    text = b""
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 65536)
        if not part:
            os.close(reader)
            return text, False
        text += part
    os.close(reader)
    return text, True
