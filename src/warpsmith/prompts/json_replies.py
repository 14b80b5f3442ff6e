"""Reads replies in JSON, also invalid JSON with raw line breaks, unescaped quotes or raw strings of other languages.

Searches for the few fields of a reply; this is no JSON parser.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from warpsmith.prompts.reply_text import cleaned

_KEYS = r"name|strategy|thought|explanation|code|kernel|source|files"
_KEY = re.compile(rf"[{{,]\s*[\"']({_KEYS})[\"']\s*:\s*", re.IGNORECASE)
_START = re.compile(r"\{\s*[\"']")
_RAW = re.compile(r"R\"([^()\\\s\"]{0,16})\(")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "", '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "", "f": ""}
_CODE_KEYS = ("code", "kernel", "source", "files")


@dataclass(frozen=True)
class JsonReply:
    """The fields of a reply in JSON."""

    words: dict[str, str]  # name, strategy, thought
    codes: tuple[str, ...]
    complete: bool  # whether the code is not cut off


def read_object(text: str, *, anywhere: bool = False) -> JsonReply | None:
    """The object with code at the start of a text, or `anywhere` in it; None without one."""
    found = _read(text, anywhere)
    if found is None:
        return None
    # Escapes may encode characters that were removed from the text, even half a surrogate pair.
    words = {name: cleaned(said) for name, said in found.words.items()}
    return JsonReply(words, tuple(map(cleaned, found.codes)), found.complete)


def _read(text: str, anywhere: bool) -> JsonReply | None:
    start = _START.search(text)
    if start is None or (text[: start.start()].strip() and not anywhere):
        return None
    keys = list(_KEY.finditer(text, start.start()))
    if not any(key[1].lower() in _CODE_KEYS for key in keys):
        return None
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, start.start())
    except (ValueError, RecursionError):
        return _by_keys(text, keys)
    return _of_object(value) if isinstance(value, dict) else None


def _of_object(value: dict[object, object]) -> JsonReply | None:
    words: dict[str, str] = {}
    codes: list[str] = []
    for key, item in value.items():
        lowered = str(key).lower()
        if lowered in _CODE_KEYS:
            codes += _texts(item)
        elif isinstance(item, str | list):
            words[_word(lowered)] = item if isinstance(item, str) else "\n".join(map(str, item))
    return JsonReply(words, tuple(codes), complete=True)


def _texts(item: object) -> list[str]:
    """The code of a field, which may be a string, a list of lines, or files by name."""
    if isinstance(item, str):
        return [item]
    if isinstance(item, list):
        if all(isinstance(line, str) for line in item):
            return ["\n".join(item)]
        return [text for part in item if isinstance(part, dict) for text in _texts(_longest(part))]
    return [text for text in item.values() if isinstance(text, str)] if isinstance(item, dict) else []


def _longest(part: dict[object, object]) -> str:
    return max((text for text in part.values() if isinstance(text, str)), key=len, default="")


def _by_keys(text: str, keys: list[re.Match[str]]) -> JsonReply:
    """The fields of invalid JSON: each value ends at the next key."""
    words: dict[str, str] = {}
    codes: list[str] = []
    complete = True
    last = text.rstrip()
    ends = [key.start() for key in keys[1:]] + [len(last) - 1 if last.endswith("}") else len(last)]
    for key, end in zip(keys, ends, strict=True):
        value, closed = _unquoted(text[key.end() : end].strip().removesuffix(",").rstrip())
        if key[1].lower() in _CODE_KEYS:
            codes.append(value)
            complete &= closed
        else:
            words[_word(key[1].lower())] = value
    return JsonReply(words, tuple(codes), complete)


def _unquoted(value: str) -> tuple[str, bool]:
    """A value without its quotes, of any language, and whether they were closed."""
    raw = _RAW.match(value)
    if raw is not None:
        end = value.rfind(f'){raw[1]}"')
        return (value[raw.end() : end], True) if end >= raw.end() else (value[raw.end() :], False)
    for quote in ('"""', "'''", "```", "`"):
        if value.startswith(quote):
            closed = value.endswith(quote) and len(value) >= 2 * len(quote)
            body = value[len(quote) : -len(quote)] if closed else value[len(quote) :]
            return body, closed
    if not value.startswith(('"', "'")):
        return value, True
    closed = len(value) > 1 and value.endswith(value[0])
    body = value[1:-1] if closed else value[1:]
    try:
        return str(json.loads(f'"{body}"', strict=False)), closed
    except ValueError:
        # In a value with raw line breaks, backslashes belong to the program.
        return (body if "\n" in body else _ESCAPE.sub(_unescaped, body)), closed


def _unescaped(found: re.Match[str]) -> str:
    if len(found[1]) == 5:
        return chr(int(found[1][1:], 16))
    return _PLAIN.get(found[1], found[0])


def _word(key: str) -> str:
    return "thought" if key == "explanation" else key
