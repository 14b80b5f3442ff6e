"""One run's log: append events, read them back.

What was appended survives the end of the process, however it ends. A reply, which may have been paid for, survives the
end of the machine too: appending one returns when it and all before it are on disk, the others cost no such wait. One
process writes at a time (`Archive.create`, `Archive.open`); any number may read (`Archive.read`), also meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from warpsmith.archive import events
from warpsmith.archive.events import Begun, Entry, Event, Replied
from warpsmith.archive.schema import bring_up_to_date, version
from warpsmith.core.errors import RunError

FILE = "run.db"
_KINDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind
    for kind in (
        *(events.Begun, events.Opened, events.Recalled, events.Asked, events.Prompted, events.Replied, events.Failed),
        *(events.Proposed, events.Judged, events.Profiled, events.Tuned, events.Noted, events.Closed),
    )
}
_NO_PLACE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY_DIRECTORY)  # where a reader would keep its own notes
_RECENT = 32  # events held in memory besides what is on disk
_ADAPTERS: dict[str, TypeAdapter[Any]] = {}
_E = TypeVar("_E")


class Archive:
    """A run's folder and the log in it. Appending is safe from several threads."""

    def __init__(
        self, folder: Path, connection: sqlite3.Connection, lock: int | None, clock: Callable[[], float]
    ) -> None:
        self.folder = folder
        self._connection = connection
        self._lock = lock  # a file descriptor; None where we only read
        self._clock = clock
        self._guard = threading.RLock()
        self._mode = ""
        self._recent: dict[tuple[str, int, type], Event] = {}  # what was written last, by trial: often read at once

    @staticmethod
    def create(folder: Path, clock: Callable[[], float] = time.time) -> Archive:
        """A new log in a folder that has none yet."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as refused:
            raise RunError(f"the run's folder {folder} cannot be made ({refused.strerror}); choose another.") from None
        if (folder / FILE).exists():
            raise RunError(
                f"{folder} already holds a run; go on with `warpsmith ask {folder}` or "
                f"`warpsmith optimize --resume {folder}`, or choose another folder."
            )
        return _open(folder, clock)

    @staticmethod
    def open(folder: Path, clock: Callable[[], float] = time.time) -> Archive:
        """An existing log, to append to."""
        _check_there(folder)
        return _open(folder, clock)

    @staticmethod
    def read(folder: Path) -> Archive:
        """An existing log, to look at; whoever writes it is not disturbed. The folder need not be writable."""
        _check_there(folder)
        path = folder / FILE
        try:
            try:
                connection = _looked_at(_reading(path), path)
            except sqlite3.OperationalError as fault:
                if fault.sqlite_errorcode not in _NO_PLACE:
                    raise
                connection = _looked_at(_set_apart(path), path)
        except (sqlite3.Error, OSError) as fault:
            raise _unreadable(path, fault) from None
        return Archive(folder, connection, None, time.time)

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave one complete file behind, so that the folder can be copied."""
        with self._guard:
            if self._lock is not None:
                with contextlib.suppress(sqlite3.Error):  # a reader holds it: its own closing does the rest
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def now(self) -> float:
        """The time by the log's own clock, seconds since 1970."""
        return self._clock()

    def append(self, *happened: Event) -> tuple[Entry, ...]:
        """Keep events, all or none."""
        with self._guard:
            self._synchronise("FULL" if any(isinstance(each, Replied) for each in happened) else "NORMAL")
            at = self._clock()
            rows = [
                (at, type(e).__name__.lower(), getattr(e, "brief", 0), getattr(e, "trial", 0), _dump(e))
                for e in happened
            ]
            sequence = []
            try:
                with self._connection:
                    for row in rows:
                        cursor = self._connection.execute(
                            "INSERT INTO events (at, kind, brief, trial, body) VALUES (?, ?, ?, ?, ?)", row
                        )
                        sequence.append(cursor.lastrowid or 0)
            except sqlite3.Error as fault:
                raise RunError(
                    f"{self.folder / FILE} cannot be written ({fault}); free some space and resume."
                ) from None
        self._remember(happened, [row[-1] for row in rows])
        return tuple(Entry(seq, at, event) for seq, event in zip(sequence, happened, strict=True))

    def _remember(self, happened: Iterable[Event], bodies: Iterable[str]) -> None:
        """Only we write: what was appended last about a trial is the latest there is."""
        for event, body in zip(happened, bodies, strict=True):
            if isinstance(event, events.Proposed | events.Judged) and event.trial:
                key = ("trial", event.trial, type(event))
                self._recent.pop(key, None)
                if "?" not in body:  # which may stand for what cannot be kept as it is
                    self._recent[key] = event
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _synchronise(self, mode: str) -> None:
        """Whether a commit waits for the disk."""
        if mode != self._mode:
            self._connection.execute(f"PRAGMA synchronous = {mode}")
            self._mode = mode

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """All events in order, from the one after `after`."""
        query = "SELECT seq, at, kind, body FROM events WHERE seq > ? ORDER BY seq LIMIT 500"
        while rows := self._rows(query, (after,)):
            for seq, at, kind, body in rows:
                yield Entry(seq, at, self._load(kind, body))
            after = rows[-1][0]

    def begun(self) -> Begun:
        """How the run was set up."""
        rows = self._rows("SELECT body FROM events WHERE kind = 'begun' ORDER BY seq LIMIT 1", ())
        if not rows:
            raise RunError(f"{self.folder} holds no run that was begun; start one with `warpsmith optimize`.")
        begun = self._load("begun", rows[0][0])
        assert isinstance(begun, Begun), "by its kind"
        return begun

    def of_trial(self, trial: int, kind: type[_E]) -> _E | None:
        """The latest event of a kind about one trial."""
        return self._latest("trial", trial, kind)

    def of_brief(self, brief: int, kind: type[_E]) -> _E | None:
        """The latest event of a kind about one brief."""
        return self._latest("brief", brief, kind)

    def _latest(self, column: str, number: int, kind: type[_E]) -> _E | None:
        if not number:
            return None
        recent = self._recent.get((column, number, kind))
        if isinstance(recent, kind):
            return recent
        name = kind.__name__.lower()
        query = f"SELECT body FROM events WHERE {column} = ? AND {column} > 0 AND kind = ? ORDER BY seq DESC LIMIT 1"
        rows = self._rows(query, (number, name))
        if not rows:
            return None
        found = self._load(name, rows[0][0])
        assert isinstance(found, kind), "by its kind"
        return found

    def _rows(self, query: str, values: tuple[object, ...]) -> list[Any]:
        with self._guard:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as fault:
                raise _unreadable(self.folder / FILE, fault) from None

    def _load(self, kind: str, body: str) -> Event:
        try:
            event: Event = _adapter(kind).validate_json(body)
        except (KeyError, ValidationError):
            what = f"an event {kind!r} that this release does not understand"
            raise RunError(f"{self.folder / FILE} holds {what}; update Warpsmith to read it.") from None
        return event


