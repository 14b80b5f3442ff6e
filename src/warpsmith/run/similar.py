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


def most_similar(source: str, others: Sequence[int], read: Callable[[int], str], count: int) -> tuple[int, ...]:
    """The `count` of the others that share most with a source, most similar first; ties go to the later one."""
    wanted = words(source)

    def share(number: int) -> float:
        have = words(read(number))
        return len(wanted & have) / max(1, len(wanted | have))

    ranked = sorted(others[-_MOST_COMPARED:], key=lambda number: (-share(number), -number))
    return tuple(ranked[:count])
