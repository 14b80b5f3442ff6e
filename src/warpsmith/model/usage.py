"""What replies of language models cost: tokens, money, time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenUsage:
    """The cost of one reply."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # of the prompt tokens, those that the provider had cached
    cost_usd: float | None = None  # None where the price is not known
    seconds: float = 0.0
    requests: int = 1  # including failed ones that were repeated

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class ModelUsage:
    """What one model has cost and gained in a run so far."""

    model: str
    replies: int
    gain: float  # sum over its replies of the logarithm of the improvement over the best until then
    cost_usd: float
    tokens: int
