"""Runs a CPU candidate under AddressSanitizer and UndefinedBehaviorSanitizer, and reads the reports of sanitizers.

The reports of g++, clang++ and compute-sanitizer become one sentence about the first fault, with the candidate's own
line if it is named. `device_sanitizers` runs the tools for GPUs. The process that runs is confined like a host. Not
detected: code that avoids sanitizers on purpose (a source that names sanitizers fails the check, and the result of the
sanitized build is checked too), uninitialised memory, and races between threads.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.backends.source import backend_named
from warpsmith.backends.toolchain import TOOLKIT, Compiler, find_cxx
from warpsmith.hardware.device import Device
from warpsmith.model.build import Artifact, Backend, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import ADDRESS, UNDEFINED, CheckOutcome, CheckStatus, Figure
from warpsmith.model.settings import Limits, Paths
from warpsmith.system.processes import tool_answer
from warpsmith.verification import planted_faults
from warpsmith.verification.standalone_run import (
    StandaloneCandidate,
    StandaloneResult,
    StandaloneSettings,
    run_standalone,
)

_ASAN = re.compile(r"ERROR: AddressSanitizer: (?P<what>[^\n]*?)(?: on (?:unknown )?address| \(|$)", re.M)
_UBSAN = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?: runtime error: (?P<what>.+)$", re.M)
_ASSERTION = re.compile(r"(?P<file>[^\s:]+):(?P<line>\d+): .*Assertion '(?P<what>[^']+)' failed", re.M)
_ACCESS = re.compile(r"^(READ|WRITE) of size (\d+)", re.M)
_FRAME = re.compile(r"^ *#\d+ 0x[0-9a-f]+ in (?P<function>.+?) (?P<file>[^\s]+?):(?P<line>\d+)(?::\d+)?$", re.M)
_HEAP = re.compile(r"is located (\d+) bytes (?:to the (right|left) of|(after|before|inside of)) (\d+)-byte region")
_GLOBAL = re.compile(r"global variable '([^']+)'")
_LOCAL = re.compile(r"'([^']+)'(?: \(line \d+\))? <== Memory access at offset \d+ (overflows|underflows|is inside)")

_CUDA_LINE = re.compile(r"^=========(?: (.*))?$", re.M)
_CUDA_PLACE = re.compile(r"^ +at (?:0x[0-9a-f]+ in )?(?P<place>.+)$")
_CUDA_SUMMARY = re.compile(r"^ERROR SUMMARY: (\d+) errors?")
_RACE_SUMMARY = re.compile(r"^RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)")
_CUDA_BANNER = re.compile(r"COMPUTE-SANITIZER|^ *(?:Saved host backtrace|Host Frame|Target application)")
_FOLDER = re.compile(r"(?<=[ :])/\S*/")
_MOST_CHARS = 300


@dataclass(frozen=True)
class CpuReport:
    """The first fault in a report."""

    undefined: bool  # undefined behaviour rather than a wrong address
    sentence: str


def cpu_report(text: str, files: Sequence[str]) -> CpuReport | None:
    """The first fault that a CPU sanitizer reports; None if there is none. `files` are the candidate's own."""
    undefined = _UBSAN.search(text)
    address = _ASAN.search(text)
    if undefined and (address is None or undefined.start() < address.start()):
        place = f"{_plain(undefined['file'])}:{undefined['line']}"
        return CpuReport(True, _cut(f"{place}: {undefined['what']}."))
    if address is None:
        return None
    said = address["what"].strip().rstrip(":")
    asserted = _ASSERTION.search(text)
    if asserted and said.startswith("ABRT"):
        said = f"the assertion {asserted['what']} of {_plain(asserted['file'])} failed"
    after = text[address.start() :]
    access = _ACCESS.search(after)
    if access:
        said += f", {access[1].lower()} of {access[2]} bytes"
    return CpuReport(False, _cut(f"{said}{_where(after)}{_line(after, files)}."))


def _where(text: str) -> str:
    heap, known, local = _HEAP.search(text), _GLOBAL.search(text), _LOCAL.search(text)
    if local:
        return f" beside the local variable {local[1]!r}"
    if known:
        return f" beside the global variable {known[1]!r}"
    if heap:
        side = {"right": "past the end of", "left": "before", "after": "past the end of"}.get(heap[2] or heap[3])
        return f" {heap[1]} bytes {side or heap[3]} a buffer of {heap[4]} bytes"
    return ""


def _line(text: str, files: Sequence[str]) -> str:
    """The innermost line of the candidate's own files."""
    for frame in _FRAME.finditer(text):
        if _plain(frame["file"]) in files:
            return f" ({_plain(frame['file'])}:{frame['line']} in {frame['function'].partition('(')[0]})"
    return ""


