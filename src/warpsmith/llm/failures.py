"""Describes failed requests: the meaning of an HTTP status, and what the user can do.

The caller removes keys from the text; addresses are shown without user name, password and query.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

BAD_BODY = 599
"""The status of a successful response whose body is no completion."""

_LONGEST_QUOTE = 300
_QUOTED = 60  # characters of a body that is no completion
_TEMPORARY = frozenset({408, 409, 425, 429})
_NO_CREDIT = ("insufficient_quota", "insufficient balance", "credit balance", "spend_limit", "billing")
_TOO_LONG = ("context_length", "context length", "context window", "prompt is too long", "too many tokens")
_FILTERED = ("content_policy", "content_filter", "content management policy", "invalid_prompt")


@dataclass(frozen=True)
class RequestFailure:
    """The reason why there is no reply."""

    why: str  # a clause: "the endpoint answered 500 (overloaded)"
    refused: bool = False  # True if a person has to change something first


@dataclass(frozen=True)
class EndpointInfo:
    """The facts about an endpoint that errors name."""

    model: str
    url: str  # see `safe_url`
    key_name: str
    url_name: str
    key_given: bool


def safe_url(url: str) -> str:
    """An address without user name, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.rpartition("@")[2]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def error_message(body: str) -> str:
    """The error message in a body, shortened to one line; "" if there is none."""
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if isinstance(content, dict):
        error = content.get("error", content)
        message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
        body = message if isinstance(message, str) else ""
    elif body.lstrip().startswith("<"):
        body = "a web page, not an API's answer"
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in body).split())
    return line if len(line) <= _LONGEST_QUOTE else line[:_LONGEST_QUOTE] + "..."


def is_out_of_credit(status: int, body: str) -> bool:
    """True if the account has no credit left: repeating the request does not help."""
    lowered = body[:20_000].lower()
    return status in (400, 402, 403, 429) and any(word in lowered for word in _NO_CREDIT)


def classify_status(status: int, body: str, info: EndpointInfo, list_models: Callable[[], str]) -> RequestFailure:
    """The failure that an HTTP status other than success means; calls `list_models` if the model name is wrong."""
    message = error_message(body)
    if status == BAD_BODY:
        start = repr(body[:_QUOTED]) if body.strip() else "nothing"
        return RequestFailure(f"{info.url} answered with {start}, which is no completion")
    answer = f"{info.url} answered {status}" + (f" ({message})" if message else "")
    lowered = body[:20_000].lower()
    if is_out_of_credit(status, body):
        return RequestFailure(f"{answer}; add credit or raise the limit of this account", refused=True)
    if status in _TEMPORARY or status >= 500:
        return RequestFailure(answer)
    if status in (400, 413, 422) and (status == 413 or any(word in lowered for word in _TOO_LONG)):
        return RequestFailure(f"{answer}; this prompt is too long for {info.model}")
    if status in (400, 422) and any(word in lowered for word in _FILTERED):
        return RequestFailure(answer)
    return RequestFailure(f"{answer}; {_advice(status, lowered, info, list_models)}", refused=True)


def _advice(status: int, lowered: str, info: EndpointInfo, list_models: Callable[[], str]) -> str:
    if status in (401, 403):
        if not info.key_given:
            return f"set {info.key_name} or name a key file with --key-file"
        return f"check that the key in {info.key_name} is valid and may use {info.model}"
    if status == 404:
        models = list_models()
        if models:
            return f"it serves {models}: name one of these instead of {info.model!r}"
        return f"check the model name {info.model!r} and the base URL (--base-url or {info.url_name})"
    if 300 <= status < 400:
        return f"it points elsewhere: give the final base URL with --base-url or {info.url_name}"
    if "temperature" in lowered:
        return "leave the temperature out: this model does not accept this value"
    return f"correct the value that the message names, or use another model than {info.model!r}"
