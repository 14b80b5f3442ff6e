"""Runs and benches of a folder as a server shows them: found, read event by event, and summed up.

Only reads. A run that is open on a page is kept as a history with its page, and its row in the list of runs comes from
that; for other runs the list keeps numbers only.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from warpsmith.experiments.collect import results_of
from warpsmith.experiments.plan import PLAN
from warpsmith.experiments.results import RESULTS, BenchResults, CellStatus
from warpsmith.hardware.roofline import Peaks
from warpsmith.model.brief import Problem
from warpsmith.model.errors import RunError, UsageError, WarpsmithError
from warpsmith.report.document import BenchRow, LiveView, ProgressPoint, RunRow, plain
from warpsmith.report.run_history import RunHistory, progress_point
from warpsmith.report.run_page import RunPageMaker
from warpsmith.run_log.events import LogEntry
from warpsmith.run_log.log import LOG_FILE, RunLog
from warpsmith.search.options import BY_HAND
from warpsmith.search.run_state import RunState
from warpsmith.search.session import consistent
from warpsmith.system.locks import is_locked

PREFIX = "/dashboard"
"""The path of the list of runs; every other path of the live page is below it."""

RUNNING, IDLE, CLOSED = "running", "idle", "closed"
_DEPTH = 5  # folders below the one that is served
_MOST = 2000  # runs listed
_FOUND_S = 1.0  # how long a list of folders is kept
_OPEN = 8  # runs with a page in memory
_AHEAD = 2  # runs read before somebody opens them
_QUIET_S = 1.5  # after the last event nobody asks whether the process is still there
FindPeaks = Callable[[Problem], Peaks | None]


def no_peaks(problem: Problem) -> Peaks | None:
    """A `FindPeaks` that knows none."""
    return None


class _Presence:
    """Whether a process works on a run. The lock is looked at when no event came for a while."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = False
        self._known_until = 0.0

    def state(self, state: RunState, last_at: float) -> str:
        """RUNNING, IDLE or CLOSED."""
        if state.closed is not None:
            return CLOSED
        now = time.time()
        if 0 <= now - last_at < _QUIET_S:
            return RUNNING
        if now > self._known_until:
            self._held, self._known_until = is_locked(self._folder), now + _QUIET_S
        return RUNNING if self._held else IDLE


def _words(state: RunState, now: str) -> str:
    """The state of a run as a sentence."""
    if state.closed is not None:
        return f"Stopped: {state.closed.words}."
    return "Running." if now == RUNNING else "Not running: the process ended without closing the run."


class ServedRun:
    """One run on a page: its log is read on, and what changed since an event is given as a patch."""

    def __init__(self, name: str, folder: Path, find_peaks: FindPeaks = no_peaks) -> None:
        self.name = name
        self.folder = folder
        self.instance = secrets.token_hex(6)
        self._guard = threading.Lock()
        self._presence = _Presence(folder)
        self._last_at = 0.0
        self._fields: dict[str, tuple[int, str]] = {}  # by name: the event that changed it, and its JSON
        self._trials: dict[int, tuple[int, object, str]] = {}  # by number: event, row, JSON
        self._made = -1  # the last event in the page
        self._log = RunLog.read(folder)
        try:
            with consistent(folder):
                setup = self._log.setup()
                history = RunHistory(RunState.start(setup))
                self._maker = RunPageMaker(history, folder, find_peaks(setup.problem))
                self._read()
        except BaseException:
            self._log.close()
            raise

    def close(self) -> None:
        """Close the log."""
        with self._guard:
            self._log.close()

    def update(self) -> int:
        """Read what was appended, and make the page; the number of the last event."""
        with self._guard, consistent(self.folder):
            self._read()
            if self._made < (seq := self._maker.history.seq):
                self._make(seq)
            return seq

    def row(self) -> RunRow:
        """The row of the run in the list of runs; the page is not made for it."""
        with self._guard, consistent(self.folder):
            self._read()
            history = self._maker.history
            now = self._presence.state(history.state, self._last_at)
            return _row(self.name, history.state, now, history.began_at, history.progress)

    def _read(self) -> None:
        history = self._maker.history
        for entry in self._log.entries(after=history.seq):
            history.take(entry)
            self._last_at = entry.at

    def _make(self, seq: int) -> None:
        page = self._maker.live_page()
        for trial in page.trials:
            known = self._trials.get(trial.number)
            if known is None or known[1] is not trial:
                self._trials[trial.number] = seq, trial, _json(trial)
        for name in vars(page):
            if name in ("trials", "live"):
                continue
            text = _json(getattr(page, name))
            if self._fields.get(name, (0, ""))[1] != text:
                self._fields[name] = seq, text
        self._made = seq

    def live(self, at: int = 0) -> str:
        """What is under way, as JSON; `at` is the time of the page."""
        with self._guard:
            maker = self._maker
            state = maker.history.state
            now = self._presence.state(state, self._last_at)
            return _json(
                LiveView(
                    run=quote(self.name),
                    instance=self.instance,
                    seq=self._made,
                    state=now,
                    words=_words(state, now),
                    briefs=maker.open_briefs() if now == RUNNING else (),
                    trials=maker.open_trials() if now == RUNNING else (),
                    at=at,
                )
            )

    def document(self) -> str:
        """The whole page without its long texts, the trials as rows, as JSON."""
        self.update()
        return self.patch(0, round(time.time()))[:-1] + ',"kind":"run"}'

    def patch(self, since: int, at: int = 0) -> str:
        """The fields and trials that changed after an event, as one JSON object; everything after event 0."""
        live = self.live(at)
        with self._guard:
            fields = [f'"{name}":{text}' for name, (seq, text) in self._fields.items() if seq > since]
            trials = [text for seq, _, text in self._trials.values() if seq > since]
        return "{" + ",".join([*fields, f'"trials":[{",".join(trials)}]', f'"live":{live}']) + "}"

    def text(self, number: int) -> str:
        """A long text by its number."""
        with self._guard:
            if not 0 <= number < len(self._maker.texts):
                raise UsageError(f"there is no text {number}; load the page again.")
            return self._maker.texts[number]

    def trial(self, number: int) -> str:
        """One trial in full, as JSON."""
        with self._guard:
            if number not in self._maker.history.state.trials:
                raise UsageError(f"there is no trial {number}; load the page again.")
            return _json(self._maker.trial(number))

    @property
    def headline(self) -> tuple[str, str]:
        """The title and the subtitle of the page."""
        with self._guard:
            return json.loads(self._fields["title"][1]), json.loads(self._fields["subtitle"][1])


