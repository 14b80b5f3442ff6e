"""Reads the long texts of a page, as the script in the browser does."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator


def unpacked(packed: str) -> list[str]:
    """The texts by number, unpacked as in the browser."""
    document = json.loads(zlib.decompress(base64.b64decode(packed)))
    return ["\n".join(_lines(steps, document["lines"])) for steps in document["texts"]]


def _lines(steps: list[int], lines: list[str]) -> Iterator[str]:
    number = 0
    for step in steps:
        number += step
        yield lines[number]
