"""A candidate that waits for its evaluation, the checks before it runs, and its evaluation. Imports no torch."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from warpsmith._version import __version__
from warpsmith.backends.elf import read_symbols
from warpsmith.backends.python_source import modules_named
from warpsmith.evaluator.guards import first_objection
from warpsmith.evaluator.guards.symbol_lists import EXTENSION, PYTHON
from warpsmith.evaluator.judge.records import JudgeReport, TaskFacts
from warpsmith.evaluator.supervisor.result_cache import ResultKey
from warpsmith.hardware.device import Device, visible_gpus
from warpsmith.model.build import EXTENSIONS, Artifact, BuildFailure
from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.evaluation import Environment, Evaluation, Status
from warpsmith.model.evidence import BuiltObject
from warpsmith.model.task import Task

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORKSPACE = re.compile(r"\bworkspace\b")
_BAD_ADDRESS = re.compile(r"null pointer|memory that is not its own")  # words of reasons

BUILD_ONLY = -1
"""The index of a job that is built now and judged later."""


@dataclass(frozen=True)
class Progress:
    """A candidate reached a stage: "build", "built", "load", "check", "replay" (on a GPU), "time" or "judged"."""

    index: int
    stage: str


@dataclass(frozen=True)
class EvaluationJob:
    """One candidate of a batch."""

    index: int  # in the batch
    candidate: Candidate
    contract: Contract
    task: Task
    facts: TaskFacts
    key: ResultKey
    began: float  # time.monotonic()

    def check_source(self, without: Collection[str]) -> JudgeReport | None:
        """The objection of a guard to the Python source; `without` names guards to leave out."""
        texts = [file.text for file in self.candidate.files if file.name.endswith(".py")]
        return _first_objection((BuiltObject(PYTHON, modules_named(text), ()) for text in texts), without)

    def check_build(self, built: Artifact | BuildFailure, without: Collection[str]) -> JudgeReport | None:
        """Why the candidate is refused before any of its code runs; None if it is not."""
        found = self.check_source(without)
        if found is not None:
            return found
        if isinstance(built, BuildFailure):
            return JudgeReport(Status.BUILD_ERROR, built.reason)
        objects, kind = [built.library], self.candidate.backend
        if built.library.is_dir():  # Python: only its extensions are linked
            objects, kind = sorted((built.library / EXTENSIONS).glob("**/*.so")), EXTENSION
        symbols, allowed = (read_symbols(path) for path in objects), self.contract.libraries
        return _first_objection((BuiltObject(kind, s.imports, s.needed, allowed) for s in symbols), without)

    def evaluation(self, device: Device, report: JudgeReport, artifact: Artifact | None) -> Evaluation:
        """The evaluation that follows from the report."""
        return Evaluation(
            task=self.task.name,
            candidate=self.candidate.id,
            status=report.status,
            reason=self._null_workspace(report) + report.reason,
            environment=self._environment(device, report, artifact),
            precision=self.task.precision.value,
            workloads=report.workloads,
            resources=artifact.resources if artifact else (),
            notes=(*self.facts.notes, *report.notes),
            without=self.key.settings.without,
            uncalibrated=self.facts.uncalibrated,
            published=report.published,
            seconds=time.monotonic() - self.began,
        )

    def _null_workspace(self, report: JudgeReport) -> str:
        """The beginning of the reason of a C++ or CUDA kernel that uses a workspace without asking for one; else ""."""
        if report.status not in (Status.CRASHED, Status.OUT_OF_BOUNDS) or not _BAD_ADDRESS.search(report.reason):
            return ""
        code = "".join(_COMMENT.sub(" ", file.text) for file in self.candidate.files if not file.name.endswith(".py"))
        if "workspace_bytes" in code or len(_WORKSPACE.findall(code)) < 2:  # one is the parameter
            return ""
        return "Its workspace is a null pointer, because the source defines no workspace_bytes. "

    def _environment(self, device: Device, report: JudgeReport, artifact: Artifact | None) -> Environment:
        on_gpu = device.kind == "cuda"
        return Environment(
            device=device.label,
            backend=self.candidate.backend,
            compiler=artifact.compiler if artifact else "",
            torch=self.facts.torch,
            driver=next((g.driver for g in visible_gpus() if g.index == device.index), "") if on_gpu else "",
            sandbox=report.layers,
            threads=self.facts.threads,
            harness=__version__,
        )


def _first_objection(evidence: Iterable[BuiltObject], without: Collection[str]) -> JudgeReport | None:
    for each in evidence:
        found = first_objection(each, without)
        if found is not None:
            return JudgeReport(found.status, found.reason)
    return None
