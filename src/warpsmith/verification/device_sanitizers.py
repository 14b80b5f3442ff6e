"""Runs NVIDIA's compute-sanitizer on a CUDA candidate: memcheck, racecheck, initcheck and synccheck, side by side.

Each tool runs the library that was judged, in a process of its own with small inputs, whose only kernels are the
candidate's. The process is confined as far as the tool permits, which a planted fault shows (`planted_faults`): by the
whole sandbox, or only by another user. Not detected: races in global memory, and uninitialised shared memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from warpsmith.hardware.device import visible_gpus
from warpsmith.model.build import DeviceKind, Target
from warpsmith.model.certificate import DEVICE_TOOLS, CheckOutcome, CheckStatus, Figure
from warpsmith.system.processes import stoppable, tool_answer
from warpsmith.verification import planted_faults
from warpsmith.verification.sanitizers import (
    FOUND,
    DeviceReport,
    SanitizerContext,
    device_report,
    find_cuda_tool,
    first_finding,
    first_line,
    unfinished,
)
from warpsmith.verification.standalone_run import StandaloneCandidate, StandaloneResult, run_standalone

T = TypeVar("T")
PROGRAM = "compute-sanitizer"
MISSING = f"{PROGRAM} is not installed: install the CUDA toolkit's sanitizer (cuda-sanitizer), or set CUDA_HOME."
_VERSION_S = 30.0
_OPTIONS = {
    # Space between buffers, so that an access outside one does not hit the next.
    "memcheck": ("--padding", "1024"),
    "racecheck": (),
    "initcheck": (),
    "synccheck": (),
}
_COMMON = (
    *("--error-exitcode", str(FOUND), "--print-limit", "20", "--report-api-errors", "no"),
    *("--show-backtrace", "device"),  # frames of the harness are of no use
    *("--target-processes", "application-only"),
)
_PROOF_S = 30.0  # for a canary kernel of one block
_TIME_FACTOR = 3  # times the limit of an evaluation: a product with constant sizes takes minutes under racecheck


def check_cuda(
    context: SanitizerContext, standalone: StandaloneCandidate, check_results: Callable[[Path], str]
) -> list[CheckOutcome]:
    """Run all four tools at once; the judge then checks their results one after the other."""
    program = find_cuda_tool(context.environ, PROGRAM)
    if program is None:
        return [CheckOutcome(tool, CheckStatus.UNAVAILABLE, MISSING) for tool in DEVICE_TOOLS]
    identity = _identity(program, context)
    canary = context.build_canary(Target(DeviceKind.CUDA, context.device.arch))
    stop = threading.Event()
    with stoppable(stop), ThreadPoolExecutor(len(DEVICE_TOOLS), thread_name_prefix="sanitizer") as pool:
        try:
            proofs = _each(pool, lambda tool: _proof(context, program, identity, canary, tool), DEVICE_TOOLS)
            worth = [tool for tool in DEVICE_TOOLS if proofs[tool].works]
            patient = replace(
                context, settings=replace(context.settings, limit_s=_TIME_FACTOR * context.settings.limit_s)
            )
            ends = _each(
                pool, lambda tool: _run(patient, standalone, program, tool, tool, proofs[tool].confined), worth
            )
        except BaseException:
            stop.set()  # after an interrupt, do not wait for the tools
            raise
    outcomes = []
    for tool in DEVICE_TOOLS:
        if tool not in ends:
            why = f"{tool} did not find a fault planted to test it ({proofs[tool].detail.rstrip('.')})."
            outcomes.append(CheckOutcome(tool, CheckStatus.UNAVAILABLE, why))
            continue
        end = ends[tool]
        outcome = _judged(tool, end, _report(context, tool), check_results)
        layers = ", ".join(end.status.layers) if end.status and end.status.layers else "none"
        figures: tuple[tuple[str, Figure], ...] = (
            ("workloads", "; ".join(sample.workload for sample in standalone.samples)),
            ("tool", identity.splitlines()[0]),
            ("sandbox", layers),
        )
        outcomes.append(replace(outcome, figures=figures, seconds=end.ended.seconds))
    return outcomes


def _each(pool: ThreadPoolExecutor, call: Callable[[str], T], tools: Sequence[str]) -> dict[str, T]:
    """Call for all tools at once, in the caller's context, so that `stoppable` applies."""
    futures = {tool: pool.submit(copy_context().run, call, tool) for tool in tools}
    return {tool: future.result() for tool, future in futures.items()}


