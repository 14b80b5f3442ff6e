"""Every border that malformed inputs are fed to; shares say how a run divides its inputs among them."""

from __future__ import annotations

from tests.fuzz import commands, documents, messages, sources, tasks
from tests.fuzz.engine import Target

TARGETS: tuple[Target, ...] = (
    *tasks.TARGETS,
    *sources.TARGETS,
    *messages.TARGETS,
    *documents.TARGETS,
    *commands.TARGETS,
)
LEAST = 20  # inputs for a border, however small its share


def inputs_for(target: Target, count: int) -> int:
    """How many of a run's inputs a border gets."""
    return max(LEAST, round(target.share * count))
