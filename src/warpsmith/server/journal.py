"""The journal of a server: every accepted submission and its outcome, in one SQLite file.

What was accepted is on disk before the client hears of it. After a crash the jobs that were being judged are judged
again; a job that was being judged at three crashes is answered as lost, because it may be their cause. The text of a
candidate is removed when its outcome is there.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.model.errors import UsageError
from warpsmith.server.messages import FINISHED, FaultKind, JobState
from warpsmith.server.tokens import TokenHolder
from warpsmith.system.locks import open_lock_file, try_lock

_SCHEMA = """
CREATE TABLE IF NOT EXISTS submissions (
    id TEXT PRIMARY KEY, client TEXT NOT NULL, kind TEXT NOT NULL, task TEXT NOT NULL, spec TEXT NOT NULL,
    precision TEXT NOT NULL, options TEXT NOT NULL, backend TEXT NOT NULL, created REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, submission TEXT NOT NULL, client TEXT NOT NULL, place INTEGER NOT NULL,
    batch TEXT NOT NULL, key TEXT NOT NULL, candidate TEXT NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, accepted REAL NOT NULL, counted INTEGER NOT NULL,
    fresh INTEGER NOT NULL, sequence INTEGER NOT NULL DEFAULT 0, reusable INTEGER NOT NULL DEFAULT 0,
    result TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '', fault TEXT NOT NULL DEFAULT '',
    UNIQUE (submission, place)
) STRICT;
CREATE INDEX IF NOT EXISTS waiting ON jobs (number) WHERE state = 'queued';
CREATE INDEX IF NOT EXISTS waiting_batches ON jobs (batch, number) WHERE state = 'queued';
CREATE INDEX IF NOT EXISTS waiting_keys ON jobs (client, key) WHERE state = 'queued' AND fresh = 0;
CREATE INDEX IF NOT EXISTS known ON jobs (client, key) WHERE reusable = 1;
DROP INDEX IF EXISTS counted;
CREATE INDEX IF NOT EXISTS counted_accepted ON jobs (client, accepted) WHERE counted > 0;
CREATE INDEX IF NOT EXISTS ordered ON jobs (submission, sequence);
"""
_FILE = "journal.db"
_ATTEMPTS = 3
_RATE_WINDOW = 64  # finished jobs from which the rate is computed
_QUOTA_S = 3600.0  # for which an accepted job counts
MOST_KEPT = 200_000
"""Jobs of one client that are kept: beyond that the client's oldest finished submissions are removed."""
_LOST = "the server ended {} times while it judged this candidate; submit it again if you trust it."


@dataclass(frozen=True)
class NewSubmission:
    """A submission before it is accepted."""

    id: str
    client: str
    kind: str  # "evaluate", or a kind of inspection
    task: str  # as the client named it
    spec: str  # as the loader takes it
    precision: str
    options: str  # JSON
    backend: str
    batch: str  # jobs with the same value can be judged together
    jobs: tuple[tuple[str, str], ...]  # key of the content, JSON of the candidate
    fresh: bool


