"""`warpsmith export RUN|FILE`: write a kernel as a bundle that `warpsmith.load` takes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.cli import cards
from warpsmith.cli.checks import choose_device, find_task, writable_paths
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import AsJson, DeviceHere, PrecisionOption, Trust
from warpsmith.cli.resume import confirm_task
from warpsmith.cli.verify import certify, verify_progress
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model import numbers
from warpsmith.model.certificate import Certificate, CheckStatus, Measurement
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.task import Precision
from warpsmith.run_log.log import LOG_FILE
from warpsmith.runtime.bundle import Bundle, BundleContents, bundle_contents, read_bundle, write_bundle
from warpsmith.search import open_run
from warpsmith.search.best_kernel import best_contents, bundle_folder
from warpsmith.search.options import precision_of
from warpsmith.search.session import Session
from warpsmith.search.trust import task_to_execute


@dataclass(frozen=True)
class ExportRequest:
    """What to export."""

    what: str  # a run, or a kernel's file
    task: str = ""  # of a file
    out: str = ""
    verify: bool = False
    trust: bool = False
    device: str | None = None
    entry: str = ""
    precision: Precision | None = None
    as_json: bool = False


def export(
    what: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run (its best kernel), or a kernel's file.")],
    task: Annotated[str, typer.Option(metavar="TASK", help="With a FILE: the task it is for.")] = "",
    out: Annotated[
        str, typer.Option(metavar="DIR", help="Where to write it.  [RUN/best; of a FILE: best/NAME-OF-THE-TASK]")
    ] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Verify it first, and add the certificate.")] = False,
    device: DeviceHere = None,
    trust: Trust = False,
    entry: Annotated[
        str, typer.Option(metavar="CALL", help="With a FILE: the function to call, as `verify` takes it.")
    ] = "",
    precision: PrecisionOption = None,
    json: AsJson = False,
) -> int:
    """Write a folder with the kernel, its task and a manifest, for `op = warpsmith.load(DIR)`.

    Without --verify a loaded kernel is used only at the shapes of its task's workloads.
    Exit status: 0 written, 1 not valid, or --verify failed, 2 nothing could be judged.
    """
    request = ExportRequest(what, task, out, verify, trust, device, entry, precision, json)
    source = open_run.find(what)
    if source.is_file():
        if not task:
            raise UsageError(f"{what} is a file: name the task it is for with --task.")
        return _export_file(request, source, find_task(task))
    if not (source / LOG_FILE).exists():
        raise UsageError(f"{what} is neither a run nor a kernel's file; `warpsmith runs` lists runs.")
    if task or precision or entry:
        raise UsageError(f"{what} is a run, which has its own task and precision; leave those options out.")
    return _export_run(request, source)


def _export_run(request: ExportRequest, folder: Path) -> int:
    with Session.read(folder) as session:
        made = best_contents(session)
        if request.verify:
            setup = session.state.setup
            confirm_task(folder, setup, trust=request.trust)
            task, precision = task_to_execute(folder, setup), precision_of(setup.config)
            paths = writable_paths()
            with (
                verify_progress(cards.console(stderr=True)) as progress,
                open_run.evaluator_for(folder, setup, request.device, on_message=progress.message) as evaluator,
            ):
                certificate = certify(evaluator, paths, task, made.candidate, precision, progress).certificate
            if refused := _refusal(certificate):
                return _refuse(request, certificate, refused)
            made = best_contents(session, certificate)
        return _written(request, bundle_folder(session, request.out), made)


def _export_file(request: ExportRequest, file: Path, task_spec: str) -> int:
    candidate = read_candidate(file, entry=request.entry)
    device = choose_device(request.device or "auto", (candidate,))
    paths = writable_paths()
    with (
        verify_progress(cards.console(stderr=True)) as progress,
        Evaluator(device, paths=paths, on_message=progress.message) as evaluator,
    ):
        outcome: Certificate | Evaluation
        if request.verify:
            outcome = certify(evaluator, paths, task_spec, candidate, request.precision, progress).certificate
        else:
            outcome = evaluator.evaluate_one(task_spec, candidate, request.precision)
        task = evaluator.describe(task_spec, request.precision)
    if refused := _refusal(outcome):
        return _refuse(request, outcome, refused)
    made = bundle_contents(
        task,
        task_spec,
        Path(task_spec.partition("::")[0]).read_text(encoding="utf-8"),
        request.precision.value if request.precision else "",
        candidate,
        backend_named(candidate.backend).contract(task, candidate.entry),
        device.kind,
        outcome,
    )
    return _written(request, Path(request.out or f"best/{task.name}"), made)


def _refusal(outcome: Certificate | Evaluation) -> str:
    """Why a kernel is not exported; "" if it is. A check that was not available is no reason."""
    if isinstance(outcome, Evaluation):
        return "" if outcome.ok else f"{outcome.status.value.replace('_', ' ')}: {outcome.reason}"
    return outcome.reason if outcome.failed or outcome.measurement is None else ""


def _is_judged(outcome: Certificate | Evaluation) -> bool:
    """False if the evaluator failed, so that nothing is known about the kernel."""
    if isinstance(outcome, Evaluation):
        return outcome.status is not Status.NOT_JUDGED
    return outcome.checks[0].outcome is not CheckStatus.UNAVAILABLE


def _refuse(request: ExportRequest, outcome: Certificate | Evaluation, reason: str) -> int:
    if request.as_json:
        print_document({"bundle": None, "task": outcome.task, "candidate": outcome.candidate, "reason": reason})
    cards.say(cards.console(stderr=True), f"Nothing was written: {reason}", "yellow")
    return 1 if _is_judged(outcome) else 2


def _written(request: ExportRequest, folder: Path, made: BundleContents) -> int:
    write_bundle(folder, made)
    bundle = read_bundle(folder)
    if request.as_json:
        print_document(_document(bundle))
    else:
        for line in _lines(bundle):
            cards.say(cards.console(), line)
        if not request.verify:
            cards.say(cards.console(), f"To verify it: {_verify_command(request)}", whole=True)
        cards.say(cards.console(), f'Use it: from warpsmith import load; op = load("{bundle.folder}")', whole=True)
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
        "requires": manifest.requires,
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
        lines.append(f"Not verified{why}: at shapes that are no workload of the task, `load` calls PyTorch.")
    if manifest.requires:
        lines.append(
            f"Needs {', '.join(manifest.requires)}, which the bundle does not carry: `load` builds the kernel where it "
            "is installed, and calls PyTorch elsewhere."
        )
    return lines


def _verify_command(request: ExportRequest) -> str:
    """The same command, with a certificate."""
    given = {
        "--task": request.task,
        "--entry": request.entry,
        "--precision": request.precision,
        "--device": request.device,
        "--out": request.out,
    }
    options = [word for option, value in given.items() if value for word in (option, value)]
    return shlex.join(["warpsmith", "export", request.what, *options, "--verify"])


def _measured(measurement: Measurement | None) -> str:
    best = measurement.speedups[0] if measurement and measurement.speedups else None
    if best is None:
        return ""
    value, low, high = (numbers.ratio(number) for number in (best.value, best.low, best.high))
    return f", {value}x [{low}, {high}] PyTorch {best.baseline}"
