"""The tools of NVIDIA's compute-sanitizer: memcheck, racecheck, initcheck and synccheck, side by side.

Each runs the very library that was judged, in a process of its own with small inputs, whose only kernels are the
candidate's: no filter of kernels is needed. The process is confined as far as the tool can live with it, which the
planted fault shows (`canary`): the whole sandbox, or only a user without rights. Not seen: races in global memory,
and uninitialised shared memory.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from warpsmith.backends.stopping import stoppable
from warpsmith.core.build import Target
from warpsmith.core.certificate import DEVICE_TOOLS, CheckOutcome, Figure, Outcome
from warpsmith.evaluate.verification import canary
from warpsmith.evaluate.verification.reports import DeviceReport, device_report, first_finding
from warpsmith.evaluate.verification.sanitize import FOUND, Rig, first_line, tool_in, unfinished
from warpsmith.evaluate.verification.solorun import Part, SoloEnd, run_solo
from warpsmith.hardware.device import gpus

T = TypeVar("T")
PROGRAM = "compute-sanitizer"
MISSING = f"{PROGRAM} is not installed: install the CUDA toolkit's sanitizer (cuda-sanitizer), or set CUDA_HOME."
_TOOLKIT = Path("/usr/local/cuda")
_VERSION_S = 30.0
_OPTIONS = {
    # Between buffers, so that a step outside one does not end in the next.
    "memcheck": ("--padding", "1024"),
    "racecheck": (),
    "initcheck": (),
    "synccheck": (),
}
_COMMON = (
    *("--error-exitcode", str(FOUND), "--print-limit", "20", "--report-api-errors", "no"),
    *("--show-backtrace", "device"),  # our own frames tell nothing
    *("--target-processes", "application-only"),
)
_PROOF_S = 30.0  # for a kernel of one block
_PATIENCE = 3  # times the limit of an evaluation: a product whose sizes are constants takes minutes under racecheck


def check_cuda(rig: Rig, part: Part, appraise: Callable[[Path], str]) -> list[CheckOutcome]:
    """All four checks; results of each run are judged one after the other, by the one judge there is."""
    program = find(rig)
    if program is None:
        return [CheckOutcome(tool, Outcome.UNAVAILABLE, MISSING) for tool in DEVICE_TOOLS]
    identity = _identity(program, rig)
    planted = rig.canary_part(Target("cuda", rig.device.arch))
    stop = threading.Event()
    with stoppable(stop), ThreadPoolExecutor(len(DEVICE_TOOLS), thread_name_prefix="sanitizer") as pool:
        try:
            proofs = _each(pool, lambda tool: _proof(rig, program, identity, planted, tool), DEVICE_TOOLS)
            worth = [tool for tool in DEVICE_TOOLS if proofs[tool].works]
            patient = replace(rig, stage=replace(rig.stage, limit_s=_PATIENCE * rig.stage.limit_s))
            ends = _each(pool, lambda tool: _run(patient, part, program, tool, tool, proofs[tool].confined), worth)
        except BaseException:
            stop.set()  # an interrupt does not wait for what still runs
            raise
    outcomes = []
    for tool in DEVICE_TOOLS:
        if tool not in ends:
            why = f"{tool} did not find a fault planted to test it ({proofs[tool].detail.rstrip('.')})."
            outcomes.append(CheckOutcome(tool, Outcome.UNAVAILABLE, why))
            continue
        end = ends[tool]
        outcome = _judged(tool, end, _report(rig, tool), appraise)
        layers = ", ".join(end.status.layers) if end.status and end.status.layers else "none"
        figures: tuple[tuple[str, Figure], ...] = (
            ("workloads", "; ".join(sample.workload for sample in part.samples)),
            ("tool", identity.splitlines()[0]),
            ("sandbox", layers),
        )
        outcomes.append(replace(outcome, figures=figures, seconds=end.ended.seconds))
    return outcomes


def find(rig: Rig) -> Path | None:
    """The program, where there is one."""
    homes = [Path(rig.environ[key]) for key in ("CUDA_HOME", "CUDA_PATH") if rig.environ.get(key)]
    folders = [folder for home in (*homes, _TOOLKIT) for folder in (home / "bin", home / PROGRAM)]
    return tool_in(rig.environ, PROGRAM, tuple(folders))


def _each(pool: ThreadPoolExecutor, call: Callable[[str], T], tools: Sequence[str]) -> dict[str, T]:
    """Call for all tools at once, in the caller's context, which says whether that is still wanted."""
    futures = {tool: pool.submit(copy_context().run, call, tool) for tool in tools}
    return {tool: future.result() for tool, future in futures.items()}


