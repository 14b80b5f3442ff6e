"""Runs Nsight Compute on one call of a candidate, in a process of its own, and parses its table of counters.

`ncu --csv --page raw` prints one record per kernel launch; values are converted to base units. Counters that a device
or release does not have are missing. The process is confined as far as the tool permits. On many machines only root may
read counters. So if Warpsmith runs as root and nothing stricter works, the process stays root inside the sandbox. It
never runs outside the sandbox as root.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.hardware.roofline import Zone
from warpsmith.model.candidate import Candidate
from warpsmith.system.processes import check_stop, tool_answer
from warpsmith.verification.sanitizers import find_cuda_tool, first_line
from warpsmith.verification.standalone_run import StandaloneCandidate, StandaloneSettings, run_standalone

_ID, _KERNEL = "ID", "Kernel Name"
_MOST_LAUNCHES = 1000  # further rows of a log are ignored
_SECONDS = {"nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3, "ms": 1e-3}
_BYTES = {"Kbyte": 1e3, "KB": 1e3, "Mbyte": 1e6, "MB": 1e6, "Gbyte": 1e9, "GB": 1e9, "Tbyte": 1e12, "TB": 1e12}
_HERTZ = {"Khz": 1e3, "Mhz": 1e6, "Ghz": 1e9, "KHz": 1e3, "MHz": 1e6, "GHz": 1e9}
_UNITS = _SECONDS | _BYTES | _HERTZ
_GROUPED = re.compile(r"-?\d{1,3}(?:[,'\u00a0\u202f]\d{3})+(?:\.\d+)?")
_GROUP = re.compile(r"[,'\u00a0\u202f]")


@dataclass(frozen=True)
class KernelCounters:
    """The counters of one kernel launch."""

    kernel: str
    values: Mapping[str, float]  # by metric; seconds, bytes, hertz, per cent
    block: int = 0  # threads
    grid: int = 0  # blocks

    def get(self, *names: str) -> float | None:
        """The first of these metrics that is present."""
        return next((self.values[name] for name in names if name in self.values), None)

    @property
    def seconds(self) -> float:
        """The duration; 0 if it was not measured."""
        return (
            self.get("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration_measured_user.sum") or 0.0
        )


def parse(log: str) -> tuple[KernelCounters, ...]:
    """All launches in a log; () if it contains no table."""
    rows = iter(csv.reader(io.StringIO(_table(log))))
    try:
        return tuple(_launches(rows))
    except csv.Error:  # a NUL byte or an unterminated field
        return ()


def complaint(log: str) -> str:
    """The first error message of the tool; "" if there is none."""
    said = [line.removeprefix("==ERROR==").strip() for line in log.splitlines() if line.startswith("==ERROR==")]
    return said[0] if said else ""


def _table(log: str) -> str:
    """The table, without the lines of the tool and of the program before and between its rows."""
    lines = [line for line in log.splitlines() if not line.startswith("==")]
    for number, line in enumerate(lines):
        if line.startswith(f'"{_ID}"') and f'"{_KERNEL}"' in line:
            # A line without a closing quote was cut off, or the program printed it.
            return "\n".join(each for each in lines[number:] if each.startswith('"') and each.rstrip().endswith('"'))
    return ""


def _launches(rows: Iterator[list[str]]) -> Iterator[KernelCounters]:
    header = next(rows, None)
    if header is None or _KERNEL not in header:
        return
    place = {name: index for index, name in enumerate(header)}
    units: list[str] = [""] * len(header)
    for count, row in enumerate(rows):
        if len(row) != len(header) or count > _MOST_LAUNCHES:
            continue  # cut off, or not part of this table
        if not row[place[_ID]].strip().isdigit():
            units = row  # the row after the header
            continue
        values: dict[str, float] = {}
        for name, index in place.items():
            value = _number(row[index])
            if "__" in name and value is not None:
                values[name] = value * _factor(units[index])
        yield KernelCounters(
            kernel=short_name(row[place[_KERNEL]]),
            values=values,
            block=_extent(row, place, "Block Size") or int(values.get("launch__block_size", 0)),
            grid=_extent(row, place, "Grid Size") or int(values.get("launch__grid_size", 0)),
        )


def _number(text: str) -> float | None:
    text = text.strip()
    if _GROUPED.fullmatch(text):
        text = _GROUP.sub("", text)
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _factor(unit: str) -> float:
    """The factor to base units. The numerator decides: denominators are seconds and cycles only."""
    return _UNITS.get(unit.split("/")[0].strip(), 1.0)


def _extent(row: list[str], place: Mapping[str, int], name: str) -> int:
    if name not in place:
        return 0
    numbers = [int(each) for each in re.findall(r"\d{1,10}", row[place[name]])]
    return math.prod(numbers) if numbers else 0


def short_name(name: str) -> str:
    """The name of a kernel without return type, template arguments and parameters."""
    plain = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name)
    plain = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    return (plain.split() or [name])[-1][:80]


PROGRAM = "ncu"
MISSING = "Nsight Compute (ncu) is not installed; install the CUDA toolkit's nsight-compute, or set CUDA_HOME."
NO_RIGHTS = (
    "this user may not read the GPU's counters; ask an administrator to load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0, or run as root."
)
LAUNCHES = 4
"""Kernels profiled in one call: later ones are mostly repetitions, and each takes a second."""

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
# Metrics of `ncu_rules` that no section contains.
_METRICS = (
    *(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.pct" for op in ("ld", "st")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("sectors", "requests") for op in ("ld", "st")),
    *(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st")),
)


@dataclass(frozen=True)
class Confinement:
    """How a candidate is confined while it is profiled."""

    confined: bool  # the whole sandbox
    drop_user: bool  # if this process is root, the candidate's becomes another user


CONFINEMENTS = (Confinement(True, True), Confinement(True, False), Confinement(False, True))
"""The confinements in the order in which they are tried; none runs as root outside the sandbox."""


@dataclass(frozen=True)
class NcuResult:
    """The launches that the tool profiled, or the reason why there are none."""

    launches: tuple[KernelCounters, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    confinement: Confinement | None = None  # the one that worked


def find(environ: Mapping[str, str]) -> Path | None:
    """The program `ncu`; None if it is not installed."""
    return find_cuda_tool(environ, PROGRAM, sorted(_NSIGHT.glob("*"), reverse=True))


def version(program: Path) -> str:
    """The name and version of the tool, e.g. "Nsight Compute 2025.3.1"; without the number if it is unknown."""
    said = tool_answer([str(program), "--version"], limit_s=_VERSION_S)
    found = re.search(r"Version\s+(\d+(?:\.\d+)*)", said or "")
    return f"Nsight Compute {found[1]}" if found else "Nsight Compute"


def command(
    program: Path, zone: str, log: Path, *, kernels: Sequence[str] = (), extras: bool = True
) -> tuple[str, ...]:
    """The command in front of the process that is profiled."""
    sections = _SECTIONS.get(zone, _SECTIONS[Zone.MIDDLE])
    chosen = ("--kernel-name", f"regex:^({'|'.join(map(re.escape, kernels))})") if kernels else ()
    return (
        str(program),
        *("--clock-control", "none"),  # locking clocks needs privileges and disturbs other users
        *("--target-processes", "all"),
        *("--launch-count", str(LAUNCHES)),
        *chosen,
        *(word for section in sections for word in ("--section", section)),
        *(("--metrics", ",".join(_METRICS)) if extras else ()),
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--log-file", str(log)),
    )


def kernels_of(candidate: Candidate) -> tuple[str, ...]:
    """The Triton kernels that a Python candidate defines: only these are profiled. () for all kernels."""
    if not candidate.main.name.endswith(".py"):
        return ()
    return tuple(dict.fromkeys(name for file in candidate.files for name in _JIT.findall(file.text)))


def count(
    program: Path,
    settings: StandaloneSettings,
    standalone: StandaloneCandidate,
    zone: str,
    *,
    kernels: Sequence[str] = (),
    confinements: Sequence[Confinement] = CONFINEMENTS,
) -> NcuResult:
    """Profile one call of the candidate, with the first confinement that works."""
    settings = replace(settings, readable=(*settings.readable, *_installed(program)))
    seconds, reason = 0.0, ""
    for number, confinement in enumerate(confinements):
        for extras in (True, False):
            check_stop()
            name = f"ncu-{number}-{'all' if extras else 'plain'}"
            log = settings.folder / f"{name}.csv"
            whole = command(program, zone, log, kernels=kernels, extras=extras)
            placed = replace(standalone, drop_user=confinement.drop_user and standalone.drop_user)
            end = run_standalone(settings, placed, name, command=whole, confine=confinement.confined)
            seconds += end.ended.seconds
            said = _read(log)
            found = parse(said)
            if any(launch.values for launch in found):
                return NcuResult(found, "", seconds, confinement)
            reason = _why(said, end.ended.output, end.ended.timed_out, end.ended.seconds)
            if end.ended.timed_out:
                return NcuResult((), reason, seconds)  # another confinement would take as long
            if not _UNKNOWN_METRIC.search(said + end.ended.output):
                break  # fewer metrics would not help
    return NcuResult((), reason, seconds)


def _installed(program: Path) -> tuple[str, ...]:
    """The folders of the tool's libraries: it loads some of them inside the sandbox."""
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
