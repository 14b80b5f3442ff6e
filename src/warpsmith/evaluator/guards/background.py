"""Objects to work that goes on after the entry point has returned.

OpenMP's threads spin for a while before they sleep; the evaluator observes the process only after that.
"""

from __future__ import annotations

from warpsmith.evaluator.guards.attack_classes import rejection
from warpsmith.model.evidence import Evidence, Guard, IdleProcess, Objection

_BUSY_SHARE = 0.5  # of one processor; an honest process uses next to nothing


class BackgroundGuard:
    """Class 6."""

    name: str = "background"
    attacks: tuple[int, ...] = (6,)
    looks_at: type[Evidence] = IdleProcess

    def objection(self, evidence: Evidence) -> Objection | None:
        """Late writes, busy threads, and on a GPU any new thread."""
        assert isinstance(evidence, IdleProcess)
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
        return rejection(6, said) if said else None


PLUGIN: Guard = BackgroundGuard()
