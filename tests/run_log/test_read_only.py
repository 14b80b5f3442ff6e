"""A run in a folder where nothing can be written: it can be looked at, with all that its last writer left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.test_cli_advice import finished
from warpsmith.cli.main import app
from warpsmith.run_log.events import NoteAdded, StopReason
from warpsmith.run_log.log import LOG_FILE, RunLog

NOBODY = 65534


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody may enter, with one beside it for what is temporary."""
    folder = Path(tempfile.mkdtemp(prefix="test-read-only-"))
    folder.chmod(0o755)
    (folder / "temporary").mkdir()
    (folder / "temporary").chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    monkeypatch.setenv("WARPSMITH_CACHE", str(folder / "cache"))
    yield folder
    for each in folder.iterdir():
        each.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Without the right to write there: as another user where we are the one who may do everything."""
    folder.chmod(0o555)
    ours = os.geteuid(), os.getegid()
    if ours[0] == 0:
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    try:
        assert not os.access(folder, os.W_OK, effective_ids=True)
        yield
    finally:
        if ours[0] == 0:
            os.seteuid(ours[0])
            os.setegid(ours[1])


def notes(folder: Path) -> list[str]:
    with RunLog.read(folder) as log:
        return [entry.event.text for entry in log.entries() if isinstance(entry.event, NoteAdded)]


@pytest.mark.parametrize("left", [(), ("-wal",), ("-wal", "-shm")], ids=["closed", "no-index", "live"])
def test_what_is_beside_the_log_is_read_too(place: Path, left: tuple[str, ...]) -> None:
    with RunLog.create(place / "run") as log:
        log.append(NoteAdded("first"))
    shutil.copytree(place / "run", place / "there")
    with RunLog.open(place / "run") as log:
        log.append(NoteAdded("second"))  # not in the file itself before the log is closed
        assert (place / "run" / f"{LOG_FILE}-wal").stat().st_size > 0
        for ending in left:
            shutil.copyfile(place / "run" / f"{LOG_FILE}{ending}", place / "there" / f"{LOG_FILE}{ending}")
    before = sorted(path.name for path in (place / "there").iterdir())
    with unwritable(place / "there"):
        assert notes(place / "there") == ["first", "second"][: 2 if left else 1]
    assert sorted(path.name for path in (place / "there").iterdir()) == before
    assert list((place / "temporary").iterdir()) == []


def test_an_empty_file_beside_the_log_is_none(place: Path) -> None:
    with RunLog.create(place / "run") as log:
        log.append(NoteAdded("first"))
    (place / "run" / f"{LOG_FILE}-wal").write_bytes(b"")
    with unwritable(place / "run"):
        assert notes(place / "run") == ["first"]


def test_a_run_that_cannot_be_written_is_listed_shown_and_reported(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with finished(place / "run") as session:
        session.end(StopReason.TRIALS)
    commands = ["runs .", "show run", "show run best", "show run 1 --only code", "report run --out temporary/r.html"]
    assert CliRunner().invoke(app, commands[-1].split()).exit_code == 0  # imports what others may not read
    for left in ("temporary/r.html", f"run/{LOG_FILE}-wal", f"run/{LOG_FILE}-shm"):
        (place / left).unlink(missing_ok=True)
    with unwritable(place / "run"):
        for command in commands:
            result = CliRunner().invoke(app, command.split())
            assert (result.exit_code, result.stderr) == (0, ""), command
        result = CliRunner().invoke(app, ["report", "run"])
        said = "the report cannot be written to run/report.html (Permission denied); give another --out."
        assert (result.exit_code, result.stderr) == (2, f"error: {said}\n")
    assert (place / "temporary" / "r.html").stat().st_size > 0
