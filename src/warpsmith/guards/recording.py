"""A candidate that does something else while its calls are recorded than when it is called.

Calls are recorded so that another process can make them once the candidate's is gone, which is how they are timed. Who
cheats then is timed in another way and gains nothing; but a kernel that treats its judge specially is no kernel to use.
Only what could not be replayed is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Evidence, Guard, Objection, Recounted
from warpsmith.guards.classes import title
from warpsmith.guards.naming import listed, readable

_CURE = "do the same work in every call"


class RecordingGuard:
    """Class 13: the recorded call is a special case."""

    name: str = "recording"
    attacks: tuple[int, ...] = (13,)
    looks_at: type[Evidence] = Recounted

    def objection(self, evidence: Evidence) -> Objection | None:
        """Other kernels, or other results where nothing but the call itself can make a difference."""
        assert isinstance(evidence, Recounted)
        if evidence.wrong:
            said = f"it is right when it is called and wrong when its calls are recorded ({evidence.wrong.rstrip('.')})"
        elif set(evidence.launched) != set(evidence.recorded):
            said = f"it launches {_told(evidence.launched)} when it is called, and {_told(evidence.recorded)}"
            said += " while its calls are recorded"
        else:
            return None
        return Objection(Status.REJECTED, 13, f"{title(13)}: {said}; {_CURE}.")


def _told(kernels: Sequence[str]) -> str:
    return listed(readable(kernels)) or "nothing"


PLUGIN: Guard = RecordingGuard()
