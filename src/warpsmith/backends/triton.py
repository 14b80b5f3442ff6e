"""The `triton` backend: a Python file whose `launch` writes into the outputs with Triton kernels.

This module only reads the sources. Triton compiles at the first call, which a compile worker makes before evaluation.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace

from warpsmith.backends.builder import Builder
from warpsmith.backends.python_contract import declaration, launch_arguments, launch_call, launch_text
from warpsmith.backends.python_source import LAUNCH, import_problem, package_version, store_sources
from warpsmith.hardware.device import visible_gpus
from warpsmith.model.build import Artifact, ArtifactKind, Availability, Backend, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Task

NO_TRITON = "no Triton: install triton (it comes with PyTorch's CUDA builds)"


class TritonBackend:
    name: str = "triton"
    suffixes: tuple[str, ...] = (".py",)
    devices: tuple[DeviceKind, ...] = (DeviceKind.CUDA,)

    def __init__(self, builder: Builder | None = None) -> None:
        self._builder = builder or Builder()

    def configured(self, paths: Paths, limits: Limits) -> TritonBackend:
        """The same backend with another cache folder and other limits."""
        return TritonBackend(replace(self._builder, paths=paths, limits=limits))

    def available(self) -> Availability:
        """Whether the triton package is installed and a GPU is there, for which it compiles."""
        seen = visible_gpus()
        if importlib.util.find_spec("triton") is None:
            return Availability(build=False, run=False, detail=NO_TRITON)
        device = seen[0].name if seen else "no GPU: Triton kernels cannot run here"
        return Availability(build=bool(seen), run=bool(seen), detail=f"{triton_name()}, {device}")

    def contract(self, task: Task, entry: str = "") -> Contract:
        """The contract of `launch` in Python: tensors, then numbers."""
        if entry:
            raise UsageError("--entry calls a function that returns its result: leave it out for a Triton `launch`.")
        arguments = launch_arguments(task)
        text = launch_text(task, arguments)
        return Contract(task.name, self.name, LAUNCH, arguments, (), "", text, task.allow, launch_call(task))

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Check and store the file; a compile worker compiles its kernels."""
        if target.kind not in self.devices:
            raise UsageError(f"backend triton cannot build for {target.kind!r}; choose a CUDA device.")
        fault = import_problem(candidate.main, LAUNCH, declaration(contract.arguments))
        if fault is not None:
            return BuildFailure(fault)
        if importlib.util.find_spec("triton") is None:
            raise ToolMissing(NO_TRITON + ".")
        return store_sources(
            self._builder, candidate, candidate.files, candidate.main.name, ArtifactKind.SOURCES, triton_name()
        )


def triton_name() -> str:
    """The name and version of the installed Triton, for messages."""
    return f"triton {package_version('triton') or package_version('pytorch-triton')}".strip()


PLUGIN: Backend = TritonBackend()
