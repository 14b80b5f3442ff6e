"""Records of single trials and of the totals of a run: numbers and names only, no source text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from warpsmith.model.brief import TrialOutcome
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.method import Move
from warpsmith.model.usage import TokenUsage


@dataclass(frozen=True, slots=True)
class Trial:
    """One proposal with its outcome."""

    number: int
    brief: int
    candidate: str  # id; "" if the reply could not be read
    outcome: TrialOutcome
    move: Move
    parents: tuple[int, ...]
    attempt: int  # number of repairs so far
    place: int  # island of the population
    length: int  # characters of source
    model: str
    strategy: str  # as its author wrote it, until an aligner corrected it
    thought: bool  # True if the author gave a reason
    status: Status | None = None
    score: float | None = None  # latest speedup over PyTorch eager, if valid
    low: float | None = None  # lower end of its interval, by which kernels are ranked
    share: float | None = None  # share of the hardware limit in the worst workload
    measured: int = 0  # number of evaluations
    effect: float | None = None  # score over the best parent's score
    operator: str = ""
    idea: int | None = None  # the strategy it carries out
    aligned: bool = False  # True once an aligner corrected the strategy
    free: bool = False  # of the tuner, or the starting kernel: spends no trial and counts in no rate
    step: int = 0  # the brief whose agent had it evaluated on the way; 0 for the reply to a brief

    def gain_over_parents(self, trials: Mapping[int, Trial], score: float | None) -> float | None:
        """A score over that of the best parent; None if either is unknown."""
        known = [parent for number in self.parents if number in trials and (parent := trials[number].score)]
        return score / max(known) if score is not None and known else None


class BestChange(NamedTuple):
    """A new best kernel: what was spent by then, and its score."""

    trials: int
    score: float
    tokens: int
    stage: int  # of the method, from 0


@dataclass
class RunTotals:
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
    seconds: float = 0.0  # wall time up to the last event, summed over all times the run was open

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def settled(self) -> int:
        """Trials that wait for nothing: not those in progress, or dropped when the run ended."""
        return min(self.trials, self.judged + self.duplicates + self.unreadable)

    def add_usage(self, usage: TokenUsage) -> None:
        """Add the cost of a call."""
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.cached_tokens += usage.cached_tokens
        self.cost_usd += usage.cost_usd or 0.0
        self.unpriced += usage.cost_usd is None and usage.tokens > 0

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Count the first evaluation of a trial."""
        if evaluation.status is Status.NOT_JUDGED:
            self.trials -= 1  # the evaluator's fault: the same candidate may be proposed again
            return
        self.judged += 1
        self.valid += evaluation.ok
        self.compiled += evaluation.status is not Status.BUILD_ERROR


@dataclass
class StageState:
    """The current stage of the method."""

    index: int = 0
    asked: int = 0  # briefs of this stage, without those that got no reply
    replied: int = 0
