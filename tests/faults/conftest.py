"""What the tests of faults share: a marked world to look for leftovers in, slow sources, evaluators in processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from warpsmith.model.candidate import Candidate, SourceFile

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 120.0  # for what must happen, on a machine that others use too
TINY = '''
"""Softmax of little: it is judged in no time even on a busy machine."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 8, "cols": 64}], precision="fp32")
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
'''
FRAGILE = '''
"""Softmax on a device that can fall off: it is gone while the file {gone} is there."""

from pathlib import Path

import torch

from warpsmith import normal, task

if Path("{gone}").exists():
    raise RuntimeError("CUDA error: unknown error")


@task(x=normal("rows, cols"), workloads=[{{"rows": 16, "cols": 64}}], precision="fp32")
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
'''
PLAIN = """
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float peak = -INFINITY, sum = 0.f;
    for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
    for (int64_t c = 0; c < cols; ++c) sum += out[r * cols + c] = std::exp(in[c] - peak);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
  return 0;
}
"""


def commented(candidate: Candidate, remark: str) -> Candidate:
    """The same program with another content, and so another id."""
    main = candidate.main
    return replace(candidate, files=(SourceFile(main.name, f"// {remark}\n{main.text}"), *candidate.files[1:]))


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE_S:g} s"
        time.sleep(0.02)


class World:
    """A folder that is TMPDIR and holds the cache of whatever is started in it, and so marks it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.environ = {**os.environ, "TMPDIR": str(folder), "WARPSMITH_CACHE": str(self.cache)}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *command: str, **environ: str) -> subprocess.Popen[str]:
        """A process of this world, ended with it at the latest."""
        pipe = subprocess.PIPE
        given = {**self.environ, **environ}
        process = subprocess.Popen([sys.executable, *command], env=given, stdout=pipe, stderr=pipe, text=True)
        self._started.append(process)
        return process

    def processes(self) -> list[psutil.Process]:
        """Everything alive that carries the folder's path in its environment or its command, but ourselves."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                told = " ".join([*process.cmdline(), *process.environ().values()])
                alive = process.status() != psutil.STATUS_ZOMBIE
                if str(self.folder) in told and alive and process.pid != os.getpid():
                    found.append(process)
        return found

    def named(self, name: str) -> list[psutil.Process]:
        """Those of `processes` that run this program."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() == name:
                    found.append(process)
        return found

    def hosts(self) -> list[psutil.Process]:
        """The processes that hold candidates."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                said = process.cmdline()[1:]  # not the interpreter, which may live in a folder named after torch
                lean = "warpsmith.evaluator.supervisor.fork_server" in said and "torch" not in " ".join(said)
                found += process.children() if lean else []
        return found

    def left(self) -> list[str]:
        """Processes still there after five seconds, and folders of ours."""
        deadline = time.monotonic() + 5.0
        while (there := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        folders = [p.name for p in self.folder.iterdir() if p.name.startswith("warpsmith-")]
        work = self.cache / "builds" / "work"
        folders += [f"work/{p.name}" for p in work.iterdir()] if work.is_dir() else []
        return [f"{p.pid} {' '.join(p.cmdline())[:200]}" for p in there] + folders

    def end(self) -> None:
        """Kill what a failed test has left."""
        for process in self._started:
            process.kill()
            process.communicate()
        for left in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                left.send_signal(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def kill(processes: list[psutil.Process]) -> int:
    """SIGKILL; how many there were."""
    killed = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            killed += 1
    return killed


def judges(world: World) -> list[psutil.Process]:
    """Processes forked by the parent of judges."""
    parents = [p for p in world.processes() if "warpsmith.evaluator.supervisor.fork_server" in p.cmdline()]
    return [c for p in parents if "warpsmith.evaluator.judge.process" in " ".join(p.cmdline()) for c in p.children()]


@pytest.fixture
def world(marked_temp: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """This process moves into it too, so that evaluators of the test's own are seen."""
    here = World(marked_temp)
    monkeypatch.setenv("WARPSMITH_CACHE", str(here.cache))
    yield here
    here.end()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The task file of TINY."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.py"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def plain() -> Candidate:
    """A right kernel for it, without threads."""
    return Candidate((SourceFile("plain.cpp", PLAIN),), "cpu")


@pytest.fixture(scope="session")
def slow_to_compile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A right kernel for softmax over which a compiler broods for minutes."""
    right = (ROOT / "tests/kernels/cpu/right.cpp").read_text()
    brooding = (
        "constexpr long slow(int k) { long s = 0; for (int i = 0; i < 60; ++i) for (int j = 0; j < 20000; ++j) "
        "s += (i * j) ^ k; return s; }\n"
    )
    lines = "".join(f"constexpr long slow_{k} = slow({k});\n" for k in range(40))
    path = tmp_path_factory.mktemp("slow") / "slow_to_compile.cpp"
    path.write_text(brooding + lines + right)
    return path
