"""`warpsmith export RUN|FILE`: a kernel as a bundle that `warpsmith.load` takes, verified where asked.

Judging is the evaluator's part, what a bundle is, `use.bundle`'s.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from warpsmith.archive.log import FILE
from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.cli import render
from warpsmith.cli.evaluate import check_cache, check_task_file, choose_device
from warpsmith.cli.verify import certify, progress
from warpsmith.core.certificate import Certificate, Measurement, Outcome
from warpsmith.core.config import Paths
from warpsmith.core.errors import UsageError
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.run import opening
from warpsmith.run.best import best_contents, bundle_folder
from warpsmith.run.session import Session
from warpsmith.use.bundle import Bundle, Contents, contents, read_bundle, write_bundle


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    what: str  # a run, or a kernel's file
    task: str = ""  # of a file
    out: str = ""
    verify: bool = False
    device: str | None = None
    entry: str = ""
    precision: Precision | None = None
    as_json: bool = False


def run(request: Request) -> int:
    """Export, show, and give the exit status: 0 done, 1 the kernel is not valid, or not verified as was asked, 2 it
    could not be judged."""
    source = opening.find(request.what)
    if source.is_file():
        if not request.task:
            raise UsageError(f"{request.what} is a file: name the task it is for with --task.")
        return _export_file(request, source)
    if not (source / FILE).exists():
        raise UsageError(f"{request.what} is neither a run nor a kernel's file; `warpsmith runs` lists runs.")
    if request.task or request.precision or request.entry:
        raise UsageError(f"{request.what} is a run, which has its own task and precision; leave those options out.")
    return _export_run(request, source)


def _export_run(request: Request, folder: Path) -> int:
    with Session.peek(folder) as session:
        made = best_contents(session)
        if request.verify:
            config = session.ledger.begun.config
            paths = Paths.from_environment()
            check_cache(paths.cache)
            with progress(render.console(stderr=True)) as show:
                with opening.evaluator_for(config, request.device, on_message=show.message) as evaluator:
                    precision = Precision(config.precision) if config.precision else None
                    task = opening.task_of(folder, config)
                    certificate = certify(evaluator, paths, task, made.candidate, precision, show).certificate
            if refused := _refusal(certificate):
                return _refuse(request, certificate, refused)
            made = best_contents(session, certificate)
        return _written(request, bundle_folder(session, request.out), made)


def _export_file(request: Request, file: Path) -> int:
    check_task_file(request.task)
    candidate = read_candidate(file, entry=request.entry)
    device = choose_device(request.device or "auto", (candidate,))
    paths = Paths.from_environment()
    check_cache(paths.cache)
    with progress(render.console(stderr=True)) as show:
        with Evaluator(device, paths=paths, on_message=show.message) as evaluator:
            outcome: Certificate | Evaluation
            if request.verify:
                outcome = certify(evaluator, paths, request.task, candidate, request.precision, show).certificate
            else:
                outcome = evaluator.evaluate_one(request.task, candidate, request.precision)
            task = evaluator.describe(request.task, request.precision)
    if refused := _refusal(outcome):
        return _refuse(request, outcome, refused)
    made = contents(
        task,
        request.task,
        Path(request.task.partition("::")[0]).read_text(encoding="utf-8"),
        request.precision.value if request.precision else "",
        candidate,
        backend_named(candidate.backend).contract(task, candidate.entry),
        device.kind,
        outcome,
    )
    return _written(request, Path(request.out or f"best/{task.name}"), made)


def _refusal(outcome: Certificate | Evaluation) -> str:
    """Why a kernel is not worth a bundle; "" where it is. A check that could not be made does not speak against it."""
    if isinstance(outcome, Evaluation):
        return "" if outcome.ok else f"{outcome.status.value.replace('_', ' ')}: {outcome.reason}"
    return outcome.reason if outcome.failed or outcome.measurement is None else ""


def _is_judged(outcome: Certificate | Evaluation) -> bool:
    """Whether the refusal is the kernel's fault, and not ours."""
    if isinstance(outcome, Evaluation):
        return outcome.status is not Status.NOT_JUDGED
    return outcome.checks[0].outcome is not Outcome.UNAVAILABLE


def _refuse(request: Request, outcome: Certificate | Evaluation, reason: str) -> int:
    if request.as_json:
        document = {"bundle": None, "task": outcome.task, "candidate": outcome.candidate, "reason": reason}
        sys.stdout.write(json.dumps(document) + "\n")
    render.say(render.console(stderr=True), f"Nothing was written: {reason}", "yellow")
    return 1 if _is_judged(outcome) else 2


def _written(request: Request, folder: Path, made: Contents) -> int:
    write_bundle(folder, made)
    bundle = read_bundle(folder)
    if request.as_json:
        sys.stdout.write(json.dumps(_document(bundle), allow_nan=False) + "\n")
    else:
        for line in _lines(bundle):
            render.say(render.console(), line)
        render.say(render.console(), f'Use it: from warpsmith import load; op = load("{bundle.folder}")', whole=True)
    return 1 if request.verify and not bundle.manifest.verified else 0


def _document(bundle: Bundle) -> dict[str, object]:
    manifest, certificate = bundle.manifest, bundle.certificate
    speedups = manifest.measurement.speedups if manifest.measurement else ()
    return {
        "bundle": str(bundle.folder),
        "task": manifest.task,
        "candidate": manifest.candidate,
        "backend": manifest.backend,
        "device": manifest.environment.device,
        "precision": manifest.precision,
        "verified": manifest.verified,
        "reason": certificate.reason if certificate else "",
        "covers": "any shape" if bundle.any_shape else "the shapes of its workloads",
        "speedup": {each.baseline: each.value for each in speedups},
        "speedup_interval": {each.baseline: [each.low, each.high] for each in speedups},
    }


def _lines(bundle: Bundle) -> list[str]:
    manifest, certificate = bundle.manifest, bundle.certificate
    about = f"{bundle.folder}: {manifest.task}, candidate {manifest.candidate}{_measured(manifest.measurement)}"
    lines = [f"{about} on {manifest.environment.device}."]
    if manifest.verified:
        lines.append("Verified." if bundle.any_shape else "Verified; its shapes are fixed.")
    else:
        why = f" ({certificate.reason.rstrip('.')})" if certificate else ""
        lines.append(
            f"Not verified{why}: at other shapes than those of its workloads, a caller gets the reference. "
            "To verify it: `warpsmith export … --verify`"
        )
    return lines


def _measured(measurement: Measurement | None) -> str:
    best = measurement.speedups[0] if measurement and measurement.speedups else None
    if best is None:
        return ""
    value, low, high = (render.ratio(number) for number in (best.value, best.low, best.high))
    return f", {value}x [{low}, {high}] PyTorch {best.baseline}"
