"""The supervisor killed or interrupted, at any stage: no process and no folder outlives it for long."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import World, until
from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.source import read_candidate
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.settings import Limits, Paths
from warpsmith.tasks.load import load_task

pytestmark = pytest.mark.slow  # minutes in all; `make test-all` runs them

TaskFile = Callable[[str], Path]
KernelPath = Callable[[str], Path]

SOON_S = 2.0
NOISE_S = 6.0  # other people's work on the same cores


class Stage:
    """A command that has got as far as a stage and stays there."""

    def __init__(self, world: World, task_file: TaskFile, kernel_path: KernelPath, slow_to_compile: Path) -> None:
        self._world = world
        self._task = str(task_file("softmax"))
        self._hangs = str(kernel_path("hangs.cpp"))
        self._slow = str(slow_to_compile)

    def reached(self, stage: str) -> subprocess.Popen[str]:
        """`warpsmith evaluate` in the middle of opening its task, of a build, or of judging."""
        kernel = self._hangs if stage == "judging" else self._slow
        # A call may take long: only then is the candidate still in its loop when the blow falls.
        command = self._world.start("-m", "warpsmith", "evaluate", self._task, kernel, "--timeout", "300")
        if stage == "opening":
            until(lambda: len(self._world.processes()) > 1, "fork server")
        elif stage == "building":
            until(lambda: self._world.named("cc1plus"), "compiler")
        else:
            until(self._world.hosts, "host")
            time.sleep(1.0)  # now it is in its loop
        assert command.poll() is None, command.communicate()
        return command


@pytest.fixture
def stage(world: World, task_file: TaskFile, kernel_path: KernelPath, slow_to_compile: Path) -> Stage:
    return Stage(world, task_file, kernel_path, slow_to_compile)


@pytest.mark.parametrize("when", ["opening", "building", "judging"])
def test_ctrl_c_ends_at_once_with_status_130_and_leaves_nothing(when: str, stage: Stage, world: World) -> None:
    command = stage.reached(when)
    struck = time.monotonic()
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert time.monotonic() - struck < SOON_S + NOISE_S
    assert command.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    assert world.left() == []


@pytest.mark.parametrize("when", ["opening", "building", "judging"])
def test_no_process_outlives_a_killed_supervisor(
    when: str, stage: Stage, world: World, task_file: TaskFile, kernel_path: KernelPath
) -> None:
    command = stage.reached(when)
    command.send_signal(signal.SIGKILL)
    command.communicate(timeout=60)
    left = world.left()
    if when == "building":
        # Only the folder the compiler worked in is there, and the next build takes it away.
        assert [name.partition("/")[0] for name in left] == ["work"], left
        backend = CpuBackend().configured(Paths(world.cache), Limits())
        contract = backend.contract(load_task(task_file("softmax")).task)
        built = backend.build(read_candidate(kernel_path("right.cpp")), contract, Target(DeviceKind.CPU))
        assert isinstance(built, Artifact)
        left = world.left()
    assert left == []
