"""Any endpoint with OpenAI's chat completions: OpenAI, vLLM, Ollama, DeepSeek and others, by base URL."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence

from warpsmith.llm.adapter import (
    Completion,
    ProviderAdapter,
    Response,
    count,
    error_in,
    joined_text,
    mapping,
    mappings,
    object_of,
    text,
)
from warpsmith.llm.conversation import SCHEMAS, ChatTurn, ToolSpec, ToolUse, turns_of
from warpsmith.llm.endpoint import Provider
from warpsmith.llm.model import ModelOptions
from warpsmith.llm.prices import Tokens
from warpsmith.llm.secrets import Secret
from warpsmith.model.brief import Prompt

# Two names of the same limit: OpenAI's endpoint needs the first, most others accept only the second.
_NEW_LIMIT, _OLD_LIMIT = "max_completion_tokens", "max_tokens"
_HOME = "https://api.openai.com/v1"
_COMPLETIONS = "/v1/chat/completions"
_ENDED = ("completed", "failed", "expired", "cancelled")
_NO_BATCH = 424  # the status of a batch that ended without responses


class OpenAIAdapter(ProviderAdapter):
    """The adapter to OpenAI's SDK."""

    client_class = "OpenAI"
    schema_words = ("response_format", "json_schema")

    def __init__(self, model: str, url: str, secret: Secret, options: ModelOptions) -> None:
        import openai

        super().__init__(openai, model, secret, url, options)
        self._max_tokens = options.max_tokens
        self._limit_name = _NEW_LIMIT if url == _HOME else _OLD_LIMIT
        self._sent = threading.local()  # the limit name of the latest request of this thread
        self._renamed = False
        self._lock = threading.Lock()
        self._create = self._client.chat.completions.with_raw_response.create  # imported now, not in a request's time

    def send(
        self, turns: Sequence[ChatTurn], tools: Sequence[ToolSpec] = (), schema: Mapping[str, object] | None = None
    ) -> Response:
        """See `ProviderAdapter`."""
        stream = {"stream": True, "stream_options": {"include_usage": True}} if self._streams else {}
        body = self._body(turns, tools, schema)
        model, messages = body.pop("model"), body.pop("messages")
        return self._response(lambda: self._create(model=model, messages=messages, extra_body={**body, **stream}))

    def _body(
        self, turns: Sequence[ChatTurn], tools: Sequence[ToolSpec] = (), schema: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """The request for a completion, without what it takes to stream."""
        self._sent.limit = self._limit_name
        limit = {} if self._max_tokens is None else {self._sent.limit: self._max_tokens}
        effort = {"reasoning_effort": self._effort} if self._effort else {}
        wanted = {"name": "reply", "strict": True, "schema": schema}
        structured = {"response_format": {"type": "json_schema", "json_schema": wanted}}
        return {
            "model": self._model,
            "messages": [_message(turn) for turn in turns],
            **limit,
            **effort,
            **(structured if schema and self.structured else {}),
            **self._temperature,
            **_offered(tools),
        }

    def submit(self, prompts: Sequence[Prompt]) -> str | Response:
        """See `ProviderAdapter`."""
        requests = [
            {
                "custom_id": str(number),
                "method": "POST",
                "url": _COMPLETIONS,
                "body": self._body(turns_of(prompt), schema=SCHEMAS.get(prompt.form)),
            }
            for number, prompt in enumerate(prompts)
        ]
        content = "\n".join(json.dumps(request) for request in requests).encode()
        file = self._called(lambda: self._client.files.create(file=("batch.jsonl", content), purpose="batch"))
        if isinstance(file, Response):
            return file
        made = self._called(
            lambda: self._client.batches.create(input_file_id=file.id, endpoint=_COMPLETIONS, completion_window="24h")
        )
        return made if isinstance(made, Response) else str(made.id)

    def collect(self, batch: str) -> Mapping[int, Response] | Response | None:
        """See `ProviderAdapter`."""
        found = self._called(lambda: self._client.batches.retrieve(batch))
        if isinstance(found, Response) or found.status not in _ENDED:
            return found if isinstance(found, Response) else None
        if not found.output_file_id and not found.error_file_id:
            return Response(lost=f"the batch ended without responses ({found.status})", status=_NO_BATCH)
        responses: dict[int, Response] = {}
        for name in filter(None, (found.output_file_id, found.error_file_id)):
            content = self._called(lambda name=name: self._client.files.content(name).text)  # type: ignore[misc]
            if isinstance(content, Response):
                return content
            for line in map(object_of, content.splitlines()):
                answer = mapping(line.get("response"))
                status, body = answer.get("status_code"), answer.get("body") or {"error": line.get("error")}
                number = text(line.get("custom_id"))
                if number.isdecimal():
                    responses[int(number)] = Response(status if isinstance(status, int) else 500, json.dumps(body))
        return responses

    def cancel(self, batch: str) -> None:
        """See `ProviderAdapter`."""
        self._called(lambda: self._client.batches.cancel(batch))

    def adapt(self, response: Response) -> bool:
        """Do not stream if that is refused; use the other name of the limit, once, if a refusal names the one sent."""
        if super().adapt(response):
            return True
        sent = getattr(self._sent, "limit", self._limit_name)  # a batch is sent by another thread
        if self._max_tokens is None or response.status not in (400, 422) or sent not in response.body:
            return False
        with self._lock:
            if self._limit_name == sent:
                if self._renamed:
                    return False
                self._limit_name = _OLD_LIMIT if sent == _NEW_LIMIT else _NEW_LIMIT
                self._renamed = True
            return True  # also if another thread has changed it meanwhile

    def folded(self, events: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
        """See `ProviderAdapter`."""
        said, refused, finish = [], [], ""
        uses: dict[int, dict[str, str]] = {}
        usage: object = None
        for event in events:
            usage = event.get("usage") or usage
            for choice in mappings(event.get("choices"))[:1]:
                delta = mapping(choice.get("delta"))
                said.append(text(delta.get("content")))
                refused.append(text(delta.get("refusal")))
                for piece in mappings(delta.get("tool_calls")):
                    use = uses.setdefault(count(piece.get("index")), {"id": "", "name": "", "arguments": ""})
                    called = mapping(piece.get("function"))
                    use["id"] = text(piece.get("id")) or use["id"]
                    use["name"] += text(called.get("name"))
                    use["arguments"] += text(called.get("arguments"))
                finish = text(choice.get("finish_reason")) or finish
        if not finish:  # cut off
            return error_in(events)
        calls = [{"id": use["id"], "function": use} for _, use in sorted(uses.items())]
        message = {"content": "".join(said), "refusal": "".join(refused), "tool_calls": calls}
        return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}

    def completion(self, content: Mapping[str, object]) -> Completion | None:
        """See `ProviderAdapter`."""
        choices = mappings(content.get("choices"))
        if not choices or not isinstance(choices[0].get("message"), dict):
            return None
        message = mapping(choices[0]["message"])
        said = message.get("content")
        words = joined_text(mappings(said)) if isinstance(said, list) else text(said)
        uses = tuple(
            ToolUse(text(use.get("id")) or f"call_{place}", text(called.get("name")), text(called.get("arguments")))
            for place, use in enumerate(mappings(message.get("tool_calls")))
            for called in [mapping(use.get("function"))]
        )
        finish = text(choices[0].get("finish_reason")) or "stop"
        return Completion(words or text(message.get("refusal")), finish, uses)

    def tokens(self, content: Mapping[str, object]) -> Tokens | None:
        """See `ProviderAdapter`."""
        usage = content.get("usage")
        if not isinstance(usage, dict):
            return None
        details = mapping(usage.get("prompt_tokens_details"))
        return Tokens(
            prompt=count(usage.get("prompt_tokens")),
            completion=count(usage.get("completion_tokens")),
            # DeepSeek has its own field for cached tokens.
            cached=count(details.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens")),
            cache_written=count(details.get("cache_write_tokens")),
        )


def _message(turn: ChatTurn) -> dict[str, object]:
    if turn.answers:
        return {"role": "tool", "tool_call_id": turn.answers, "content": turn.text}
    message: dict[str, object] = {"role": turn.role.value, "content": turn.text}
    if turn.uses:
        message["tool_calls"] = [
            {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": use.arguments}}
            for use in turn.uses
        ]
    return message


def _offered(tools: Sequence[ToolSpec]) -> dict[str, object]:
    functions = [{"name": t.name, "description": t.description, "parameters": dict(t.schema)} for t in tools]
    return {"tools": [{"type": "function", "function": each} for each in functions]} if tools else {}


PLUGIN = Provider(
    name="openai",
    package="openai",
    key_name="OPENAI_API_KEY",
    url_name="OPENAI_BASE_URL",
    home=_HOME,
    default_model="gpt-6.1-sol",
    adapter=OpenAIAdapter,
)