@dataclass(frozen=True)
class DeviceReport:
    """The summary of a compute-sanitizer tool, and its first finding in a sentence."""

    errors: int
    warnings: int
    sentence: str


def device_report(text: str) -> DeviceReport | None:
    """The report of compute-sanitizer; None without a summary, when nothing can be concluded."""
    lines = [match[1] or "" for match in _CUDA_LINE.finditer(text)]
    errors, warnings, counted = 0, 0, False
    for line in lines:
        if match := _CUDA_SUMMARY.match(line):
            errors, counted = errors + int(match[1]), True
        elif match := _RACE_SUMMARY.match(line):
            errors, warnings, counted = errors + int(match[1]), warnings + int(match[2]), True
    if not counted:
        return None
    return DeviceReport(errors, warnings, first_finding(lines, errors > 0))


def first_finding(lines: Sequence[str], serious: bool = True) -> str:
    """The first finding and the place that it names; "" if there is none."""
    for index, line in enumerate(lines):
        if not line.strip() or line[:1] == " " or _CUDA_BANNER.search(line) or "SUMMARY" in line:
            continue
        if serious and line.startswith("Warning:"):
            continue
        said = line.removeprefix("Error: ").removeprefix("Warning: ").strip().rstrip(".")
        details = [_detail(text) for text in lines[index + 1 : index + 6] if text.startswith("  ")]
        return _cut(_FOLDER.sub("", ", ".join([said, *(d for d in details if d)])) + ".")
    return ""


def _detail(line: str) -> str:
    place = _CUDA_PLACE.match(line)
    if place:
        return f"at {place['place'].strip()}"
    text = line.strip().rstrip(".")
    return text if text.startswith(("and ", "Access at")) else ""


