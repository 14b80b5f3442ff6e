"""The log of one run: an SQLite file to which events are appended and from which they are read back.

Appended events survive the end of the process. A reply, which may have been paid for, also survives a power failure:
`append` returns when the reply and everything before it are on disk. One process writes at a time (`RunLog.create`,
`RunLog.open`); any number of processes may read at the same time (`RunLog.read`). A file with events or fields that
this version does not know was written by a newer version and is refused.

The file may come from a stranger. It is refused if it is a link or no regular file, if it holds anything but the table
of events with its indexes and triggers, if an event is longer than `_LONGEST_BODY`, or if the next event does not come
in time. Ctrl-C ends a query.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
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


_LONGEST_BODY = 64 << 20  # bytes of one event
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_LARGEST_COPY = 1 << 30  # bytes of a log that has to be copied to be read
_LONGEST_WAIT_S = 3.0  # for the next row of a query
_STEPS = 20_000  # instructions of SQLite between two looks at the clock


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
_LATEST = 1e11  # seconds since 1970: later is no time of an event
_RECENT = 32  # latest events held in memory
_ADAPTERS: dict[str, TypeAdapter[Any]] = {}
_making = threading.Lock()
_E = TypeVar("_E")


class RunLog:
    """The folder of a run and the log in it. Appending is safe from several threads."""

    def __init__(
        self, folder: Path, connection: sqlite3.Connection, lock: int | None, clock: Callable[[], float]
    ) -> None:
        self.folder = folder
        self._connection = connection
        self._patience = _Patience(connection)
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
        if os.path.lexists(folder / LOG_FILE):
            raise RunError(
                f"{folder} already holds a run; go on with `warpsmith ask {folder}` or "
                f"`warpsmith optimize --resume {folder}`, or choose another folder."
            )
        _check_files(folder)
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

    def append(self, *happened: Event, at: float | None = None) -> tuple[LogEntry, ...]:
        """Store events, all or none of them. `at` is when they happened, if not now."""
        with self._guard:
            self._synchronise("FULL" if any(isinstance(each, ReplyReceived) for each in happened) else "NORMAL")
            at = self._clock() if at is None else at
            bodies = [_dump(event) for event in happened]
            values: list[object] = []
            for event, body in zip(happened, bodies, strict=True):
                values += (at, type(event).__name__, *_numbers(event), body)
            try:
                # One statement is one transaction. Separate calls to begin and to commit would let other threads in
                # between, and a bench of many runs spends much time on waiting for its turn again.
                last = self._connection.execute(_insertion(len(happened)), values).lastrowid or 0 if happened else 0
            except sqlite3.Error as fault:
                raise RunError(
                    f"{self.folder / LOG_FILE} cannot be written ({fault}); free some space and resume."
                ) from None
        self._remember(happened, bodies)
        return tuple(LogEntry(seq, at, event) for seq, event in enumerate(happened, last - len(happened) + 1))

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
        query = "SELECT seq, at, kind, brief, trial, body FROM events WHERE seq > ? ORDER BY seq LIMIT 500"
        while rows := self._rows(query, (after,)):
            for seq, at, kind, *numbers, body in rows:
                event = self._load(kind, body)
                if not isinstance(at, float) or not 0 <= at < _LATEST or numbers != _numbers(event):
                    raise RunError(f"{self.folder / LOG_FILE} holds an event in a wrong place; the file is damaged.")
                yield LogEntry(seq, at, event)
            after = rows[-1][0]

    def setup(self) -> RunCreated:
        """The first event of the run."""
        rows = self._rows("SELECT body FROM events WHERE kind = 'RunCreated' ORDER BY seq LIMIT 1", ())
        if not rows:
            raise RunError(f"{self.folder} holds no run that was begun; start one with `warpsmith optimize`.")
        created = self._load("RunCreated", rows[0][0])
        assert isinstance(created, RunCreated), "by its kind"
        return created

    def began(self) -> float:
        """When the first event was written, seconds since 1970."""
        return next((entry.at for entry in self.entries()), 0.0)

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
        """The rows of a query; fewer than all where they are long, but at least one."""
        found, length = [], 0
        with self._guard:
            try:
                self._patience.begin()
                for row in self._connection.execute(query, values):
                    found.append(row)
                    length += len(row[-1]) if isinstance(row[-1], str | bytes) else 0
                    if length > _LONGEST_BODY:
                        break
                    self._patience.begin()
            except sqlite3.Error as fault:
                self._patience.check(fault)
                raise _unreadable(self.folder / LOG_FILE, fault) from None
            finally:
                self._patience.end()
        return found

    def _load(self, kind: str, body: str) -> Event:
        try:
            event: Event = _adapter(kind).validate_json(body)
        except (KeyError, ValidationError, TypeError) as wrong:
            place = wrong.errors()[0]["loc"] if isinstance(wrong, ValidationError) else ()
            where = f" (at {'.'.join(map(str, place))[:100]})" if place else ""
            what = f"an event {str(kind)[:50]!r} that this release does not understand{where}"
            raise RunError(f"{self.folder / LOG_FILE} holds {what}; update Warpsmith to read it.") from None
        return event


@cache
def _insertion(count: int) -> str:
    """The statement that stores so many events."""
    return f"INSERT INTO events (at, kind, brief, trial, body) VALUES {', '.join(['(?, ?, ?, ?, ?)'] * count)}"


def _numbers(event: Event) -> list[int]:
    """The brief and the trial that an event is about, by which it is found; 0 for none."""
    return [getattr(event, "brief", 0), getattr(event, "trial", 0)]


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
        if not made.isascii():
            made = made.encode("utf-8", "replace").decode("utf-8")
    elif isinstance(made, tuple):
        made = tuple(map(storable, made))
    else:
        new = {}
        for name in _field_names(made.__class__):
            old = getattr(made, name)
            stored = storable(old)
            if stored is not old and stored != old:
                new[name] = stored
        if new:
            made = dataclasses.replace(made, **new)
    return cast(_E, made)


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a record; none for other types."""
    return tuple(each.name for each in dataclasses.fields(kind) if each.init) if dataclasses.is_dataclass(kind) else ()


