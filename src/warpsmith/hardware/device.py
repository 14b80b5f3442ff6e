"""Finds the devices of this machine and its free memory, without torch and without using a device.

The supervisor imports this module, so it must not create a CUDA context or call the CUDA driver: it reads NVML, /proc
and /sys.

NVML lists GPUs in PCI order, CUDA "fastest first" unless CUDA_DEVICE_ORDER=PCI_BUS_ID: on a machine with
different GPUs in one box, set that variable, or start the worker with CUDA_VISIBLE_DEVICES=<Gpu.uuid>.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from warpsmith.model.build import DeviceKind
from warpsmith.model.errors import ToolMissing, UsageError

ARCH_SPECIFIC = frozenset({(9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)})
"""Capabilities with instructions that exist only under the `a` suffix (wgmma, tcgen05, ...)."""

_ARM_CORES = {  # by designer and part
    ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd42"): "Cortex-A78AE",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd84"): "Neoverse-V3",
    ("0x41", "0xd8e"): "Neoverse-N3",
}
_DEFAULT_CACHE_BYTES = 32 << 20  # if /sys has no size: larger than most caches


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU that is visible to CUDA programs of this process."""

    index: int  # n of cuda:n
    name: str
    uuid: str  # also a valid CUDA_VISIBLE_DEVICES entry
    arch: str  # for nvcc, e.g. "sm_90a"
    capability: tuple[int, int]
    memory_bytes: int
    driver: str  # version of the kernel driver


@dataclass(frozen=True)
class CpuInfo:
    """The CPUs that this process may use."""

    name: str
    cores: int  # logical CPUs in this process's affinity
    flags: str  # digest of the instruction-set flags: -march=native depends on them
    cache_bytes: int  # last-level caches of those CPUs, added up
    memory_bytes: int
    instructions: str = ""  # its widest vector instructions: "AVX-512"; "" if not known


@dataclass(frozen=True)
class Device:
    """The device on which candidates run."""

    kind: DeviceKind
    index: int  # 0 on the CPU
    name: str
    arch: str  # "native" on the CPU, e.g. "sm_90a" on CUDA
    hardware: str  # identifies the hardware, which one process at a time uses
    threads: int = 0  # of the CPU, if fewer than its processors are used; 0: all

    @property
    def key(self) -> str:
        """Identifies devices with comparable measurements; part of cache keys."""
        return f"{self.hardware}|{self.threads} threads" if self.threads else self.hardware

    @property
    def spec(self) -> str:
        """The name of the device in torch: "cpu" or "cuda:0"."""
        return "cpu" if self.kind is DeviceKind.CPU else f"cuda:{self.index}"

    @property
    def label(self) -> str:
        """The name of the device for users: "NVIDIA H200 (cuda:0)"."""
        return f"{self.name} ({self.spec})"


def arch_of(capability: tuple[int, int]) -> str:
    """The architecture to compile for: (9, 0) gives "sm_90a", (8, 6) gives "sm_86"."""
    suffix = "a" if capability in ARCH_SPECIFIC else ""
    return f"sm_{capability[0]}{capability[1]}{suffix}"


def visible_uuids(installed: Sequence[str], setting: str | None) -> tuple[str, ...]:
    """The UUIDs of the GPUs that CUDA shows for a value of CUDA_VISIBLE_DEVICES, in CUDA's order.

    CUDA's rules: unset shows all; the list ends at the first entry that names no GPU; a GPU named twice hides all; a
    UUID may be shortened while it is unique. MIG UUIDs are returned unchanged.
    """
    if setting is None:
        return tuple(installed)
    chosen: list[str] = []
    for entry in (part.strip() for part in setting.split(",")):
        if re.fullmatch(r"[+]?\d+", entry):
            matches = [installed[int(entry)]] if int(entry) < len(installed) else []
        elif entry.startswith("MIG-"):
            matches = [entry]
        elif entry.startswith("GPU-"):
            matches = [uuid for uuid in installed if uuid.lower().startswith(entry.lower())]
        else:
            matches = []
        if len(matches) != 1:
            break
        chosen.append(matches[0])
    return tuple(chosen) if len(set(chosen)) == len(chosen) else ()


