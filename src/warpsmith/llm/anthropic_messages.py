"""Any endpoint with Anthropic's messages: Anthropic itself, or a gateway by base URL."""

from __future__ import annotations

import json
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
    text,
)
from warpsmith.llm.conversation import SCHEMAS, ChatTurn, ToolSpec, ToolUse, turns_of
from warpsmith.llm.endpoint import Provider
from warpsmith.llm.model import ModelOptions
from warpsmith.llm.prices import Tokens
from warpsmith.llm.secrets import Secret
from warpsmith.model.brief import Prompt, Role

_MAX_TOKENS = 32_000  # the protocol needs a limit, which includes reasoning
_REFUSED = 400  # the status of an error in a batch, which names none
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class AnthropicAdapter(ProviderAdapter):
    """The adapter to Anthropic's SDK."""

    client_class = "Anthropic"
    schema_words = ("output_config.format", "json_schema", "output_format")

    def __init__(self, model: str, url: str, secret: Secret, options: ModelOptions) -> None:
        import anthropic

        # The SDK adds /v1; users often give an address with /v1, as for other providers.
        super().__init__(anthropic, model, secret, url.rstrip("/").removesuffix("/v1"), options)
        self._max_tokens = options.max_tokens or _MAX_TOKENS
        self._create = self._client.messages.with_raw_response.create  # imported now, not in a request's time

    def send(
        self, turns: Sequence[ChatTurn], tools: Sequence[ToolSpec] = (), schema: Mapping[str, object] | None = None
    ) -> Response:
        """See `ProviderAdapter`."""
        body = self._body(turns, tools, schema) | ({"stream": True} if self._streams else {})
        model, messages, limit = body.pop("model"), body.pop("messages"), body.pop("max_tokens")
        return self._response(lambda: self._create(model=model, max_tokens=limit, messages=messages, extra_body=body))

    def _body(
        self, turns: Sequence[ChatTurn], tools: Sequence[ToolSpec] = (), schema: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """The request for a reply, without what it takes to stream."""
        system = "\n\n".join(turn.text for turn in turns if turn.role is Role.SYSTEM)
        config: dict[str, object] = {"effort": self._effort} if self._effort else {}
        if schema and self.structured:
            config["format"] = {"type": "json_schema", "schema": schema}
        offered = [{"name": t.name, "description": t.description, "input_schema": dict(t.schema)} for t in tools]
        return {
            "model": self._model,
            "max_tokens": self._max_tokens,
            "messages": _messages(turns),
            **({"system": system} if system else {}),
            **({"output_config": config} if config else {}),
            **({"tools": offered} if offered else {}),
            **self._temperature,
        }

    def submit(self, prompts: Sequence[Prompt]) -> str | Response:
        """See `ProviderAdapter`."""
        requests = [
            {"custom_id": str(number), "params": self._body(turns_of(prompt), schema=SCHEMAS.get(prompt.form))}
            for number, prompt in enumerate(prompts)
        ]
        made = self._called(lambda: self._client.messages.batches.create(requests=requests))
        return made if isinstance(made, Response) else str(made.id)

    def collect(self, batch: str) -> Mapping[int, Response] | Response | None:
        """See `ProviderAdapter`."""
        found = self._called(lambda: self._client.messages.batches.retrieve(batch))
        if isinstance(found, Response) or found.processing_status != "ended":
            return found if isinstance(found, Response) else None
        entries = self._called(lambda: list(self._client.messages.batches.results(batch)))
        if isinstance(entries, Response):
            return entries
        responses = {}
        for entry in entries:
            kind, result = entry.result.type, entry.result
            if kind == "succeeded":
                responses[int(entry.custom_id)] = Response(200, result.message.model_dump_json())
            elif kind == "errored":
                responses[int(entry.custom_id)] = Response(_REFUSED, result.error.model_dump_json())
            else:
                responses[int(entry.custom_id)] = Response(lost=f"the request of the batch was {kind}")
        return responses

    def cancel(self, batch: str) -> None:
        """See `ProviderAdapter`."""
        self._called(lambda: self._client.messages.batches.cancel(batch))

    def folded(self, events: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
        """See `ProviderAdapter`."""
        if not any(event.get("type") == "message_stop" for event in events):  # cut off
            return error_in(events)
        said: list[str] = []
        uses: dict[int, dict[str, str]] = {}
        usage: dict[str, object] = {}
        reason: object = ""
        for event in events:
            begun, delta = mapping(event.get("message")), mapping(event.get("delta"))
            usage |= {**mapping(begun.get("usage")), **mapping(event.get("usage"))}
            block, place = mapping(event.get("content_block")), count(event.get("index"))
            said.append(text(block.get("text")))
            said.append(text(delta.get("text")))
            if block.get("type") == "tool_use":
                uses[place] = {"id": text(block.get("id")), "name": text(block.get("name")), "json": ""}
            if place in uses:
                uses[place]["json"] += text(delta.get("partial_json"))
            reason = delta.get("stop_reason") or reason
        blocks: list[dict[str, object]] = [{"type": "text", "text": "".join(said)}]
        blocks += [{"type": "tool_use", **use} for _, use in sorted(uses.items())]
        content: dict[str, object] = {"content": blocks, "stop_reason": reason}
        return content | ({"usage": usage} if usage else {})

    def completion(self, content: Mapping[str, object]) -> Completion | None:
        """See `ProviderAdapter`."""
        if not isinstance(content.get("content"), list):
            return None
        reason = text(content.get("stop_reason")) or "stop"
        blocks = mappings(content["content"])
        uses = tuple(
            ToolUse(
                text(block.get("id")),
                text(block.get("name")),
                text(block.get("json")) or json.dumps(block.get("input") or {}),
            )
            for block in blocks
            if block.get("type") == "tool_use"
        )
        return Completion(joined_text(blocks), _FINISH.get(reason, reason), uses)

    def tokens(self, content: Mapping[str, object]) -> Tokens | None:
        """See `ProviderAdapter`. The protocol counts cached input tokens separately."""
        usage = content.get("usage")
        if not isinstance(usage, dict):
            return None
        cached = count(usage.get("cache_read_input_tokens"))
        written = count(usage.get("cache_creation_input_tokens"))
        fresh = count(usage.get("input_tokens"))
        return Tokens(fresh + cached + written, count(usage.get("output_tokens")), cached, written)


def _messages(turns: Sequence[ChatTurn]) -> list[dict[str, object]]:
    """The messages of a conversation; results of tools that follow each other are one message."""
    found: list[dict[str, object]] = []
    results: list[dict[str, object]] = []
    for turn in turns:
        if turn.answers:
            if not results:
                found.append({"role": Role.USER.value, "content": results})
            results.append({"type": "tool_result", "tool_use_id": turn.answers, "content": turn.text})
        elif turn.role is not Role.SYSTEM:
            results = []
            found.append({"role": turn.role.value, "content": _blocks(turn)})
    return found


def _blocks(turn: ChatTurn) -> str | list[dict[str, object]]:
    """The content of a message; what all prompts of a run share is a block of its own, which the provider caches."""
    if turn.uses:
        called: list[dict[str, object]] = [
            {"type": "tool_use", "id": use.id, "name": use.name, "input": dict(use.parsed or {})} for use in turn.uses
        ]
        said: list[dict[str, object]] = [{"type": "text", "text": turn.text}] if turn.text.strip() else []
        return said + called
    shared, rest = turn.text[: turn.stable], turn.text[turn.stable :]
    if not shared or not rest.strip():
        return turn.text
    cached: dict[str, object] = {"type": "text", "text": shared, "cache_control": {"type": "ephemeral"}}
    return [cached, {"type": "text", "text": rest}]


PLUGIN = Provider(
    name="anthropic",
    package="anthropic",
    key_name="ANTHROPIC_API_KEY",
    url_name="ANTHROPIC_BASE_URL",
    home="https://api.anthropic.com",
    default_model="claude-sonnet-5-5",
    adapter=AnthropicAdapter,
)
