"""The nouns of a search: the brief that a proposer gets, its reply, the proposal read from the reply, and populations.

Plain data without torch. A proposer returns raw text; `prompts.parser` reads every reply, whether a model, a
coding agent, the templates or a recording wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from warpsmith.model.build import DeviceKind
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import Contract
from warpsmith.model.evaluation import Interval, Status
from warpsmith.model.method import Move, Product
from warpsmith.model.strategy import Strategy
from warpsmith.model.task import Outline, Task
from warpsmith.model.usage import ModelUsage, TokenUsage


@dataclass(frozen=True)
class WorkloadBound:
    """The work of one workload, the shortest time that the hardware allows for it, and PyTorch's time."""

    workload: str
    axes: tuple[tuple[str, int], ...]
    bytes: int
    flops: int
    floor_ms: float  # hardware limit
    zone: str  # a value of `hardware.roofline.Zone`
    baseline_ms: float  # PyTorch eager: one rough measurement, not to be quoted


@dataclass(frozen=True)
class DeviceFigures:
    """The measured rates of a device, and the sizes of its parts."""

    units: int  # multiprocessors of a GPU, threads of a CPU
    cache_bytes: int  # last-level cache
    bandwidth_bytes_s: float  # of main memory
    flops_s: tuple[tuple[str, float], ...]  # by type, of a matrix product in PyTorch
    launch_s: float  # one more kernel in a graph; one tiny operation on a CPU
    instructions: str = ""  # the widest vector instructions of a CPU: "AVX-512"; "" if not known


@dataclass(frozen=True)
class Problem:
    """The task on one device in one language: the same for all briefs of a run."""

    task: Task
    contract: Contract
    backend: str
    device: str  # for people: "NVIDIA H200"
    kind: DeviceKind
    arch: str  # "sm_90a"; "" on a CPU
    bounds: tuple[WorkloadBound, ...]
    outline: Outline | None = None
    figures: DeviceFigures | None = None  # of the device
    uncalibrated: str = ""  # what wrong results the task cannot tell from right ones; "": the task is calibrated

    @property
    def zone(self) -> str:
        """The zone of the roofline that the largest workload is in."""
        return max(self.bounds, key=lambda bound: bound.floor_ms).zone if self.bounds else ""


@dataclass(frozen=True)
class ShownCandidate:
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
    share_of_floor: float | None = None  # of the hardware limit, in the worst workload
    error_share: float | None = None  # its error ÷ the error limit, in the workload where that is largest
    error_limit: float | None = None  # that limit
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
class StrategyDraft:
    """A strategy as its author wrote it, before there is a kernel."""

    strategy: str  # a line, or a plan in its text form
    thought: str = ""


@dataclass(frozen=True)
class Idea:
    """A strategy without its kernels: when a kernel fails, its idea may be tried again."""

    number: int  # unique in its run, from 1
    strategy: str
    thought: str = ""
    parents: tuple[int, ...] = ()  # trials whose strategies it was made of
    operator: str = ""  # that carries it out
    place: int = 0
    tries: int = 0  # kernels asked for, repairs not counted
    failures: int = 0  # of these, how many led to no valid kernel, repaired or not
    speedup: float | None = None  # of its best kernel over PyTorch eager
    aligned: str = ""  # what that kernel really does; "" until somebody has said so


@dataclass(frozen=True)
class Effect:
    """What a strategy of the catalogue has brought in this run, where it was added or taken away."""

    strategy: str  # name
    zone: str
    family: str
    factor: float  # geometric mean of the speed with it over the speed without it
    count: int  # comparisons of a kernel with its parent


@dataclass(frozen=True)
class Precedent:
    """What helped a task like this one before, in another run."""

    task: str  # "" for what the catalogue says
    strategy: str
    device: str
    effect: float | None = None  # speed after over speed before; None where nobody measured it
    speedup: float | None = None  # over PyTorch eager
    note: str = ""  # what to expect, where nothing was measured; else what to know of the measurement
    before: str = ""  # source of the starting kernel, or of the reference
    after: str = ""  # source of the optimised one, or an example
    reference: bool = False  # whether `before` is the reference in PyTorch

    @property
    def measured(self) -> bool:
        """Whether it is more than advice."""
        return self.effect is not None or self.speedup is not None


