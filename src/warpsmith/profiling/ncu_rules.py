"""Diagnoses from GPU counters: one small rule per bottleneck, with thresholds as constants.

Waste comes first (bytes fetched and not used, repeated accesses, spilled registers), because removing it always helps.
Then come limits that are reached, then idle parts of the device. A rule is skipped if one of its counters is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from warpsmith.hardware.occupancy import OccupancyLimit, occupancy
from warpsmith.model.evaluation import Resources
from warpsmith.model.numbers import quantity, whole_percent
from warpsmith.profiling.digest import STRATEGIES, Bottleneck, Diagnosis, Rank
from warpsmith.profiling.ncu import KernelCounters

COALESCED = 0.5
"""The used share of each 32-byte sector fetched. Below a half the traffic doubles; kernels with unaligned rows lose
some per cent, strided ones nearly nine tenths."""

COALESCED_SECTORS = 4.0
"""Sectors that a warp needs for 4 bytes a lane; with no more sectors the accesses are not scattered."""

SECTORS_PER_REQUEST = 16.0
"""Used if used bytes are not counted: a warp that loads 16 bytes a lane needs 16 sectors, and never more."""

CONFLICTS = 0.4
"""Share of passes through shared memory that repeat an access. A two-way conflict gives a half; lower values also come
from ordinary arbitration."""

CONFLICTS_MATTER = 25.0
"""Per cent of the L1's peak; below it, conflicts cost nothing."""

SPILLED = 0.10
"""Share of L1 traffic that is local memory. A few registers saved around a loop stay below it."""

NEAR_BANDWIDTH = 70.0
"""Per cent of DRAM peak, above which only moving fewer bytes helps much. A long plain copy reaches 85 to 93, a copy
of 30 microseconds 74."""

SATURATED = 85.0
"""Per cent of DRAM peak above which conflicts in shared memory cost no time."""

NEAR_COMPUTE = 70.0
"""Per cent of the SMs' peak, above which arithmetic is the limit."""

LOW_OCCUPANCY = 0.35
"""Share of the warps that an SM can hold. Kernels with much work per thread are fast from about a third on."""

BUSY = 60.0
"""Per cent of either peak, above which neither occupancy nor latency is the limit."""

FULL_WAVE = 1.0
"""Fewer blocks than fit on the device at once leave SMs without work."""

SHORT_S = 4e-6
"""A kernel this short takes about as long to start as to run."""


@dataclass(frozen=True)
class ProfiledKernel:
    """The kernel that takes longest, and further facts that the rules use."""

    counters: KernelCounters  # of its longest launch
    zone: str = ""
    arch: str = ""
    resources: tuple[Resources, ...] = ()
    launches: int = 1
    share_of_time: float = 1.0

    @property
    def dram(self) -> float | None:
        """Per cent of the memory's peak."""
        return self.counters.get(
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "FBPA.TriageCompute.dramc__throughput.avg.pct_of_peak_sustained_elapsed",
        )

    @property
    def memory(self) -> float | None:
        """Per cent of the peak of the busiest part of the memory system."""
        return self.counters.get("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")

    @property
    def compute(self) -> float | None:
        """Per cent of the SMs' peak."""
        return self.counters.get("sm__throughput.avg.pct_of_peak_sustained_elapsed")

    @property
    def busiest(self) -> float:
        """The larger of `compute` and `memory`; 0 if both are unknown."""
        return max(self.compute or 0.0, self.memory or self.dram or 0.0)

    @property
    def busy_words(self) -> str:
        """`compute` and `memory` in words."""
        parts = [("memory", self.dram if self.dram is not None else self.memory), ("the SMs", self.compute)]
        known = [f"{name} at {value:.0f} %" for name, value in parts if value is not None]
        return " and ".join(known) + " of their peaks" if known else ""


