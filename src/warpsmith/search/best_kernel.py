"""Writes the best kernel of a run: a source file with a header that says where it comes from, and a bundle to load."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from warpsmith.model.certificate import Certificate
from warpsmith.model.errors import RunError, UsageError
from warpsmith.model.text import one_line
from warpsmith.runtime.bundle import MANIFEST, BundleContents, bundle_contents, write_bundle
from warpsmith.search.session import Session
from warpsmith.search.trust import task_of
from warpsmith.system.files import put_in_place, read_file
from warpsmith.tasks.local_imports import local_modules

BUNDLE = "best"
_COMMENT = {".py": "#"}


def check_output(out: str) -> None:
    """Raise a UsageError if the best kernel could not be written to `out`. Leaves nothing there."""
    if not out:
        return
    path = Path(out)
    try:
        if _names_file(out):
            if path.is_dir():
                raise UsageError(
                    f"--out {out} is a folder; name a file in it, or a folder without a dot for the bundle."
                )
            if path.exists():
                if not os.access(path, os.W_OK):
                    raise UsageError(f"--out {out} is a file that cannot be written; give another.")
                return
        elif path.exists() and not (path.is_dir() and ((path / MANIFEST).is_file() or not any(path.iterdir()))):
            raise UsageError(f"--out {out} is there already and is no bundle; give another.")
        nearest = next(folder for folder in path.absolute().parents if folder.exists())
        tempfile.TemporaryDirectory(dir=nearest, prefix=".new-").cleanup()
    except OSError as refused:
        raise UsageError(f"--out {out} cannot be written ({refused.strerror}); give another.") from None


def write_best(session: Session, out: str = "") -> Path | None:
    """Write the best kernel and its bundle; returns the source file, or None if the run has no best kernel.

    `out`: a name with a suffix is the source file, a name without one is the folder of the bundle. Both are written
    into the folder of the run by default.
    """
    trial = session.state.best
    if not trial:
        return None
    bundle = bundle_folder(session, out)
    if _has_task(session):
        write_bundle(bundle, best_contents(session))
    candidate, evaluation = session.candidate(trial), session.evaluation(trial)
    suffix = Path(candidate.main.name).suffix
    path = Path(out) if _names_file(out) else session.folder / f"best{suffix}"
    mark = _COMMENT.get(suffix, "//")
    speedup = evaluation.speedup() if evaluation else None
    measured = f"{speedup:.3f}x PyTorch eager on {evaluation.environment.device}" if evaluation and speedup else ""
    task = session.state.setup.problem.task.name
    lines = [
        f"{mark} Found by warpsmith: task {task}, candidate {candidate.id}, trial {trial}.",
        f"{mark} Measured: {measured}; not verified (run `warpsmith verify`)." if measured else "",
        f"{mark} {evaluation.warning}" if evaluation and evaluation.warning else "",
        *(f"{mark} Compiled with {name}={value}." for name, value in candidate.defines),
    ]
    try:
        text = "\n".join([*(one_line(line) for line in filter(None, lines)), "", candidate.main.text])
        content = text.encode("utf-8", "replace")
        if _names_file(out):  # a path of the user, who may name a link or a device
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        else:
            put_in_place(path, content, mode=0o644)
    except OSError as refused:
        raise UsageError(
            f"the best kernel cannot be written to {path} ({refused.strerror}); give another --out."
        ) from None
    return path


def why_no_best(session: Session) -> str:
    """One sentence: why a run has no best kernel, and what to do."""
    state, folder = session.state, session.folder
    valid = state.totals.valid
    if not valid:
        return f"{folder} has no valid kernel yet; `warpsmith show {folder}` lists what was tried."
    found = f"{folder} has {valid} valid kernel{'s' if valid > 1 else ''}"
    if state.confirmation.waiting:
        return f"{found}, not measured a second time yet; `warpsmith step {folder}` does that."
    return f"{found}, which could not be measured a second time; `warpsmith optimize --resume {folder}` goes on."


def bundle_folder(session: Session, out: str = "") -> Path:
    """The folder of the bundle of a run's best kernel."""
    return session.folder / BUNDLE if not out or _names_file(out) else Path(out)


def best_contents(session: Session, certificate: Certificate | None = None) -> BundleContents:
    """The contents of the bundle of a run's best kernel."""
    trial = session.state.best
    if not trial:
        raise RunError(why_no_best(session))
    evaluation = session.evaluation(trial)
    assert evaluation is not None, "the best was measured"
    setup = session.state.setup
    problem, config = setup.problem, setup.config
    file = Path(task_of(session.folder, config).partition("::")[0])
    try:
        text = read_file(file).decode("utf-8", "replace")
    except OSError as refused:
        raise RunError(f"the task file {file} cannot be read ({refused.strerror}).") from None
    made = bundle_contents(
        problem.task,
        config.task,
        text,
        config.precision,
        session.candidate(trial),
        problem.contract,
        problem.kind,
        certificate or evaluation,
    )
    return replace(made, modules=local_modules(file))


def _names_file(out: str) -> bool:
    return bool(Path(out).suffix)


def _has_task(session: Session) -> bool:
    """Whether the task file is still there: a run that was setup without one can be read, but not used elsewhere."""
    try:
        task_of(session.folder, session.state.setup.config)
    except RunError:
        return False
    return True
