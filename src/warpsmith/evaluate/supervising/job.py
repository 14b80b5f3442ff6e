"""A candidate on its way to a verdict, and the verdict itself. Nothing is run here; imports no torch."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from warpsmith._version import __version__
from warpsmith.backends.elf import read_symbols
from warpsmith.backends.pysource import modules_named
from warpsmith.core.build import EXTENSIONS, Artifact, BuildFailure
from warpsmith.core.candidate import Candidate
from warpsmith.core.contract import Contract
from warpsmith.core.evaluation import Environment, Evaluation, Status
from warpsmith.core.guarding import Built
from warpsmith.core.task import Task
from warpsmith.evaluate.judging.findings import Facts, Findings
from warpsmith.evaluate.supervising.results import ResultKey
from warpsmith.guards import panel
from warpsmith.guards.symbols import EXTENSION, PYTHON
from warpsmith.hardware.device import Device, gpus

AHEAD = -1
"""The index of what is only built, to be judged later."""


@dataclass(frozen=True)
class Progress:
    """Something happened to a candidate: "build", "built", "load", "check", "replay" (on a GPU), "time", "judged"."""

    index: int
    stage: str


@dataclass(frozen=True)
class Job:
    """What is known of a candidate before it is judged."""

    index: int  # in its batch
    candidate: Candidate
    contract: Contract
    task: Task
    facts: Facts
    key: ResultKey
    began: float

    def refused_unbuilt(self, without: Collection[str]) -> Findings | None:
        """What speaks against its text; `without` names guards to leave out."""
        texts = [file.text for file in self.candidate.files if file.name.endswith(".py")]
        return _objected((Built(PYTHON, modules_named(text), ()) for text in texts), without)

    def refused(self, built: Artifact | BuildFailure, without: Collection[str]) -> Findings | None:
        """What speaks against it before anything of it runs."""
        found = self.refused_unbuilt(without)
        if found is not None:
            return found
        if isinstance(built, BuildFailure):
            return Findings(Status.BUILD_ERROR, built.reason)
        objects, kind = [built.library], self.candidate.backend
        if built.library.is_dir():  # Python: only extensions are linked
            objects, kind = sorted((built.library / EXTENSIONS).glob("**/*.so")), EXTENSION
        faces = (read_symbols(path) for path in objects)
        return _objected((Built(kind, f.imports, f.needed, self.contract.libraries) for f in faces), without)

    def verdict(self, device: Device, findings: Findings, artifact: Artifact | None) -> Evaluation:
        """The findings as an evaluation."""
        return Evaluation(
            task=self.task.name,
            candidate=self.candidate.id,
            status=findings.status,
            reason=findings.reason,
            environment=self._environment(device, findings, artifact),
            precision=self.task.precision.value,
            workloads=findings.workloads,
            resources=artifact.resources if artifact else (),
            notes=(*self.facts.notes, *findings.notes),
            seconds=time.monotonic() - self.began,
        )

    def _environment(self, device: Device, findings: Findings, artifact: Artifact | None) -> Environment:
        on_gpu = device.kind == "cuda"
        return Environment(
            device=device.label,
            backend=self.candidate.backend,
            compiler=artifact.compiler if artifact else "",
            torch=self.facts.torch,
            driver=next((g.driver for g in gpus() if g.index == device.index), "") if on_gpu else "",
            sandbox=findings.layers,
            threads=self.facts.threads,
            harness=__version__,
        )


def _objected(evidence: Iterable[Built], without: Collection[str]) -> Findings | None:
    for each in evidence:
        found = panel.objection(each, without)
        if found is not None:
            return Findings(found.status, found.reason)
    return None
