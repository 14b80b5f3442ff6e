"""What the machine takes away in the middle of a batch: the compiler, and the space on a disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import World, commented
from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Paths, Settings

pytestmark = pytest.mark.slow  # minutes in all; `make test-all` runs them

# --- the compiler -------------------------------------------------------------------------------------------


def test_a_compiler_that_vanishes_costs_only_what_was_not_built(
    world: World, plain: Candidate, tiny: Path, tmp_path: Path
) -> None:
    """Through the command: a compiler that removes itself after its first compilation, and no other there."""
    compiler = tmp_path / "fleeting-g++"
    gxx = shutil.which("g++")
    compiler.write_text(
        f'#!/bin/sh\nPATH=/usr/bin:/bin\ncase "$1" in --version|-print-file-name=*) exec {gxx} "$1";; esac\n'
        f'{gxx} "$@"; status=$?\ncase "$*" in *faults.c*) ;; *) rm -f "$0";; esac\nexit $status\n'
    )
    compiler.chmod(0o755)
    files = []
    for i in range(6):
        files.append(tmp_path / f"kernel_{i}.cpp")
        files[-1].write_text(commented(plain, f"fleeting {i}").main.text)
    nowhere = str(tmp_path / "nowhere")
    command = world.start(
        *("-m", "warpsmith", "evaluate", str(tiny), *map(str, files), "--json"),
        *("--time-budget", "0.05", "--seeds", "1"),
        CXX=str(compiler),
        PATH=nowhere,
    )
    out, said = command.communicate(timeout=240)
    statuses = [line.split('"status": "')[1].split('"')[0] for line in out.splitlines()]
    assert len(statuses) == len(files), said
    assert set(statuses) == {"ok", "not_judged"}, out
    assert all("install g++" in line for line in out.splitlines() if "not_judged" in line), out
    assert command.returncode == 2
    assert "Traceback" not in said
    assert world.left() == []


# --- the disk -----------------------------------------------------------------------------------------------


class Disk:
    """A small file system of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no block free."""
        with self._filler.open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                while True:
                    try:
                        file.write(bytes(size))
                    except OSError:
                        break

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink()


@pytest.fixture(scope="module")
def disks() -> Iterator[tuple[Disk, Disk]]:
    """One for the cache, one for the hosts' scratch folders."""
    # Not below pytest's own folder, which only root may pass through: hosts run as another user.
    root = Path("/tmp") / f"test-disks-{os.getpid()}"
    folders = [root / name for name in ("cache", "temp")]
    mounted: list[Path] = []
    try:
        for folder in folders:
            folder.mkdir(mode=0o755, parents=True)
            command = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "tmpfs", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
            mounted.append(folder)
        yield Disk(folders[0]), Disk(folders[1])
    finally:
        for folder in mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(root)


class Trouble:
    """Fills a disk when a candidate reaches a stage, once."""

    def __init__(self) -> None:
        self.stage = ""
        self.disk: Disk | None = None
        self.messages: list[str] = []

    def progress(self, progress: Progress) -> None:
        """Called by the evaluator."""
        if self.disk is not None and progress.stage == self.stage:
            self.disk.fill()
            self.stage = ""


@pytest.fixture(scope="module")
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture(scope="module")
def crowded(
    disks: tuple[Disk, Disk], trouble: Trouble, quick_settings: Settings, cache_folder: Path
) -> Iterator[Evaluator]:
    """An evaluator whose cache and scratch folders lie on the small disks."""
    cache, temp = (disk.folder for disk in disks)
    if (cache_folder / "peaks").is_dir():  # measured by another test: saves seconds
        shutil.copytree(cache_folder / "peaks", cache / "peaks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(temp))
        with Evaluator(
            "cpu",
            quick_settings,
            paths=Paths(cache),
            on_progress=trouble.progress,
            on_message=trouble.messages.append,
        ) as evaluator:
            yield evaluator
    assert [p.name for p in temp.iterdir()] == []


class Bench:
    """Judges two right candidates while a disk fills up."""

    def __init__(self, evaluator: Evaluator, trouble: Trouble, task: Path, right: Candidate) -> None:
        self._evaluator = evaluator
        self._trouble = trouble
        self._task = task
        self._right = right

    def judge(self, remark: str, disk: Disk | None = None, stage: str = "") -> list[Evaluation]:
        """The verdicts, the disk being full from the first time that stage is reached."""
        self._trouble.messages.clear()
        self._trouble.disk, self._trouble.stage = disk, stage
        batch = [commented(self._right, f"{remark} {i}") for i in range(2)]
        judged = dict(self._evaluator.evaluate(self._task, batch))
        assert self._trouble.stage == "", "the disk was filled"
        if disk is not None:
            disk.free()
        assert sorted(judged) == [0, 1]
        return [judged[0], judged[1]]


@pytest.fixture
def bench(crowded: Evaluator, trouble: Trouble, plain: Candidate, tiny: Path) -> Bench:
    return Bench(crowded, trouble, tiny, plain)


def test_a_verdict_is_not_lost_because_it_cannot_be_kept(
    bench: Bench, disks: tuple[Disk, Disk], trouble: Trouble
) -> None:
    verdicts = bench.judge("no room for verdicts", disks[0], "time")
    assert [verdict.status for verdict in verdicts] == [Status.OK] * 2, [verdict.reason for verdict in verdicts]
    said = [message for message in trouble.messages if "evaluations cannot be stored" in message]
    assert len(said) == 1, trouble.messages
    assert "No space left on device" in said[0]
    again = bench.judge("no room for verdicts")
    assert [verdict.status for verdict in again] == [Status.OK] * 2, [verdict.reason for verdict in again]
    assert not any(verdict.cached for verdict in again), "nothing half was kept"


def test_a_full_build_cache_is_not_the_candidate_s_fault(bench: Bench, disks: tuple[Disk, Disk]) -> None:
    verdicts = bench.judge("no room for builds", disks[0], "build")
    assert {verdict.status for verdict in verdicts} == {Status.NOT_JUDGED}, [verdict.reason for verdict in verdicts]
    assert all("free" in verdict.reason for verdict in verdicts), [verdict.reason for verdict in verdicts]
    again = bench.judge("no room for builds")
    assert [verdict.status for verdict in again] == [Status.OK] * 2, [verdict.reason for verdict in again]


def test_a_full_scratch_folder_is_not_the_candidate_s_fault(bench: Bench, disks: tuple[Disk, Disk]) -> None:
    verdicts = bench.judge("no room for hosts", disks[1], "built")
    assert {verdict.status for verdict in verdicts} == {Status.NOT_JUDGED}, [verdict.reason for verdict in verdicts]
    assert all("No space left on device" in verdict.reason for verdict in verdicts), verdicts[0].reason
    again = bench.judge("no room for hosts")
    assert [verdict.status for verdict in again] == [Status.OK] * 2, [verdict.reason for verdict in again]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["contract", "examples/tasks/relu.py"]], ids=" ".join)
def test_output_to_a_full_disk_ends_in_one_line(words: list[str]) -> None:
    root = Path(__file__).resolve().parent.parent.parent
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "warpsmith", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=root)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: standard output cannot be written (No space left on device); free some space and run again."
    ]
