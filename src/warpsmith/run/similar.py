"""Which programs resemble one another: by the words they share. No model, no index; a run has few programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

_WORD = re.compile(r"[A-Za-z_]\w*|\d+")
_MOST_COMPARED = 200  # the latest ones: enough to choose from, and the cost stays flat


def words(source: str) -> frozenset[tuple[str, str]]:
    """Pairs of neighbouring words."""
    found = _WORD.findall(source)
    return frozenset(pairwise(found))


class Similar:
    """Compares programs by their numbers; knows the words of those it compared last."""

    def __init__(self, read: Callable[[int], str]) -> None:
        self._read = read
        self._known: dict[int, frozenset[tuple[str, str]]] = {}

    def most(self, one: int, others: Sequence[int], count: int) -> tuple[int, ...]:
        """The `count` of the others that share most with one, most similar first; ties go to the later one."""
        compared = others[-_MOST_COMPARED:]
        self._known = {number: self._words(number) for number in (one, *compared)}
        wanted = self._known[one]

        def share(number: int) -> float:
            shared = len(wanted & self._known[number])
            return shared / max(1, len(wanted) + len(self._known[number]) - shared)

        return tuple(sorted(compared, key=lambda number: (-share(number), -number))[:count])

    def _words(self, number: int) -> frozenset[tuple[str, str]]:
        known = self._known.get(number)
        return words(self._read(number)) if known is None else known
