"""`warpsmith profile TASK FILE`: why a kernel is not faster, and where it stands under the roofline.

A person sees the digest that a prompt would carry, word for word, and a picture beside it. Profiling itself is
`evaluate.profiling`'s part.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.text import Text

from warpsmith.backends.source import read_candidate
from warpsmith.cli import render
from warpsmith.cli.evaluate import check_cache, check_task_file, choose_device, exit_status, timed_for
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Paths
from warpsmith.core.evaluation import Evaluation, Resources
from warpsmith.core.search import Problem
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.profiling.profiler import Profile, Profiler
from warpsmith.hardware.analysis import Achieved, Analysis, achieved, analyse, known_peaks
from warpsmith.hardware.device import Device
from warpsmith.hardware.occupancy import occupancy
from warpsmith.report import drawing
from warpsmith.report.roofline import RooflinePicture
from warpsmith.report.rooftext import lines
from warpsmith.report.standing import Shown, picture_of

_BLOCK = 256  # threads: how large a block is, the compiler does not say
_KERNELS = 4


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    task: str
    file: str
    device: str = "auto"
    entry: str = ""
    precision: Precision | None = None
    out: str = ""  # a picture: .svg or .png
    timing_budget_s: float | None = None
    fresh: bool = False  # judge again even where a verdict is in the cache
    as_json: bool = False


@dataclass(frozen=True)
class WorkloadDocument:
    """One workload of `ProfileDocument`."""

    name: str
    zone: str
    bytes: int
    flops: int
    intensity: float | None  # FLOP per byte; null where nothing is moved
    floor_ms: float
    latency_ms: float
    bandwidth_bytes_s: float
    flops_s: float
    share_of_floor: float


@dataclass(frozen=True)
class ProfileDocument:
    """`warpsmith profile --json`; field names are a promise to programs."""

    task: str
    file: str
    device: str
    status: str
    reason: str  # why there is no digest, or none of the best kind; of an invalid kernel what is wrong with it
    zone: str
    ridges: tuple[float, ...]
    bottleneck: str | None
    digest: str | None  # as a prompt carries it
    evidence: tuple[str, ...]
    strategies: tuple[str, ...]
    source: str
    workloads: tuple[WorkloadDocument, ...]
    picture: str | None
    seconds: float


@dataclass(frozen=True)
class Found:
    """All there is to show."""

    problem: Problem
    evaluation: Evaluation
    profile: Profile
    analysis: Analysis
    reached: tuple[Achieved, ...]
    picture: RooflinePicture | None


def run(request: Request) -> int:
    """Evaluate, profile, show, and give the exit status: 1 where the kernel is not valid."""
    check_task_file(request.task)
    candidate = read_candidate(Path(request.file), entry=request.entry)
    device = choose_device(request.device, (candidate,))
    if request.out:
        drawing.check(Path(request.out))
    paths = Paths.from_environment()
    check_cache(paths.cache)
    with _busy() as message:
        with Evaluator(device, timed_for(request.timing_budget_s), paths=paths, on_message=message) as evaluator:
            problem = evaluator.survey(request.task, candidate.backend, request.precision)
            evaluation = evaluator.evaluate_one(request.task, candidate, request.precision, fresh=request.fresh)
        # The judge has gone: its memory is free, and nobody is timed while a profiler slows the device down.
        found = look(request, candidate, problem, evaluation, device, paths, message)
    written = ""
    if request.out and found.picture is not None:
        drawing.write(found.picture, Path(request.out))
        written = request.out
    if request.as_json:
        document = asdict(_document(request, found, written))
        sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        show(request, found, device, written)
    return exit_status([found.evaluation.status])


class _Say:
    """What is being done, on a terminal; messages everywhere."""

    def __init__(self) -> None:
        self.console = render.console(stderr=True)

    def __call__(self, text: str) -> None:
        render.say(self.console, text, "dim")


@contextmanager
def _busy() -> Iterator[_Say]:
    say = _Say()
    if not say.console.is_terminal:
        yield say
        return
    with say.console.status("evaluating and profiling"):
        yield say


def look(
    request: Request,
    candidate: Candidate,
    problem: Problem,
    evaluation: Evaluation,
    device: Device,
    paths: Paths,
    message: Callable[[str], None] = lambda _: None,
) -> Found:
    """Profile what has been judged, and put it under the roofline."""
    waiting = f"waiting: another evaluation is using {device.label}."
    with Profiler(device, paths=paths, on_wait=lambda: message(waiting)) as profiler:
        profile = profiler.profile(request.task, candidate, problem, evaluation, request.precision)
    analysis = analyse(problem, known_peaks(paths.cache, device.key))
    shown = [Shown(candidate.id, Path(request.file).name, evaluation, best=True)] if evaluation.ok else []
    picture = picture_of(problem, analysis.ceilings, shown)
    reached = achieved(evaluation, analysis.ceilings)
    return Found(problem, evaluation, profile, analysis, reached, picture)


def _document(request: Request, found: Found, written: str) -> ProfileDocument:
    digest, evaluation = found.profile.digest, found.evaluation
    rates = {each.workload: each for each in found.reached}
    workloads = tuple(
        WorkloadDocument(
            name=each.workload,
            zone=each.zone,
            bytes=each.bytes,
            flops=each.flops,
            intensity=each.intensity if each.bytes else None,
            floor_ms=each.floor_ms,
            latency_ms=rates[each.workload].latency_ms,
            bandwidth_bytes_s=rates[each.workload].bandwidth_bytes_s,
            flops_s=rates[each.workload].flops_s,
            share_of_floor=rates[each.workload].share_of_floor,
        )
        for each in found.analysis.workloads
        if each.workload in rates
    )
    return ProfileDocument(
        task=evaluation.task,
        file=request.file,
        device=found.problem.device,
        status=evaluation.status.value,
        reason=evaluation.reason or found.profile.reason,
        zone=found.problem.zone,
        ridges=found.analysis.ceilings.ridges or (),
        bottleneck=digest.bottleneck.value if digest else None,
        digest=digest.text if digest else None,
        evidence=digest.evidence if digest else (),
        strategies=digest.strategies if digest else (),
        source=digest.source if digest else "",
        workloads=workloads,
        picture=written or None,
        seconds=round(digest.seconds, 3) if digest else 0.0,
    )


def show(request: Request, found: Found, device: Device, written: str = "") -> None:
    """For a person."""
    console = render.console()
    evaluation, profile = found.evaluation, found.profile
    if not evaluation.ok:
        render.show(console, render.card(render.Judged(request.file, evaluation, fresh=True)))
        return
    title = Text.assemble((request.file, "bold"), "  ", (f"{evaluation.task} on {found.problem.device}", "dim"))
    render.say(console, title)
    console.print()
    if profile.digest is not None:
        render.say(console, profile.digest.text)
        render.say(console, f"By {profile.digest.source}, in {profile.digest.seconds:.1f} s.", "dim")
    if profile.reason:
        render.say(console, f"Not by a profiler: {profile.reason}", "yellow")
    console.print()
    for line in (*_standing(found), *_occupancy(evaluation.resources, device)):
        render.say(console, line)
    if found.picture is not None:
        console.print()
        for row in lines(found.picture, min(console.width, 100)):
            render.say(console, row, whole=True)
    if written:
        render.say(console, f"\nThe picture is in {written}.")


def _standing(found: Found) -> Iterator[str]:
    """A line for each workload: what it is, and what was reached."""
    rates = {each.workload: each for each in found.reached}
    for each in found.analysis.workloads:
        rate = rates.get(each.workload)
        if rate is None:
            continue
        yield (
            f"{each.workload}: {each.zone}-bound ({render.number(each.intensity)} FLOP per byte); "
            f"{render.duration(rate.latency_ms)}, {render.number(rate.bandwidth_bytes_s / 1e9)} GB/s, "
            f"{render.number(rate.flops_s / 1e9)} GFLOP/s, {render.percent(rate.share_of_floor)} of the speed of light"
        )


def _occupancy(resources: tuple[Resources, ...], device: Device) -> Iterator[str]:
    """What the compiler's figures allow each kernel, for a block of the usual size."""
    for each in resources[:_KERNELS]:
        allowed = occupancy(device.arch, _BLOCK, each.registers, each.shared_bytes)
        if allowed is None:
            continue
        fits = f"{render.percent(allowed.share)} occupancy at {_BLOCK} threads a block, by {allowed.limit.value}"
        spilled = f", {each.spill_bytes} bytes spilled" if each.spill_bytes else ""
        shared = f", {render.size(each.shared_bytes)} of shared memory" if each.shared_bytes else ""
        yield f"{each.kernel}: {each.registers} registers{shared}{spilled}: {fits}"
