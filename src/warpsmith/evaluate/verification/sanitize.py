"""The sanitizers of the CPU: the candidate built once more with checks of addresses and of undefined behaviour.

The supervisor's side of it; `devicecheck` does the same for GPUs. The process that runs is confined like a host. What
a sanitizer cannot see: code that avoids it on purpose (a source that names sanitizers is failed for that, and the
sanitized build's result is judged too), uninitialised memory, and races between threads.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.backends.source import backend_named
from warpsmith.backends.toolchain import Compiler, find_cxx
from warpsmith.core.build import Artifact, BuildFailure, Target
from warpsmith.core.candidate import Candidate
from warpsmith.core.certificate import ADDRESS, UNDEFINED, CheckOutcome, Figure, Outcome
from warpsmith.core.config import Limits, Paths
from warpsmith.core.protocols import Backend
from warpsmith.evaluate.verification import canary
from warpsmith.evaluate.verification.reports import CpuReport, cpu_report
from warpsmith.evaluate.verification.solorun import Part, SoloEnd, Stage, run_solo
from warpsmith.hardware.device import Device

FOUND = 77  # exit status where a sanitizer found something
_EVASION = re.compile(
    r"\b(?:__SANITIZE_\w+|no_sanitize\w*|no_address_safety\w*|disable_sanitizer\w*|address_sanitizer"
    r"|undefined_behavior_sanitizer|__[alutm]+san_\w+|__sanitizer_\w+)"
)
_ASAN_OPTIONS = (
    f"detect_leaks=0:abort_on_error=0:exitcode={FOUND}:handle_abort=1:allow_user_segv_handler=0:"
    "detect_stack_use_after_return=1:verify_asan_link_order=0:color=never"
)
_UBSAN_OPTIONS = f"print_stacktrace=1:halt_on_error=1:exitcode={FOUND}:color=never"
_RUNTIME = {"gcc": "libasan.so", "clang": "libclang_rt.asan-{machine}.so"}
_PROBE_S = 30.0


@dataclass(frozen=True)
class Rig:
    """What every sanitizer run of a verification needs."""

    device: Device
    paths: Paths
    limits: Limits
    stage: Stage
    environ: Mapping[str, str]  # where tools are looked for

    def backend(self, name: str) -> Backend:
        """A backend that keeps its builds where the evaluator does."""
        return backend_named(name).placed(self.paths, self.limits)

    def canary_part(self, target: Target) -> Part | str:
        """The program that a tool must find a fault in; a sentence where it cannot be built."""
        backend = self.backend(self.device.kind)
        planted = canary.candidate(self.device.kind)
        contract = backend.contract(canary.TASK)
        built = backend.build(planted, contract, target)
        if isinstance(built, BuildFailure):
            return f"the program for that does not build: {first_line(built.reason)}"
        folder = self.stage.folder / "canary"
        samples = (canary.sample(folder),)
        return Part(built.library, contract, canary.TASK, samples, folder)


def first_line(text: str) -> str:
    """Of a longer message."""
    return text.strip().splitlines()[0] if text.strip() else "no message"


def check_cpu(rig: Rig, candidate: Candidate, part: Part, appraise: Callable[[Path], str]) -> list[CheckOutcome]:
    """Both checks of a native candidate; `part.library` is replaced by a sanitized build of it."""
    evasion = evasive(candidate)
    if evasion:
        return [CheckOutcome(name, Outcome.FAILED, evasion) for name in (ADDRESS, UNDEFINED)]
    compiler = find_cxx(rig.environ)
    runtime = _runtime(compiler, rig.environ) if compiler else None
    if compiler is None or runtime is None:
        return _both(Outcome.UNAVAILABLE, "the compiler's AddressSanitizer is not installed (libasan): install it.")
    built = _sanitized(rig, candidate, part)
    if isinstance(built, BuildFailure):
        return _both(Outcome.UNAVAILABLE, f"the sanitized build fails: {first_line(built.reason)}")
    environ = {"LD_PRELOAD": str(runtime), "ASAN_OPTIONS": _ASAN_OPTIONS, "UBSAN_OPTIONS": _UBSAN_OPTIONS}
    doubt = _unproven(rig, compiler, environ)
    if doubt:
        return _both(Outcome.UNAVAILABLE, doubt)
    end = run_solo(rig.stage, replace(part, library=built.library), "sanitized", environ=environ)
    files = [file.name for file in candidate.files]
    figures: tuple[tuple[str, Figure], ...] = (
        ("workloads", "; ".join(sample.workload for sample in part.samples)),
        ("compiler", compiler.name),
    )
    found = _judged(end, cpu_report(end.ended.output, files), appraise)
    return [replace(outcome, figures=figures, seconds=end.ended.seconds) for outcome in found]


def evasive(candidate: Candidate) -> str:
    """Why a source cannot be judged by a sanitizer: it names one; "" where it does not."""
    for file in candidate.files:
        found = _EVASION.search(file.text)
        if found:
            line = file.text.count("\n", 0, found.start()) + 1
            return f"the source treats sanitizers specially ({found[0]}, {file.name}:{line}): remove that."
    return ""


def _both(outcome: Outcome, detail: str) -> list[CheckOutcome]:
    return [CheckOutcome(name, outcome, detail) for name in (ADDRESS, UNDEFINED)]


def _sanitized(rig: Rig, candidate: Candidate, part: Part) -> Artifact | BuildFailure:
    target = Target("cpu", rig.device.arch, sanitized=True)
    return rig.backend(candidate.backend).build(candidate, part.contract, target)


def _judged(end: SoloEnd, report: CpuReport | None, appraise: Callable[[Path], str]) -> list[CheckOutcome]:
    if end.ended.timed_out:
        return _both(Outcome.UNAVAILABLE, f"the sanitized build did not finish in {end.ended.seconds:.0f} s.")
    if report is not None:
        bad, other = (UNDEFINED, ADDRESS) if report.undefined else (ADDRESS, UNDEFINED)
        return sorted(
            [
                CheckOutcome(bad, Outcome.FAILED, report.sentence),
                CheckOutcome(other, Outcome.UNAVAILABLE, f"the run ended at the fault that {bad} found."),
            ],
            key=lambda check: check.name,
        )
    if not end.finished:
        wrong = unfinished(end)
    else:
        wrong = appraise(end.scratch)
        wrong = f"the sanitized build computes something else: {wrong}" if wrong else ""
    if not wrong:
        return [CheckOutcome(ADDRESS, Outcome.PASSED), CheckOutcome(UNDEFINED, Outcome.PASSED)]
    if end.status is None:
        return _both(Outcome.UNAVAILABLE, wrong)
    return [
        CheckOutcome(ADDRESS, Outcome.FAILED, wrong),
        CheckOutcome(UNDEFINED, Outcome.UNAVAILABLE, "the sanitized build did not run to its end."),
    ]


def unfinished(end: SoloEnd) -> str:
    """How a run ended that no sanitizer complained about."""
    if end.status is not None and end.status.said:
        return end.status.said
    said = first_line(end.ended.output)
    if end.status is None:
        return f"the process could not be set up: {said}"
    return f"its process ended with status {end.ended.status}: {said}"


def _unproven(rig: Rig, compiler: Compiler, environ: Mapping[str, str]) -> str:
    """Why the sanitizers cannot be believed here; "" where both found what was planted."""
    for tool in (ADDRESS, UNDEFINED):

        def prove(tool: str = tool) -> canary.Proof:
            planted = rig.canary_part(Target("cpu", rig.device.arch, sanitized=True))
            if isinstance(planted, str):
                return canary.Proof(False, True, planted)
            part = replace(planted, scalars={"fault": canary.FAULTS[tool]})
            end = run_solo(rig.stage, part, f"proof-{tool}", environ=environ)
            report = cpu_report(end.ended.output, ["canary.cpp"])
            if report is not None and report.undefined == (tool == UNDEFINED):
                return canary.Proof(True, True)
            return canary.Proof(False, True, f"{unfinished(end)}")

        proof = canary.Proofs(rig.paths.cache).of(tool, f"{compiler.identity} {rig.device.key}", prove)
        if not proof.works:
            return f"{tool} did not find a fault planted to test it ({proof.detail.rstrip('.')})."
    return ""


def _runtime(compiler: Compiler, environ: Mapping[str, str]) -> Path | None:
    """The library that has to be loaded before everything else."""
    import platform

    name = _RUNTIME[compiler.family].format(machine=platform.machine())
    try:
        found = subprocess.run(
            [*compiler.command, f"-print-file-name={name}"],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            env={"PATH": environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    path = Path(found)
    return path.resolve() if path.is_absolute() and path.is_file() else None


def tool_in(environ: Mapping[str, str], name: str, folders: tuple[Path, ...]) -> Path | None:
    """A program by name: in these folders, else on the PATH."""
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    found = shutil.which(name, path=environ.get("PATH"))
    return Path(found) if found else None
