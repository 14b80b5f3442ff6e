"""What the evaluator observes of a candidate besides its results, and the protocol of guards.

Evidence is plain data, gathered from outside the candidate's process wherever possible. A guard looks at one type of
evidence and objects or not, so that guards can be tested with made-up evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from warpsmith.model.evaluation import Status


@dataclass(frozen=True)
class BuiltObject:
    """The outward face of a built object: what it can call is what it imports."""

    backend: str
    imports: tuple[str, ...]  # dynamic symbols taken from other libraries
    needed: tuple[str, ...]  # libraries the loader brings in
    allow: tuple[str, ...] = ()  # libraries the task lets a candidate call


@dataclass(frozen=True)
class LibraryTime:
    """CPU time in the code of libraries, as looks at the stopped process found it."""

    files: tuple[str, ...]  # of these libraries, the most used first
    looks: int  # that found one of them
    share: float  # of the looks that found any code at work
    call_ns: float  # in one call


@dataclass(frozen=True)
class TracedCall:
    """What one call really did, by the names of what it called."""

    backend: str
    calls: tuple[str, ...] = ()  # functions of the CUDA driver and runtime
    kernels: tuple[str, ...] = ()  # kernels launched, by their symbol
    elsewhere: tuple[str, ...] = ()  # those of the kernels that were launched on another stream than the given one
    own: tuple[str, ...] = ()  # kernels that the candidate's own object defines; () where that is not known
    operators: tuple[str, ...] = ()  # torch operators a Python candidate called
    allow: tuple[str, ...] = ()
    library: LibraryTime | None = None  # None where nobody looked
    operators_ns: int = 0  # the CPU time that the listed operators may have used in one call
    special: bool = False  # the call gave other bits than calls that were not traced, which agree among themselves


@dataclass(frozen=True)
class MemoryState:
    """The harness's memory after a call."""

    workload: str
    breached: str = ""  # the buffer whose red zone was written to
    nbytes: int = 0  # of that buffer
    past_end: bool = True  # behind it rather than before it
    input_changed: bool = False
    uncalled: str = ""  # an output that was written although the entry point was not called on its set
    early: str = ""  # an output that was written while an earlier call of the same request was not done


@dataclass(frozen=True)
class IdleProcess:
    """The candidate's process some time after a call had returned, when it should be idle."""

    kind: str  # of the device
    threads_before: int  # when nothing of the candidate was loaded
    threads_after: int
    busy_ms: float  # processor time its threads used while they should have been idle
    watched_ms: float  # how long they were watched
    changed: str = ""  # an output that changed after the call had returned
    workload: str = ""


@dataclass(frozen=True)
class AlteredCode:
    """Code that was in the process before the candidate, and is no longer what its file says."""

    path: str


@dataclass(frozen=True)
class ClaimedTime:
    """The host's claim of a time against the judge's own clock."""

    claimed_ns: float  # per sample
    excess_ns: float  # by how much our measure exceeded the claim, in the best of all samples or in most
    allowed_ns: float  # of that: what waking a process up and handing a device over can take
    replayed_ns: float = 0.0  # for the same calls, made by a process of ours; 0: not measured
    replayed_allowed_ns: float = 0.0  # what was claimed, and a margin
    processor: bool = False  # whether our measure is the processor time that the process used, and not a clock


@dataclass(frozen=True)
class RecordingComparison:
    """A call as it was made against the same call as it was recorded, of a candidate that could not be replayed."""

    launched: tuple[str, ...]  # kernels of the call as it was made, by their symbol
    recorded: tuple[str, ...]  # those that the candidate's process said while it was recorded
    wrong: str = ""  # what recorded calls got wrong, where the candidate has no place to keep anything between calls


@dataclass(frozen=True)
class MeasuredSpeed:
    """A measured time against what the hardware needs."""

    workload: str
    latency_ms: float
    least_ms: float  # no correct kernel is faster


@dataclass(frozen=True)
class UnexpectedOutput:
    """Something that came out of the candidate's process and is not an answer to what was asked."""

    said: str


Evidence = (
    BuiltObject
    | TracedCall
    | MemoryState
    | IdleProcess
    | AlteredCode
    | ClaimedTime
    | RecordingComparison
    | MeasuredSpeed
    | UnexpectedOutput
)


@dataclass(frozen=True)
class Objection:
    """A guard's verdict: what was seen, and which attack it is."""

    status: Status
    attack: int  # a number of `evaluator.guards.attack_classes`
    reason: str


@runtime_checkable
class Guard(Protocol):
    """Watches for one family of attacks. One file of `warpsmith.evaluator.guards` each, found by its PLUGIN."""

    name: str
    attacks: tuple[int, ...]  # numbers of `evaluator.guards.attack_classes`
    looks_at: type[Evidence]

    def objection(self, evidence: Evidence) -> Objection | None:
        """The objection to a piece of evidence, which is of the type `looks_at`; None if there is none."""
        ...
