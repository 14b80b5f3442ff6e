"""What a model is to the rest of Warpsmith, and what a provider needs to know to connect to one.

`Model.complete` is the only seam: a prompt in, a reply out, or a `ProposerFault`. Everything about the outside (keys,
addresses, clocks, luck) comes in through `Surroundings`, so that nothing here reads a global.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from warpsmith.core.errors import UsageError
from warpsmith.core.search import Prompt, Reply
from warpsmith.llm.prices import Prices
from warpsmith.llm.secrets import Keyring


class Model(Protocol):
    """Answers prompts. Safe to call from many threads; past its endpoint's limit they wait their turn."""

    name: str  # as on the command line: "openai:gpt-5"
    model: str  # as its provider calls it: "gpt-5"

    def complete(self, prompt: Prompt) -> Reply:
        """Ask and wait. A `ProposerFault` where no reply came, with the usage of the attempts that reported any."""
        ...

    def close(self) -> None:
        """End requests under way and waits between them, and give back connections. Safe to call twice."""
        ...


@dataclass(frozen=True)
class Patience:
    """How long to try for one reply."""

    request_s: float = 600.0  # one request, from connecting to the last byte
    attempts: int = 6  # requests for one reply, at most
    total_s: float = 1800.0  # all of them with the waits between, at most
    first_wait_s: float = 1.0  # before the second request; doubles each time
    longest_wait_s: float = 60.0  # where the endpoint does not itself name a longer one

    def __post_init__(self) -> None:
        if (
            self.attempts < 1
            or min(self.request_s, self.total_s) <= 0
            or min(self.first_wait_s, self.longest_wait_s) < 0
        ):
            raise UsageError("a request needs at least one attempt and time limits above zero; give larger ones.")


@dataclass(frozen=True)
class Options:
    """How models are asked. Stored with a run: there is no key in it."""

    base_url: str = ""  # "": the provider's variable, else its own address
    temperature: float | None = None  # None: not sent; some models refuse any
    max_tokens: int | None = None  # of one reply; None: the provider's own limit
    extra: str = "{}"  # JSON: more fields of the request's body, e.g. {"reasoning_effort": "high"}
    concurrency: int = 4  # requests at one endpoint at once
    patience: Patience = Patience()

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise UsageError(f"{self.concurrency} requests at once are too few; give 1 or more.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise UsageError(f"a reply of {self.max_tokens} tokens holds nothing; give 1 or more.")
        if self.base_url and not self.base_url.startswith(("http://", "https://")):
            raise UsageError(
                f"the base URL {self.base_url!r} does not begin with http:// or https://; give it in full."
            )
        try:
            content = json.loads(self.extra)
        except json.JSONDecodeError:
            content = None
        if not isinstance(content, dict):
            raise UsageError(
                f'the extra request fields {self.extra!r} are not a JSON object; write e.g. {{"seed": 1}}.'
            )

    @property
    def fields(self) -> dict[str, object]:
        """The extra fields, decoded."""
        decoded: dict[str, object] = json.loads(self.extra)
        return decoded


@dataclass
class Gates:
    """Who may ask now: one gate for each endpoint, shared by all models behind it."""

    _gates: dict[str, threading.BoundedSemaphore] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def gate(self, endpoint: str, width: int) -> threading.BoundedSemaphore:
        """The endpoint's own; whoever comes first says how wide it is."""
        with self._lock:
            return self._gates.setdefault(endpoint, threading.BoundedSemaphore(width))


@dataclass(frozen=True)
class Clock:
    """Time and luck, to be replaced in tests."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time  # seconds since 1970: `retry-after` may be a date
    sleep: Callable[[float], None] | None = None  # None: a wait that `Model.close` ends
    luck: Callable[[], float] = random.random  # in [0, 1): spreads requests that failed together


@dataclass(frozen=True)
class Surroundings:
    """What lies outside: keys and addresses, prices, time, and the gates of endpoints in use."""

    keyring: Keyring
    prices: Prices = field(default_factory=Prices)
    clock: Clock = Clock()
    gates: Gates = field(default_factory=Gates)

    @staticmethod
    def gather(
        environ: Mapping[str, str], key_file: Path | None = None, prices: Path | None = None, clock: Clock | None = None
    ) -> Surroundings:
        """From an environment and the files that are given or that it names."""
        return Surroundings(Keyring.gather(environ, key_file), Prices.gather(environ, prices), clock or Clock())


class Provider(Protocol):
    """A plugin of `warpsmith.llm`: how to reach the models of one protocol."""

    name: str  # "openai"
    package: str  # the SDK to install
    key_name: str  # the variable its key is in
    url_name: str  # the variable its base URL is in
    home: str  # its address where none is given
    default_model: str  # where a key is there and no model is named

    def connect(self, model: str, options: Options, surroundings: Surroundings) -> Model:
        """A model, not yet asked anything. `ProposerRefused` without a key, `ToolMissing` without its SDK."""
        ...

    def served(self, options: Options, surroundings: Surroundings) -> tuple[str, ...]:
        """The models the endpoint says it serves. `ProposerFault` where it does not say."""
        ...
