"""Objects to a candidate that works differently while its calls are recorded.

Calls are recorded so that another process can repeat and time them after the candidate's process was killed. A
candidate that cheats in the recording is timed without replay and gains nothing, but a kernel that treats its judge
specially must not be used. Only candidates that could not be replayed are checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.evaluator.guards.attack_classes import rejection
from warpsmith.evaluator.guards.library_names import listed, readable
from warpsmith.model.evidence import Evidence, Guard, Objection, RecordingComparison

_CURE = "do the same work in every call"


class RecordingGuard:
    """Class 13: the recorded call is a special case."""

    name: str = "recording"
    attacks: tuple[int, ...] = (13,)
    looks_at: type[Evidence] = RecordingComparison

    def objection(self, evidence: Evidence) -> Objection | None:
        """Other kernels, or wrong results of a candidate that can keep nothing between calls."""
        assert isinstance(evidence, RecordingComparison)
        if evidence.wrong:
            said = f"it is right when it is called and wrong when its calls are recorded ({evidence.wrong.rstrip('.')})"
        elif set(evidence.launched) != set(evidence.recorded):
            said = f"it launches {_told(evidence.launched)} when it is called, and {_told(evidence.recorded)}"
            said += " while its calls are recorded"
        else:
            return None
        return rejection(13, f"{said}; {_CURE}.")


def _told(kernels: Sequence[str]) -> str:
    return listed(readable(kernels)) or "nothing"


PLUGIN: Guard = RecordingGuard()
