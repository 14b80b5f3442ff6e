"""Work that goes on after the entry point has returned.

OpenMP keeps its threads, and they spin for a while before they sleep; the evaluator watches only after that.
"""

from __future__ import annotations

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Aftermath, Evidence, Guard, Objection
from warpsmith.guards.classes import title

_BUSY_SHARE = 0.5  # of one processor while it should sleep; an honest process uses next to nothing
_PREFIX = title(6)


class BackgroundGuard:
    """Class 6."""

    name: str = "background"
    attacks: tuple[int, ...] = (6,)
    looks_at: type[Evidence] = Aftermath

    def objection(self, evidence: Evidence) -> Objection | None:
        """Late writes, busy threads, and on a GPU any thread that was not there before."""
        assert isinstance(evidence, Aftermath)
        said = ""
        if evidence.changed:
            said = (
                f"{evidence.changed} changed after the call had returned (workload {evidence.workload!r}): "
                "finish all work before returning."
            )
        elif evidence.busy_ms > _BUSY_SHARE * evidence.watched_ms:
            said = (
                f"threads of the candidate used {evidence.busy_ms:.0f} ms of processor time in the "
                f"{evidence.watched_ms:.0f} ms after a call, when they should be idle: leave no thread running."
            )
        elif evidence.kind == "cuda" and evidence.threads_after > evidence.threads_before:
            added = evidence.threads_after - evidence.threads_before
            said = f"the candidate started {added} host thread{'s' if added > 1 else ''}: launch from the calling one."
        return Objection(Status.REJECTED, 6, f"{_PREFIX}: {said}") if said else None


PLUGIN: Guard = BackgroundGuard()
