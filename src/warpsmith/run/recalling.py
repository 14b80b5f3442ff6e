"""What the pool of other runs says about a task, as a session keeps it with its own run: see `Session.begin`."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.core.candidate import SourceFile
from warpsmith.core.search import Precedent, Problem
from warpsmith.strategies.pool import PoolRecord, search

_MOST = 5  # precedents a strategist is shown; each comes with its code


def recall(problem: Problem) -> tuple[Precedent, ...]:
    """The lessons nearest to a task. A `session.Recall`."""
    return tuple(map(precedent, search(problem, _MOST)))


def precedent(record: PoolRecord) -> Precedent:
    """One lesson, without what only the pool needs."""
    return Precedent(
        task=record.task,
        strategy=record.strategy,
        device=record.device,
        effect=record.effect,
        speedup=record.speedup,
        note=record.note,
        before=_text(record.start),
        after=_text(record.kernel),
    )


def _text(files: Sequence[SourceFile]) -> str:
    return "\n\n".join(file.text.strip() for file in files)
