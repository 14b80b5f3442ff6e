"""What a failed request means: whether to ask again and when, or what a person has to change.

One place decides for all providers, by HTTP status and by what the body says; the wording never holds a key (the
caller redacts it) and never an address's user name, password or query.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit, urlunsplit

_LONGEST_QUOTE = 300
_PASSING = frozenset({408, 409, 425, 429})
_NO_CREDIT = ("insufficient_quota", "insufficient balance", "credit balance", "spend_limit", "billing")
_TOO_LONG = ("context_length", "context length", "context window", "prompt is too long", "too many tokens")
_UNWANTED = ("content_policy", "content_filter", "content management policy", "invalid_prompt")


@dataclass(frozen=True)
class Failure:
    """Why there is no reply."""

    why: str  # a clause: "the endpoint answered 500 (overloaded)"
    again: bool = False  # whether the same request may succeed later
    refused: bool = False  # whether a person has to change something first
    after_s: float | None = None  # how long the endpoint asks to wait


@dataclass(frozen=True)
class Contact:
    """Who is asked, in the words an error needs."""

    model: str
    url: str  # as shown: without user name, password and query
    key_name: str
    url_name: str
    key_given: bool


def shown(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def said(body: str) -> str:
    """What the body of an error says, shortened to one line; "" where it says nothing readable."""
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


def of_status(status: int, body: str, after_s: float | None, contact: Contact, served: Callable[[], str]) -> Failure:
    """What an HTTP status other than success means. `served` names the endpoint's models, where that helps."""
    text = said(body)
    quote = f" ({text})" if text else ""
    answer = f"{contact.url} answered {status}{quote}"
    lowered = body[:20_000].lower()
    if status in (400, 402, 403, 429) and any(word in lowered for word in _NO_CREDIT):
        return Failure(f"{answer}; add credit or raise the limit of this account", refused=True)
    if status in _PASSING or status >= 500:
        return Failure(answer, again=True, after_s=after_s)
    if status in (400, 413, 422) and (status == 413 or any(word in lowered for word in _TOO_LONG)):
        return Failure(f"{answer}; this prompt is too long for {contact.model}")
    if status in (400, 422) and any(word in lowered for word in _UNWANTED):
        return Failure(answer)
    return Failure(f"{answer}; {_advice(status, lowered, contact, served)}", refused=True)


def _advice(status: int, lowered: str, contact: Contact, served: Callable[[], str]) -> str:
    if status in (401, 403):
        if not contact.key_given:
            return f"set {contact.key_name} or name a key file with --key-file"
        return f"check that the key in {contact.key_name} is valid and may use {contact.model}"
    if status == 404:
        models = served()
        if models:
            return f"it serves {models}: name one of these instead of {contact.model!r}"
        return f"check the model name {contact.model!r} and the base URL (--base-url or {contact.url_name})"
    if 300 <= status < 400:
        return f"it points elsewhere: give the final base URL with --base-url or {contact.url_name}"
    if "temperature" in lowered:
        return "leave the temperature out: this model does not take the one given"
    return f"change what it names, or use another model than {contact.model!r}"


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """How long an answer asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after", "")
    seconds = _number(given)
    if seconds is not None or not given:
        return seconds
    try:
        return max(parsedate_to_datetime(given).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
