"""What the judge concludes about one candidate, and how it says so inside.

`Condemned` never leaves the judge's process: it carries a status and a reason from the place where a
failure is seen to the place where the verdict is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.core.evaluation import Status, WorkloadResult


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


@dataclass(frozen=True)
class Facts:
    """What the judge knows about the device and the reference, for the environment block of a result."""

    torch: str
    device: str
    threads: int
    notes: tuple[str, ...] = ()


class Condemned(Exception):
    """The candidate failed."""

    def __init__(self, status: Status, reason: str, died: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.died = died
