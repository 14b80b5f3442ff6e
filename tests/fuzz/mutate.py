"""Makes malformed inputs out of good ones, repeatably: the same random state gives the same input.

Knows nothing of what is being fed. Every input is the work of a few small accidents: a piece lost, doubled or taken
from elsewhere, a number or a name replaced, characters that editors hide, nesting without end.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

ODD_NUMBERS = (
    *("0", "-1", "1", "2", "-0.0", "0.5", "1e308", "1e400", "-1e400", "1e-320", "float('nan')", "1j", "0x7f", "1_0"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "10**30"),
    *("9" * 400, "9" * 5000, "1" + "0" * 60, "NaN", "Infinity", "-Infinity", "2147483648", "1 << 40", "-5", "True"),
)
ODD_TEXT = (
    *("\0", "\x01", "\x1b[31m", "\x7f", "\ufeff", "\u200b", "\u202e", "\u2028", "\x85", "\x0c", "\x0b", "\r", "\r\n"),
    *("\t", "\\", '"', "'", '"""', "'''", "`", "$(", "%s", "{}", "{0}", "%n", "\ud800", "\udfff", "\U0001f600", "é"),
    *("ﬁ", "Ⅷ", "𝒳", "x́", "\N{HANGUL FILLER}", "//", "/*", "*/", "#", "\n", "\n\n", ";", ",", ":", "=", "(", ")"),
    *(
        "[",
        "]",
        "{",
        "}",
        "<",
        ">",
        "@",
        "*",
        "**",
        "...",
        "->",
        ":=",
        "\\\n",
        "??/\n",
        "/" * 60,
        "*/" * 20,
        "/**/" * 40,
    ),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, float("nan"), float("inf"), -float("inf"), 10**30, -(10**30), 2**63, 1e-320),
    *("", "x", "\0", "\ud800", "é", "x" * 5000, [], {}, [[]], [None], {"": None}, [[1, 2], [3]], {"type": 1}, "NaN"),
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OPEN = {"(": ")", "[": "]", "{": "}"}


class Mutator:
    """One random state, from which inputs are drawn."""

    def __init__(self, *state: object) -> None:
        self.rng = random.Random(":".join(map(str, state)))

    def text(self, seeds: Sequence[str], words: Sequence[str] = ()) -> str:
        """A text that was good before one to six accidents; often only one number or name is wrong."""
        text = self.rng.choice(seeds)
        if self.rng.random() < 0.4:
            what, piece = (_NUMBER, ODD_NUMBERS) if self.rng.random() < 0.5 else (_NAME, (*words, self._name(seeds)))
            return self._replace(text, what, self.rng.choice(piece))
        for _ in range(min(self.rng.randint(1, 6), self.rng.randint(1, 6))):
            text = self._accident(text, seeds, words)
        return text[: 1 << 18]

    def data(self, seeds: Sequence[bytes]) -> bytes:
        """Bytes after one to eight accidents."""
        data = bytearray(self.rng.choice(seeds))
        for _ in range(self.rng.randint(1, 8)):
            self._damage(data, seeds)
        return bytes(data[: 1 << 20])

    def encoded(self, text: str) -> bytes:
        """A text as bytes; now and then in a way no reader expects."""
        choice = self.rng.random()
        if choice < 0.02:
            return text.encode("utf-16", "surrogatepass")
        if choice < 0.05:
            return b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")
        data = bytearray(text.encode("utf-8", "surrogatepass"))
        if choice < 0.15:
            self._damage(data, [bytes(data)])
        return bytes(data)

    def document(self, seeds: Sequence[Any], words: Sequence[str] = ()) -> bytes:
        """JSON of a good value with one to four fields changed, and sometimes the text damaged as well."""
        value = json.loads(json.dumps(self.rng.choice(seeds)))
        for _ in range(self.rng.randint(1, 4)):
            value = self._changed(value, 0)
        text = json.dumps(value)
        if self.rng.random() < 0.4:
            text = self._accident(text, [text], words)
        return self.encoded(text)

    def value(self) -> Any:
        """Something of an unexpected type or size."""
        if self.rng.random() < 0.05:
            nested: Any = 0
            for _ in range(self.rng.choice((5, 50, 400))):
                nested = [nested] if self.rng.random() < 0.5 else {"a": nested}
            return nested
        return self.rng.choice(ODD_VALUES)

    # --- accidents ---

    def _accident(self, text: str, seeds: Sequence[str], words: Sequence[str]) -> str:
        accidents: tuple[Callable[[], str], ...] = (
            lambda: self._lose(text),
            lambda: self._double(text),
            lambda: self._splice(text, self.rng.choice(seeds)),
            lambda: self._insert(text, self.rng.choice(ODD_TEXT)),
            lambda: self._insert(text, self.rng.choice(words or ODD_TEXT)),
            lambda: self._replace(text, _NUMBER, self.rng.choice(ODD_NUMBERS)),
            lambda: self._replace(text, _NAME, self.rng.choice(words or ODD_TEXT)),
            lambda: self._replace(text, _NAME, self._name(seeds)),
            lambda: self._swap_lines(text),
            lambda: self._nest(text),
            lambda: text[: self.rng.randint(0, len(text))],
        )
        return self.rng.choice(accidents)()

    def _span(self, text: str, most: int) -> tuple[int, int]:
        start = self.rng.randint(0, len(text))
        return start, min(len(text), start + self.rng.randint(0, most))

    def _lose(self, text: str) -> str:
        start, stop = self._span(text, 40)
        return text[:start] + text[stop:]

    def _double(self, text: str) -> str:
        start, stop = self._span(text, 60)
        times = self.rng.choice((2, 2, 2, 3, 10, 200))
        return text[:start] + text[start:stop] * times + text[stop:]

    def _splice(self, text: str, other: str) -> str:
        start, stop = self._span(other, 200)
        return self._insert(text, other[start:stop])

    def _insert(self, text: str, piece: str) -> str:
        at = self.rng.randint(0, len(text))
        return text[:at] + piece + text[at:]

    def _replace(self, text: str, what: re.Pattern[str], piece: str) -> str:
        found = list(what.finditer(text))
        if not found:
            return self._insert(text, piece)
        match = self.rng.choice(found)
        return text[: match.start()] + piece + text[match.end() :]

    def _name(self, seeds: Sequence[str]) -> str:
        found = _NAME.findall(self.rng.choice(seeds))
        return self.rng.choice(found) if found else "x"

    def _swap_lines(self, text: str) -> str:
        lines = text.split("\n")
        if len(lines) > 1:
            a, b = self.rng.sample(range(len(lines)), 2)
            lines[a], lines[b] = lines[b], lines[a]
        return "\n".join(lines)

    def _nest(self, text: str) -> str:
        bracket = self.rng.choice(tuple(_OPEN))
        depth = self.rng.choice((3, 30, 150, 1000))
        close = _OPEN[bracket] * depth if self.rng.random() < 0.7 else ""
        return self._insert(text, bracket * depth + self.rng.choice(("", "1", "x")) + close)

    def _damage(self, data: bytearray, seeds: Sequence[bytes]) -> None:
        kind = self.rng.randrange(6)
        at = self.rng.randint(0, len(data))
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << self.rng.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = self.rng.choice((0, 0xFF, 0x7F, 0x80, self.rng.randrange(256)))
        elif kind == 2:
            del data[at : at + self.rng.choice((1, 2, 8, 200))]
        elif kind == 3:
            other = self.rng.choice(seeds)
            start = self.rng.randint(0, len(other))
            data[at:at] = other[start : start + self.rng.choice((1, 4, 64, 1000))]
        elif kind == 4:
            width = self.rng.choice((2, 4, 8))
            number = self.rng.choice((0, 1, (1 << 8 * width) - 1, (1 << 8 * width - 1) - 1, 1 << 8 * width - 1, 0x1000))
            data[at : at + width] = number.to_bytes(width, "little")
        else:
            del data[at:]

    def _changed(self, value: Any, depth: int) -> Any:
        """The value with one thing inside it changed."""
        if depth > 6 or not isinstance(value, list | dict) or not value or self.rng.random() < 0.15:
            return self.value()
        if isinstance(value, list):
            at = self.rng.randrange(len(value))
            action = self.rng.random()
            if action < 0.1:
                return value[:at] + value[at + 1 :]
            if action < 0.2:
                return value[:at] + [value[at]] * self.rng.choice((2, 3, 300)) + value[at + 1 :]
            return [*value[:at], self._changed(value[at], depth + 1), *value[at + 1 :]]
        key = self.rng.choice(sorted(value))
        action = self.rng.random()
        if action < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if action < 0.2:
            return {**value, self.rng.choice(("", "x", key + "_", key.upper(), "__class__", "\ud800")): self.value()}
        return {**value, key: self._changed(value[key], depth + 1)}
