"""One model behind one endpoint: asks, waits, asks again, counts what it cost.

The SDKs only carry the bytes (a `Line`): retries, time limits, accounting and the wording of errors are here, the
same for all providers. Not for what a reply means: a reply that is empty, cut off or a refusal is a reply.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from warpsmith.core.errors import ProposerFault, ProposerRefused
from warpsmith.core.search import Prompt, Reply, Usage
from warpsmith.llm.failures import Contact, Failure, of_status, retry_after_s, shown
from warpsmith.llm.leash import Leashes
from warpsmith.llm.model import Options, Surroundings
from warpsmith.llm.prices import Price, Tokens
from warpsmith.llm.secrets import Secret

_LIST_S = 10.0  # to ask for the list of models
_NAMED = 8  # models named in an error
_QUOTED = 60  # characters of an answer that is none
_IDLE_S = 5.0  # for requests to notice that they were ended
_KNOCKS = 3  # requests to an address where nothing has ever answered: a server may be starting


@dataclass(frozen=True)
class Answer:
    """What a completion says."""

    text: str
    finish: str  # "stop", "length", or the provider's own word


@dataclass(frozen=True)
class Heard:
    """What came back over the wire."""

    status: int = 0  # 0: nothing did
    headers: Mapping[str, str] | None = None  # names in lower case
    body: str = ""
    lost: str = ""  # why nothing did
    form: str = ""  # how the request was put, where that can be changed
    unreachable: bool = False  # whether there was not even a connection


class Line(Protocol):
    """One provider's SDK with its client."""

    leashes: Leashes

    def post(self, prompt: Prompt, limit_s: float) -> Heard:
        """Ask once."""
        ...

    def adapt(self, heard: Heard) -> bool:
        """Whether the request can be put otherwise, so that this refusal does not come again."""
        ...

    def answer(self, content: Mapping[str, object]) -> Answer | None:
        """The completion in a body; None where there is none."""
        ...

    def tokens(self, content: Mapping[str, object]) -> Tokens | None:
        """The usage in a body; None where none is reported."""
        ...

    def served(self, limit_s: float) -> tuple[str, ...]:
        """The models the endpoint lists; none where it lists none."""
        ...

    def close(self) -> None:
        """Give the client back."""
        ...


class _Response(Protocol):
    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def text(self) -> str: ...


def hear(
    send: Callable[[], _Response], status: type[Exception], timeout: type[Exception], connection: type[Exception]
) -> Heard:
    """Call an SDK and say what came of it; the three are its own exceptions."""
    try:
        response = send()
    except timeout:
        return Heard(lost="no answer came in time")
    except status as error:
        response = error.response  # type: ignore[attr-defined]  # both SDKs have it
    except connection as error:
        cause = " ".join(str(error.__cause__ or error).split())
        lost = f"the connection failed ({cause or type(error.__cause__).__name__})"
        return Heard(lost=lost, unreachable=True)
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Heard(response.status_code, headers, response.text)


def listed(line: Line, url: str) -> tuple[str, ...]:
    """The models behind an address, asked for with a line of its own that is closed afterwards."""
    try:
        with line.leashes.held(_LIST_S):
            names = line.served(_LIST_S)
    finally:
        line.close()
    if not names:
        raise ProposerFault(f"{shown(url)} does not say which models it serves; name one.")
    return names


@dataclass
class _Spent:
    """What one reply has cost so far, over all requests for it."""

    tokens: Tokens | None = None
    requests: int = 0

    def add(self, tokens: Tokens | None) -> None:
        if tokens is not None:
            self.tokens = tokens if self.tokens is None else self.tokens + tokens

    def usage(self, price: Price | None, seconds: float) -> Usage:
        tokens = self.tokens or Tokens()
        return Usage(
            prompt_tokens=tokens.prompt,
            completion_tokens=tokens.completion,
            cached_tokens=tokens.cached,
            cost_usd=price.cost_usd(tokens) if price is not None and self.tokens is not None else None,
            seconds=seconds,
            requests=self.requests,
        )