@cache
def visible_gpus() -> tuple[Gpu, ...]:
    """The visible GPUs in CUDA's numbering; empty without NVIDIA's driver or the NVML bindings."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        installed = [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        shown = visible_uuids(installed, os.environ.get("CUDA_VISIBLE_DEVICES"))
        return tuple(_gpu(pynvml, index, uuid) for index, uuid in enumerate(shown))
    except pynvml.NVMLError:
        return ()  # e.g. driver and library of different versions: CUDA would not work either
    finally:
        pynvml.nvmlShutdown()


def free_gpu_memory(index: int) -> int | None:
    """The free memory of a visible GPU in bytes; None if NVML cannot say."""
    return _ask_nvml(index, lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).free))


def process_gpu_memory(index: int, pid: int) -> int | None:
    """The memory of a visible GPU that one process holds, in bytes; None if NVML cannot say."""

    def held(nvml: Any, gpu: Any) -> int | None:
        processes: dict[int, int | None] = {
            each.pid: each.usedGpuMemory for each in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
        }
        return processes.get(pid)

    return _ask_nvml(index, held)


def _ask_nvml(index: int, question: Callable[[Any, Any], int | None]) -> int | None:
    """The answer to a question about a visible GPU, by its handle; None if there is none."""
    found = [gpu for gpu in visible_gpus() if gpu.index == index]
    if not found:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml, pynvml.nvmlDeviceGetHandleByUUID(found[0].uuid))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def _gpu(nvml: Any, index: int, uuid: str) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    # A MIG slice has its own memory; its capability is that of the whole GPU.
    whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if uuid.startswith("MIG-") else handle
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(whole)
    return Gpu(
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=uuid,
        arch=arch_of((major, minor)),
        capability=(major, minor),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        driver=_text(nvml.nvmlSystemGetDriverVersion()),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # older bindings give bytes


_VECTORS = (
    ("avx512f", "AVX-512"),
    ("avx2", "AVX2"),
    ("avx", "AVX"),
    ("sve2", "SVE2"),
    ("sve", "SVE"),
    ("asimd", "NEON"),
)


@cache
def cpu_info() -> CpuInfo:
    """The CPUs of this process."""
    info = _read(Path("/proc/cpuinfo"))
    usable = sorted(os.sched_getaffinity(0))
    flags = _field(info, "flags") or _field(info, "Features") or platform.machine()
    return CpuInfo(
        name=_cpu_name(info),
        cores=len(usable),
        flags=hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()[:12],
        cache_bytes=_last_level_bytes(Path("/sys/devices/system/cpu"), usable) or _DEFAULT_CACHE_BYTES,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        instructions=vector_instructions(flags),
    )


def vector_instructions(flags: str) -> str:
    """The widest vector instructions among the flags of a processor, and matrix instructions; "" without any."""
    known = set(flags.split())
    widest = [word for flag, word in _VECTORS if flag in known][:1]
    return " and ".join([*widest, *(["AMX"] if "amx_tile" in known else [])])


def _cpu_name(info: str) -> str:
    """The name of the processor, on Arm from a table: the system has numbers only."""
    parts = (_field(info, "CPU implementer"), _field(info, "CPU part"))
    known = _ARM_CORES.get(parts)
    name = _field(info, "model name") or (
        f"Arm {known}" if known else " ".join(filter(None, (platform.machine(), *parts)))
    )
    return " ".join(name.split())


def cpu_threads() -> int:
    """The threads of candidate and baseline when kernels are timed on the CPU: the number of processors of this
    process, or fewer if OMP_NUM_THREADS is set."""
    usable = len(os.sched_getaffinity(0))
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # of a list the first entry
    return min(usable, int(said)) if re.fullmatch(r"0*[1-9]\d{0,5}", said) else usable


def select_device(spec: str) -> Device:
    """The device for "auto", "cpu", "cuda" or "cuda:n"; auto is the first GPU, else the CPU."""
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", spec)
    if match is None:
        raise UsageError(f"unknown device {spec!r}; use auto, cpu, cuda or cuda:n.")
    if spec == "cpu" or (spec == "auto" and not visible_gpus()):
        here, used = cpu_info(), cpu_threads()
        hardware = f"cpu|{here.name}|{here.cores} cores|{here.flags}"
        return Device(DeviceKind.CPU, 0, here.name, "native", hardware, used if used < here.cores else 0)
    index, found = int(match[1] or 0), visible_gpus()
    if index >= len(found):
        there = ", ".join(f"cuda:{g.index} ({g.name})" for g in found)
        what = (
            f"there is {there}; choose one of these or cpu" if found else "no NVIDIA GPU is visible; use --device cpu"
        )
        raise ToolMissing(f"device cuda:{index} does not exist here: {what}.")
    gpu = found[index]
    return Device(DeviceKind.CUDA, index, gpu.name, gpu.arch, f"cuda|{gpu.name}|{gpu.uuid}")


def _last_level_bytes(root: Path, cpus: Sequence[int]) -> int:
    """The bytes of the distinct last-level caches of these CPUs; 0 if unknown."""
    found: dict[tuple[int, str], int] = {}
    for number in cpus:
        for folder in (root / f"cpu{number}" / "cache").glob("index*"):
            size = re.fullmatch(r"(\d+)([KMG]?)", _read(folder / "size").strip())
            level = _read(folder / "level").strip()
            if size is None or not level.isdigit() or _read(folder / "type").strip() == "Instruction":
                continue
            shared = _read(folder / "shared_cpu_list").strip() or str(number)
            found[int(level), shared] = int(size[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[size[2]]
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last)


def _field(info: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", info, re.MULTILINE)
    return match[1].strip() if match else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


_LIMITS = (  # files of a control group, version 2 and 1: the limit, the usage, and the cache in it that can be dropped
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes that can be allocated without swapping: of the machine, or of the control group where that has less."""
    free = int(psutil.virtual_memory().available)
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return free
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller, limit, usage, droppable in _LIMITS:
            if controller in controllers.split(","):
                top = groups / controller
                inside = top / path.lstrip("/")
                for folder in (inside, *inside.parents):  # a group has the limits of those around it, too
                    free = min(free, _left(folder, limit, usage, droppable, free))
                    if folder == top:
                        break
    return max(free, 0)


def _left(folder: Path, limit: str, usage: str, droppable: str, unlimited: int) -> int:
    """What a control group leaves of its limit; `unlimited` where it has none or cannot be read."""
    try:
        most, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return unlimited if most == "max" else int(most) - used + int(statistics.get(droppable, 0))
    except (OSError, ValueError):
        return unlimited
