"""Long texts of a page, each line kept once: code, prompts and replies of a run repeat one another almost entirely.

A prompt shows its parents' code, a reply repeats its candidate's, and every prompt tells the same task. So the lines
are numbered, a text is a list of line numbers, and the whole is deflated and unpacked in the browser when the first
candidate is opened. Knows nothing of what the texts are.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator


class Texts:
    """Collects texts; gives each a number. Text 0 is the empty one."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._texts: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        """The number of a text; the same for the same text."""
        # Lone surrogates, which a model may write, are no UTF-8.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        if clean not in self._texts:
            self._texts[clean] = len(self._texts)
            for line in clean.split("\n"):
                self._lines.setdefault(line, len(self._lines))
        return self._texts[clean]

    def __iter__(self) -> Iterator[str]:
        """In the order of their numbers."""
        return iter(self._texts)

    def packed(self) -> str:
        """All of them: base64 of deflated JSON, `{"lines": [...], "texts": [[...]]}`; see `unpacked`."""
        texts = [list(self._steps(text)) for text in self._texts]
        document = json.dumps({"lines": list(self._lines), "texts": texts}, ensure_ascii=False, separators=(",", ":"))
        return base64.b64encode(zlib.compress(document.encode(), 9)).decode()

    def _steps(self, text: str) -> Iterator[int]:
        """Line numbers as distances to the one before: passages that were there already become runs of ones."""
        before = 0
        for line in text.split("\n") if text else ():
            number = self._lines[line]
            yield number - before
            before = number


def unpacked(packed: str) -> list[str]:
    """The texts by number, as the browser reads them back."""
    document = json.loads(zlib.decompress(base64.b64decode(packed)))
    return ["\n".join(_lines(steps, document["lines"])) for steps in document["texts"]]


def _lines(steps: list[int], lines: list[str]) -> Iterator[str]:
    number = 0
    for step in steps:
        number += step
        yield lines[number]