class Endpoint:
    """A `Model`."""

    def __init__(
        self, provider: str, line: Line, contact: Contact, secret: Secret, options: Options, surroundings: Surroundings
    ) -> None:
        self.name = f"{provider}:{contact.model}"
        self.model = contact.model
        self._line = line
        self._contact = contact
        self._secret = secret
        self._patience = options.patience
        self._clock = surroundings.clock
        self._price = surroundings.prices.of(provider, contact.model)
        self._gate = surroundings.gates.gate(contact.url, options.concurrency)
        self._met = False  # whether anything ever answered
        self._closing = threading.Event()
        self._idle = threading.Condition()
        self._busy = 0

    def complete(self, prompt: Prompt) -> Reply:
        """See `Model`."""
        # A request that waits to be repeated keeps its place: an endpoint that is overloaded gets fewer requests.
        with self._gate:
            begun = self._clock.monotonic()
            spent = _Spent()
            outcome = self._ask(prompt, begun, spent)
            usage = spent.usage(self._price, self._clock.monotonic() - begun)
        if isinstance(outcome, Answer):
            return Reply(self._secret.redact(outcome.text), self.model, usage, outcome.finish)
        # Outside of any handler: an SDK's own exception, which holds the request with its key, is not passed on.
        why = self._secret.redact(outcome.why)
        if outcome.refused:
            raise ProposerRefused(f"{self.name}: {why}.", usage)
        times = "request" if usage.requests == 1 else "requests"
        raise ProposerFault(f"{self.name} gave no reply to {usage.requests} {times}: {why}.", usage)

    def close(self) -> None:
        """See `Model`."""
        self._closing.set()
        self._line.leashes.close()
        with self._idle:
            self._idle.wait_for(lambda: self._busy == 0, _IDLE_S)
        self._line.close()

    def _ask(self, prompt: Prompt, begun: float, spent: _Spent) -> Answer | Failure:
        patience = self._patience
        for attempt in range(1, patience.attempts + 1):
            left_s = patience.total_s - (self._clock.monotonic() - begun)
            outcome = self._try(prompt, max(min(patience.request_s, left_s), 0.001), spent)
            if isinstance(outcome, Answer) or not outcome.again or attempt == patience.attempts:
                return outcome
            if outcome.refused and attempt >= _KNOCKS:
                return outcome
            wait_s = self._wait_s(attempt, outcome.after_s)
            if self._clock.monotonic() - begun + wait_s >= patience.total_s:
                limit = f"asking again in {wait_s:.0f} s would pass the limit of {patience.total_s:g} s"
                return Failure(f"{outcome.why}; {limit}")
            if self._clock.sleep is not None:
                self._clock.sleep(wait_s)
            else:
                self._closing.wait(wait_s)
        raise AssertionError("the last attempt returns")

    def _wait_s(self, attempt: int, asked_s: float | None) -> float:
        luck = self._clock.luck()
        if asked_s is not None:
            return asked_s * (1 + 0.1 * luck)  # never sooner; a little later, not all at once
        longest = min(self._patience.first_wait_s * 2.0 ** (attempt - 1), self._patience.longest_wait_s)
        return longest * (0.5 + 0.5 * luck)

    def _try(self, prompt: Prompt, limit_s: float, spent: _Spent) -> Answer | Failure:
        while True:
            with self._working(), self._line.leashes.held(limit_s) as leash:
                if self._closing.is_set():  # asked in here: `close` waits for those who are at work
                    return Failure("it was closed")
                heard = self._line.post(prompt, limit_s)
            spent.requests += 1
            if leash.cut and not 200 <= heard.status < 300:
                heard = Heard(lost=f"no complete answer came from {self._contact.url} within {limit_s:g} s")
            if not self._line.adapt(heard):
                return self._judged(heard, spent)

    def _judged(self, heard: Heard, spent: _Spent) -> Answer | Failure:
        if self._closing.is_set() and heard.lost:
            return Failure("it was closed")
        self._met = self._met or bool(heard.status)
        if heard.unreachable and not self._met:
            where = f"nothing answers at {shown(self._contact.url)}; start the server, or name another with --base-url"
            return Failure(f"{heard.lost}: {where}", again=True, refused=True)
        if heard.lost:
            return Failure(heard.lost, again=True)
        content = object_of(heard.body)
        spent.add(self._line.tokens(content))
        status = heard.status
        if 200 <= status < 300:
            found = self._line.answer(content)
            if found is not None:
                return found
            error = content.get("error")
            if error is None:
                start = repr(heard.body[:_QUOTED]) if heard.body.strip() else "nothing"
                return Failure(f"{self._contact.url} answered with {start}, which is no completion", again=True)
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 500
        after_s = retry_after_s(heard.headers or {}, self._clock.wall())
        return of_status(status, heard.body, after_s, self._contact, self._served)

    def _served(self) -> str:
        with self._working(), self._line.leashes.held(_LIST_S):
            names = self._line.served(_LIST_S)
        more = ", ..." if len(names) > _NAMED else ""
        return ", ".join(names[:_NAMED]) + more

    @contextmanager
    def _working(self) -> Iterator[None]:
        with self._idle:
            self._busy += 1
        try:
            yield
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()


def object_of(body: str) -> Mapping[str, object]:
    """The JSON object a body is; empty where it is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
