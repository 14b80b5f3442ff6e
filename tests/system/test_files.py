from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from warpsmith.system.files import OwnedFolder, sweep

OWNER = """
import sys
from pathlib import Path
from warpsmith.system.files import OwnedFolder
folder = OwnedFolder(Path(sys.argv[1]), "mine-")
(folder.path / "work").write_text("half done")
print(folder.path, flush=True)
sys.stdin.readline()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_there_until_its_owner_removes_it(tmp_path: Path) -> None:
    folder = OwnedFolder(tmp_path, "mine-", mode=0o711)
    (folder.path / "deep").mkdir()
    sweep(tmp_path)
    assert (folder.path / "deep").is_dir()
    assert folder.path.stat().st_mode & 0o777 == 0o711
    folder.remove()
    folder.remove()
    assert names(tmp_path) == []


def test_the_folder_of_a_killed_owner_is_swept_at_once(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        sweep(tmp_path)
        assert (folder / "work").exists(), "its owner lives"
        owner.kill()
        owner.wait()
        sweep(tmp_path, "others-")
        assert folder.exists(), "not asked for"
        sweep(tmp_path)
    assert names(tmp_path) == []


def test_what_was_never_owned_is_swept_only_when_it_is_old_and_asked_for(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    os.utime(tmp_path / "old", (0, 0))
    sweep(tmp_path)
    assert names(tmp_path) == ["file", "link", "new", "old"]
    sweep(tmp_path, unowned_s=3600.0)
    assert names(tmp_path) == ["file", "link", "new"]


def test_a_folder_that_is_being_made_is_not_swept_away(tmp_path: Path) -> None:
    """Makers against a sweeper that never rests."""
    stop = threading.Event()

    def keep_sweeping() -> None:
        while not stop.is_set():
            sweep(tmp_path, unowned_s=3600.0)

    sweeper = threading.Thread(target=keep_sweeping)
    sweeper.start()
    try:
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            folder = OwnedFolder(tmp_path)
            (folder.path / "file").write_text("mine")
            assert (folder.path / "file").read_text() == "mine"
            folder.remove()
    finally:
        stop.set()
        sweeper.join()
    assert names(tmp_path) == []
