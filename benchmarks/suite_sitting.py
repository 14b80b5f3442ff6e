"""What the scripts that go through the suites share: their common options, the record they go on with, their end.

A sitting is one call of such a script. It writes after every task and leaves out what the record has already, so that
it can be cut off and called again.
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.suite_figures import BestFigures, BestRecord, FitFigures, FitRecord, SuiteRecord, TaskFigures

from warpsmith import __version__
from warpsmith.hardware.device import Device, visible_gpus
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.tasks.listing import FULL, SMALL

R = TypeVar("R", SuiteRecord, BestRecord, FitRecord)
F = TypeVar("F", TaskFigures, BestFigures, FitFigures)
_INTERRUPTED = 130


@dataclass(frozen=True)
class Common:
    """The options that all of them take."""

    json: Path
    known: Path | None
    device: str
    size: str
    only: str
    limit_s: float

    def record(self, read: Callable[[Path], R | None]) -> R | None:
        """The record to go on with, if there is one."""
        return read(self.json) or (read(self.known) if self.known else None)


def common_parser(description: str | None, *, device: str, limit_s: float) -> argparse.ArgumentParser:
    """A parser that takes them; the script adds its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="the record: written, and gone on with if it is there")
    parser.add_argument("--from", dest="known", type=Path, help="a record to go on with, if --json is new")
    parser.add_argument("--device", default=device)
    parser.add_argument("--small", action="store_true", help="the small workloads: to try it on a CPU")
    parser.add_argument("--only", default="", help="names or families of tasks, separated by commas")
    parser.add_argument("--limit-s", type=float, default=limit_s, help="begin no task after this many seconds")
    return parser


def common_of(given: argparse.Namespace) -> Common:
    """What was given for them."""
    size = SMALL if given.small else FULL
    return Common(given.json, given.known, given.device, size, given.only, given.limit_s)


def check_same(known: tuple[str, ...], asked: tuple[str, ...]) -> None:
    """Refuse to go on with a record of something else: device, size, and precision class where it has one."""
    if known != asked:
        said, wanted = (f"{at[0]} at {at[1]} size{''.join(f' in {name}' for name in at[2:])}" for at in (known, asked))
        raise UsageError(f"the record is of {said}, not of {wanted}; name another file.")


def versions(device: Device) -> dict[str, str]:
    """Of what every record depends on."""
    found = {"warpsmith": __version__, "python": sys.version.split()[0]}
    if device.kind == "cuda":
        found["driver"] = next((gpu.driver for gpu in visible_gpus() if gpu.index == device.index), "")
    return found


@contextmanager
def alone(record: Path) -> Iterator[None]:
    """While one of several sittings reads a record and writes it, the others wait."""
    with open(record.with_name(f"{record.name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def merged(tasks: Sequence[F], figures: F) -> tuple[F, ...]:
    """The tasks of a record with one more, or with one anew, by name."""
    found: dict[str, F] = {task.task: task for task in tasks}
    found[figures.task] = figures
    return tuple(found[name] for name in sorted(found))


@contextmanager
def deaf() -> Iterator[None]:
    """Processes started in here do not hear Ctrl-C, which a terminal sends to all: ending them is our business."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a child that begins with this keeps it
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ended(work: Callable[[], int], record: Path) -> int:
    """The exit status of a sitting; whatever ends it early is one line."""
    try:
        return work()
    except WarpsmithError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; {record} has what was finished, and the same command goes on with it.", file=sys.stderr)
        return _INTERRUPTED
