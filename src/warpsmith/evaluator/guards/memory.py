"""Objects to writes outside the outputs: to red zones, to inputs, and to outputs of other calls."""

from __future__ import annotations

from warpsmith.evaluator.guards.attack_classes import rejection
from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import Evidence, Guard, MemoryState, Objection


class MemoryGuard:
    """Classes 4, 18 and 20."""

    name: str = "memory"
    attacks: tuple[int, ...] = (4, 18, 20)
    looks_at: type[Evidence] = MemoryState

    def objection(self, evidence: Evidence) -> Objection | None:
        """A write to a red zone first: it names the place, and may also have changed an input."""
        assert isinstance(evidence, MemoryState)
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
            return rejection(
                18,
                f"the candidate wrote to {evidence.uncalled!r} of a set of buffers that it was not called on "
                f"(workload {evidence.workload!r}); each call does its own work and no other.",
            )
        if evidence.early:
            return rejection(
                18,
                f"the candidate wrote to {evidence.early!r} of a set of buffers before the call on another set had "
                f"ended (workload {evidence.workload!r}); each call does its own work and no other.",
            )
        return None


PLUGIN: Guard = MemoryGuard()
