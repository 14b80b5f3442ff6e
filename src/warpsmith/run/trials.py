"""What a ledger holds about single trials and about their sum. Numbers and names only; what they mean is `ledger`'s."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.method import Move
from warpsmith.core.search import Outcome, Usage


@dataclass(frozen=True, slots=True)
class Trial:
    """One proposal with a candidate, as far as the fold needs it."""

    number: int
    brief: int
    candidate: str  # id; "" where the reply could not be read
    outcome: Outcome
    move: Move
    parents: tuple[int, ...]
    attempt: int  # of repairing another
    place: int
    length: int
    model: str
    strategy: str  # as its author told it, until it was put right
    thought: bool  # whether it said why
    status: Status | None = None
    score: float | None = None  # the latest, once judged valid
    share: float | None = None  # of the speed of light, in the worst workload
    measured: int = 0  # how often
    effect: float | None = None  # its score over its best parent's
    operator: str = ""
    idea: int = 0  # the strategy it carries out; 0 where none was given
    aligned: bool = False  # whether its strategy was put right
    free: bool = False  # it spent no trial, and is in no rate: we made it of another one ourselves


@dataclass
class Totals:
    """What a run has used and found."""

    trials: int = 0  # proposals that count against the budget
    judged: int = 0
    valid: int = 0
    compiled: int = 0
    duplicates: int = 0
    unreadable: int = 0
    failed_calls: int = 0
    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0  # replies whose price is not known
    device_seconds: float = 0.0
    seconds: float = 0.0  # of sittings that are over, and of this one up to its last event

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def settled(self) -> int:
        """Trials of which nothing is awaited: without those under way, or given up when a run ended."""
        return min(self.trials, self.judged + self.duplicates + self.unreadable)

    def book(self, usage: Usage) -> None:
        """What a call has cost."""
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.cached_tokens += usage.cached_tokens
        self.cost_usd += usage.cost_usd or 0.0
        self.unpriced += usage.cost_usd is None and usage.tokens > 0

    def count(self, evaluation: Evaluation) -> None:
        """The first verdict on a trial."""
        if evaluation.status is Status.NOT_JUDGED:
            self.trials -= 1  # our own fault: it may be proposed again
            return
        self.judged += 1
        self.valid += evaluation.ok
        self.compiled += evaluation.status is not Status.BUILD_ERROR


@dataclass
class StageState:
    """Where in its method a run is."""

    index: int = 0
    asked: int = 0  # briefs of this stage that were not in vain
    replied: int = 0
