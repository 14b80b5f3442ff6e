"""The log of one run: an SQLite file to which events are appended and from which they are read back.

Appended events survive the end of the process. A reply, which may have been paid for, also survives a power failure:
`append` returns when the reply and everything before it are on disk. One process writes at a time (`RunLog.create`,
`RunLog.open`); any number of processes may read at the same time (`RunLog.read`). A file with events or fields that
this version does not know was written by a newer version and is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast, get_args
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from warpsmith.model.errors import RunError
from warpsmith.run_log import events
from warpsmith.run_log.events import Event, LogEntry, ReplyReceived, RunCreated
from warpsmith.system.locks import lock_folder

SCHEMA_VERSION = 2
"""Stored as `user_version` of the file. Raise it when the tables or the fields of an event change their meaning."""

SCHEMA = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        brief INTEGER NOT NULL DEFAULT 0,
        trial INTEGER NOT NULL DEFAULT 0,
        body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_by_trial ON events (trial, kind) WHERE trial > 0;
    CREATE INDEX events_by_brief ON events (brief, kind) WHERE brief > 0;
    CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
    CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
    PRAGMA user_version = {SCHEMA_VERSION};
    COMMIT;
"""


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a file, 0 for an empty file; a RunError if this version of Warpsmith cannot read it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise RunError(f"{path} was written by a newer Warpsmith (format {version}); update Warpsmith to read it.")
    if 0 < version < SCHEMA_VERSION:
        raise RunError(
            f"{path} was written by an earlier version of Warpsmith (format {version}, now {SCHEMA_VERSION}) and "
            "cannot be read any more; start a new run, or read it with that version."
        )
    return int(version)


LOG_FILE = "run.db"
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
_READ_ONLY_FOLDER = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY_DIRECTORY)  # readers need files of their own
_RECENT = 32  # latest events held in memory
_ADAPTERS: dict[str, TypeAdapter[Any]] = {}
_E = TypeVar("_E")


class RunLog:
    """The folder of a run and the log in it. Appending is safe from several threads."""

    def __init__(
        self, folder: Path, connection: sqlite3.Connection, lock: int | None, clock: Callable[[], float]
    ) -> None:
        self.folder = folder
        self._connection = connection
        self._lock = lock  # a file descriptor; None if read-only
        self._clock = clock
        self._guard = threading.RLock()
        self._mode = ""
        self._recent: dict[tuple[str, int, type], Event] = {}  # latest events of trials: often read at once

    @staticmethod
    def create(folder: Path, clock: Callable[[], float] = time.time) -> RunLog:
        """A new log in a folder that has none yet."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as refused:
            raise RunError(f"the run's folder {folder} cannot be made ({refused.strerror}); choose another.") from None
        if (folder / LOG_FILE).exists():
            raise RunError(
                f"{folder} already holds a run; go on with `warpsmith ask {folder}` or "
                f"`warpsmith optimize --resume {folder}`, or choose another folder."
            )
        return _open(folder, clock)

    @staticmethod
    def open(folder: Path, clock: Callable[[], float] = time.time) -> RunLog:
        """An existing log, to append to."""
        _check_there(folder)
        return _open(folder, clock)

    @staticmethod
    def read(folder: Path) -> RunLog:
        """An existing log, read-only, while another process may write. The folder need not be writable."""
        _check_there(folder)
        path = folder / LOG_FILE
        try:
            try:
                connection = _checked(_connect_read_only(path), path)
            except sqlite3.OperationalError as fault:
                if fault.sqlite_errorcode not in _READ_ONLY_FOLDER:
                    raise
                connection = _checked(_connect_read_only_folder(path), path)
        except (sqlite3.Error, OSError) as fault:
            raise _unreadable(path, fault) from None
        return RunLog(folder, connection, None, time.time)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the log; it is one complete file then, so that the folder can be copied."""
        with self._guard:
            if self._lock is not None:
                with contextlib.suppress(sqlite3.Error):  # a reader holds it: the reader does it when it closes
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def now(self) -> float:
        """The time by the clock of the log, seconds since 1970."""
        return self._clock()

    def append(self, *happened: Event) -> tuple[LogEntry, ...]:
        """Store events, all or none of them."""
        with self._guard:
            self._synchronise("FULL" if any(isinstance(each, ReplyReceived) for each in happened) else "NORMAL")
            at = self._clock()
            rows = [(at, type(e).__name__, getattr(e, "brief", 0), getattr(e, "trial", 0), _dump(e)) for e in happened]
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
                    f"{self.folder / LOG_FILE} cannot be written ({fault}); free some space and resume."
                ) from None
        self._remember(happened, [row[-1] for row in rows])
        return tuple(LogEntry(seq, at, event) for seq, event in zip(sequence, happened, strict=True))

    def _remember(self, happened: Iterable[Event], bodies: Iterable[str]) -> None:
        """Cache the latest events of trials: nobody else writes."""
        for event, body in zip(happened, bodies, strict=True):
            if isinstance(event, events.ProposalRead | events.TrialJudged) and event.trial:
                key = ("trial", event.trial, type(event))
                self._recent.pop(key, None)
                if "?" not in body:  # a question mark may stand for a character that cannot be stored
                    self._recent[key] = event
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _synchronise(self, mode: str) -> None:
        """Set whether a commit waits for the disk."""
        if mode != self._mode:
            self._connection.execute(f"PRAGMA synchronous = {mode}")
            self._mode = mode

    def entries(self, after: int = 0) -> Iterator[LogEntry]:
        """All events in order; only those after the position `after`."""
        query = "SELECT seq, at, kind, body FROM events WHERE seq > ? ORDER BY seq LIMIT 500"
        while rows := self._rows(query, (after,)):
            for seq, at, kind, body in rows:
                yield LogEntry(seq, at, self._load(kind, body))
            after = rows[-1][0]

    def setup(self) -> RunCreated:
        """The first event of the run."""
        rows = self._rows("SELECT body FROM events WHERE kind = 'RunCreated' ORDER BY seq LIMIT 1", ())
        if not rows:
            raise RunError(f"{self.folder} holds no run that was begun; start one with `warpsmith optimize`.")
        created = self._load("RunCreated", rows[0][0])
        assert isinstance(created, RunCreated), "by its kind"
        return created

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
        name = kind.__name__
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
                raise _unreadable(self.folder / LOG_FILE, fault) from None

    def _load(self, kind: str, body: str) -> Event:
        try:
            event: Event = _adapter(kind).validate_json(body)
        except (KeyError, ValidationError):
            what = f"an event {kind!r} that this release does not understand"
            raise RunError(f"{self.folder / LOG_FILE} holds {what}; update Warpsmith to read it.") from None
        return event