def _identity(program: Path, rig: Rig) -> str:
    """All that the working of a tool depends on, in its own words first."""
    try:
        said = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, timeout=_VERSION_S
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    driver = next((gpu.driver for gpu in gpus() if gpu.index == rig.device.index), "")
    version = re.search(r"[Vv]ersion:? (\d[\w.]*)", said)
    return "\n".join([f"{PROGRAM} {version[1]}" if version else PROGRAM, driver, rig.device.key])


def _command(program: Path, tool: str, log: Path) -> tuple[str, ...]:
    return (str(program), "--tool", tool, *_COMMON, *_OPTIONS[tool], "--log-file", str(log))


def _log(rig: Rig, name: str) -> Path:
    return rig.stage.folder / f"{name}.log"


def _run(rig: Rig, part: Part, program: Path, tool: str, name: str, confined: bool) -> SoloEnd:
    command = _command(program, tool, _log(rig, name))
    # Torch would put several tensors into one allocation, where a step from one into the next is not seen.
    environ = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return run_solo(rig.stage, part, name, command=command, environ=environ, fill=tool != "initcheck", confine=confined)


def _report(rig: Rig, name: str) -> DeviceReport | None:
    try:
        return device_report(_log(rig, name).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _proof(rig: Rig, program: Path, identity: str, planted: Part | str, tool: str) -> canary.Proof:
    def prove() -> canary.Proof:
        if isinstance(planted, str):
            return canary.Proof(False, False, planted)
        part, detail = replace(planted, scalars={"fault": canary.FAULTS[tool]}), ""
        brief = replace(rig, stage=replace(rig.stage, limit_s=min(_PROOF_S, rig.stage.limit_s)))
        for confined in (True, False):
            name = f"proof-{tool}-{'confined' if confined else 'open'}"
            end = _run(brief, part, program, tool, name, confined)
            report = _report(rig, name)
            if report is not None and report.errors and not end.ended.timed_out:
                return canary.Proof(True, confined)
            detail = _complaint(rig, name, end)
        return canary.Proof(False, False, detail)

    return canary.Proofs(rig.paths.cache).of(tool, identity, prove)


def _complaint(rig: Rig, name: str, end: SoloEnd) -> str:
    """Why a tool came to no conclusion."""
    if end.ended.timed_out:
        return f"no end after {end.ended.seconds:.0f} s"
    try:
        written = _log(rig, name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        written = ""
    said = first_finding([line.removeprefix("=========")[1:] for line in written.splitlines()])
    return said or first_line(end.ended.output)


def _judged(tool: str, end: SoloEnd, report: DeviceReport | None, appraise: Callable[[Path], str]) -> CheckOutcome:
    if end.ended.timed_out:
        return CheckOutcome(tool, Outcome.UNAVAILABLE, f"it did not finish in {end.ended.seconds:.0f} s under {tool}.")
    if report is not None and report.errors:
        said = report.sentence or "it does not say what."
        return CheckOutcome(tool, Outcome.FAILED, f"{report.errors} found: {said}" if report.errors > 1 else said)
    if not end.finished:
        outcome = Outcome.UNAVAILABLE if end.status is None else Outcome.FAILED
        return CheckOutcome(tool, outcome, unfinished(end))
    if report is None:
        return CheckOutcome(tool, Outcome.UNAVAILABLE, f"{tool} came to no summary: {first_line(end.ended.output)}")
    wrong = appraise(end.scratch)
    if wrong:
        return CheckOutcome(tool, Outcome.FAILED, f"under {tool} it computes something else: {wrong}")
    warned = f"{report.warnings} warnings, e.g. {report.sentence}" if report.warnings else ""
    return CheckOutcome(tool, Outcome.PASSED, warned)