def longest_kernel(
    launches: Sequence[KernelCounters], *, zone: str, arch: str, resources: tuple[Resources, ...]
) -> ProfiledKernel:
    """The kernel with the longest total time."""
    total = sum(each.seconds for each in launches)
    names = dict.fromkeys(each.kernel for each in launches)
    spent = {name: sum(each.seconds for each in launches if each.kernel == name) for name in names}
    chosen = max(names, key=lambda name: spent[name])
    longest = max((each for each in launches if each.kernel == chosen), key=lambda each: each.seconds)
    share = spent[chosen] / total if total > 0 else 1.0
    return ProfiledKernel(longest, zone, arch, resources, len(launches), share)


def diagnoses(kernel: ProfiledKernel) -> tuple[Diagnosis, ...]:
    """All diagnoses of a kernel, at least one."""
    found = [each for rule in _RULES for each in rule(kernel)]
    return tuple(found or [_unclear(kernel)])


def _diagnosis(
    kind: Bottleneck, rank: Rank, weight: float, sentence: str, *evidence: str, strategies: tuple[str, ...] = ()
) -> Diagnosis:
    return Diagnosis(kind, sentence, tuple(filter(None, evidence)), strategies or STRATEGIES[kind], rank, weight)


def _spills(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    local = _sum(kernel.counters, *(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")))
    other = _sum(kernel.counters, *(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st")))
    spilled = max((each.spill_bytes for each in kernel.resources), default=0)
    total = (local or 0.0) + (other or 0.0)
    share = (local or 0.0) / total if total > 0 else None
    if share is None and not spilled:
        return
    if share is not None and share < SPILLED:
        return
    registers = kernel.counters.get("launch__registers_per_thread")
    # An array that is indexed at run time is in local memory too, but the compiler does not call that a spill.
    why = "values that do not fit into registers" if spilled else "an array that is indexed at run time, or spills,"
    yield _diagnosis(
        Bottleneck.SPILLS,
        Rank.WASTE,
        share if share is not None else SPILLED,
        f"Local memory holds {why} and moves them back and forth.",
        f"{whole_percent(share)} of the L1's traffic is local memory" if share is not None else "",
        f"the compiler spills {spilled} bytes" if spilled else "",
        f"{registers:.0f} registers a thread" if registers else "",
    )


def _uncoalesced(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    worst: tuple[float, str] | None = None
    for op, word in (("ld", "loads"), ("st", "stores")):
        sectors = kernel.counters.get(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum")
        requests = kernel.counters.get(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum")
        used = kernel.counters.get(f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.pct")
        if sectors is not None and sectors == 0:
            continue
        per_request = sectors / requests if sectors and requests else None
        if per_request is not None and per_request <= COALESCED_SECTORS:
            continue
        if used is not None and 0 < used / 100 < COALESCED:
            share, text = used / 100, f"global {word} use {used * 0.32:.0f} of every 32 bytes fetched"
        elif used is None and per_request is not None and per_request > SECTORS_PER_REQUEST:
            share, text = 4 / per_request, f"a warp's {word} touch {per_request:.0f} sectors of 32 bytes each"
        else:
            continue
        if worst is None or share < worst[0]:
            extra = f" ({per_request:.0f} sectors a request)" if per_request and used is not None else ""
            worst = (share, text + extra)
    if worst is not None:
        yield _diagnosis(
            Bottleneck.UNCOALESCED,
            Rank.WASTE,
            1.0 - worst[0],
            "Neighbouring threads access addresses that are far apart, so most of the fetched bytes are not used.",
            worst[1],
            kernel.busy_words,
        )


def _conflicts(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    # Both counters have a total on some devices and only loads and stores on others.
    conflicts = _total(kernel.counters, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared")
    passes = _total(kernel.counters, "l1tex__data_pipe_lsu_wavefronts_mem_shared")
    if not conflicts or not passes:
        return
    share = min(conflicts / passes, 1.0)
    busy = kernel.counters.get("l1tex__throughput.avg.pct_of_peak_sustained_active")
    hidden = (busy is not None and busy < CONFLICTS_MATTER) or (kernel.dram or 0.0) >= SATURATED
    if share < CONFLICTS or hidden:
        return
    ways = 1 / (1 - share) if share < 1 else 32.0
    yield _diagnosis(
        Bottleneck.BANK_CONFLICTS,
        Rank.WASTE,
        share,
        "Threads of a warp access the same bank of shared memory, so that their accesses are done one after the other.",
        f"{whole_percent(share)} of the passes through shared memory are repeats "
        f"({min(ways, 32.0):.0f} passes an access)",
        f"the L1 is busy at {busy:.0f} % of its peak" if busy is not None else "",
        kernel.busy_words,
    )


def _bandwidth(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    if kernel.dram is None or kernel.dram < NEAR_BANDWIDTH:
        return
    rate = kernel.counters.get("dram__bytes.sum.per_second")
    yield _diagnosis(
        Bottleneck.BANDWIDTH,
        Rank.LIMIT_REACHED,
        kernel.dram / 100,
        "The memory bus is nearly full: only moving fewer bytes makes it faster.",
        f"DRAM at {kernel.dram:.0f} % of its peak",
        quantity(rate, "B/s") if rate else "",
        f"the SMs at {kernel.compute:.0f} %" if kernel.compute is not None else "",
    )


def _compute(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    if kernel.compute is None or kernel.compute < NEAR_COMPUTE or kernel.compute < (kernel.dram or 0.0):
        return
    tensor = kernel.counters.get(
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    )
    yield _diagnosis(
        Bottleneck.COMPUTE,
        Rank.LIMIT_REACHED,
        kernel.compute / 100,
        "The arithmetic units are nearly full: fewer or cheaper instructions make it faster.",
        f"the SMs at {kernel.compute:.0f} % of their peak",
        f"tensor cores at {tensor:.0f} %" if tensor is not None else "",
        f"DRAM at {kernel.dram:.0f} %" if kernel.dram is not None else "",
    )


def _launch(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    length = kernel.counters.seconds
    many = kernel.launches > 1
    if not 0 < length < SHORT_S or (kernel.zone != "latency" and not many):
        return
    yield _diagnosis(
        Bottleneck.LAUNCH,
        Rank.IDLE,
        1.0,
        "The kernel is so short that the launch takes most of the time.",
        f"the longest kernel runs for {length * 1e6:.1f} µs",
        f"{kernel.launches} kernels a call" if many else "",
    )


def _parallelism(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    waves = kernel.counters.get("launch__waves_per_multiprocessor")
    if waves is None or waves >= FULL_WAVE or kernel.busiest >= BUSY:
        return
    yield _diagnosis(
        Bottleneck.PARALLELISM,
        Rank.IDLE,
        1.0 - waves,
        "There are too few blocks to keep every SM busy.",
        f"{kernel.counters.grid} blocks fill {whole_percent(waves)} of the places that the device has"
        if kernel.counters.grid
        else "",
        kernel.busy_words,
    )


def _occupancy(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    if kernel.busiest >= BUSY:
        return
    per_cent = kernel.counters.get("sm__maximum_warps_per_active_cycle_pct")
    registers = int(kernel.counters.get("launch__registers_per_thread") or 0)
    shared = _shared(kernel)
    worked_out = occupancy(kernel.arch, kernel.counters.block, registers, shared)
    share = per_cent / 100 if per_cent is not None else worked_out.share if worked_out else None
    if share is None or share >= LOW_OCCUPANCY:
        return
    limit = _limit(kernel.counters) or (worked_out.limit if worked_out else None)
    used = {
        OccupancyLimit.REGISTERS: f"{registers} registers a thread",
        OccupancyLimit.SHARED_MEMORY: f"{shared / 1024:.0f} KiB of shared memory a block",
        OccupancyLimit.BLOCK_SIZE: f"{kernel.counters.block} threads a block",
        OccupancyLimit.BLOCKS: f"{kernel.counters.block} threads a block",
    }
    yield _diagnosis(
        Bottleneck.LOW_OCCUPANCY,
        Rank.IDLE,
        1.0 - share,
        f"Too few warps fit on an SM to hide waiting; {limit.value} is the limit."
        if limit
        else "Too few warps fit on an SM to hide waiting.",
        f"{whole_percent(share)} of the warps that an SM can hold",
        used[limit] if limit else "",
        kernel.busy_words,
        strategies=_FOR_LIMIT.get(limit, ()) if limit else (),
    )


def _latency(kernel: ProfiledKernel) -> Iterator[Diagnosis]:
    if not 0 < kernel.busiest < BUSY:
        return
    eligible = kernel.counters.get("smsp__warps_eligible.avg.per_cycle_active")
    stalls = [(value, word) for name, word in _STALLS if (value := kernel.counters.get(name))]
    worst = max(stalls, default=None)
    yield _diagnosis(
        Bottleneck.LATENCY,
        Rank.UNCLEAR,
        1.0 - kernel.busiest / 100,
        f"Warps mostly wait{f' for {worst[1]}' if worst else ''}, and no unit is near its limit.",
        kernel.busy_words,
        f"{eligible:.1f} warps ready to issue per cycle" if eligible is not None else "",
    )


def _unclear(kernel: ProfiledKernel) -> Diagnosis:
    return _diagnosis(
        Bottleneck.UNKNOWN,
        Rank.UNCLEAR,
        0.0,
        "No counter shows a cause.",
        kernel.busy_words or "the tool gave no usable counter",
    )


_RULES: tuple[Callable[[ProfiledKernel], Iterator[Diagnosis]], ...] = (
    *(_spills, _uncoalesced, _conflicts),
    *(_bandwidth, _compute),
    *(_launch, _parallelism, _occupancy),
    _latency,
)

_STALLS = tuple(
    (f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio", word)
    for name, word in (
        ("long_scoreboard", "data from memory"),
        ("short_scoreboard", "data from shared memory"),
        ("barrier", "other warps at a barrier"),
        ("mio_throttle", "the queue of shared-memory instructions"),
        ("lg_throttle", "the queue of memory instructions"),
        ("math_pipe_throttle", "an arithmetic pipe"),
        ("wait", "results of earlier instructions"),
        ("membar", "a memory fence"),
    )
)

_FOR_LIMIT = {
    OccupancyLimit.REGISTERS: ("launch-bounds", "occupancy-balance", "register-tile"),
    OccupancyLimit.SHARED_MEMORY: ("occupancy-balance", "row-in-registers", "shared-tile"),
    OccupancyLimit.BLOCK_SIZE: ("block-size", "occupancy-balance"),
    OccupancyLimit.BLOCKS: ("block-size", "occupancy-balance"),
}


def _shared(kernel: ProfiledKernel) -> int:
    static, dynamic = (kernel.counters.get(f"launch__shared_mem_per_block_{kind}") for kind in ("static", "dynamic"))
    known = max((each.shared_bytes for each in kernel.resources), default=0)
    return int((static if static is not None else known) + (dynamic or 0.0))


def _limit(launch: KernelCounters) -> OccupancyLimit | None:
    """The limit of occupancy according to the tool."""
    names = {
        OccupancyLimit.REGISTERS: "launch__occupancy_limit_registers",
        OccupancyLimit.SHARED_MEMORY: "launch__occupancy_limit_shared_mem",
        OccupancyLimit.BLOCK_SIZE: "launch__occupancy_limit_warps",
        OccupancyLimit.BLOCKS: "launch__occupancy_limit_blocks",
    }
    found = {limit: value for limit, name in names.items() if (value := launch.get(name)) is not None}
    return min(found, key=lambda limit: found[limit]) if found else None


def _sum(launch: KernelCounters, *names: str) -> float | None:
    found = [launch.values[name] for name in names if name in launch.values]
    return sum(found) if found else None


def _total(launch: KernelCounters, name: str) -> float | None:
    whole = launch.get(f"{name}.sum")
    return whole if whole is not None else _sum(launch, f"{name}_op_ld.sum", f"{name}_op_st.sum")
