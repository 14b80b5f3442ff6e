"""`warpsmith profile TASK FILE`: what limits a kernel's speed, and its place under the roofline.

Shows the same digest that a prompt would contain, and a roofline picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from warpsmith.backends.source import read_candidate
from warpsmith.cli import cards
from warpsmith.cli.checks import choose_device, exit_status, find_task, settings_with_timing, writable_paths
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import (
    AsJson,
    DeviceOfFiles,
    Entry,
    FileArgument,
    Fresh,
    PrecisionOption,
    TaskArgument,
    TimeBudget,
)
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import Device
from warpsmith.hardware.occupancy import occupancy
from warpsmith.hardware.roofline import Achieved, Analysis, WorkloadAnalysis, achieved, analyse, known_peaks
from warpsmith.kernel_templates import strategies_in_source
from warpsmith.model import numbers
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation, Resources
from warpsmith.model.settings import Paths
from warpsmith.model.task import Precision
from warpsmith.profiling.profiler import Profile, Profiler
from warpsmith.report import roofline_svg
from warpsmith.report.roofline import DrawnCandidate, RooflinePicture, picture_of, text_lines
from warpsmith.strategies.catalogue import unfit_strategies

_BLOCK = 256  # threads per block for the occupancy: the compiler does not know the block size
_KERNELS = 4


@dataclass(frozen=True)
class FileProfile:
    """Everything that is shown."""

    problem: Problem
    evaluation: Evaluation
    profile: Profile
    analysis: Analysis
    reached: tuple[Achieved, ...]
    picture: RooflinePicture | None


def profile(
    task: TaskArgument,
    file: FileArgument,
    device: DeviceOfFiles = "auto",
    entry: Entry = "",
    precision: PrecisionOption = None,
    out: Annotated[str, typer.Option(metavar="FILE", help="Write the roofline picture (.svg or .png).")] = "",
    time_budget: TimeBudget = None,
    fresh: Fresh = False,
    json: AsJson = False,
) -> int:
    """Show a kernel's bottleneck, the numbers that prove it, what to try, and its place under the roofline.

    Exit status: 0 done, 1 the kernel is not valid, 2 it could not be judged.
    """
    spec = find_task(task)
    candidate = read_candidate(Path(file), entry=entry)
    target = choose_device(device, (candidate,))
    if out:
        roofline_svg.check(Path(out))
    paths = writable_paths()
    errors = cards.console(stderr=True)

    def message(text: str) -> None:
        cards.say(errors, text, "dim")

    with errors.status("evaluating and profiling") if errors.is_terminal else nullcontext():
        with Evaluator(target, settings_with_timing(time_budget), paths=paths, on_message=message) as evaluator:
            problem = evaluator.survey(spec, candidate.backend, precision)
            evaluation = evaluator.evaluate_one(spec, candidate, precision, fresh=fresh)
        # After the evaluator has ended, its memory is free and no timing is disturbed by the profiler.
        found = profile_candidate(spec, file, candidate, problem, evaluation, target, paths, precision, message)
    written = ""
    if out and found.picture is not None:
        roofline_svg.write(found.picture, Path(out))
        written = out
    if json:
        print_document(_document(file, found, written))
    else:
        show(file, found, target, written)
    return exit_status([found.evaluation.status])


def profile_candidate(
    task: str,
    file: str,
    candidate: Candidate,
    problem: Problem,
    evaluation: Evaluation,
    device: Device,
    paths: Paths,
    precision: Precision | None = None,
    message: Callable[[str], None] = lambda _: None,
) -> FileProfile:
    """Profile a kernel that has been judged, and place it under the roofline."""
    waiting = f"waiting: another evaluation is using {device.label}."
    with Profiler(device, paths=paths, on_wait=lambda: message(waiting)) as profiler:
        found = profiler.profile(task, candidate, problem, evaluation, precision)
    if found.digest:
        known = strategies_in_source(candidate.backend, candidate.main.text)
        found = replace(found, digest=found.digest.without(known | unfit_strategies(problem)))
    analysis = analyse(problem, known_peaks(paths.cache, device.key))
    drawn = [DrawnCandidate(candidate.id, Path(file).name, evaluation, best=True)] if evaluation.ok else []
    picture = picture_of(problem, analysis.ceilings, drawn)
    return FileProfile(problem, evaluation, found, analysis, achieved(evaluation, analysis.ceilings), picture)


def _document(file: str, found: FileProfile, written: str) -> dict[str, object]:
    """`profile --json`. `reason`: why the kernel is not valid, or why there is no digest by a profiler."""
    digest, evaluation = found.profile.digest, found.evaluation
    return {
        "task": evaluation.task,
        "file": file,
        "device": found.problem.device,
        "status": evaluation.status,
        "reason": evaluation.reason or found.profile.reason,
        "zone": found.problem.zone,
        "ridges": found.analysis.ceilings.ridges or (),
        "bottleneck": digest.bottleneck if digest else None,
        "digest": digest.text if digest else None,  # as a prompt contains it
        "evidence": digest.evidence if digest else (),
        "strategies": digest.strategies if digest else (),
        "source": digest.source if digest else "",
        "workloads": [
            {
                "name": each.workload,
                "zone": each.zone,
                "bytes": each.bytes,
                "flops": each.flops,
                "intensity": each.intensity if each.bytes else None,  # FLOP per byte
                "floor_ms": each.floor_ms,
                "latency_ms": rate.latency_ms,
                "bandwidth_bytes_s": rate.bandwidth_bytes_s,
                "flops_s": rate.flops_s,
                "share_of_floor": rate.share_of_floor,
            }
            for each, rate in _rates(found)
        ],
        "picture": written or None,
        "seconds": round(digest.seconds, 3) if digest else 0.0,
    }


def _rates(found: FileProfile) -> Iterator[tuple[WorkloadAnalysis, Achieved]]:
    """Each workload that was measured, with the rates that were reached."""
    rates = {each.workload: each for each in found.reached}
    return ((each, rates[each.workload]) for each in found.analysis.workloads if each.workload in rates)


def show(file: str, found: FileProfile, device: Device, written: str = "") -> None:
    """Print the result for a person."""
    console = cards.console()
    evaluation, digest = found.evaluation, found.profile.digest
    if not evaluation.ok:
        cards.show(console, cards.card(cards.JudgedFile(file, evaluation, fresh=True)))
        return
    title = Text.assemble((file, "bold"), "  ", (f"{evaluation.task} on {found.problem.device}", "dim"))
    cards.say(console, title)
    console.print()
    if digest is not None:
        cards.say(console, digest.text)
        cards.say(console, f"Source: {digest.source}, {digest.seconds:.1f} s.", "dim")
    if found.profile.reason:
        cards.say(console, f"No profiler was used: {found.profile.reason}", "yellow")
    console.print()
    for line in (*_place_lines(found), *_occupancy(evaluation.resources, device)):
        cards.say(console, line)
    if found.picture is not None:
        console.print()
        for row in text_lines(found.picture, min(console.width, 100)):
            cards.say(console, row, whole=True)
    if written:
        cards.say(console, f"\nThe picture is in {written}.")


def _place_lines(found: FileProfile) -> Iterator[str]:
    """A line for each workload: its zone, and the rates that were reached."""
    for each, rate in _rates(found):
        yield (
            f"{each.workload}: {each.zone}-bound ({numbers.number(each.intensity)} FLOP per byte); "
            f"{numbers.duration(rate.latency_ms)}, {numbers.number(rate.bandwidth_bytes_s / 1e9)} GB/s, "
            f"{numbers.number(rate.flops_s / 1e9)} GFLOP/s, {numbers.percent(rate.share_of_floor)} of roofline"
        )


def _occupancy(resources: tuple[Resources, ...], device: Device) -> Iterator[str]:
    """A line for each kernel: the occupancy that its registers and shared memory allow."""
    for each in resources[:_KERNELS]:
        allowed = occupancy(device.arch, _BLOCK, each.registers, each.shared_bytes)
        if allowed is None:
            continue
        fits = f"{numbers.percent(allowed.share)} occupancy at {_BLOCK} threads a block, by {allowed.limit.value}"
        spilled = f", {each.spill_bytes} bytes spilled" if each.spill_bytes else ""
        shared = f", {numbers.memory_size(each.shared_bytes)} of shared memory" if each.shared_bytes else ""
        yield f"{each.kernel}: {each.registers} registers{shared}{spilled}: {fits}"
