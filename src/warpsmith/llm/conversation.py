"""Conversations with tools, and replies in JSON by a schema, in words that do not depend on a provider.

Adapters translate both. A schema is sent where `ModelOptions.structured` says so, for prompts that ask for strategies
and no kernel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from warpsmith.model.brief import Message, Prompt, Role
from warpsmith.model.errors import ProposerFault
from warpsmith.model.usage import TokenUsage


@dataclass(frozen=True)
class ToolSpec:
    """A tool that a model may call."""

    name: str
    description: str
    schema: Mapping[str, object]  # JSON schema of its arguments


@dataclass(frozen=True)
class ToolUse:
    """A call of a tool by a model."""

    id: str
    name: str
    arguments: str  # JSON, as the model wrote it

    @property
    def parsed(self) -> Mapping[str, object] | None:
        """The arguments; None if they are no JSON object."""
        try:
            found = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class ChatTurn:
    """One message of a conversation."""

    role: Role
    text: str
    uses: tuple[ToolUse, ...] = ()  # of the assistant
    answers: str = ""  # the id of the use that the text is the result of; the role is then that of the user
    stable: int = 0  # see `Message.stable`


@dataclass(frozen=True)
class ChatReply:
    """What a model said and which tools it calls."""

    text: str
    uses: tuple[ToolUse, ...]
    model: str
    usage: TokenUsage = field(default_factory=TokenUsage)
    finish: str = "stop"


class ToolsRefused(ProposerFault):
    """The endpoint or the model takes no tools; a prompt without tools may succeed."""


def turns_of(prompt: Prompt) -> tuple[ChatTurn, ...]:
    """A prompt as a conversation."""
    return tuple(ChatTurn(message.role, message.text, stable=message.stable) for message in prompt.messages)


STRATEGIES, ALIGNMENT = "strategies", "alignment"

_DRAFT: Mapping[str, object] = {
    "type": "object",
    "properties": {"strategy": {"type": "string"}, "thought": {"type": "string"}},
    "required": ["strategy", "thought"],
    "additionalProperties": False,
}
SCHEMAS: Mapping[str, Mapping[str, object]] = {
    STRATEGIES: {
        "type": "object",
        "properties": {"strategies": {"type": "array", "items": _DRAFT}},
        "required": ["strategies"],
        "additionalProperties": False,
    },
    ALIGNMENT: _DRAFT,
}
"""The schema of a reply, by the form of the prompt. The parser of replies reads both."""
_WORDS = {
    STRATEGIES: "Write these fields as JSON: an object with the list `strategies`, each with `strategy` and `thought`.",
    ALIGNMENT: "Write these fields as JSON: an object with `strategy` and `thought`.",
}


def with_form(prompt: Prompt, form: str) -> Prompt:
    """The prompt with a structured form of its reply, which the last message names, too."""
    *others, last = prompt.messages
    asked = Message(last.role, f"{last.text.rstrip()}\n\n{_WORDS[form]}\n", last.stable)
    return replace(prompt, messages=(*others, asked), form=form)
