"""What can happen in a run, as plain data. Everything else a run knows follows from these, in the order they were kept.

A candidate is kept once, with the proposal that brought it; elsewhere trials name it by number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.method import Method, Move
from warpsmith.core.search import Draft, Outcome, Precedent, Problem, Prompt, Reply, Usage


@dataclass(frozen=True)
class Budget:
    """What a run may use; None is no limit. At the end of any of them it closes with what it has."""

    trials: int = 45
    seconds: float | None = None  # of wall time, all sittings together
    tokens: int | None = None
    usd: float | None = None
    device_seconds: float | None = None  # spent building and judging


@dataclass(frozen=True)
class RunConfig:
    """How a run was set up: resolved once, kept with the run. Holds no secrets."""

    task: str  # where the task file was, with "::name" if it was named so; a copy lies in the run's folder
    device: str  # as asked for: "auto", "cuda:0"
    backend: str
    proposer: str  # as asked for: "template", "openai:gpt-5"
    budget: Budget
    settings: Settings
    seed: int = 0
    precision: str = ""  # "" for the task's own
    repairs: int | None = None  # None for the method's own
    enough_share: float | None = 0.95  # of the speed of light: then the run stops; None to go on
    parallel: int = 4  # proposals in flight at most


@dataclass(frozen=True)
class Begun:
    """The run exists."""

    config: RunConfig
    method: Method
    problem: Problem
    version: str  # of Warpsmith


@dataclass(frozen=True)
class Opened:
    """Somebody works on the run from now on; what was in flight before will not come back, unless it is kept."""

    proposer: str
    budget: Budget
    keep: bool = False  # briefs that wait for a reply go on waiting: people and agents come back with theirs
    enough_share: float | None = None  # of the speed of light, from now on; 0 never is, None is as the run was begun


@dataclass(frozen=True)
class Recalled:
    """What other runs know of tasks like this one, as it was when the run began."""

    precedents: tuple[Precedent, ...]


@dataclass(frozen=True)
class Asked:
    """A brief was made. Who it shows is named by trial."""

    brief: int
    stage: int
    operator: str
    move: Move
    seed: int
    parents: tuple[int, ...] = ()
    best: int = 0  # 0 for none
    insights: tuple[int, ...] = ()
    failure: int = 0  # the trial to be repaired
    attempt: int = 0
    failures: tuple[int, ...] = ()
    retrieved: tuple[int, ...] = ()
    place: int = 0
    idea: int = 0  # the strategy to be carried out, by its number; with a repair, the one it is still about
    subject: int = 0  # the trial whose strategy is to be put right
    wanted: int = 0  # strategies asked for
    again: int = 0  # the brief whose reply could not be read, where that was no trial
    free: bool = False  # what comes of it spends no trial: nobody was asked, we tried it ourselves

    @property
    def in_turn(self) -> bool:
        """Whether it was an operator's turn; no answer to something that happened."""
        return not (self.failure or self.idea or self.subject or self.again or self.free)


@dataclass(frozen=True)
class Prompted:
    """What is about to be sent to a proposer."""

    brief: int
    prompt: Prompt


@dataclass(frozen=True)
class Replied:
    """What came back, before anybody looked at it."""

    brief: int
    reply: Reply


@dataclass(frozen=True)
class Failed:
    """No reply came. Spends no trial, though perhaps tokens."""

    brief: int
    reason: str
    usage: Usage | None = None  # of requests that cost something all the same


@dataclass(frozen=True)
class Proposed:
    """What a reply was."""

    brief: int
    trial: int  # 0 for what is no trial
    outcome: Outcome  # pending, duplicate, unreadable or written
    candidate: Candidate | None = None
    name: str = ""
    text: str = ""
    failure: str = ""
    fingerprint: str = ""
    twin: int = 0  # the trial a duplicate repeats
    drafts: tuple[Draft, ...] = ()


@dataclass(frozen=True)
class Judged:
    """A verdict."""

    trial: int
    evaluation: Evaluation
    again: bool = False  # measured anew, because it would be the best


@dataclass(frozen=True)
class Profiled:
    """Where a candidate's time goes, in words."""

    trial: int
    digest: str  # "" where nothing could be found out: it is not tried again
    seconds: float = 0.0  # of the device


@dataclass(frozen=True)
class Tuned:
    """The values that a candidate declares tunable were tried."""

    trial: int
    tried: int  # points
    total: int  # points there are
    gain: float | None  # speed of the best point over the candidate as it came; None where either is not valid
    seconds: float  # of the device


@dataclass(frozen=True)
class Noted:
    """Anything a reader of the run should know."""

    text: str


@dataclass(frozen=True)
class Closed:
    """Nobody works on the run any more."""

    reason: str  # "trials", "time", "tokens", "cost", "device_time", "speed_of_light", "interrupted", …
    detail: str = ""


Event = (
    Begun
    | Opened
    | Recalled
    | Asked
    | Prompted
    | Replied
    | Failed
    | Proposed
    | Judged
    | Profiled
    | Tuned
    | Noted
    | Closed
)


@dataclass(frozen=True)
class Entry:
    """An event where it stands in the log."""

    seq: int
    at: float  # seconds since 1970
    event: Event = field(repr=False)
