"""The layout of the file, in numbered steps: a newer release reads what an older one wrote.

Steps are never changed, only added. Events of kinds or with fields that a release does not know are a newer
release's: such a file is refused with a sentence, not misread.
"""

from __future__ import annotations

import sqlite3

from warpsmith.core.errors import RunError

STEPS: tuple[str, ...] = (
    """
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
    """,
)


def bring_up_to_date(connection: sqlite3.Connection, name: str) -> None:
    """Take the steps this file has not taken yet, each in one transaction."""
    done = version(connection)
    if done > len(STEPS):
        raise RunError(f"{name} was written by a newer Warpsmith (layout {done}); update this one to read it.")
    for number, step in enumerate(STEPS[done:], start=done + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {step} PRAGMA user_version = {number}; COMMIT;")


def version(connection: sqlite3.Connection) -> int:
    """How many steps a file has taken."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)
