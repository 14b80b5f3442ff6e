"""`warpsmith doctor`: what this machine can do, and how to get what is missing.

Changes nothing, makes no CUDA context in this process and prints no secret. torch is imported in another process, so
that a broken torch is one line of the list and not the end of it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from warpsmith._version import __version__
from warpsmith.backends.cutlass import INSTALL, VARIABLE, find_cutlass
from warpsmith.backends.toolchain import NO_CXX, NO_NVCC, find_cxx, find_nvcc
from warpsmith.cli import cards
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import AsJson, EngineOption
from warpsmith.cli.terminal import indented
from warpsmith.engine.engine import LOCAL
from warpsmith.evaluator.sandbox.policy import ESSENTIAL_LAYERS, probe
from warpsmith.hardware.device import cpu_info, visible_gpus
from warpsmith.llm.endpoint import Provider
from warpsmith.model import numbers
from warpsmith.model.build import Availability, Backend
from warpsmith.model.errors import HarnessFault, UsageError
from warpsmith.model.settings import Paths
from warpsmith.system.plugins import plugins

if TYPE_CHECKING:
    from warpsmith.engine.ray_site import Node

VARIABLES = {
    "WARPSMITH_CACHE": "the folder of builds, measured peaks and verdicts",
    "WARPSMITH_POOL": "the file of the pool",
    "WARPSMITH_CONFIG": "the folder with the key that signs your runs",
    "WARPSMITH_DASHBOARD_TOKEN": "the token with which `warpsmith dashboard` stops and resumes runs",
    "WARPSMITH_MCP_TOKEN": "the token that `warpsmith mcp --http` asks for",
    "WARPSMITH_SERVER_TOKEN": "the token that a server of `warpsmith serve` gave you",
    "WARPSMITH_MODEL": "the model to ask if no --proposer is given",
    "WARPSMITH_KEY_FILE": "a file of keys",
    "WARPSMITH_PRICES": "a price table of your own",
    "WARPSMITH_KEEP_STEPS": "the folder in which the steps of agents are kept",
    "WARPSMITH_AGENT_WRITES": "further folders that agents may write to",
    "WARPSMITH_DEBUG": "a traceback with internal errors",
}
"""Every variable that Warpsmith itself reads, and what it is for; each provider of models names its own."""
OLDEST_TORCH = (2, 6)
_TORCH_IMPORT_S = 180.0  # a cold network disk takes minutes
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
_ASK_TORCH = """
import json, os, time
start = time.perf_counter()
import torch
seconds = time.perf_counter() - start
kept = os.path.exists(torch.__spec__.cached or "")
print(json.dumps([torch.__version__, torch.version.cuda or "", torch.cuda.is_available(), seconds, kept]))
"""


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    MISSING = "missing"
    ABSENT = "absent"  # not there, and nothing needs it


OK, MISSING, ABSENT = CheckState.OK, CheckState.MISSING, CheckState.ABSENT
_MARKS = {OK: ("✓", "green"), MISSING: ("✗", "red"), ABSENT: ("–", "dim")}


@dataclass(frozen=True)
class Check:
    """One line of the list."""

    name: str
    state: CheckState
    detail: str
    advice: str = ""


@dataclass(frozen=True)
class MachineReport:
    """Everything that was found, in the order in which it is shown."""

    groups: tuple[tuple[str, tuple[Check, ...]], ...]
    backends: tuple[str, ...]  # those that can build and run here
    advice: str  # what to install first if no backend can; "" otherwise

    @property
    def ready(self) -> bool:
        """True if a kernel can be judged here."""
        return bool(self.backends)


def doctor(engine: EngineOption = None, json: AsJson = False) -> int:
    """Show what this machine can do: compilers, GPU, profiler rights, sandbox layers, keys.

    With --engine ray: what each node of the cluster can do, and which nodes are not used.
    Exit status: 0 if at least one backend can build and run here (there), 2 if none can.
    """
    if (engine or LOCAL).partition(":")[0].partition("?")[0] == "ray":
        return _cluster(engine or LOCAL, as_json=json)
    if engine not in (None, LOCAL):
        raise UsageError(f"doctor looks at this machine and at Ray clusters, not at {engine!r}; use local or ray.")
    found = diagnose(os.environ)
    if json:
        checks = [check for _, group in found.groups for check in group]
        print_document({"version": __version__, "ready": found.ready, "backends": found.backends, "checks": checks})
    else:
        console = cards.console()
        console.print(checklist(found.groups))
        if found.ready:
            console.print(
                f"\nReady: kernels for {' and '.join(found.backends)} can be judged here.", style="bold green"
            )
    if not found.ready:
        sys.stdout.flush()
        sys.stderr.write(f"error: no kernel can be judged here: {found.advice}.\n")
    return 0 if found.ready else 2


def _cluster(spec: str, *, as_json: bool) -> int:
    from warpsmith.engine.ray_site import site  # needs Ray

    cluster = site(spec)
    nodes = cluster.nodes()
    used = [node for node in nodes if not node.refused]
    if as_json:
        print_document({"version": __version__, "ready": bool(used), "nodes": nodes})
    else:
        cards.console().print(checklist([node_checks(node) for node in nodes]))
        cards.console().print(f"\n{len(used)} of {len(nodes)} nodes can be used.", style="bold" if used else "bold red")
    cluster.check_versions(nodes)
    return 0 if used else 2


def node_checks(node: Node) -> tuple[str, tuple[Check, ...]]:
    """The lines for one node of a cluster."""
    title = f"{node.host} ({node.id[:6]}), {node.cpus:g} CPUs, {node.gpus} GPUs for Ray"
    report = node.report
    if report is None:
        return title, (Check("Warpsmith", MISSING, node.refused, "install the version of this machine there"),)
    same = report.version == __version__
    checks = [
        Check(
            "Warpsmith",
            OK if same else MISSING,
            f"{report.version}, Python {report.python}, torch {report.torch or 'missing'}",
            "" if same else f"this machine has {__version__}; install the same version on every node",
        ),
        Check("CPU", OK, f"{report.cpu.name}"),
        *(Check(gpu.spec, OK, f"{gpu.name}, {gpu.arch}") for gpu in report.gpus),
        *(_backend(name, available) for name, available in report.backends if available.build),
    ]
    layers = ", ".join(report.layers) or "none"
    lacking = f"{layers}; lacks {', '.join(report.lacking)}" if report.lacking else layers
    advice = f"not used: {node.refused}" if node.refused else ""
    checks.append(Check("sandbox", MISSING if report.lacking else OK, lacking, advice))
    return title, tuple(checks)


def checklist(groups: Sequence[tuple[str, Sequence[Check]]]) -> RenderableType:
    """The list for a person, with advice on what is missing."""
    parts: list[RenderableType] = []
    for heading, checks in groups:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, min_width=18)
        grid.add_column(overflow="fold")
        for check in checks:
            mark, style = _MARKS[check.state]
            text = Text(check.detail, "dim" if check.state is ABSENT else "")
            if check.advice:
                text.append(f"\n→ {check.advice}", "yellow" if check.state is MISSING else "dim")
            grid.add_row(Text(mark, style), check.name, text)
        parts += [Text(heading, "bold"), indented(grid), Text()]
    return Group(*parts[:-1])


def diagnose(environ: Mapping[str, str]) -> MachineReport:
    """Make every check."""
    torch = check_torch()
    known: dict[str, Backend] = plugins("warpsmith.backends")
    available = {name: backend.available() for name, backend in sorted(known.items())}
    usable = tuple(n for n, a in available.items() if a.build and a.run) if torch.state == OK else ()
    advice = ""
    if not usable:
        broken = next((a.detail for a in available.values() if not (a.build and a.run)), "no backend is installed")
        advice = torch.advice or broken
    groups = (
        ("Python", (_python(), torch)),
        ("Backends", tuple(_backend(name, a) for name, a in available.items())),
        ("Compilers", (_cxx(environ), _nvcc(environ), _cutlass(environ))),
        ("Devices", (_cpu(), *_gpus())),
        ("Profiling", (_ncu(environ), _sanitizer(environ), _perf())),
        ("Sandbox", _sandbox()),
        ("Storage", (_cache(Paths.from_environment(environ).cache),)),
        ("Keys and addresses of models", tuple(_variable(name, environ) for name in _of_providers())),
        ("Settings", tuple(_variable(name, environ, use) for name, use in VARIABLES.items())),
    )
    return MachineReport(groups, usable, advice)


# --- Python ---


def _python() -> Check:
    return Check("Python", OK, f"{platform.python_version()} ({sys.executable})")


def check_torch(python: str = sys.executable) -> Check:
    """Import torch in another process."""
    install = "install torch >= 2.6, e.g. pip install 'warpsmith[torch]'"
    try:
        answer = subprocess.run(
            [python, "-P", "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TORCH_IMPORT_S,
        )
    except subprocess.TimeoutExpired:
        return Check("torch", MISSING, f"its import takes more than {_TORCH_IMPORT_S:.0f} s", install)
    lines = answer.stdout.strip().splitlines()
    if answer.returncode != 0 or not lines:
        said = answer.stderr.strip().splitlines() or [f"its import ended with status {answer.returncode}"]
        return Check("torch", MISSING, said[-1][:200], install)
    version, cuda, sees_gpu, seconds, kept = json.loads(lines[-1])
    build = f"built for CUDA {cuda}" if cuda else "CPU build"
    detail = f"{version}, {build}, imported in {seconds:.1f} s"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TORCH:
        return Check("torch", MISSING, detail, install)
    advice = ""
    if visible_gpus() and not sees_gpu:
        why = "does not fit the driver" if cuda else "is a CPU build"
        advice = f"there is a GPU, but this torch {why}: install one for CUDA to judge .cu files"
    elif not kept:
        advice = (
            "Python cannot cache its bytecode, so every start takes seconds longer: unset PYTHONDONTWRITEBYTECODE, "
            "or set PYTHONPYCACHEPREFIX to a folder that can be written"
        )
    return Check("torch", OK, detail, advice)


def _backend(name: str, available: Availability) -> Check:
    if available.build and available.run:
        return Check(name, OK, f"builds and runs: {available.detail}")
    if available.build:
        return Check(name, ABSENT, f"builds only: {available.detail}")
    return Check(name, MISSING, "cannot build", available.detail)


# --- compilers ---


def _cxx(environ: Mapping[str, str]) -> Check:
    compiler = find_cxx(environ)
    if compiler is None:
        return Check("C++", MISSING, "none found", NO_CXX.partition(": ")[2])
    return Check("C++", OK, f"{compiler.name} ({compiler.command[0]})")


def _nvcc(environ: Mapping[str, str]) -> Check:
    compiler = find_nvcc(environ)
    if compiler is None:
        # Without a GPU nothing needs it.
        return Check("nvcc", MISSING if visible_gpus() else ABSENT, "none found", NO_NVCC.partition(": ")[2])
    path = Path(compiler.command[0])
    origin = "Python package" if path.parent.parent.parent.name == "nvidia" else "system"
    return Check("nvcc", OK, f"{compiler.name.removeprefix('nvcc ')}, {origin} ({path})")


def _cutlass(environ: Mapping[str, str]) -> Check:
    """Headers that CUDA candidates may include; nothing needs them."""
    found = find_cutlass(environ)
    if found is not None:
        return Check("CUTLASS", OK, f"{found.version}, {found.origin} ({found.folders[0]})")
    given = environ.get(VARIABLE)
    if given:
        detail = f"{VARIABLE} is set to {given}, which has no include/cutlass/version.h and no cutlass/version.h"
        return Check("CUTLASS", ABSENT, detail, f"set {VARIABLE} to a checkout of CUTLASS or to its folder include")
    return Check("CUTLASS", ABSENT, "not found; CUDA kernels are written without it", INSTALL)


# --- devices ---


def _cpu() -> Check:
    here = cpu_info()
    detail = (
        f"{here.name}, {here.cores} cores, {numbers.memory_size(here.cache_bytes)} last-level cache, "
        f"{numbers.memory_size(here.memory_bytes)} memory"
    )
    return Check("CPU", OK, detail)


def _gpus() -> tuple[Check, ...]:
    found = tuple(
        Check(
            f"cuda:{gpu.index}",
            OK,
            f"{gpu.name}, {numbers.memory_size(gpu.memory_bytes)}, {gpu.arch}, driver {gpu.driver}",
            "",
        )
        for gpu in visible_gpus()
    )
    if found:
        return found
    if Path("/proc/driver/nvidia/version").exists():
        hint = "look at nvidia-smi and at CUDA_VISIBLE_DEVICES"
        return (Check("GPU", MISSING, "NVIDIA's driver is loaded, but shows no GPU", hint),)
    return (Check("GPU", ABSENT, "no NVIDIA GPU; kernels in C++ are judged on the CPU"),)


# --- profiling ---


def _ncu(environ: Mapping[str, str]) -> Check:
    found = _tool("ncu", environ)
    needed = MISSING if visible_gpus() else ABSENT
    if found is None:
        return Check("ncu", needed, "not found", "install Nsight Compute to profile CUDA kernels")
    parameters = _read("/proc/driver/nvidia/params")
    if "RmProfilingAdminOnly: 1" in parameters and not _capable(_CAP_SYS_ADMIN):
        advice = "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
        return Check("ncu", MISSING, f"{found}, but only an administrator may profile", advice)
    rights = "profiling allowed" if parameters else "no driver to profile with"
    return Check("ncu", OK if parameters else ABSENT, f"{found}, {rights}")


def _sanitizer(environ: Mapping[str, str]) -> Check:
    found = _tool("compute-sanitizer", environ)
    if found is None:
        advice = "install the CUDA toolkit to have the best kernels checked for races and stray accesses"
        return Check("compute-sanitizer", MISSING if visible_gpus() else ABSENT, "not found", advice)
    return Check("compute-sanitizer", OK, str(found))


def _perf() -> Check:
    setting = _read("/proc/sys/kernel/perf_event_paranoid").strip()
    if not setting:
        return Check("perf counters", ABSENT, "this kernel offers none")
    detail = f"perf_event_paranoid is {setting}"
    if int(setting) <= 2 or _capable(_CAP_PERFMON) or _capable(_CAP_SYS_ADMIN):
        return Check("perf counters", OK, detail)
    return Check("perf counters", ABSENT, detail, "sysctl kernel.perf_event_paranoid=2 allows them")


def _tool(name: str, environ: Mapping[str, str]) -> Path | None:
    """A tool of the CUDA toolkit, on PATH or in the toolkit's own folders."""
    on_path = shutil.which(name, path=environ.get("PATH"))
    if on_path:
        return Path(on_path)
    roots = [Path(environ[v]) for v in ("CUDA_HOME", "CUDA_PATH") if environ.get(v)]
    places = [root / "bin" / name for root in (*roots, Path("/usr/local/cuda"))]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob(f"*/{name}"), reverse=True)
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _capable(capability: int) -> bool:
    """True if this process has a capability; root inside a container may lack it."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


# --- sandbox ---


def _sandbox() -> tuple[Check, ...]:
    try:
        layers = probe()
    except HarnessFault as fault:
        return (Check("sandbox", MISSING, str(fault)),)
    found = []
    for layer in layers:
        lacking = MISSING if layer.name.startswith(ESSENTIAL_LAYERS) else ABSENT
        found.append(Check(layer.name, OK if layer.available else lacking, layer.detail))
    return tuple(found)


# --- storage and variables ---


def _cache(folder: Path) -> Check:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(existing, os.W_OK) or not existing.is_dir():
        return Check("cache", MISSING, f"{folder} cannot be written", "set WARPSMITH_CACHE to a folder of yours")
    free = shutil.disk_usage(existing).free
    used = numbers.memory_size(_folder_bytes(folder)) if folder.exists() else "empty"
    return Check("cache", OK, f"{folder}, {used}, {numbers.memory_size(free)} free")


def _folder_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue  # another process has just removed it
    return total


def _of_providers() -> tuple[str, ...]:
    """The variables in which providers of models look for a key and an address."""
    known: dict[str, Provider] = plugins("warpsmith.llm")
    return tuple(variable for _, each in sorted(known.items()) for variable in (each.key_name, each.url_name))


def _variable(name: str, environ: Mapping[str, str], use: str = "") -> Check:
    """Says if a variable is set and what it is for, not its value."""
    purpose = f" ({use})" if use else ""
    return Check(name, OK, f"set{purpose}") if environ.get(name) else Check(name, ABSENT, f"not set{purpose}")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
