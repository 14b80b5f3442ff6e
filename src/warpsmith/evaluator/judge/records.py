"""The records that supervisor and judge exchange, a task as JSON, and the exception for a failed candidate.

The supervisor imports this module: it must not import torch. `CandidateFailed` never leaves the judge's process: it
carries a status and a reason from the place where a failure is seen to the place where the report is written.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from pydantic import TypeAdapter, ValidationError

from warpsmith.evaluator.guards import first_objection
from warpsmith.model.brief import DeviceFigures, WorkloadBound
from warpsmith.model.certificate import Calibration, CheckOutcome
from warpsmith.model.errors import TaskError
from warpsmith.model.evaluation import Status, WorkloadResult
from warpsmith.model.evidence import Evidence
from warpsmith.model.settings import Settings
from warpsmith.model.task import Outline, Task


class CalibrationMode(StrEnum):
    """What the judge does about a task that cannot be judged by. A task that wrong results can pass is opened in any
    mode: every evaluation of it says so."""

    JUDGE = "judge"  # refuse a task whose own result is unusable: there is nothing to compare with
    REPORT = "report"  # open the task anyway, with a cached calibration if there is one
    REPORT_AGAIN = "report again"  # the same, but calibrate anew


@dataclass(frozen=True)
class JudgeConfig:
    """What a judge is started with."""

    task: str  # path of the task file, with ::name if it holds several tasks
    precision: str  # "" for the task's own
    kind: str
    index: int
    device_key: str
    device_name: str
    cache: str
    threads: int
    settings: Settings
    readable: tuple[str, ...]  # what hosts may read
    search_path: tuple[str, ...]
    calibration: CalibrationMode = CalibrationMode.JUDGE
    inputs_folder: str = ""  # to verify a winner: where input files for standalone runs are put; "" to evaluate
    lines_library: str = ""  # native/lines.c as a library; "" if it could not be built


@dataclass(frozen=True)
class JudgeReport:
    """An evaluation before the supervisor adds what only it knows (exit status, resources, environment)."""

    status: Status
    reason: str
    workloads: tuple[WorkloadResult, ...] = ()
    notes: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()  # of the sandbox
    stage: str = ""  # what the host was doing when it ended
    died: bool = False  # the host's process ended by itself: the supervisor words the reason
    checks: tuple[CheckOutcome, ...] = ()  # of a verification with held-out inputs
    published: bool | None = None  # what the published rule says: see `judge.published_rule`
    killed: bool = False  # the host was killed, but not by the supervisor: perhaps the system was short of memory


@dataclass(frozen=True)
class TaskFacts:
    """What the judge knows about the device and the reference, for the environment block of a result."""

    torch: str
    device: str
    threads: int
    notes: tuple[str, ...] = ()
    calibration: Calibration | None = None  # None for a judge that verifies a winner
    bounds: tuple[WorkloadBound, ...] = ()  # what the hardware allows, by workload
    outline: Outline | None = None  # what the reference computes
    figures: DeviceFigures | None = None  # measured rates of the device

    @property
    def uncalibrated(self) -> str:
        """What wrong results the task cannot tell from right ones; "" if the task is calibrated."""
        return self.calibration.reason if self.calibration else ""


CONFIG = TypeAdapter(JudgeConfig)
REPORT = TypeAdapter(JudgeReport)
FACTS = TypeAdapter(TaskFacts)


class CandidateFailed(Exception):
    """The candidate failed."""

    def __init__(self, status: Status, reason: str, died: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.died = died  # the host's process ended by itself


def check_guards(evidence: Evidence, without: Collection[str] = ()) -> None:
    """Raise CandidateFailed if a guard objects to this evidence; `without` names guards to leave out."""
    found = first_objection(evidence, without)
    if found is not None:
        raise CandidateFailed(found.status, found.reason)


@cache
def _adapter() -> TypeAdapter[Task]:
    return TypeAdapter(Task)


def dump_task(task: Task) -> bytes:
    """The task as UTF-8 JSON; an infinite scalar is written as Infinity, which `parse_task` reads."""
    return json.dumps(_adapter().dump_python(task, mode="python")).encode()


def parse_task(data: bytes) -> Task:
    """The task that `dump_task` wrote."""
    try:
        return _adapter().validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the text"
        raise TaskError(f"this is not a task in JSON: {where}: {first['msg']}.") from None
