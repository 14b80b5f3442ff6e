"""The events of a run log, as plain records. The state of a run (`search.run_state`) is computed from its events alone.

The source of a candidate is stored once, in the `ProposalRead` event; other events name the candidate by trial number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Discriminator

from warpsmith.model.brief import Precedent, Problem, Prompt, Reply, StrategyDraft, TrialOutcome
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.method import Method, Move
from warpsmith.model.settings import Settings
from warpsmith.model.usage import TokenUsage


class StopReason(StrEnum):
    """Why a run stopped."""

    TRIALS = "trials"
    TIME = "time"
    TOKENS = "tokens"
    COST = "cost"
    DEVICE_TIME = "device_time"
    SPEED_OF_LIGHT = "speed_of_light"
    PROPOSER_FAILED = "proposer_failed"
    PROPOSER_REFUSED = "proposer_refused"
    NO_STRATEGIES = "no_strategies"
    EVALUATOR_FAILED = "evaluator_failed"
    INTERRUPTED = "interrupted"
    TOLD = "told"

    @property
    def words(self) -> str:
        """The reason as a clause for people."""
        return _STOP_WORDS[self]


FAILURES = (StopReason.PROPOSER_REFUSED, StopReason.PROPOSER_FAILED, StopReason.EVALUATOR_FAILED)
"""Reasons that are failures: the run could not do its work."""

_STOP_WORDS = {
    StopReason.TRIALS: "all trials are spent",
    StopReason.TIME: "the time is up",
    StopReason.TOKENS: "the tokens are spent",
    StopReason.COST: "the money is spent",
    StopReason.DEVICE_TIME: "the device time is spent",
    StopReason.SPEED_OF_LIGHT: "the best kernel is as fast as the hardware allows",
    StopReason.PROPOSER_FAILED: "the proposer gave no reply several times in a row",
    StopReason.PROPOSER_REFUSED: "the proposer gives no more replies",
    StopReason.NO_STRATEGIES: "no strategy that was not tried before came several times in a row",
    StopReason.EVALUATOR_FAILED: "the evaluator failed several times in a row",
    StopReason.INTERRUPTED: "it was interrupted",
    StopReason.TOLD: "it was told to",
}


@dataclass(frozen=True)
class Budget:
    """The limits of a run; None means no limit. The run stops at the first limit it reaches."""

    trials: int = 45
    seconds: float | None = None  # wall time, summed over all times the run was open
    tokens: int | None = None
    usd: float | None = None
    device_seconds: float | None = None  # spent on building and evaluating


@dataclass(frozen=True)
class RunConfig:
    """The options of a run, resolved once and stored with the run. Holds no secrets."""

    task: str  # path of the task file, with "::name" if given; the run's folder holds a copy of the file
    device: str  # as given: "auto", "cuda:0"
    backend: str
    proposer: str  # as given: "template", "openai:gpt-5"
    budget: Budget
    settings: Settings
    seed: int = 0
    precision: str = ""  # "": the task's own
    repairs: int | None = None  # None: the method's own
    enough_share: float | None = 0.95  # share of the hardware limit at which the run stops; None: never
    parallel: int = 4  # most proposals requested at the same time
    start: str = ""  # the starting kernel, as given: a file, or "auto"; "" for none
    accept_uncalibrated: bool = False  # search although some wrong results pass the task's checks
    engine: str = "local"  # where evaluations run; changes no verdict


@dataclass(frozen=True)
class RunCreated:
    """The run was created. Always the first event."""

    config: RunConfig
    method: Method
    problem: Problem
    version: str  # of Warpsmith


@dataclass(frozen=True)
class RunOpened:
    """A process started to work on the run. Briefs without a reply are given up, unless `keep` is set."""

    proposer: str
    budget: Budget
    keep: bool = False  # briefs without a reply stay open: people and agents come back with their replies
    enough_share: float | None = None  # share of the hardware limit to stop at; 0: never, None: as in `RunConfig`


@dataclass(frozen=True)
class PrecedentsFound:
    """Lessons of other runs on similar tasks, as they were when this run was created."""

    precedents: tuple[Precedent, ...]


@dataclass(frozen=True)
class OperatorTurn:
    """The brief follows the method: the next operator of the stage."""

    kind: Literal["turn"] = "turn"
    wanted: int = 0  # number of strategies requested; 0 for an operator that asks for something else


@dataclass(frozen=True)
class RepairTrial:
    """The brief asks to repair a candidate that failed."""

    trial: int
    idea: int | None = None  # the strategy that the failed candidate carries out
    kind: Literal["repair"] = "repair"


@dataclass(frozen=True)
class TranslateIdea:
    """The brief asks for a kernel that carries out a strategy."""

    idea: int
    kind: Literal["translate"] = "translate"


@dataclass(frozen=True)
class AlignTrial:
    """The brief asks which strategy a valid kernel really follows."""

    trial: int
    kind: Literal["align"] = "align"


@dataclass(frozen=True)
class AskAgain:
    """The brief repeats one whose reply could not be read and was no trial."""

    brief: int  # whose reply could not be read
    first: OperatorTurn | AlignTrial  # what was asked
    kind: Literal["again"] = "again"


@dataclass(frozen=True)
class TuneTrial:
    """No proposer is asked: the tuner proposes other values of a kernel's tunables. Spends no trial."""

    kind: Literal["tune"] = "tune"


