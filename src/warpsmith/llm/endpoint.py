"""Providers of models, and one model at its endpoint: sends a prompt, counts the cost, describes failures.

The SDK repeats failed requests (`llm.adapter`). A reply that is empty, cut off or a refusal is a reply.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from warpsmith.llm.adapter import Completion, ProviderAdapter, Response, count
from warpsmith.llm.batches import PRICE_SHARE, Batcher
from warpsmith.llm.conversation import SCHEMAS, ChatReply, ChatTurn, ToolSpec, ToolsRefused, ToolUse, turns_of
from warpsmith.llm.failures import EndpointInfo, RequestFailure, classify_status, safe_url
from warpsmith.llm.model import ModelContext, ModelOptions
from warpsmith.llm.prices import Price, Tokens
from warpsmith.llm.secrets import Secret
from warpsmith.model.brief import Prompt, Reply
from warpsmith.model.errors import ProposerFault, ProposerRefused, ToolMissing, UsageError
from warpsmith.model.usage import TokenUsage

_LIST_S = 10.0  # to list the models
_NAMED = 8  # models named in an error
_CONTEXT_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens")
_NO_TOOLS = (400, 404, 422, 500, 501)  # statuses by which endpoints refuse tools


class Endpoint:
    """A `Model` at an HTTP endpoint."""

    def __init__(
        self,
        provider: str,
        adapter: ProviderAdapter,
        info: EndpointInfo,
        secret: Secret,
        options: ModelOptions,
        context: ModelContext,
    ) -> None:
        self.name = f"{provider}:{info.model}"
        self.model = info.model
        self._adapter = adapter
        self._info = info
        self._secret = secret
        self._price = context.prices.of(provider, info.model)
        self._limit = context.limits.limit(info.url, options.concurrency)
        self._batcher = Batcher(adapter) if options.batch else None
        self._answered = False  # True once the endpoint has sent any response

    def complete(self, prompt: Prompt) -> Reply:
        """See `Model`."""
        if self._batcher is not None:
            reply = self._batched(prompt)
        else:
            reply = self.converse(turns_of(prompt), schema=SCHEMAS.get(prompt.form))
        return Reply(reply.text, reply.model, reply.usage, reply.finish)

    @property
    def streamed(self) -> bool:
        """True once a reply has come as a stream."""
        return self._adapter.streamed

    @property
    def price(self) -> Price | None:
        """The price of the model; None if it is not known."""
        return self._price

    def context_tokens(self) -> int | None:
        """The tokens that a prompt and its reply may have, if the endpoint says so in its list of models."""
        cards = [card for card in self._adapter.model_cards(_LIST_S) if card.get("id") == self.model]
        return next((size for card in cards for name in _CONTEXT_FIELDS if (size := count(card.get(name)))), None)

    @property
    def structured(self) -> bool:
        """False once the endpoint has refused a schema."""
        return self._adapter.structured

    def converse(
        self, turns: Sequence[ChatTurn], tools: Sequence[ToolSpec] = (), *, schema: Mapping[str, object] | None = None
    ) -> ChatReply:
        """See `Model`. With a schema, ask for JSON that fits the schema."""
        # A call keeps its semaphore while it waits to repeat a request: an overloaded endpoint gets fewer requests.
        with self._limit:
            begun = time.monotonic()
            with self._adapter.deadlines.call() as call:
                outcome = self._ask(turns, tools, schema)
            seconds = time.monotonic() - begun
        return self._reply(outcome, self._usage(call.tokens, seconds, call.requests), tools, call.timed_out)

    def _batched(self, prompt: Prompt) -> ChatReply:
        assert self._batcher is not None, "asked for"
        begun, requests = time.monotonic(), 1
        response = self._batcher.ask(prompt)
        while self._adapter.adapt(response):
            response, requests = self._batcher.ask(prompt), requests + 1
        outcome, tokens = self._read(response)
        return self._reply(outcome, self._usage(tokens, time.monotonic() - begun, requests, PRICE_SHARE))

    def _usage(self, tokens: Tokens | None, seconds: float, requests: int, price: float = 1.0) -> TokenUsage:
        cost = price * self._price.cost_usd(tokens) if self._price is not None and tokens is not None else None
        tokens = tokens or Tokens()
        return TokenUsage(tokens.prompt, tokens.completion, tokens.cached, cost, seconds, requests)

    def _reply(
        self,
        outcome: Completion | Response,
        usage: TokenUsage,
        tools: Sequence[ToolSpec] = (),
        timed_out: bool = False,
    ) -> ChatReply:
        """The reply in an outcome; raises if there is none."""
        requests = usage.requests
        if isinstance(outcome, Completion):
            redact = self._secret.redact
            uses = tuple(ToolUse(use.id, use.name, redact(use.arguments)) for use in outcome.uses)
            return ChatReply(redact(outcome.text), uses, self.model, usage, outcome.finish)
        failure = self._failure(outcome, timed_out)
        # Raised outside of any handler: the SDK's exception has the request with its key and must not be chained.
        why = self._secret.redact(failure.why)
        if tools and outcome.status in _NO_TOOLS and "tool" in outcome.body.lower():
            raise ToolsRefused(f"{self.name} takes no tools: {why}.", usage)
        if failure.refused:
            raise ProposerRefused(f"{self.name}: {why}.", usage)
        times = "request" if requests == 1 else "requests"
        raise ProposerFault(f"{self.name} gave no reply to {requests} {times}: {why}.", usage)

    def close(self) -> None:
        """See `Model`."""
        if self._batcher is not None:
            self._batcher.close()
        self._adapter.close()

    def _ask(
        self, turns: Sequence[ChatTurn], tools: Sequence[ToolSpec], schema: Mapping[str, object] | None
    ) -> Completion | Response:
        response = self._adapter.send(turns, tools, schema)
        while self._adapter.adapt(response):
            response = self._adapter.send(turns, tools, schema)
        outcome, tokens = self._read(response)
        self._adapter.deadlines.add_tokens(tokens)
        return outcome

    def _read(self, response: Response) -> tuple[Completion | Response, Tokens | None]:
        """The completion in a response, or the response if it has none; and the tokens that a completion took."""
        if not 200 <= response.status < 300:
            return response, None
        content = self._adapter.content(response.body)
        self._answered = True
        return self._adapter.completion(content) or response, self._adapter.tokens(content)

    def _failure(self, response: Response, timed_out: bool) -> RequestFailure:
        if self._adapter.deadlines.closed:
            return RequestFailure("it was closed")
        if timed_out and not response.status:
            limit_s = self._adapter.deadlines.limit_s
            return RequestFailure(f"no complete answer came from {self._info.url} within {limit_s:g} s")
        if response.unreachable and not self._answered:
            advice = f"nothing answers at {self._info.url}; start the server, or name another with --base-url"
            return RequestFailure(f"{response.lost}: {advice}", refused=True)
        if response.lost:
            return RequestFailure(response.lost)
        self._answered = True
        return classify_status(response.status, response.body, self._info, self._model_names)

    def _model_names(self) -> str:
        names = self._adapter.list_models(_LIST_S)
        more = ", ..." if len(names) > _NAMED else ""
        return ", ".join(names[:_NAMED]) + more


_NO_KEY = Secret("none")  # the SDKs need a key, even if the endpoint does not
_LIST_S = 10.0  # to list the models


@dataclass(frozen=True)
class Provider:
    """One protocol, and how to connect to its models."""

    name: str  # "openai"
    package: str  # the SDK to install
    key_name: str  # variable of the key
    url_name: str  # variable of the base URL
    home: str  # base URL if none is given
    default_model: str  # if there is a key and no model is named
    adapter: Callable[[str, str, Secret, ModelOptions], ProviderAdapter]  # of model, base URL, key, options

    def connect(self, model: str, options: ModelOptions, context: ModelContext) -> Endpoint:
        """A model; sends nothing yet. `ProposerRefused` without a key, `ToolMissing` without the SDK."""
        url = self.address(options, context)
        secret = self._key(url, context)
        info = EndpointInfo(model, safe_url(url), self.key_name, self.url_name, secret is not _NO_KEY)
        return Endpoint(self.name, self._adapter(model, url, secret, options), info, secret, options, context)

    def list_models(self, options: ModelOptions, context: ModelContext) -> tuple[str, ...]:
        """The models that the endpoint lists. `ProposerFault` if it lists none."""
        url = self.address(options, context)
        adapter = self._adapter("", url, self._key(url, context), options)
        try:
            names = adapter.list_models(_LIST_S)
        finally:
            adapter.close()
        if not names:
            raise ProposerFault(f"{safe_url(url)} does not list its models; name one.")
        return names

    def address(self, options: ModelOptions, context: ModelContext) -> str:
        """The base URL: the option, else the variable, else the provider's own."""
        url = options.base_url or context.keyring.plain(self.url_name) or self.home
        try:
            parts = urlsplit(url)
            whole = parts.scheme in ("http", "https") and bool(parts.hostname)
            parts.port  # noqa: B018  # raises if it is no number
        except ValueError:
            whole = False
        if not whole:
            raise UsageError(f"the base URL {safe_url(url)!r} is not one; give it as https://host/v1.")
        return url

    def _key(self, url: str, context: ModelContext) -> Secret:
        """The key; a placeholder for the user's own endpoint without a key."""
        found = context.keyring.secret(self.key_name)
        if not found and url == self.home:
            raise ProposerRefused(
                f"{self.name} needs a key: set {self.key_name}, name a key file with --key-file, "
                f"or give the base URL of an endpoint of your own with --base-url."
            )
        return found or _NO_KEY

    def _adapter(self, model: str, url: str, secret: Secret, options: ModelOptions) -> ProviderAdapter:
        try:
            importlib.import_module(self.package)
        except ModuleNotFoundError as missing:
            raise ToolMissing(
                f"{self.name} models need the package {missing.name}; run `pip install 'warpsmith[llm]'`."
            ) from None
        return self.adapter(model, url, secret, options)