def _dump(event: Event) -> str:
    # Lone surrogates, which a model may write, are not UTF-8: they are stored as question marks.
    kind = type(event).__name__
    try:
        return _adapter(kind).dump_json(event).decode()
    except ValueError:
        text: str = _adapter(kind).dump_json(storable(event)).decode()
        return text


def storable(value: _E) -> _E:
    """The same data as it would come back from a log: characters that are not UTF-8 become question marks."""
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


def _open(folder: Path, clock: Callable[[], float]) -> RunLog:
    path = folder / LOG_FILE
    lock = lock_folder(folder)
    try:
        connection = sqlite3.connect(path, timeout=10.0, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        if check_version(connection, path) == 0:
            connection.executescript(SCHEMA)
    except sqlite3.Error as fault:
        os.close(lock)
        raise _unreadable(path, fault) from None
    except RunError:
        os.close(lock)
        raise
    return RunLog(folder, connection, lock, clock)


def _connect_read_only(path: Path, more: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"file:{_quoted(path)}?mode=ro{more}", uri=True, check_same_thread=False)


def _checked(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """The same connection; closed, with an error, if the file holds no readable log."""
    try:
        if check_version(connection, path) == 0:
            raise RunError(f"{path} is empty: the run ended before it began.")
        connection.execute("SELECT 1 FROM events LIMIT 1")
    except (RunError, sqlite3.Error):
        connection.close()
        raise
    return connection


def _connect_read_only_folder(path: Path) -> sqlite3.Connection:
    """A log in a folder that cannot be written, although SQLite's readers write next to the file.

    The file alone is opened as immutable. If its last writer left events in the write-ahead log, both are copied.
    """
    beside = path.with_name(f"{LOG_FILE}-wal")
    if not beside.exists() or beside.stat().st_size == 0:
        return _connect_read_only(path, "&immutable=1")
    memory = sqlite3.connect(":memory:", check_same_thread=False)
    with tempfile.TemporaryDirectory(prefix="warpsmith-log-") as folder:
        for each in (path, beside):
            shutil.copyfile(each, Path(folder) / each.name)
        with contextlib.closing(sqlite3.connect(Path(folder) / LOG_FILE)) as copied:
            copied.backup(memory)
    return memory


def _check_there(folder: Path) -> None:
    if not (folder / LOG_FILE).is_file():
        what = "there is no folder" if not folder.exists() else f"there is no {LOG_FILE} in"
        raise RunError(f"{what} {folder}: name the folder of a run; `warpsmith runs` lists them.")


def _unreadable(path: Path, fault: sqlite3.Error | OSError) -> RunError:
    return RunError(f"{path} cannot be read as a run ({fault}); if it was copied while in use, copy it again.")


def _quoted(path: Path) -> str:
    return quote(str(path.resolve()))