def _dump(event: Event) -> str:
    # Lone surrogates, which a model may write, are no UTF-8: they are kept as question marks.
    kind = type(event).__name__.lower()
    try:
        return _adapter(kind).dump_json(event).decode()
    except ValueError:
        text: str = _adapter(kind).dump_json(storable(event)).decode()
        return text


def storable(value: _E) -> _E:
    """The same data with every text fit for UTF-8: as it would come back from a log."""
    made: Any = value
    if type(made) is str:
        made = made.encode("utf-8", "replace").decode("utf-8")
    elif isinstance(value, tuple):
        made = tuple(storable(each) for each in value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: storable(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        made = dataclasses.replace(value, **changed)
    return cast(_E, made)


def _adapter(kind: str) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(_KINDS[kind])
    return _ADAPTERS[kind]


def _open(folder: Path, clock: Callable[[], float]) -> Archive:
    path = folder / FILE
    lock = _lock(folder)
    try:
        connection = sqlite3.connect(path, timeout=10.0, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        bring_up_to_date(connection, str(path))
    except sqlite3.Error as fault:
        os.close(lock)
        raise _unreadable(path, fault) from None
    except RunError:
        os.close(lock)
        raise
    return Archive(folder, connection, lock, clock)


def _reading(path: Path, more: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"file:{_quoted(path)}?mode=ro{more}", uri=True, check_same_thread=False)


def _looked_at(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """The connection, if there is a log behind it."""
    try:
        if version(connection) == 0:
            raise RunError(f"{path} is empty: the run ended before it began.")
        connection.execute("SELECT 1 FROM events LIMIT 1")
    except (RunError, sqlite3.Error):
        connection.close()
        raise
    return connection


def _set_apart(path: Path) -> sqlite3.Connection:
    """A log in a folder where nothing can be written: even a reader writes beside it what it is reading.

    As the one file that it is, unless there are events beside it which its last writer left: then a copy of both.
    """
    beside = path.with_name(f"{FILE}-wal")
    if not beside.exists() or beside.stat().st_size == 0:
        return _reading(path, "&immutable=1")
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    with tempfile.TemporaryDirectory(prefix="warpsmith-log-") as folder:
        for each in (path, beside):
            shutil.copyfile(each, Path(folder) / each.name)
        with contextlib.closing(sqlite3.connect(Path(folder) / FILE)) as copied:
            copied.backup(memory)
    return memory


def _lock(folder: Path) -> int:
    """The right to write, which ends with the process that holds it."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as refused:
        raise RunError(f"{folder} cannot be written ({refused.strerror}); copy it to a folder of yours.") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise RunError(f"another process is working on {folder}; wait for it or stop it.") from None
    return handle


def _check_there(folder: Path) -> None:
    if not (folder / FILE).is_file():
        what = "there is no folder" if not folder.exists() else f"there is no {FILE} in"
        raise RunError(f"{what} {folder}: name the folder of a run; `warpsmith runs` lists them.")


def _unreadable(path: Path, fault: sqlite3.Error | OSError) -> RunError:
    return RunError(f"{path} cannot be read as a run ({fault}); if it was copied while in use, copy it again.")


def _quoted(path: Path) -> str:
    return quote(str(path.resolve()))
