"""The protocol of a model, and the options to connect to one.

`Model.complete` takes a prompt and returns a reply, or raises a `ProposerFault`. Keys, addresses and prices are in
`ModelContext`; only its `load` reads an environment.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from warpsmith.llm.conversation import ChatReply, ChatTurn, ToolSpec
from warpsmith.llm.prices import Prices
from warpsmith.llm.secrets import Keyring
from warpsmith.model.brief import Prompt, Reply
from warpsmith.model.errors import UsageError


class Model(Protocol):
    """Answers prompts. Safe to call from several threads; calls beyond the limit of its endpoint wait."""

    name: str  # as on the command line: "openai:gpt-5"
    model: str  # the provider's name for it: "gpt-5"

    def complete(self, prompt: Prompt) -> Reply:
        """The reply to a prompt; raises a `ProposerFault` with the usage of all requests if no reply came."""
        ...

    def converse(self, turns: Sequence[ChatTurn], tools: Sequence[ToolSpec] = ()) -> ChatReply:
        """The next message of a conversation; `ToolsRefused` if tools are not taken."""
        ...

    def close(self) -> None:
        """End requests in progress and close connections. Safe to call twice."""
        ...


@dataclass(frozen=True)
class RetryPolicy:
    """The limits for one reply. The SDK waits between requests, longer each time, or as long as the endpoint asks."""

    request_s: float = 600.0  # for one request, from connecting to the last byte
    attempts: int = 6  # most requests for one reply

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.request_s <= 0:
            raise UsageError("a request needs at least one attempt and a time limit above zero; give larger ones.")


@dataclass(frozen=True)
class ModelOptions:
    """Options of requests to models. Stored with a run; has no key."""

    base_url: str = ""  # "": the provider's variable, else its own address
    temperature: float | None = None  # None: not sent; some models accept none
    max_tokens: int | None = None  # of one reply; None: the provider's own limit
    effort: str = ""  # of reasoning: "low", "medium", "high", …; "": not sent
    structured: bool = False  # ask for JSON by a schema where a reply holds no kernel
    batch: bool = False  # send requests as batches: half the price, answers within a day
    concurrency: int = 4  # most requests at one endpoint at the same time
    retries: RetryPolicy = RetryPolicy()

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise UsageError(f"{self.concurrency} requests at once are too few; give 1 or more.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"{self.max_tokens} tokens are too few for a reply; give 1 or more.")
        if self.base_url and not self.base_url.startswith(("http://", "https://")):
            raise UsageError(
                f"the base URL {self.base_url!r} does not begin with http:// or https://; give it in full."
            )


@dataclass
class EndpointLimits:
    """One semaphore for each endpoint, shared by all of its models."""

    _limits: dict[str, threading.BoundedSemaphore] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def limit(self, endpoint: str, concurrency: int) -> threading.BoundedSemaphore:
        """The semaphore of an endpoint; the first caller sets its size."""
        with self._lock:
            return self._limits.setdefault(endpoint, threading.BoundedSemaphore(concurrency))


@dataclass(frozen=True)
class ModelContext:
    """Keys, prices, and the limits of the endpoints in use."""

    keyring: Keyring
    prices: Prices = field(default_factory=Prices)
    limits: EndpointLimits = field(default_factory=EndpointLimits)

    @staticmethod
    def load(environ: Mapping[str, str], key_file: Path | None = None, prices: Path | None = None) -> ModelContext:
        """The context from an environment, and from the files given or named by it."""
        return ModelContext(Keyring.load(environ, key_file), Prices.load(environ, prices))
