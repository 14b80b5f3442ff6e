"""Reads parts of JSON that an endpoint sent: whatever is not of the expected type is as if it were not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def mapping(value: object) -> Mapping[str, object]:
    """An object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> tuple[Mapping[str, object], ...]:
    """The objects in a list; none for anything else."""
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def text(value: object) -> str:
    """A text; "" for anything else."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """A number of tokens; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def texts(parts: Iterable[Mapping[str, object]]) -> str:
    """The text parts of a message, without what was only thought."""
    return "".join(text(part.get("text")) for part in parts if part.get("type", "text") in ("text", "output_text"))


def identifiers(value: object) -> tuple[str, ...]:
    """The `id` of each object of a list."""
    return tuple(filter(None, (text(item.get("id")) for item in mappings(value))))