@dataclass(frozen=True)
class Job:
    """A job that a judge takes."""

    number: int
    submission: str
    client: str
    place: int
    kind: str
    spec: str
    precision: str
    options: str
    backend: str
    batch: str
    candidate: str
    fresh: bool


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job."""

    state: JobState
    result: str = ""  # JSON
    error: str = ""
    fault: FaultKind = FaultKind.NONE
    reusable: bool = False


class QueueFull(Exception):
    """A submission does not fit now."""

    def __init__(self, sentence: str, retry_after_s: int, queue: int) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s
        self.queue = queue


class Journal:
    """The file. Safe to use from several threads; one process has it open."""

    def __init__(
        self,
        folder: Path,
        *,
        queue_limit: int = 20_000,
        most_kept: int = MOST_KEPT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._clock = clock
        self._queue_limit = queue_limit
        self._most_kept = most_kept
        self._guard = threading.RLock()
        self._finished_at: deque[float] = deque(maxlen=_RATE_WINDOW)
        self._served: dict[str, float] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = open_lock_file(folder / "lock")
            _make_private(folder / _FILE)
        except OSError as refused:
            raise UsageError(f"{folder} cannot be written ({refused.strerror}); choose another --state.") from None
        if not try_lock(self._lock):
            os.close(self._lock)
            raise UsageError(f"another server uses {folder}; end that server, or choose another --state.")
        self._connection = sqlite3.connect(folder / _FILE, check_same_thread=False, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "journal_size_limit=67108864"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(_SCHEMA)
        self._sequence = self._number("SELECT COALESCE(MAX(sequence), 0) FROM jobs")
        self._kept = self._count_kept()
        self._recover()

    def close(self) -> None:
        """Close the file; jobs that are being judged are judged again after the next start."""
        with self._guard:
            self._connection.close()
            os.close(self._lock)

    # --- clients ---

    def accept(self, new: NewSubmission, holder: TokenHolder) -> bool:
        """Write a submission down; False if it was there already. Raises QueueFull.

        Where it was there, its jobs that ended without a result are queued again.
        """
        now = self._clock()
        with self._transaction():
            row = self._row("SELECT client FROM submissions WHERE id = ?", new.id)
            if row is not None:
                again = self._rows(
                    "SELECT number, place FROM jobs WHERE submission = ? AND reusable = 0 "
                    "AND state NOT IN ('queued', 'running')",
                    new.id,
                )
                self._check_quota(holder, len(again))
                self._connection.executemany(
                    "UPDATE jobs SET state = 'queued', attempts = 0, sequence = 0, candidate = ?, result = '', "
                    "error = '', fault = '', counted = CASE WHEN accepted > ? THEN counted + 1 ELSE 1 END, "
                    "accepted = ? WHERE number = ?",
                    [(new.jobs[place][1], now - _QUOTA_S, now, number) for number, place in again],
                )
                return False
            rows = []
            for place, (key, candidate) in enumerate(new.jobs):
                known = None if new.fresh else self._known(new.client, key)
                if known is None:
                    rows.append((place, key, candidate, JobState.QUEUED, 1, 0, 0, ""))
                else:
                    self._sequence += 1
                    rows.append((place, key, "", JobState.DONE, 0, self._sequence, 1, known))
            self._check_quota(holder, sum(row[4] for row in rows))
            self._connection.execute(
                "INSERT INTO submissions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(new.id, new.client, new.kind, new.task, new.spec),
                    *(new.precision, new.options, new.backend, now),
                ),
            )
            self._connection.executemany(
                "INSERT INTO jobs (submission, client, batch, accepted, fresh, place, key, candidate, state, counted, "
                "sequence, reusable, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(new.id, new.client, new.batch, now, int(new.fresh), *row) for row in rows],
            )
            self._kept[new.client] += len(rows)
            if self._kept[new.client] > self._most_kept:
                self._remove_oldest(new)
        return True

    def owned(self, client: str, submission: str) -> str | None:
        """The name of the task of a client's submission; None if the client has no such submission."""
        row = self._row("SELECT task FROM submissions WHERE id = ? AND client = ?", submission, client)
        return None if row is None else str(row[0])

    def submissions(self, client: str, limit: int) -> list[str]:
        """The latest submissions of a client."""
        query = "SELECT id FROM submissions WHERE client = ? ORDER BY created DESC LIMIT ?"
        return [str(row[0]) for row in self._rows(query, client, limit)]

    def counts(self, submission: str) -> dict[JobState, int]:
        """How many jobs of a submission are in each state."""
        query = "SELECT state, COUNT(*) FROM jobs WHERE submission = ? GROUP BY state"
        return {JobState(state): count for state, count in self._rows(query, submission)}

    def ahead(self, submission: str) -> int:
        """How many jobs were accepted before the first waiting one of a submission and wait, too."""
        first = "SELECT MIN(number) FROM jobs WHERE submission = ? AND state = 'queued'"
        return self._number(f"SELECT COUNT(*) FROM jobs WHERE state = 'queued' AND number < ({first})", submission)

    def waiting(self, client: str | None = None) -> int:
        """How many jobs wait, of one client or in all."""
        if client is None:
            return self._number("SELECT COUNT(*) FROM jobs WHERE state = 'queued'")
        return self._number("SELECT COUNT(*) FROM jobs WHERE state = 'queued' AND client = ?", client)

    def results(self, submission: str, after: int, limit: int) -> list[tuple[int, int, JobState, str, str, FaultKind]]:
        """Outcomes in the order in which they came: sequence, place, state, result, error, kind of fault."""
        marks = ", ".join("?" for _ in FINISHED)
        rows = self._rows(
            f"SELECT sequence, place, state, result, error, fault FROM jobs WHERE submission = ? AND sequence > ? "
            f"AND state IN ({marks}) ORDER BY sequence LIMIT ?",
            *(submission, after, *FINISHED, limit),
        )
        return [(row[0], row[1], JobState(row[2]), row[3], row[4], FaultKind(row[5])) for row in rows]

    def cancel(self, submission: str) -> int:
        """Cancel the jobs of a submission that wait; returns how many."""
        with self._transaction():
            rows = self._rows("SELECT number FROM jobs WHERE submission = ? AND state = 'queued'", submission)
            for (number,) in rows:
                self._settle(number, Outcome(JobState.CANCELLED, error="the client cancelled it."))
        return len(rows)

    # --- judges ---

    def take(self, batch: str, most: int) -> list[Job]:
        """Jobs to be judged together: of this batch if any wait, else of the client who was served longest ago."""
        with self._transaction():
            if not batch or self._row("SELECT 1 FROM jobs WHERE state = 'queued' AND batch = ?", batch) is None:
                batch = self._next_batch()
            rows = self._rows(
                "SELECT j.number, j.submission, j.client, j.place, s.kind, s.spec, s.precision, s.options, s.backend, "
                "j.batch, j.candidate, j.fresh FROM jobs j JOIN submissions s ON s.id = j.submission "
                "WHERE j.state = 'queued' AND j.batch = ? ORDER BY j.number LIMIT ?",
                *(batch, most),
            )
            jobs = [Job(*row) for row in rows]
            self._connection.executemany(
                "UPDATE jobs SET state = 'running', attempts = attempts + 1 WHERE number = ?",
                [(job.number,) for job in jobs],
            )
            for job in jobs:
                self._served[job.client] = self._clock()
        return jobs

    def finish(self, job: Job, outcome: Outcome) -> set[str]:
        """Write an outcome down, also for waiting jobs of the client with the same content; their submissions."""
        with self._transaction():
            if not self._settle(job.number, outcome):
                return set()
            self._finished_at.append(self._clock())
            twins: list[tuple[int, str]] = []
            if outcome.reusable:
                twins = self._rows(
                    "SELECT number, submission FROM jobs WHERE client = ? AND state = 'queued' AND fresh = 0 AND key = "
                    "(SELECT key FROM jobs WHERE number = ?)",
                    *(job.client, job.number),
                )
            for number, _ in twins:
                self._settle(number, outcome)
        return {job.submission, *(submission for _, submission in twins)}

    def give_back(self, jobs: Sequence[Job]) -> None:
        """Queue jobs again that were taken and not judged."""
        with self._transaction():
            self._connection.executemany(
                "UPDATE jobs SET state = 'queued', attempts = attempts - 1 WHERE number = ? AND state = 'running'",
                [(job.number,) for job in jobs],
            )

    def prune(self, older_than_s: float) -> set[str]:
        """Remove finished submissions of that age; the specs of the tasks that the others use."""
        with self._transaction():
            old = self._rows(
                "SELECT id FROM submissions s WHERE created < ? AND NOT EXISTS "
                "(SELECT 1 FROM jobs WHERE submission = s.id AND state IN ('queued', 'running'))",
                self._clock() - older_than_s,
            )
            self._remove(old)
            self._kept = self._count_kept()
            return {str(spec) for (spec,) in self._rows("SELECT DISTINCT spec FROM submissions")}

    # --- inside ---

    def _recover(self) -> None:
        """Queue the jobs again that were being judged when the last server ended."""
        with self._transaction():
            for number, attempts in self._rows("SELECT number, attempts FROM jobs WHERE state = 'running'"):
                if attempts >= _ATTEMPTS:
                    self._settle(number, Outcome(JobState.LOST, error=_LOST.format(attempts)))
                else:
                    self._connection.execute("UPDATE jobs SET state = 'queued' WHERE number = ?", (number,))

    def _settle(self, number: int, outcome: Outcome) -> bool:
        self._sequence += 1
        changed = self._connection.execute(
            "UPDATE jobs SET state = ?, result = ?, error = ?, fault = ?, reusable = ?, sequence = ?, candidate = '' "
            "WHERE number = ? AND state IN ('queued', 'running')",
            (
                *(outcome.state, outcome.result, outcome.error, outcome.fault),
                *(int(outcome.reusable), self._sequence, number),
            ),
        )
        return changed.rowcount == 1

    def _count_kept(self) -> Counter[str]:
        """How many jobs of each client are kept."""
        return Counter(dict(self._rows("SELECT client, COUNT(*) FROM jobs GROUP BY client")))

    def _remove(self, submissions: Sequence[tuple[str]]) -> None:
        self._connection.executemany("DELETE FROM jobs WHERE submission = ?", submissions)
        self._connection.executemany("DELETE FROM submissions WHERE id = ?", submissions)

    def _remove_oldest(self, new: NewSubmission) -> None:
        """Remove the oldest finished submissions of a client, until a tenth of what may be kept is free."""
        rows = self._rows(
            "SELECT s.id, COUNT(*) FROM submissions s JOIN jobs j ON j.submission = s.id WHERE s.client = ? AND "
            "s.id != ? GROUP BY s.id HAVING SUM(j.state IN ('queued', 'running')) = 0 ORDER BY s.created",
            *(new.client, new.id),
        )
        old: list[tuple[str]] = []
        for submission, jobs in rows:
            if self._kept[new.client] <= 0.9 * self._most_kept:
                break
            old.append((submission,))
            self._kept[new.client] -= jobs
        self._remove(old)

    def _known(self, client: str, key: str) -> str | None:
        row = self._row(
            "SELECT result FROM jobs WHERE client = ? AND key = ? AND reusable = 1 ORDER BY sequence DESC LIMIT 1",
            *(client, key),
        )
        return None if row is None else str(row[0])

    def _next_batch(self) -> str:
        rows = self._rows("SELECT client, MIN(number) FROM jobs WHERE state = 'queued' GROUP BY client")
        if not rows:
            return ""
        _, number = min(rows, key=lambda row: (self._served.get(row[0], 0.0), row[1]))
        row = self._row("SELECT batch FROM jobs WHERE number = ?", number)
        return str(row[0]) if row else ""

    def _check_quota(self, holder: TokenHolder, count: int) -> None:
        queue, own = self.waiting(), self.waiting(holder.name)
        if not count:
            return
        if queue + count > self._queue_limit:
            raise QueueFull(
                f"{queue} candidates wait, and the queue takes {self._queue_limit}; try again later.",
                self._seconds_for(queue + count - self._queue_limit),
                queue,
            )
        if own + count > holder.pending:
            raise QueueFull(
                f"{own} of your candidates wait, and {holder.pending} may wait; try again later, or send fewer.",
                self._seconds_for(own + count - holder.pending),
                queue,
            )
        if holder.hourly:
            since = self._clock() - _QUOTA_S
            oldest, accepted = self._rows(
                "SELECT MIN(accepted), SUM(counted) FROM jobs WHERE client = ? AND accepted > ? AND counted > 0",
                *(holder.name, since),
            )[0]
            if (accepted or 0) + count > holder.hourly:
                oldest = self._clock() if oldest is None else oldest
                raise QueueFull(
                    f"{accepted or 0} of your candidates were accepted in the last hour, and the quota is "
                    f"{holder.hourly}; try again later.",
                    max(1, int(oldest - since)),
                    queue,
                )

    def _seconds_for(self, jobs: int) -> int:
        """About how long it takes to judge so many jobs."""
        finished = self._finished_at
        span = finished[-1] - finished[0] if len(finished) > 1 else 0.0
        each = span / (len(finished) - 1) if span > 0 else 2.0
        return max(1, min(600, int(jobs * each)))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._guard:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._guard:
            return self._connection.execute(query, values).fetchall()

    def _row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self._guard:
            found: tuple[Any, ...] | None = self._connection.execute(query, values).fetchone()
            return found

    def _number(self, query: str, *values: object) -> int:
        row = self._row(query, *values)
        return int(row[0]) if row and row[0] is not None else 0


def _make_private(path: Path) -> None:
    """Make a file that only its owner reads, also in a folder that others read; an OSError if it is a link.

    SQLite gives the files beside its database the same mode.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)
