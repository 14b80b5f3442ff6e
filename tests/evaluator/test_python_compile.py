"""What a compile worker leaves behind, and what follows from it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.protocol.compile_request import CompileRequest, CompileStatus
from warpsmith.evaluator.protocol.messages import Compiled
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
from warpsmith.model.settings import Limits, Paths
from warpsmith.tasks.load import load_task

KERNELS = Path(__file__).resolve().parent.parent / "kernels"


@dataclass(frozen=True)
class RaisingCompiler(PythonCompiler):
    """Its worker leaves one file behind, and reports an exception of the candidate."""

    left: str = ""

    def _ask(self, spec: HostSpec, request: CompileRequest) -> Compiled:
        left = Path(request.folder, self.left)
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"\x7fELF")
        return Compiled(CompileStatus.RAISED, "kernel.py:3: CompilationError: no such function")


@pytest.mark.parametrize(
    ("left", "goes_on"),
    [(f"{EXTENSIONS}/own/own.so", True), (f"{TRITON}/helper/cuda_utils.so", False), (f"{TRITON}/notes.txt", False)],
)
def test_what_raises_is_tried_on_only_behind_an_extension_of_its_own(tmp_path: Path, left: str, goes_on: bool) -> None:
    """Triton builds helpers for any kernel, one that does not compile, too."""
    candidate, task = (
        read_candidate(KERNELS / "python" / "triton_broken.py"),
        load_task(KERNELS / "tasks" / "softmax.py"),
    )
    library, scratch = tmp_path / "built" / "library", tmp_path / "scratch"
    (library / SOURCES).mkdir(parents=True)
    (library / MAIN).write_text(candidate.main.name)
    (library / SOURCES / candidate.main.name).write_text(candidate.main.text)
    scratch.mkdir()
    server = cast("ForkServer", None)  # nothing is started
    compiler = RaisingCompiler(
        hosts=lambda: HostSpec(server, "compile", scratch, {}, drop_user=False),
        paths=Paths(tmp_path / "cache"),
        limits=Limits(),
        target=Target(DeviceKind.CUDA, "sm_90a"),
        device=0,
        threads=1,
        readable=(),
        held=nullcontext,
        left=left,
    )

    made = compiler.compile(
        candidate,
        Artifact(library, "triton", kind=ArtifactKind.SOURCES),
        backend_named("triton").contract(task.task),
        task.task,
    )

    if goes_on:
        assert isinstance(made, Artifact)
        assert (made.library / left).is_file()
    else:
        assert isinstance(made, BuildFailure)
        assert "no such function" in made.reason
    assert not list(scratch.iterdir())
