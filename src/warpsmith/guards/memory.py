"""Memory that was not the candidate's to write: red zones between buffers, and inputs."""

from __future__ import annotations

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Evidence, Guard, Memory, Objection
from warpsmith.guards.classes import title


class MemoryGuard:
    """Classes 4, 18 and 20."""

    name: str = "memory"
    attacks: tuple[int, ...] = (4, 18, 20)
    looks_at: type[Evidence] = Memory

    def objection(self, evidence: Evidence) -> Objection | None:
        """A breach first: it says where, and it may be what changed the input."""
        assert isinstance(evidence, Memory)
        if evidence.breached:
            side = "past the end" if evidence.past_end else "before the start"
            return Objection(
                Status.OUT_OF_BOUNDS,
                20,
                f"the candidate wrote {side} of {evidence.breached!r} ({evidence.nbytes} bytes): "
                "an index is out of range.",
            )
        if evidence.input_changed:
            return Objection(
                Status.INPUT_MODIFIED,
                4,
                f"an input changed during a call on workload {evidence.workload!r}; inputs are read-only.",
            )
        if evidence.uncalled:
            return Objection(
                Status.REJECTED,
                18,
                f"{title(18)}: the candidate wrote to {evidence.uncalled!r} of a set of buffers that it was not called "
                f"on (workload {evidence.workload!r}); each call does its own work and no other.",
            )
        return None


PLUGIN: Guard = MemoryGuard()
