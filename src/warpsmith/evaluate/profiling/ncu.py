"""Runs Nsight Compute on one call of a candidate, in a process of its own, and hands on what it printed.

The path of the sanitizers (`devicecheck`) with another tool: the process is confined as far as the tool can live with
it. Counters of a GPU are a privilege; a process that gave up its rights may not read them, so that as root the sandbox
stays and the user does not change where nothing less works. It never runs outside the sandbox with rights.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.backends.stopping import check_stop
from warpsmith.core.candidate import Candidate
from warpsmith.evaluate.profiling.ncu_csv import Launch, complaint, parse
from warpsmith.evaluate.verification.sanitize import first_line, tool_in
from warpsmith.evaluate.verification.solorun import Part, Stage, run_solo
from warpsmith.hardware.roofline import Zone

PROGRAM = "ncu"
MISSING = "Nsight Compute (ncu) is not installed; install the CUDA toolkit's nsight-compute, or set CUDA_HOME."
NO_RIGHTS = (
    "this user may not read the GPU's counters; ask an administrator to load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0, or run as root."
)
LAUNCHES = 4
"""Kernels looked at in one call: what comes later is mostly the same again, and each costs a second."""

_TOOLKIT = Path("/usr/local/cuda")
_NSIGHT = Path("/opt/nvidia/nsight-compute")
_VERSION_S = 20.0
_REFUSED = re.compile(r"ERR_NVGPUCTRPERM|permission", re.IGNORECASE)
_UNKNOWN_METRIC = re.compile(r"find metrics?|nvalid metric|unknown metric", re.IGNORECASE)
_JIT = re.compile(r"@triton\.jit[^\n]*\n(?:@[^\n]*\n)*\s*def\s+(\w+)")

_ALWAYS = ("SpeedOfLight", "LaunchStats", "Occupancy")
_SECTIONS: dict[str, tuple[str, ...]] = {
    Zone.MEMORY: (*_ALWAYS, "MemoryWorkloadAnalysis"),
    Zone.COMPUTE: (*_ALWAYS, "ComputeWorkloadAnalysis", "SchedulerStats", "WarpStateStats"),
    Zone.MIDDLE: (*_ALWAYS, "MemoryWorkloadAnalysis", "ComputeWorkloadAnalysis", "SchedulerStats", "WarpStateStats"),
    Zone.LATENCY: (*_ALWAYS, "SchedulerStats", "WarpStateStats"),
}
# What the rules need and no section has: waste can be there in any zone.
_METRICS = (
    *(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.pct" for op in ("ld", "st")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("sectors", "requests") for op in ("ld", "st")),
    *(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st")),
)


@dataclass(frozen=True)
class Way:
    """How far a candidate is confined while the tool looks at it."""

    confined: bool  # the whole sandbox
    drops: bool  # as root, another user


WAYS = (Way(True, True), Way(True, False), Way(False, True))
"""In the order in which they are tried; not among them: outside the sandbox with rights."""


@dataclass(frozen=True)
class Counted:
    """What the tool saw, or why it saw nothing."""

    launches: tuple[Launch, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    way: Way | None = None  # the one that worked


def find(environ: Mapping[str, str]) -> Path | None:
    """The program, where there is one."""
    homes = [Path(environ[key]) for key in ("CUDA_HOME", "CUDA_PATH") if environ.get(key)]
    packaged = sorted(_NSIGHT.glob("*"), reverse=True)
    return tool_in(environ, PROGRAM, (*(home / "bin" for home in (*homes, _TOOLKIT)), *packaged))


def version(program: Path) -> str:
    """As the tool says it: "Nsight Compute 2025.3.1"; its name alone where it does not."""
    try:
        said = subprocess.run([str(program), "--version"], capture_output=True, text=True, timeout=_VERSION_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    found = re.search(r"Version\s+(\d+(?:\.\d+)*)", said)
    return f"Nsight Compute {found[1]}" if found else "Nsight Compute"


def command(
    program: Path, zone: str, log: Path, *, kernels: Sequence[str] = (), extras: bool = True
) -> tuple[str, ...]:
    """What to run before the process to be looked at."""
    sections = _SECTIONS.get(zone, _SECTIONS[Zone.MIDDLE])
    chosen = ("--kernel-name", f"regex:^({'|'.join(map(re.escape, kernels))})") if kernels else ()
    return (
        str(program),
        *("--clock-control", "none"),  # locking clocks needs more rights, and changes what others measure
        *("--target-processes", "all"),
        *("--launch-count", str(LAUNCHES)),
        *chosen,
        *(word for section in sections for word in ("--section", section)),
        *(("--metrics", ",".join(_METRICS)) if extras else ()),
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--log-file", str(log)),
    )


def kernels_of(candidate: Candidate) -> tuple[str, ...]:
    """The kernels to look at, where the process runs others too: those a Python file defines. Empty for all."""
    if not candidate.main.name.endswith(".py"):
        return ()
    return tuple(dict.fromkeys(name for file in candidate.files for name in _JIT.findall(file.text)))


def count(
    program: Path, stage: Stage, part: Part, zone: str, *, kernels: Sequence[str] = (), ways: Sequence[Way] = WAYS
) -> Counted:
    """One call of the candidate under the tool; the first way that gives counters is kept."""
    stage = replace(stage, readable=(*stage.readable, *_installed(program)))
    seconds, reason = 0.0, ""
    for number, way in enumerate(ways):
        for extras in (True, False):
            check_stop()
            name = f"ncu-{number}-{'all' if extras else 'plain'}"
            log = stage.folder / f"{name}.csv"
            whole = command(program, zone, log, kernels=kernels, extras=extras)
            placed = replace(part, drops=way.drops and part.drops)
            end = run_solo(stage, placed, name, command=whole, confine=way.confined)
            seconds += end.ended.seconds
            said = _read(log)
            found = parse(said)
            if any(launch.values for launch in found):
                return Counted(found, "", seconds, way)
            reason = _why(said, end.ended.output, end.ended.timed_out, end.ended.seconds)
            if end.ended.timed_out:
                return Counted((), reason, seconds)  # the next way would take as long
            if not _UNKNOWN_METRIC.search(said + end.ended.output):
                break  # asking for less would not help
    return Counted((), reason, seconds)


def _installed(program: Path) -> tuple[str, ...]:
    """Where the tool's own libraries are: it loads some of them late, inside the sandbox."""
    home = program.resolve().parent
    places = (home, *home.parent.glob("nsight-compute*"), _NSIGHT)
    return tuple(str(place) for place in places if place.is_dir())


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _why(log: str, output: str, timed_out: bool, seconds: float) -> str:
    if timed_out:
        return f"Nsight Compute did not finish in {seconds:.0f} s."
    said = complaint(log) or complaint(output)
    if _REFUSED.search(said):
        return NO_RIGHTS
    return f"Nsight Compute saw no kernel: {(said or first_line(log or output)).rstrip('.')}."
