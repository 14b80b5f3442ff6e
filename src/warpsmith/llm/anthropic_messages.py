"""Any endpoint that speaks Anthropic's messages: Anthropic itself, or a gateway by base URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from warpsmith.core.search import Prompt, Role
from warpsmith.llm.bodies import count, identifiers, mappings, text, texts
from warpsmith.llm.connecting import CONNECT_S, address, contact, key, require
from warpsmith.llm.endpoint import Answer, Endpoint, Heard, hear, listed, object_of
from warpsmith.llm.leash import Leashes
from warpsmith.llm.model import Model, Options, Surroundings
from warpsmith.llm.prices import Tokens
from warpsmith.llm.secrets import Secret

if TYPE_CHECKING:
    from anthropic.types import MessageParam

_MAX_TOKENS = 32_000  # the protocol wants a limit; thinking counts towards it
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class Anthropic:
    """The plugin."""

    name = "anthropic"
    package = "anthropic"
    key_name = "ANTHROPIC_API_KEY"
    url_name = "ANTHROPIC_BASE_URL"
    home = "https://api.anthropic.com"
    default_model = "claude-sonnet-5-5"

    def connect(self, model: str, options: Options, surroundings: Surroundings) -> Model:
        """See `Provider`."""
        url = address(self, options, surroundings)
        secret = key(self, url, surroundings)
        require(self)
        line = AnthropicLine(model, url, secret, options)
        return Endpoint(self.name, line, contact(self, model, url, secret), secret, options, surroundings)

    def served(self, options: Options, surroundings: Surroundings) -> tuple[str, ...]:
        """See `Provider`."""
        url = address(self, options, surroundings)
        secret = key(self, url, surroundings)
        require(self)
        return listed(AnthropicLine("", url, secret, options), url)


class AnthropicLine:
    """A `Line`."""

    def __init__(self, model: str, url: str, secret: Secret, options: Options) -> None:
        import anthropic

        self.leashes = Leashes()
        self._model = model
        self._max_tokens = options.max_tokens or _MAX_TOKENS
        self._extra = options.fields
        if options.temperature is not None:
            self._extra.setdefault("temperature", options.temperature)
        self._client = anthropic.Anthropic(
            api_key=secret.reveal(),
            # The SDK adds /v1 itself; people often give an address with it, as for other providers.
            base_url=url.rstrip("/").removesuffix("/v1"),
            max_retries=0,  # `Endpoint` repeats requests, and counts them
            default_headers={"Connection": "close"},  # see `leash`
            http_client=anthropic.DefaultHttpxClient(
                event_hooks={"request": [self.leashes.attach]},
                follow_redirects=False,  # a redirect is a wrong base URL, and could carry the key elsewhere
                verify=url.startswith("https:"),  # certificates take long to load, and plain HTTP has none
            ),
        )
        self._create = self._client.messages.with_raw_response.create  # loaded now, not in a request's time

    def post(self, prompt: Prompt, limit_s: float) -> Heard:
        """See `Line`."""
        import anthropic

        system = "\n\n".join(message.text for message in prompt.messages if message.role is Role.SYSTEM)
        messages = cast(
            "list[MessageParam]",
            [
                {"role": message.role.value, "content": message.text}
                for message in prompt.messages
                if message.role is not Role.SYSTEM
            ],
        )
        return hear(
            lambda: (
                self._create(
                    model=self._model,
                    max_tokens=self._max_tokens,
                    messages=messages,
                    extra_body={"system": system, **self._extra} if system else self._extra,
                    timeout=anthropic.Timeout(limit_s, connect=min(CONNECT_S, limit_s)),
                ).http_response
            ),
            anthropic.APIStatusError,
            anthropic.APITimeoutError,
            anthropic.APIConnectionError,
        )

    def adapt(self, heard: Heard) -> bool:
        """There is one way to put a request."""
        return False

    def answer(self, content: Mapping[str, object]) -> Answer | None:
        """See `Line`."""
        if not isinstance(content.get("content"), list):
            return None
        reason = text(content.get("stop_reason")) or "stop"
        return Answer(texts(mappings(content["content"])), _FINISH.get(reason, reason))

    def tokens(self, content: Mapping[str, object]) -> Tokens | None:
        """See `Line`. Here the input tokens are those that had nothing to do with the cache."""
        usage = content.get("usage")
        if not isinstance(usage, dict):
            return None
        cached = count(usage.get("cache_read_input_tokens"))
        written = count(usage.get("cache_creation_input_tokens"))
        fresh = count(usage.get("input_tokens"))
        return Tokens(fresh + cached + written, count(usage.get("output_tokens")), cached, written)

    def served(self, limit_s: float) -> tuple[str, ...]:
        """See `Line`."""
        import anthropic

        heard = hear(
            lambda: self._client.models.with_raw_response.list(timeout=limit_s).http_response,
            anthropic.APIStatusError,
            anthropic.APITimeoutError,
            anthropic.APIConnectionError,
        )
        return identifiers(object_of(heard.body).get("data")) if heard.status == 200 else ()

    def close(self) -> None:
        """See `Line`."""
        self._client.close()


PLUGIN = Anthropic()
