"""The `triton` backend: a Python file whose `launch` writes into the outputs, with Triton kernels behind it.

Its sources are only looked at here. Triton compiles at the first call, which the forge makes ahead of time.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace

from warpsmith.backends.build import Workshop
from warpsmith.backends.pybuild import package_version, put_sources
from warpsmith.backends.pyentry import declaration, launch_arguments, launch_call
from warpsmith.backends.pysource import LAUNCH, fault_in
from warpsmith.backends.pywording import launch_text
from warpsmith.core.build import Artifact, Availability, BuildFailure, Target
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Limits, Paths
from warpsmith.core.contract import Contract
from warpsmith.core.errors import ToolMissing, UsageError
from warpsmith.core.protocols import Backend
from warpsmith.core.task import Task
from warpsmith.hardware.device import gpus

NO_TRITON = "no Triton: install triton (it comes with PyTorch's CUDA builds)"


class TritonBackend:
    """Triton on an NVIDIA GPU."""

    name: str = "triton"
    suffixes: tuple[str, ...] = (".py",)
    devices: tuple[str, ...] = ("cuda",)

    def __init__(self, workshop: Workshop | None = None) -> None:
        self._workshop = workshop or Workshop()

    def placed(self, paths: Paths, limits: Limits) -> TritonBackend:
        """The same backend, keeping its builds there and within these limits."""
        return TritonBackend(replace(self._workshop, paths=paths, limits=limits))

    def available(self) -> Availability:
        """Needs the package, and a GPU to compile for and to run on."""
        seen = gpus()
        if importlib.util.find_spec("triton") is None:
            return Availability(build=False, run=False, detail=NO_TRITON)
        device = seen[0].name if seen else "no GPU: Triton kernels cannot run here"
        return Availability(build=bool(seen), run=bool(seen), detail=f"{triton_name()}, {device}")

    def contract(self, task: Task, entry: str = "") -> Contract:
        """`launch` in Python: tensors, then numbers."""
        if entry:
            raise UsageError("--entry calls a function that returns its result: leave it out for a Triton `launch`.")
        arguments = launch_arguments(task)
        text = launch_text(task, arguments)
        return Contract(task.name, self.name, LAUNCH, arguments, (), "", text, task.allow, launch_call(task))

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Look at the file; the forge compiles its kernels."""
        if target.kind not in self.devices:
            raise UsageError(f"backend triton cannot build for {target.kind!r}; choose a CUDA device.")
        fault = fault_in(candidate.main, LAUNCH, declaration(contract.arguments))
        if fault is not None:
            return BuildFailure(fault)
        if importlib.util.find_spec("triton") is None:
            raise ToolMissing(NO_TRITON + ".")
        return put_sources(self._workshop, candidate, candidate.files, candidate.main.name, "sources", triton_name())


def triton_name() -> str:
    """The installed Triton, for people."""
    return f"triton {package_version('triton') or package_version('pytorch-triton')}".strip()


PLUGIN: Backend = TritonBackend()