def _identity(program: Path, context: SanitizerContext) -> str:
    """Everything a tool depends on, its name and version in the first line."""
    said = tool_answer([str(program), "--version"], limit_s=_VERSION_S) or ""
    driver = next((gpu.driver for gpu in visible_gpus() if gpu.index == context.device.index), "")
    version = re.search(r"[Vv]ersion:? (\d[\w.]*)", said)
    return "\n".join([f"{PROGRAM} {version[1]}" if version else PROGRAM, driver, context.device.key])


def _command(program: Path, tool: str, log: Path) -> tuple[str, ...]:
    return (str(program), "--tool", tool, *_COMMON, *_OPTIONS[tool], "--log-file", str(log))


def _log(context: SanitizerContext, name: str) -> Path:
    return context.settings.folder / f"{name}.log"


def _run(
    context: SanitizerContext, standalone: StandaloneCandidate, program: Path, tool: str, name: str, confined: bool
) -> StandaloneResult:
    command = _command(program, tool, _log(context, name))
    # Torch would put several tensors into one allocation, where an access from one to the next is not detected.
    environ = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    return run_standalone(
        context.settings, standalone, name, command=command, environ=environ, fill=tool != "initcheck", confine=confined
    )


def _report(context: SanitizerContext, name: str) -> DeviceReport | None:
    try:
        return device_report(_log(context, name).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _proof(
    context: SanitizerContext, program: Path, identity: str, canary: StandaloneCandidate | str, tool: str
) -> planted_faults.ToolProof:
    def prove() -> planted_faults.ToolProof:
        if isinstance(canary, str):
            return planted_faults.ToolProof(False, False, canary)
        standalone, detail = replace(canary, scalars={"fault": planted_faults.FAULTS[tool]}), ""
        brief = replace(context, settings=replace(context.settings, limit_s=min(_PROOF_S, context.settings.limit_s)))
        for confined in (True, False):
            name = f"proof-{tool}-{'confined' if confined else 'open'}"
            end = _run(brief, standalone, program, tool, name, confined)
            report = _report(context, name)
            if report is not None and report.errors and not end.ended.timed_out:
                return planted_faults.ToolProof(True, confined)
            detail = _complaint(context, name, end)
        return planted_faults.ToolProof(False, False, detail)

    return planted_faults.ProofCache(context.paths.cache).of(tool, identity, prove)


def _complaint(context: SanitizerContext, name: str, end: StandaloneResult) -> str:
    """Why a tool came to no result."""
    if end.ended.timed_out:
        return f"no end after {end.ended.seconds:.0f} s"
    try:
        written = _log(context, name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        written = ""
    said = first_finding([line.removeprefix("=========")[1:] for line in written.splitlines()])
    return said or first_line(end.ended.output)


def _judged(
    tool: str, end: StandaloneResult, report: DeviceReport | None, check_results: Callable[[Path], str]
) -> CheckOutcome:
    if end.ended.timed_out:
        return CheckOutcome(
            tool, CheckStatus.UNAVAILABLE, f"it did not finish in {end.ended.seconds:.0f} s under {tool}."
        )
    if report is not None and report.errors:
        said = report.sentence or "it does not say what."
        return CheckOutcome(tool, CheckStatus.FAILED, f"{report.errors} found: {said}" if report.errors > 1 else said)
    if not end.finished:
        outcome = CheckStatus.UNAVAILABLE if end.status is None else CheckStatus.FAILED
        return CheckOutcome(tool, outcome, unfinished(end))
    if report is None:
        return CheckOutcome(tool, CheckStatus.UNAVAILABLE, f"{tool} came to no summary: {first_line(end.ended.output)}")
    wrong = check_results(end.scratch)
    if wrong:
        return CheckOutcome(tool, CheckStatus.FAILED, f"under {tool} it computes something else: {wrong}")
    warned = f"{report.warnings} warnings, e.g. {report.sentence}" if report.warnings else ""
    return CheckOutcome(tool, CheckStatus.PASSED, warned)
