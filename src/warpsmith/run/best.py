"""The best kernel of a run, as a file with a header that says where it comes from."""

from __future__ import annotations

from pathlib import Path

from warpsmith.core.errors import UsageError
from warpsmith.run.session import Session

_COMMENT = {".py": "#"}


def write_best(session: Session, out: str = "") -> Path | None:
    """Write the best kernel next to the run, or where asked; None where the run has none."""
    trial = session.ledger.best
    if not trial:
        return None
    candidate, evaluation = session.candidate(trial), session.evaluation(trial)
    suffix = Path(candidate.main.name).suffix
    path = Path(out) if out else session.folder / f"best{suffix}"
    mark = _COMMENT.get(suffix, "//")
    speedup = evaluation.speedup() if evaluation else None
    measured = f"{speedup:.3f}x PyTorch eager on {evaluation.environment.device}" if evaluation and speedup else ""
    task = session.ledger.begun.problem.task.name
    lines = [
        f"{mark} Found by warpsmith: task {task}, candidate {candidate.id}, trial {trial}.",
        f"{mark} Measured: {measured}; not verified (run `warpsmith verify`)." if measured else "",
        *(f"{mark} Compiled with {name}={value}." for name, value in candidate.defines),
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*filter(None, lines), "", candidate.main.text]), encoding="utf-8")
    except OSError as refused:
        raise UsageError(
            f"the best kernel cannot be written to {path} ({refused.strerror}); give another --out."
        ) from None
    return path
