"""What a compile worker leaves behind, and what follows from it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.candidate import compile_worker
from warpsmith.evaluator.protocol.compile_request import CompileRequest, CompileStatus
from warpsmith.evaluator.protocol.messages import Compiled
from warpsmith.evaluator.supervisor import python_compile
from warpsmith.evaluator.supervisor.fork_server import ForkServer
from warpsmith.evaluator.supervisor.python_compile import PythonCompiler
from warpsmith.evaluator.supervisor.worker_pool import HostSpec
from warpsmith.model.build import (
    EXTENSIONS,
    MAIN,
    SOURCES,
    TRITON,
    Artifact,
    ArtifactKind,
    BuildFailure,
    DeviceKind,
    Target,
)
from warpsmith.model.errors import HarnessFault
from warpsmith.model.settings import Limits, Paths
from warpsmith.tasks.load import load_task

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
RAISED = Compiled(CompileStatus.RAISED, "kernel.py:3: CompilationError: no such function")


@dataclass(frozen=True)
class ScriptedCompiler(PythonCompiler):
    """Its workers leave one file behind if they are told to, and end as scripted; the last one again and again."""

    left: str = ""
    ends: list[Compiled] = field(default_factory=list)

    def _ask(self, spec: HostSpec, request: CompileRequest) -> Compiled:
        if self.left:
            left = Path(request.folder, self.left)
            left.parent.mkdir(parents=True, exist_ok=True)
            left.write_bytes(b"\x7fELF")
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]


def compiled(folder: Path, ends: Sequence[Compiled], left: str = "") -> Artifact | BuildFailure:
    """What becomes of a Triton candidate whose compile workers end so."""
    candidate, task = (
        read_candidate(KERNELS / "python" / "triton_broken.py"),
        load_task(KERNELS / "tasks" / "softmax.py"),
    )
    library, scratch = folder / "built" / "library", folder / "scratch"
    (library / SOURCES).mkdir(parents=True)
    (library / MAIN).write_text(candidate.main.name)
    (library / SOURCES / candidate.main.name).write_text(candidate.main.text)
    scratch.mkdir()
    server = cast("ForkServer", None)  # nothing is started
    compiler = ScriptedCompiler(
        hosts=lambda: HostSpec(server, "compile", scratch, {}, drop_user=False),
        paths=Paths(folder / "cache"),
        limits=Limits(),
        target=Target(DeviceKind.CUDA, "sm_90a"),
        device=0,
        threads=1,
        readable=(),
        held=nullcontext,
        left=left,
        ends=list(ends),
    )
    made = compiler.compile(
        candidate,
        Artifact(library, "triton", kind=ArtifactKind.SOURCES),
        backend_named("triton").contract(task.task),
        task.task,
    )
    assert not list(scratch.iterdir())
    return made


@pytest.mark.parametrize(
    ("left", "goes_on"),
    [(f"{EXTENSIONS}/own/own.so", True), (f"{TRITON}/helper/cuda_utils.so", False), (f"{TRITON}/notes.txt", False)],
)
def test_what_raises_is_tried_on_only_behind_an_extension_of_its_own(tmp_path: Path, left: str, goes_on: bool) -> None:
    """Triton builds helpers for any kernel, one that does not compile, too."""
    made = compiled(tmp_path, [RAISED], left)
    if goes_on:
        assert isinstance(made, Artifact)
        assert (made.library / left).is_file()
    else:
        assert isinstance(made, BuildFailure)
        assert "no such function" in made.reason


NOT_SET_UP, KILLED = Compiled(CompileStatus.NOT_SET_UP, "out of memory"), Compiled(CompileStatus.KILLED, "Killed")


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ([NOT_SET_UP, KILLED, RAISED], "no such function"),
        ([Compiled(CompileStatus.OUT_OF_MEMORY, "out of memory"), RAISED], "no such function"),
        ([KILLED], r"a signal ended triton_broken\.py while it was imported \(Killed\)"),
        ([Compiled(CompileStatus.DIED, "Segmentation fault")], r"\(Segmentation fault\)"),
        ([Compiled(CompileStatus.DIED, "")], "it must not exit"),
    ],
)
def test_what_others_may_have_caused_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: Sequence[Compiled], reason: str
) -> None:
    monkeypatch.setattr(python_compile, "_PAUSES_S", (0.0, 0.0))
    made = compiled(tmp_path, ends)
    assert isinstance(made, BuildFailure)
    assert re.search(reason, made.reason)


def test_a_set_up_that_fails_is_not_the_candidate_s_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_compile, "_PAUSES_S", (0.0,))
    with pytest.raises(HarnessFault, match=r"cannot be set up \(out of memory\)"):
        compiled(tmp_path, [NOT_SET_UP])


@pytest.mark.parametrize(
    ("written", "signal_number", "status", "text"),
    [
        (b"out of memory", 0, CompileStatus.NOT_SET_UP, "out of memory"),
        (b"\n", signal.SIGKILL, CompileStatus.KILLED, "Killed"),
        (b"\n", signal.SIGABRT, CompileStatus.DIED, "Aborted"),
        (b"\n", 0, CompileStatus.DIED, ""),
        (b"", 0, CompileStatus.DIED, ""),
        (b'\n{"status": "ok", "text": ""}', 0, CompileStatus.OK, ""),
        (b'\n{"status": "set-up", "text": ""}', 0, CompileStatus.DIED, ""),  # as a candidate could write it
        (b'\n{"status": ["ok"], "text": ""}', 0, CompileStatus.DIED, ""),
    ],
)
def test_a_worker_tells_how_its_inner_process_ended(
    written: bytes, signal_number: int, status: CompileStatus, text: str
) -> None:
    reader, writer = os.pipe()
    script = (
        f"import os; os.write({writer}, {written!r}); {signal_number:d} and os.kill(os.getpid(), {signal_number:d})"
    )
    process = subprocess.Popen([sys.executable, "-c", script], pass_fds=[writer])
    os.close(writer)
    try:
        assert compile_worker._await(reader, process.pid, time.monotonic() + 30) == Compiled(status, text)
    finally:
        os.close(reader)
        with suppress(ChildProcessError):
            process.wait()
