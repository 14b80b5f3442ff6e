"""What the judge concludes about one candidate, and how it says so inside.

`Condemned` never leaves the judge's process: it carries a status and a reason from the place where a
failure is seen to the place where the verdict is written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from warpsmith.core.calibration import Calibration
from warpsmith.core.certificate import CheckOutcome
from warpsmith.core.evaluation import Status, WorkloadResult
from warpsmith.core.guarding import Evidence
from warpsmith.core.outline import Outline
from warpsmith.core.search import Bound
from warpsmith.guards import panel


@dataclass(frozen=True)
class Findings:
    """A verdict before the supervisor adds what only it knows (exit status, resources, environment)."""

    status: Status
    reason: str
    workloads: tuple[WorkloadResult, ...] = ()
    notes: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    stage: str = ""  # what the host was doing when it ended
    died: bool = False  # the host's process ended by itself: the supervisor words the reason
    checks: tuple[CheckOutcome, ...] = ()  # of a retrial
    killed: bool = False  # by SIGKILL, and not by us: perhaps the system was short of memory through others


@dataclass(frozen=True)
class Facts:
    """What the judge knows about the device and the reference, for the environment block of a result."""

    torch: str
    device: str
    threads: int
    notes: tuple[str, ...] = ()
    calibration: Calibration | None = None  # None where the task was calibrated before and is only looked at again
    bounds: tuple[Bound, ...] = ()  # what the hardware allows, by workload
    outline: Outline | None = None  # what the reference computes


class Condemned(Exception):
    """The candidate failed."""

    def __init__(self, status: Status, reason: str, died: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.died = died


def face(evidence: Evidence, without: Collection[str] = ()) -> None:
    """Show a piece of evidence to the guards; condemns the candidate where one of them objects."""
    found = panel.objection(evidence, without)
    if found is not None:
        raise Condemned(found.status, found.reason)