@dataclass(frozen=True)
class GivenStart:
    """No proposer is asked: the caller gave a kernel to start from. Spends no trial."""

    kind: Literal["start"] = "start"


@dataclass(frozen=True)
class StepTrial:
    """No proposer is asked: an agent that works on a brief has a kernel evaluated. Spends a trial."""

    step: int  # the brief that the agent works on
    kind: Literal["step"] = "step"


BriefPurpose = Annotated[
    OperatorTurn | RepairTrial | TranslateIdea | AlignTrial | AskAgain | TuneTrial | GivenStart | StepTrial,
    Discriminator("kind"),
]


@dataclass(frozen=True)
class BriefAsked:
    """A brief was made. It names the trials it shows by number."""

    brief: int
    stage: int
    operator: str
    move: Move
    seed: int
    purpose: BriefPurpose
    parents: tuple[int, ...] = ()
    best: int | None = None
    insights: tuple[int, ...] = ()
    failures: tuple[int, ...] = ()
    retrieved: tuple[int, ...] = ()
    attempt: int = 0  # number of repairs or repetitions of the same request, this one included
    place: int = 0  # island or line of the population
    stalled: int = 0  # turns in a row without a faster kernel, where the brief says so
    direction: str = ""  # the strategy of the catalogue that the brief names as another direction
    restarts: bool = False  # True if a new line begins here, from an earlier version or from nothing

    @property
    def repaired_trial(self) -> int | None:
        """The trial to be repaired."""
        return self.purpose.trial if isinstance(self.purpose, RepairTrial) else None

    @property
    def aligned_trial(self) -> int | None:
        """The trial whose strategy is to be corrected."""
        purpose = self.purpose.first if isinstance(self.purpose, AskAgain) else self.purpose
        return purpose.trial if isinstance(purpose, AlignTrial) else None

    @property
    def idea(self) -> int | None:
        """The strategy that the requested kernel carries out."""
        return self.purpose.idea if isinstance(self.purpose, RepairTrial | TranslateIdea) else None

    @property
    def wanted(self) -> int:
        """Number of strategies requested."""
        purpose = self.purpose.first if isinstance(self.purpose, AskAgain) else self.purpose
        return purpose.wanted if isinstance(purpose, OperatorTurn) else 0

    @property
    def is_turn(self) -> bool:
        """True if the brief follows the method, and reacts to no failure or earlier reply."""
        return isinstance(self.purpose, OperatorTurn)

    @property
    def is_free(self) -> bool:
        """True if the result spends no trial."""
        return isinstance(self.purpose, TuneTrial | GivenStart)


@dataclass(frozen=True)
class PromptSent:
    """A prompt is about to be sent to a proposer."""

    brief: int
    prompt: Prompt


@dataclass(frozen=True)
class ReplyReceived:
    """A reply came back; it is stored before it is parsed."""

    brief: int
    reply: Reply


@dataclass(frozen=True)
class ReplyFailed:
    """No reply came. Spends no trial, but may have cost tokens."""

    brief: int
    reason: str
    usage: TokenUsage | None = None  # of requests that cost something although they failed


@dataclass(frozen=True)
class ProposalRead:
    """A reply was parsed."""

    brief: int
    trial: int  # 0 for a reply that is no trial
    outcome: TrialOutcome  # pending, duplicate, unreadable or written
    candidate: Candidate | None = None
    name: str = ""
    text: str = ""
    failure: str = ""
    fingerprint: str = ""
    twin: int = 0  # the earlier trial that a duplicate repeats; with trial 0, one that the brief's own agent had judged
    drafts: tuple[StrategyDraft, ...] = ()


@dataclass(frozen=True)
class TrialJudged:
    """A trial was evaluated."""

    trial: int
    evaluation: Evaluation
    again: bool = False  # a second measurement, because the trial would become the best


@dataclass(frozen=True)
class TrialProfiled:
    """A trial was profiled."""

    trial: int
    digest: str  # where the time goes; "" if profiling failed, which is not tried again
    seconds: float = 0.0  # device time


@dataclass(frozen=True)
class TrialTuned:
    """Values of a trial's tunables were tried."""

    trial: int
    tried: int  # points evaluated
    total: int  # points there are
    gain: float | None  # speed of the best point over the original; None if either is invalid
    seconds: float  # device time


@dataclass(frozen=True)
class NoteAdded:
    """A remark for readers of the run."""

    text: str


@dataclass(frozen=True)
class RunClosed:
    """The process stopped working on the run."""

    reason: StopReason
    detail: str = ""

    @property
    def words(self) -> str:
        """Why the run stopped, as part of a sentence."""
        return self.detail.rstrip(".") or self.reason.words


Event = (
    RunCreated
    | RunOpened
    | PrecedentsFound
    | BriefAsked
    | PromptSent
    | ReplyReceived
    | ReplyFailed
    | ProposalRead
    | TrialJudged
    | TrialProfiled
    | TrialTuned
    | NoteAdded
    | RunClosed
)


@dataclass(frozen=True)
class LogEntry:
    """An event with its position in the log."""

    seq: int
    at: float  # seconds since 1970
    event: Event = field(repr=False)
