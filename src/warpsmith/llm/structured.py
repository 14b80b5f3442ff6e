"""Replies in JSON by a schema, for prompts that ask for strategies and no kernel; sent where `ModelOptions` says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from warpsmith.model.brief import Message, Prompt

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
