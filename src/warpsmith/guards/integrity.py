"""Code of others that was changed in the candidate's process: the clock's, a library's, the harness's own."""

from __future__ import annotations

from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Altered, Evidence, Guard, Objection
from warpsmith.guards.classes import title


class IntegrityGuard:
    """Class 9: nobody changes instructions but to be measured otherwise."""

    name: str = "integrity"
    attacks: tuple[int, ...] = (9,)
    looks_at: type[Evidence] = Altered

    def objection(self, evidence: Evidence) -> Objection | None:
        """Any change is one too many."""
        assert isinstance(evidence, Altered)
        if not evidence.path:
            return None
        name = evidence.path.rpartition("/")[2]
        said = f"the code of {name} was changed in the candidate's process; change no code but your own."
        return Objection(Status.REJECTED, 9, f"{title(9)}: {said}")


PLUGIN: Guard = IntegrityGuard()
