from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from tests.processes import KilledProcess

from warpsmith.system.files import FolderTooLarge, OwnedFolder, list_tree, remove_tree, sweep

OWNER = """
import sys
import tempfile
from pathlib import Path

import pytest
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
    with KilledProcess([sys.executable, "-c", OWNER, str(tmp_path)], stdin=pipe, stdout=pipe, text=True) as owner:
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


def dig(place: Path, levels: int) -> None:
    """Folders in folders, deeper than any path can be long."""
    at = os.open(place, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_a_tree_of_any_depth_width_and_mode_is_removed_without_following_links(tmp_path: Path) -> None:
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    kept.mkdir()
    (kept / "file").write_text("mine")
    tree.mkdir()
    dig(tree, 1200)  # more than Python can recurse
    for number in range(50):
        (tree / f"{number}\n\udcff").touch(0)
    (tree / "link").symlink_to(kept)
    (tree / "d" / "link").symlink_to(kept / "file")
    (tree / ".owner").mkdir()
    os.mkfifo(tree / "pipe")
    assert remove_tree(tree, limit_s=60.0)
    assert remove_tree(tree), "gone already"
    assert (kept / "file").read_text() == "mine"
    (tmp_path / "link").symlink_to(kept)
    assert not remove_tree(tmp_path / "link")
    assert names(tmp_path) == ["kept", "link"]


REMOVES = """
import os, sys
from pathlib import Path

import pytest
from warpsmith.system.files import remove_tree
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
top = Path(sys.argv[1]) / "top"
(top / "shut" / "inner" / "innermost").mkdir(parents=True)
(top / "shut" / "file").touch()
(top / "shut" / "inner").chmod(0)
(top / "shut").chmod(0)
top.chmod(0)
assert remove_tree(top)
assert not top.exists()
"""


def test_folders_that_let_nobody_in_are_removed_by_an_ordinary_user() -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        subprocess.run([sys.executable, "-c", REMOVES, place], check=True, timeout=60)


def test_removal_ends_in_time_and_a_sweep_goes_on_with_the_rest(tmp_path: Path) -> None:
    folder = OwnedFolder(tmp_path, "mine-")
    dig(folder.path, 100)
    assert not remove_tree(folder.path, limit_s=0.0)
    assert (folder.path / ".owner").exists(), "without it no sweep would find the folder"
    os.close(folder._handle)  # its owner dies
    sweep(tmp_path)
    assert names(tmp_path) == []


def test_a_tree_is_listed_up_to_a_number_of_entries_and_a_depth(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    assert [str(p.relative_to(tmp_path)) for p in list_tree(tmp_path, 4, 3)] == ["a", "a/b", "a/file", "link"]
    assert list_tree(tmp_path / "link", 4, 3) == list_tree(tmp_path / "none", 4, 3) == []
    with pytest.raises(FolderTooLarge, match="more than 3 files"):
        list_tree(tmp_path, 3, 3)
    with pytest.raises(FolderTooLarge, match="more than 2 deep"):
        list_tree(tmp_path, 4, 2)
