"""The nouns of a search: what a proposer may know (`Brief`), what it answers (`Reply`), what that was (`Proposal`).

Plain data, no torch. A proposer gets a brief and the prompt made of it and gives raw text; what the text means is
decided in one place (`prompts.parse`), whoever wrote it: a model, a coding agent, the catalogue, a recording.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.contract import Contract
from warpsmith.core.evaluation import Interval, Status
from warpsmith.core.method import Move
from warpsmith.core.outline import Outline
from warpsmith.core.strategy import Strategy
from warpsmith.core.task import Task


@dataclass(frozen=True)
class Bound:
    """What the hardware allows one workload, and what PyTorch makes of it."""

    workload: str
    axes: tuple[tuple[str, int], ...]
    bytes: int
    flops: int
    floor_ms: float  # speed of light
    zone: str  # a value of `hardware.roofline.Zone`
    baseline_ms: float  # PyTorch eager, roughly: one look at it, not a measurement to quote


@dataclass(frozen=True)
class Problem:
    """The task on one device in one language: the same for all briefs of a run."""

    task: Task
    contract: Contract
    backend: str
    device: str  # for people: "NVIDIA H200"
    kind: str  # "cpu" or "cuda"
    arch: str  # "sm_90a"; "" on a CPU
    bounds: tuple[Bound, ...]
    outline: Outline | None = None

    @property
    def zone(self) -> str:
        """What holds the task back in its largest workload."""
        return max(self.bounds, key=lambda bound: bound.floor_ms).zone if self.bounds else ""


@dataclass(frozen=True)
class Exhibit:
    """A candidate as a brief shows it."""

    id: str
    name: str  # what its author called it
    files: tuple[SourceFile, ...]
    thought: str
    strategy: str
    status: Status
    reason: str  # "" when valid
    trial: int  # which trial of the run it was
    latency_ms: tuple[tuple[str, float], ...] = ()  # by workload
    speedup: float | None = None  # over PyTorch eager, all workloads
    interval: Interval | None = None
    share_of_floor: float | None = None  # of the speed of light, in the worst workload
    resources: tuple[str, ...] = ()  # one line per kernel: registers, shared memory, spills
    profile: str = ""  # a digest: bottleneck, evidence, what to try


@dataclass(frozen=True)
class Insight:
    """What an earlier proposal thought, and what came of it. Only of proposals that were parsed and measured."""

    candidate: str
    text: str
    speedup: float  # over PyTorch eager
    effect: float | None  # its speedup over the best of its parents; None where it had none


@dataclass(frozen=True)
class Standing:
    """How a model has done in this run so far."""

    model: str
    replies: int
    gain: float  # sum over its replies of the logarithm of the improvement over the best until then
    cost_usd: float
    tokens: int


@dataclass(frozen=True)
class Brief:
    """All that a proposer may know. What an operator does not show is empty here."""

    number: int  # unique in its run, from 1
    operator: str
    move: Move
    wording: str
    problem: Problem
    seed: int  # for proposers that draw; the same brief always has the same
    best: Exhibit | None = None
    parents: tuple[Exhibit, ...] = ()
    insights: tuple[Insight, ...] = ()
    failure: Exhibit | None = None  # what is to be repaired
    attempt: int = 0  # of repairing it, from 1
    failures: tuple[Exhibit, ...] = ()  # recent ones, without their code
    retrieved: tuple[Exhibit, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()  # operator and what it wrote
    strategies: tuple[Strategy, ...] = ()  # of the catalogue, for this zone and family
    roofline: bool = False  # whether zone and floor may be spoken of
    tried: tuple[str, ...] = ()  # strategy texts of all candidates so far, the latest last, bounded
    models: tuple[Standing, ...] = ()
    place: int = 0  # the island the parents come from


class Role(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str


@dataclass(frozen=True)
class Prompt:
    """What a model is asked, exactly."""

    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Usage:
    """What a reply cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompt tokens, those the provider had in its cache
    cost_usd: float | None = None  # None where the price is not known
    seconds: float = 0.0
    requests: int = 1  # with those that failed and were repeated

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Reply:
    """What came back, word for word."""

    text: str
    model: str  # "gpt-5", "template", "command", "person"
    usage: Usage = Usage()
    finish: str = "stop"  # "length" where it was cut off
    file: str = ""  # set where the text is one source file of this name, not an answer to be parsed


@dataclass(frozen=True)
class Proposal:
    """What a reply says. Either it holds a candidate (or text, where that was asked for), or why it does not."""

    reply: Reply
    candidate: Candidate | None = None
    failure: str = ""  # for the next prompt: what could not be read and how to answer instead
    name: str = ""
    text: str = ""  # of an operator that asks for no kernel

    def __post_init__(self) -> None:
        if sum(map(bool, (self.candidate, self.failure, self.text))) != 1:
            raise ValueError("a proposal is a candidate, a text, or the reason why it is neither")


class Outcome(StrEnum):
    """What became of a proposal so far."""

    PENDING = "pending"  # to be evaluated
    JUDGED = "judged"
    DUPLICATE = "duplicate"  # as good as an earlier one: no evaluation was spent
    UNREADABLE = "unreadable"  # no candidate could be found in the reply
    WRITTEN = "written"  # it was text, and that is kept


@dataclass(frozen=True)
class Record:
    """One trial."""

    trial: int  # from 1; 0 for text, which is no trial
    brief: int
    outcome: Outcome
    candidate: str = ""  # id
    status: Status | None = None  # once judged
    reason: str = ""
    speedup: float | None = None
    best: bool = False  # whether it is the best of the run now
    twin: str = field(default="")  # the earlier candidate a duplicate repeats


class Proposer(Protocol):
    """Writes replies. Safe to call from `concurrency` threads at once."""

    name: str  # as on the command line: "template", "openai:gpt-5"
    concurrency: int

    def prompt(self, brief: Brief) -> Prompt:
        """What will be asked; kept before it is sent."""
        ...

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """Ask and wait. A `ProposerFault` where no reply came: that spends no trial."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


@dataclass(frozen=True)
class Member:
    """A valid candidate in a population."""

    id: str
    score: float  # speedup over PyTorch eager: more is better, no unit
    trial: int
    place: int = 0  # island
    length: int = 0  # characters of source


@dataclass(frozen=True)
class Pick:
    """Parents, best first, all different."""

    ids: tuple[str, ...]
    place: int = 0


class Population(Protocol):
    """Keeps what was bred and picks parents. A fold: the same inserts give the same population."""

    def insert(self, member: Member) -> None:
        """A valid candidate, or one measured anew (same id): the later score counts."""
        ...

    def remove(self, id: str) -> None:
        """One that turned out not to be valid."""
        ...

    def pick(self, count: int, seed: int) -> Pick:
        """Up to `count` different members."""
        ...

    @property
    def members(self) -> tuple[Member, ...]:
        """Best first."""
        ...