@dataclass(frozen=True)
class Brief:
    """All that a proposer may know. What an operator does not show is empty here."""

    number: int  # unique in its run, from 1
    operator: str
    move: Move
    wording: str
    problem: Problem
    seed: int  # for proposers that draw; the same brief always has the same
    best: ShownCandidate | None = None
    start: ShownCandidate | None = None  # the starting kernel of the run
    parents: tuple[ShownCandidate, ...] = ()
    insights: tuple[Insight, ...] = ()
    failure: ShownCandidate | None = None  # what is to be repaired
    attempt: int = 0  # of repairing it, from 1
    failures: tuple[ShownCandidate, ...] = ()  # recent ones, without their code
    retrieved: tuple[ShownCandidate, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()  # operator and what it wrote
    strategies: tuple[Strategy, ...] = ()  # of the catalogue, for this zone and family
    cards: tuple[Strategy, ...] = ()  # of the catalogue, those that the strategy to be carried out names
    roofline: bool = False  # whether zone and floor may be spoken of
    tried: tuple[str, ...] = ()  # strategy texts of all candidates so far, the latest last, bounded
    models: tuple[ModelUsage, ...] = ()
    place: int = 0  # the island the parents come from
    role: str = ""  # who is asked, where the method has several
    product: Product = Product.KERNEL  # what the reply is to hold
    wanted: int = 0  # how many strategies
    idea: Idea | None = None  # the strategy to be carried out
    subject: ShownCandidate | None = None  # the kernel whose strategy is to be put right
    ideas: tuple[Idea, ...] = ()  # of the run so far, the latest last, bounded
    effects: tuple[Effect, ...] = ()  # of this run, the best first
    precedents: tuple[Precedent, ...] = ()  # of other runs, the nearest first
    epoch: int = 0  # which stage of the method this is, from 1
    epochs: int = 0  # how many it has
    lineage: tuple[ShownCandidate, ...] = ()  # accepted versions that lead to the parent, the latest last, bounded
    stalled: int = 0  # turns in a row without a faster kernel; 0 where the proposer need not know
    direction: Strategy | None = None  # another direction to take, of the catalogue
    restarts: bool = False  # whether a new line begins here: at the parent, an earlier version, or at nothing


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str
    stable: int = 0  # characters at its beginning that all prompts of a run share: what a provider may cache


@dataclass(frozen=True)
class Prompt:
    """What a model is asked, exactly."""

    messages: tuple[Message, ...]
    form: str = ""  # the structured form of the reply, see `llm.conversation.SCHEMAS`; "": free text


@dataclass(frozen=True)
class Reply:
    """What came back, word for word."""

    text: str
    model: str  # "gpt-5", "template", "command", "person"
    usage: TokenUsage = field(default_factory=TokenUsage)
    finish: str = "stop"  # "length" where it was cut off
    file: str = ""  # set where the text is one source file of this name, not an answer to be parsed


@dataclass(frozen=True)
class Proposal:
    """What a reply says. Either it holds a candidate (text, strategies, where those were asked for), or why not."""

    reply: Reply
    candidate: Candidate | None = None
    failure: str = ""  # for the next prompt: what could not be read and how to answer instead
    name: str = ""
    text: str = ""  # of an operator that asks for no kernel
    drafts: tuple[StrategyDraft, ...] = ()  # of an operator that asks for strategies

    def __post_init__(self) -> None:
        if sum(map(bool, (self.candidate, self.failure, self.text, self.drafts))) != 1:
            raise ValueError("a proposal is a candidate, a text, strategies, or the reason why it is none of these")


class TrialOutcome(StrEnum):
    """What became of a proposal so far."""

    PENDING = "pending"  # to be evaluated
    JUDGED = "judged"
    DUPLICATE = "duplicate"  # as good as an earlier one: no evaluation was spent
    UNREADABLE = "unreadable"  # no candidate could be found in the reply
    WRITTEN = "written"  # it was text, and that is kept


@dataclass(frozen=True)
class TrialRecord:
    """One trial."""

    trial: int  # from 1; 0 for text and strategies, which are no trials
    brief: int
    outcome: TrialOutcome
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
    niche: str = ""  # the strategy it stands for, in the form equal strategies share; "" where nothing is known


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