def _adapter(kind: str) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        with _making:  # takes long: one thread makes what all threads of a bench need at its start
            if kind not in _ADAPTERS:
                _ADAPTERS[kind] = TypeAdapter(_KINDS[kind])
    return _ADAPTERS[kind]


def as_data(event: Event) -> Any:
    """An event as data for JSON, before strings are encoded."""
    return _adapter(type(event).__name__).dump_python(event)


class _Patience:
    """Ends a query of SQLite that gives no row in time, and lets Ctrl-C end it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._until = math.inf
        connection.set_progress_handler(self._is_over, _STEPS)

    def begin(self) -> None:
        """Start the time limit for the next row."""
        self._until = time.monotonic() + _LONGEST_WAIT_S

    def end(self) -> None:
        """Remove the time limit."""
        self._until = math.inf

    def check(self, fault: sqlite3.Error) -> None:
        """Raise KeyboardInterrupt if Ctrl-C is why the query ended: SQLite swallows exceptions of the handler."""
        if getattr(fault, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT and time.monotonic() < self._until:
            raise KeyboardInterrupt

    def _is_over(self) -> bool:
        return time.monotonic() > self._until


def _open(folder: Path, clock: Callable[[], float]) -> RunLog:
    path = folder / LOG_FILE
    lock = lock_folder(folder)
    try:
        if _is_empty(path):  # its process was killed while it made the file
            path.with_name(f"{LOG_FILE}-journal").unlink(missing_ok=True)
        # No isolation level: every statement is a transaction of its own.
        connection = _careful(sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False))
        try:
            _check_schema(connection, path, new=check_version(connection, path) == 0)
            connection.execute("PRAGMA journal_mode = WAL")
            if check_version(connection, path) == 0:
                connection.executescript(SCHEMA)
        except (RunError, sqlite3.Error):
            connection.close()
            raise
    except sqlite3.Error as fault:
        os.close(lock)
        raise _unreadable(path, fault) from None
    except (RunError, KeyboardInterrupt):
        os.close(lock)
        raise
    return RunLog(folder, connection, lock, clock)


def _connect_read_only(path: Path, more: str = "") -> sqlite3.Connection:
    return _careful(sqlite3.connect(f"file:{_quoted(path)}?mode=ro{more}", uri=True, check_same_thread=False))


def _careful(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The same connection, which trusts nothing in its file."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_BODY)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _check_schema(connection: sqlite3.Connection, path: Path, *, new: bool = False) -> None:
    """Raise a RunError unless the file holds the table of events as `SCHEMA` makes it, and nothing else.

    A new file holds nothing at all.
    """
    patience = _Patience(connection)
    patience.begin()
    try:
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 20").fetchall()
    except sqlite3.Error as fault:
        patience.check(fault)
        raise
    if _plain(found) != (frozenset() if new else _expected_schema()):
        raise RunError(f"{path} holds other tables than the log of a run; it was not written by Warpsmith.")


@cache
def _expected_schema() -> frozenset[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(SCHEMA)
        return _plain(memory.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall())


def _plain(rows: Iterable[tuple[object, ...]]) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(" ".join(str(value).split()) for value in row) for row in rows)


def _checked(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """The same connection; closed, with an error, if the file holds no readable log."""
    try:
        if check_version(connection, path) == 0:
            raise RunError(f"{path} is empty: the run ended before it began.")
        _check_schema(connection, path)
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
    memory = _careful(sqlite3.connect(":memory:", check_same_thread=False))
    with tempfile.TemporaryDirectory(prefix="warpsmith-log-") as folder:
        for each in (path, beside):
            if each.lstat().st_size > _LARGEST_COPY:
                raise OSError(errno.EFBIG, "it is too large to be copied", str(each))
            shutil.copyfile(each, Path(folder) / each.name, follow_symlinks=False)
        with contextlib.closing(_careful(sqlite3.connect(Path(folder) / LOG_FILE))) as copied:
            copied.backup(memory)
    return memory


def _check_there(folder: Path) -> None:
    if not os.path.lexists(folder / LOG_FILE):
        what = "there is no folder" if not folder.exists() else f"there is no {LOG_FILE} in"
        raise RunError(f"{what} {folder}: name the folder of a run; `warpsmith runs` lists them.")
    _check_files(folder)


def _check_files(folder: Path) -> None:
    """Raise a RunError unless the log and what SQLite keeps beside it are regular files of the folder."""
    for ending in ("", "-wal", "-shm", "-journal"):
        path = folder / f"{LOG_FILE}{ending}"
        try:
            found = path.lstat()
        except OSError:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise RunError(f"{path} is a link or no regular file; copy the log itself into the folder.")
        # A log has a journal only if its process was killed while it made the log. One that ends with the name of
        # another journal makes SQLite delete files.
        if ending == "-journal" and _names_another(path):
            raise RunError(f"{path} does not belong to the log of a run; remove it.")


def _names_another(journal: Path) -> bool:
    """Whether a rollback journal of SQLite ends with the name of another journal."""
    with journal.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - len(_JOURNAL_MAGIC)))
        return size > len(_JOURNAL_MAGIC) and file.read() == _JOURNAL_MAGIC


def _is_empty(path: Path) -> bool:
    return not os.path.lexists(path) or path.lstat().st_size == 0


def _unreadable(path: Path, fault: sqlite3.Error | OSError) -> RunError:
    return RunError(f"{path} cannot be read as a run ({fault}); if it was copied while in use, copy it again.")


def _quoted(path: Path) -> str:
    return quote(str(path.resolve()))
