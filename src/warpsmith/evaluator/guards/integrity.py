"""Objects to changed code of others in the candidate's process: the clock's, a library's, the harness's."""

from __future__ import annotations

from warpsmith.evaluator.guards.attack_classes import rejection
from warpsmith.model.evidence import AlteredCode, Evidence, Guard, Objection


class IntegrityGuard:
    """Class 9: such changes serve to forge measurements."""

    name: str = "integrity"
    attacks: tuple[int, ...] = (9,)
    looks_at: type[Evidence] = AlteredCode

    def objection(self, evidence: Evidence) -> Objection | None:
        """Any change of code."""
        assert isinstance(evidence, AlteredCode)
        if not evidence.path:
            return None
        name = evidence.path.rpartition("/")[2]
        return rejection(9, f"the code of {name} was changed in the candidate's process; change no code but your own.")


PLUGIN: Guard = IntegrityGuard()
