"""Any endpoint that speaks OpenAI's chat completions: OpenAI, vLLM, Ollama, DeepSeek and others, by base URL."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from warpsmith.core.search import Prompt
from warpsmith.llm.bodies import count, identifiers, mapping, mappings, text, texts
from warpsmith.llm.connecting import CONNECT_S, address, contact, key, require
from warpsmith.llm.endpoint import Answer, Endpoint, Heard, hear, listed, object_of
from warpsmith.llm.leash import Leashes
from warpsmith.llm.model import Model, Options, Surroundings
from warpsmith.llm.prices import Tokens
from warpsmith.llm.secrets import Secret

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

# Two names for the same limit: OpenAI's own endpoint wants the first, most others know the second only.
_NEW_LIMIT, _OLD_LIMIT = "max_completion_tokens", "max_tokens"


class OpenAI:
    """The plugin."""

    name = "openai"
    package = "openai"
    key_name = "OPENAI_API_KEY"
    url_name = "OPENAI_BASE_URL"
    home = "https://api.openai.com/v1"
    default_model = "gpt-6.1-sol"

    def connect(self, model: str, options: Options, surroundings: Surroundings) -> Model:
        """See `Provider`."""
        url = address(self, options, surroundings)
        secret = key(self, url, surroundings)
        require(self)
        line = OpenAILine(model, url, secret, options, home=url == self.home)
        return Endpoint(self.name, line, contact(self, model, url, secret), secret, options, surroundings)

    def served(self, options: Options, surroundings: Surroundings) -> tuple[str, ...]:
        """See `Provider`."""
        url = address(self, options, surroundings)
        secret = key(self, url, surroundings)
        require(self)
        return listed(OpenAILine("", url, secret, options, home=url == self.home), url)


class OpenAILine:
    """A `Line`."""

    def __init__(self, model: str, url: str, secret: Secret, options: Options, home: bool) -> None:
        import openai

        self.leashes = Leashes()
        self._model = model
        self._max_tokens = options.max_tokens
        self._extra = options.fields
        if options.temperature is not None:
            self._extra.setdefault("temperature", options.temperature)
        self._limit_name = _NEW_LIMIT if home else _OLD_LIMIT
        self._renamed = False
        self._lock = threading.Lock()
        self._client = openai.OpenAI(
            api_key=secret.reveal(),
            base_url=url,
            max_retries=0,  # `Endpoint` repeats requests, and counts them
            default_headers={"Connection": "close"},  # see `leash`
            http_client=openai.DefaultHttpxClient(
                event_hooks={"request": [self.leashes.attach]},
                follow_redirects=False,  # a redirect is a wrong base URL, and could carry the key elsewhere
                verify=url.startswith("https:"),  # certificates take long to load, and plain HTTP has none
            ),
        )
        self._create = self._client.chat.completions.with_raw_response.create  # loaded now, not in a request's time

    def post(self, prompt: Prompt, limit_s: float) -> Heard:
        """See `Line`."""
        import openai

        messages = cast(
            "list[ChatCompletionMessageParam]",
            [{"role": message.role.value, "content": message.text} for message in prompt.messages],
        )
        form = self._limit_name if self._max_tokens is not None else ""
        extra = {form: self._max_tokens, **self._extra} if form else self._extra
        heard = hear(
            lambda: (
                self._create(
                    model=self._model,
                    messages=messages,
                    extra_body=extra,
                    timeout=openai.Timeout(limit_s, connect=min(CONNECT_S, limit_s)),
                ).http_response
            ),
            openai.APIStatusError,
            openai.APITimeoutError,
            openai.APIConnectionError,
        )
        return replace(heard, form=form)

    def adapt(self, heard: Heard) -> bool:
        """The other name of the limit, once, where a refusal names the one that was sent."""
        if heard.status not in (400, 422) or not heard.form or heard.form not in heard.body:
            return False
        with self._lock:
            if self._limit_name == heard.form:
                if self._renamed:
                    return False
                self._limit_name = _OLD_LIMIT if heard.form == _NEW_LIMIT else _NEW_LIMIT
                self._renamed = True
            return True  # also where another thread has changed it meanwhile

    def answer(self, content: Mapping[str, object]) -> Answer | None:
        """See `Line`."""
        choices = mappings(content.get("choices"))
        if not choices or not isinstance(choices[0].get("message"), dict):
            return None
        message = mapping(choices[0]["message"])
        said = message.get("content")
        words = texts(mappings(said)) if isinstance(said, list) else text(said)
        return Answer(words or text(message.get("refusal")), text(choices[0].get("finish_reason")) or "stop")

    def tokens(self, content: Mapping[str, object]) -> Tokens | None:
        """See `Line`."""
        usage = content.get("usage")
        if not isinstance(usage, dict):
            return None
        details = mapping(usage.get("prompt_tokens_details"))
        # DeepSeek has a field of its own for what was in its cache.
        cached = count(details.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens"))
        return Tokens(
            prompt=count(usage.get("prompt_tokens")),
            completion=count(usage.get("completion_tokens")),
            cached=cached,
            cache_written=count(details.get("cache_write_tokens")),
        )

    def served(self, limit_s: float) -> tuple[str, ...]:
        """See `Line`."""
        import openai

        heard = hear(
            lambda: self._client.models.with_raw_response.list(timeout=limit_s).http_response,
            openai.APIStatusError,
            openai.APITimeoutError,
            openai.APIConnectionError,
        )
        return identifiers(object_of(heard.body).get("data")) if heard.status == 200 else ()

    def close(self) -> None:
        """See `Line`."""
        self._client.close()


PLUGIN = OpenAI()