def _json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class _Summary:
    """The row of one run, kept up to date with numbers only."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._state: RunState | None = None
        self._seq = 0
        self._began = self._last_at = 0.0
        self._curve: list[ProgressPoint] = []
        self._mark: object = None
        self._presence = _Presence(folder)

    def row(self) -> RunRow:
        """The row of the run as of now."""
        mark = _mark(self.folder)
        if self._state is None or mark != self._mark:
            with RunLog.read(self.folder) as log, consistent(self.folder):
                self._state = self._state or RunState.start(log.setup())
                for entry in log.entries(after=self._seq):
                    self._take(self._state, entry)
            self._mark = mark
        now = self._presence.state(self._state, self._last_at)
        return _row(self.name, self._state, now, self._began, self._curve)

    def _take(self, state: RunState, entry: LogEntry) -> None:
        best = state.best
        state.apply(entry)
        self._seq, self._last_at = entry.seq, entry.at
        self._began = self._began or entry.at
        if state.best != best:
            self._curve.append(progress_point(state))


def _row(name: str, state: RunState, now: str, began: float, curve: Sequence[ProgressPoint]) -> RunRow:
    setup, used, opened = state.setup, state.totals, state.opened
    best = state.trials.get(state.best)
    proposer = opened.proposer if opened else setup.config.proposer
    return RunRow(
        run=name,
        address=f"{PREFIX}/runs/{quote(name)}",
        task=setup.problem.task.name,
        method=setup.method.name,
        proposer="by hand" if proposer == BY_HAND else proposer,
        device=setup.problem.device,
        state=now,
        words=_words(state, now),
        trials=used.trials,
        budget=(opened.budget if opened else setup.config.budget).trials,
        valid=used.valid,
        settled=used.settled,
        best=best.score if best else None,
        seconds=used.seconds,
        usd=None if used.unpriced else used.cost_usd,
        tokens=used.tokens,
        began=round(began),
        curve=tuple(curve),
    )


def _mark(folder: Path) -> list[tuple[int, int, int]]:
    """What changes when a log is written."""
    found = []
    for name in (LOG_FILE, f"{LOG_FILE}-wal"):
        with suppress(OSError):
            at = (folder / name).lstat()
            found.append((at.st_mtime_ns, at.st_size, at.st_ino))
    return found


def _written(folder: Path) -> int:
    """When a log was written last, in nanoseconds."""
    return max((at for at, *_ in _mark(folder)), default=0)


class ServedRuns:
    """The runs and benches of some folders, by name. A name never leads out of the folders: only names that were
    found there are known.
    """

    def __init__(self, roots: Sequence[Path], find_peaks: FindPeaks = no_peaks) -> None:
        self.roots = tuple(roots)
        self._find_peaks = find_peaks
        self._guard = threading.Lock()
        self._found: tuple[float, dict[str, Path], dict[str, Path]] = (-1e9, {}, {})
        self._summaries: dict[str, _Summary] = {}
        self._rows: dict[str, RunRow] = {}
        self._benches: dict[str, tuple[object, BenchResults]] = {}
        self._faults: dict[str, str] = {}  # by run: why it cannot be read
        self._open: OrderedDict[str, ServedRun] = OrderedDict()

    def folders(self) -> tuple[dict[str, Path], dict[str, Path]]:
        """The folders of runs and of benches, by name."""
        at, runs, benches = self._found
        if time.monotonic() - at > _FOUND_S:
            runs, benches = {}, {}
            for root in self.roots:
                for name, folder, kind in _walk(root):
                    if len(runs) < _MOST:
                        (runs if kind == LOG_FILE else benches).setdefault(name, folder)
            self._found = time.monotonic(), runs, benches
        return runs, benches

    def rows(self, seconds: float = 60.0) -> tuple[RunRow, ...]:
        """The rows of the runs, the latest first; what is not read within some seconds comes with a later call."""
        until = time.monotonic() + seconds
        with self._guard:
            runs, _ = self.folders()
            for name in [each for each in self._summaries if each not in runs]:
                del self._summaries[name]
                self._rows.pop(name, None)
            if not self._rows:  # the first list: the logs of the pages that come next are read once for both
                for name in sorted(runs, key=lambda each: -_written(runs[each]))[:_AHEAD]:
                    with suppress(WarpsmithError, OSError):  # said below
                        self._opened(name, runs[name])
            for name, folder in sorted(runs.items(), key=lambda each: each[0] in self._rows):
                if name not in self._summaries and name not in self._open and time.monotonic() > until:
                    continue
                self._read(name, folder)
            return self._latest_first()

    def _latest_first(self) -> tuple[RunRow, ...]:
        return tuple(sorted(self._rows.values(), key=lambda row: (-row.began, row.run)))

    def read_ahead(self) -> None:
        """Read the runs whose pages a reader of the list will most probably open: the latest, those at work first."""
        for row in sorted(self._latest_first(), key=lambda row: row.state != RUNNING)[:_AHEAD]:
            with suppress(WarpsmithError, OSError):  # the page of the run says what is wrong
                self.run(row.run).update()

    def _read(self, name: str, folder: Path) -> None:
        opened = self._open.get(name) or self._summaries.setdefault(name, _Summary(name, folder))
        try:
            self._rows[name] = opened.row()
            self._faults.pop(name, None)
        except (WarpsmithError, OSError) as fault:
            self._faults[name] = str(fault)
            self._rows.pop(name, None)

    def faults(self) -> tuple[str, ...]:
        """Why runs are missing from the list."""
        return tuple(self._faults.values())

    def bench_rows(self) -> tuple[BenchRow, ...]:
        """The benches with their state."""
        rows = []
        for name in sorted(self.folders()[1]):
            with suppress(WarpsmithError, OSError):
                rows.append(self._bench_row(name))
        return tuple(rows)

    def _bench_row(self, name: str) -> BenchRow:
        results = self.bench(name)
        speedups = [cell.best.eager.value for cell in results.cells if cell.best]
        running = any(row.state == RUNNING for row in self._rows.values() if row.run.startswith(f"{name}/"))
        done, failed = results.count(CellStatus.DONE), results.count(CellStatus.FAILED)
        left = len(results.cells) - done - failed
        return BenchRow(
            bench=name,
            address=f"{PREFIX}/benches/{quote(name)}",
            done=done,
            cells=len(results.cells),
            failed=failed,
            best=max(speedups, default=None),
            words="running" if running else "not finished" if left else "done",
        )

    def bench(self, name: str) -> BenchResults:
        """The results of a bench, read again where one of its runs changed."""
        runs, benches = self.folders()
        folder = benches.get(name)
        if folder is None:
            raise RunError(f"there is no bench {name} here; the list of runs names them.")
        mark = [_mark(each) for run, each in runs.items() if run.startswith(f"{name}/")]
        known = self._benches.get(name)
        if known is None or known[0] != mark:
            known = self._benches[name] = mark, results_of(str(folder))
        return known[1]

    def folder(self, name: str) -> Path:
        """The folder of a run by its name."""
        found = self.folders()[0].get(name)
        if found is None:
            raise RunError(f"there is no run {name} here; the list of runs names them.")
        return found

    def run(self, name: str) -> ServedRun:
        """A run for its page; the runs looked at last stay in memory."""
        folder = self.folder(name)
        with self._guard:
            return self._opened(name, folder)

    def _opened(self, name: str, folder: Path) -> ServedRun:
        found = self._open.pop(name, None) or ServedRun(name, folder, self._find_peaks)
        self._open[name] = found
        while len(self._open) > _OPEN:
            self._open.popitem(last=False)
        return found


def _walk(root: Path) -> Iterator[tuple[str, Path, str]]:
    """Runs and benches at and below a folder: name, folder, and the file that makes it one. Links are not followed."""
    base = root.resolve()
    for place, folders, files in os.walk(base):
        path = Path(place)
        depth = len(path.parts) - len(base.parts)
        name = "/".join((root.name or base.name, *path.parts[len(base.parts) :]))
        if LOG_FILE in files:
            yield name, path, LOG_FILE
            folders.clear()
        elif PLAN in files or (RESULTS in files and depth > 0):
            yield name, path, PLAN
        if depth >= _DEPTH:
            folders.clear()
        folders[:] = sorted(each for each in folders if not each.startswith("."))


def rows_json(rows: Sequence[Any]) -> list[tuple[str, str]]:
    """Rows of a list as (name, JSON)."""
    return [(row.run if isinstance(row, RunRow) else row.bench, _json(row)) for row in rows]