def _plain(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST_CHARS else flat[: _MOST_CHARS - 1] + "…"


FOUND = 77  # exit status if a sanitizer found a fault
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
class SanitizerContext:
    """What all sanitizer runs of a verification share."""

    device: Device
    paths: Paths
    limits: Limits
    settings: StandaloneSettings
    environ: Mapping[str, str]  # for finding tools

    def backend(self, name: str) -> Backend:
        """A backend that uses the evaluator's build cache."""
        return backend_named(name).configured(self.paths, self.limits)

    def build_canary(self, target: Target) -> StandaloneCandidate | str:
        """The built canary program; a sentence if it cannot be built."""
        backend = self.backend(self.device.kind)
        planted = planted_faults.canary_candidate(self.device.kind)
        contract = backend.contract(planted_faults.CANARY_TASK)
        built = backend.build(planted, contract, target)
        if isinstance(built, BuildFailure):
            return f"the canary program does not build: {first_line(built.reason)}"
        folder = self.settings.folder / "canary"
        samples = (planted_faults.canary_inputs(folder),)
        return StandaloneCandidate(built.library, contract, planted_faults.CANARY_TASK, samples, folder)


def first_line(text: str) -> str:
    """The first line of a message."""
    return text.strip().splitlines()[0] if text.strip() else "no message"


def check_cpu(
    context: SanitizerContext,
    candidate: Candidate,
    standalone: StandaloneCandidate,
    check_results: Callable[[Path], str],
) -> list[CheckOutcome]:
    """Both checks of a native candidate, with a sanitized build in place of `standalone.library`."""
    evasion = sanitizer_evasion(candidate)
    if evasion:
        return [CheckOutcome(name, CheckStatus.FAILED, evasion) for name in (ADDRESS, UNDEFINED)]
    compiler = find_cxx(context.environ)
    runtime = _runtime(compiler, context.environ) if compiler else None
    if compiler is None or runtime is None:
        return _both(CheckStatus.UNAVAILABLE, "the compiler's AddressSanitizer is not installed (libasan): install it.")
    built = _sanitized(context, candidate, standalone)
    if isinstance(built, BuildFailure):
        return _both(CheckStatus.UNAVAILABLE, f"the sanitized build fails: {first_line(built.reason)}")
    environ = {"LD_PRELOAD": str(runtime), "ASAN_OPTIONS": _ASAN_OPTIONS, "UBSAN_OPTIONS": _UBSAN_OPTIONS}
    doubt = _unproven(context, compiler, environ)
    if doubt:
        return _both(CheckStatus.UNAVAILABLE, doubt)
    end = run_standalone(context.settings, replace(standalone, library=built.library), "sanitized", environ=environ)
    files = [file.name for file in candidate.files]
    figures: tuple[tuple[str, Figure], ...] = (
        ("workloads", "; ".join(sample.workload for sample in standalone.samples)),
        ("compiler", compiler.name),
    )
    found = _judged(end, cpu_report(end.ended.output, files), check_results)
    return [replace(outcome, figures=figures, seconds=end.ended.seconds) for outcome in found]


def sanitizer_evasion(candidate: Candidate) -> str:
    """The reason to fail a source that names sanitizers; "" if it names none."""
    for file in candidate.files:
        found = _EVASION.search(file.text)
        if found:
            line = file.text.count("\n", 0, found.start()) + 1
            return f"the source treats sanitizers specially ({found[0]}, {file.name}:{line}): remove that."
    return ""


def _both(outcome: CheckStatus, detail: str) -> list[CheckOutcome]:
    return [CheckOutcome(name, outcome, detail) for name in (ADDRESS, UNDEFINED)]


def _sanitized(
    context: SanitizerContext, candidate: Candidate, standalone: StandaloneCandidate
) -> Artifact | BuildFailure:
    target = Target(DeviceKind.CPU, context.device.arch, sanitized=True)
    return context.backend(candidate.backend).build(candidate, standalone.contract, target)


def _judged(
    end: StandaloneResult, report: CpuReport | None, check_results: Callable[[Path], str]
) -> list[CheckOutcome]:
    if end.ended.timed_out:
        return _both(CheckStatus.UNAVAILABLE, f"the sanitized build did not finish in {end.ended.seconds:.0f} s.")
    if report is not None:
        bad, other = (UNDEFINED, ADDRESS) if report.undefined else (ADDRESS, UNDEFINED)
        return sorted(
            [
                CheckOutcome(bad, CheckStatus.FAILED, report.sentence),
                CheckOutcome(other, CheckStatus.UNAVAILABLE, f"the run ended at the fault that {bad} found."),
            ],
            key=lambda check: check.name,
        )
    if not end.finished:
        wrong = unfinished(end)
    else:
        wrong = check_results(end.scratch)
        wrong = f"the sanitized build computes something else: {wrong}" if wrong else ""
    if not wrong:
        return [CheckOutcome(ADDRESS, CheckStatus.PASSED), CheckOutcome(UNDEFINED, CheckStatus.PASSED)]
    if end.status is None:
        return _both(CheckStatus.UNAVAILABLE, wrong)
    return [
        CheckOutcome(ADDRESS, CheckStatus.FAILED, wrong),
        CheckOutcome(UNDEFINED, CheckStatus.UNAVAILABLE, "the sanitized build did not run to its end."),
    ]


def unfinished(end: StandaloneResult) -> str:
    """How a run ended that is unfinished although no sanitizer reported a fault."""
    if end.status is not None and end.status.said:
        return end.status.said
    said = first_line(end.ended.output)
    if end.status is None:
        return f"the process could not be set up: {said}"
    return f"its process ended with status {end.ended.status}: {said}"


def _unproven(context: SanitizerContext, compiler: Compiler, environ: Mapping[str, str]) -> str:
    """Why the sanitizers cannot be trusted here; "" if both found the planted fault."""
    for tool in (ADDRESS, UNDEFINED):

        def prove(tool: str = tool) -> planted_faults.ToolProof:
            planted = context.build_canary(Target(DeviceKind.CPU, context.device.arch, sanitized=True))
            if isinstance(planted, str):
                return planted_faults.ToolProof(False, True, planted)
            standalone = replace(planted, scalars={"fault": planted_faults.FAULTS[tool]})
            end = run_standalone(context.settings, standalone, f"proof-{tool}", environ=environ)
            report = cpu_report(end.ended.output, ["canary.cpp"])
            if report is not None and report.undefined == (tool == UNDEFINED):
                return planted_faults.ToolProof(True, True)
            return planted_faults.ToolProof(False, True, f"{unfinished(end)}")

        proof = planted_faults.ProofCache(context.paths.cache).of(
            tool, f"{compiler.identity} {context.device.key}", prove
        )
        if not proof.works:
            return f"{tool} did not find a fault planted to test it ({proof.detail.rstrip('.')})."
    return ""


def _runtime(compiler: Compiler, environ: Mapping[str, str]) -> Path | None:
    """The sanitizer's runtime library, which has to be loaded first."""
    name = _RUNTIME[compiler.family].format(machine=platform.machine())
    known = {"PATH": environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
    found = tool_answer([*compiler.command, f"-print-file-name={name}"], limit_s=_PROBE_S, environ=known)
    path = Path((found or "").strip())
    return path.resolve() if path.is_absolute() and path.is_file() else None


def find_cuda_tool(environ: Mapping[str, str], name: str, more: Sequence[Path] = ()) -> Path | None:
    """A program of the CUDA toolkit: in the toolkit's folders, in `more`, else on the PATH."""
    homes = [Path(environ[key]) for key in ("CUDA_HOME", "CUDA_PATH") if environ.get(key)]
    folders = [folder for home in (*homes, TOOLKIT) for folder in (home / "bin", home / name)]
    for folder in (*folders, *more):
        if (folder / name).is_file():
            return folder / name
    found = shutil.which(name, path=environ.get("PATH"))
    return Path(found) if found else None
