"""Counters in, words out: hand-made logs of Nsight Compute, each with a planted bottleneck, and broken ones."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Resources
from warpsmith.profiling import cpu_report, ncu, ncu_rules
from warpsmith.profiling.digest import CPU_STRATEGIES, MOST_EVIDENCE, STRATEGIES, Bottleneck, Digest, compose_digest
from warpsmith.profiling.ncu import KernelCounters, complaint, parse
from warpsmith.strategies.catalogue import strategies

LOGS = Path(__file__).parent / "ncu"
PLANTED = {
    "uncoalesced_transpose": (Bottleneck.UNCOALESCED, "coalesced-access"),
    "bank_conflicted_tile": (Bottleneck.BANK_CONFLICTS, "padded-shared"),
    "low_occupancy": (Bottleneck.LOW_OCCUPANCY, "occupancy-balance"),
    "spilling": (Bottleneck.SPILLS, "launch-bounds"),
    "near_peak_copy": (Bottleneck.BANDWIDTH, "kernel-fusion"),
}
SPILL = (Resources("many_values", registers=255, spill_bytes=1288),)


def log_of(name: str) -> str:
    return (LOGS / f"{name}.csv").read_text()


def digest_of(log: str, *, zone: str = "memory", resources: tuple[Resources, ...] = ()) -> Digest:
    seen = ncu_rules.longest_kernel(parse(log), zone=zone, arch="sm_90a", resources=resources)
    return compose_digest(
        ncu_rules.diagnoses(seen), source="Nsight Compute", workload="4096x4096", kernel=seen.counters.kernel
    )


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_bottleneck_is_named_first(name: str) -> None:
    bottleneck, strategy = PLANTED[name]

    digest = digest_of(log_of(name), resources=SPILL if name == "spilling" else ())

    assert digest.bottleneck is bottleneck, digest.text
    assert digest.strategies[0] == strategy
    assert 2 <= len(digest.evidence) <= MOST_EVIDENCE


@pytest.mark.parametrize("name", PLANTED)
def test_a_digest_holds_no_counters(name: str) -> None:
    text = digest_of(log_of(name)).text

    assert "__" not in text
    assert len(re.findall(r"\d[\d.]*", text)) <= 12, text
    assert len(text) < 600


def test_evidence_says_how_bad_it_is() -> None:
    assert (
        "global stores use 4 of every 32 bytes fetched (32 sectors a request)"
        in digest_of(log_of("uncoalesced_transpose")).text
    )
    assert "94 % of the passes through shared memory are repeats" in digest_of(log_of("bank_conflicted_tile")).text
    assert "the compiler spills 1288 bytes" in digest_of(log_of("spilling"), resources=SPILL).text
    low = digest_of(log_of("low_occupancy")).text
    assert "shared memory is the limit" in low
    assert "6 % of the warps that an SM can hold; 112 KiB of shared memory a block" in low
    assert "DRAM at 92 % of its peak; 4.43 TB/s" in digest_of(log_of("near_peak_copy")).text


def test_the_kernel_that_takes_longest_is_looked_at() -> None:
    copy, spilling = parse(log_of("near_peak_copy"))[0], parse(log_of("spilling"))[0]

    seen = ncu_rules.longest_kernel([copy, spilling, copy], zone="memory", arch="sm_90a", resources=())

    assert seen.counters.kernel == "many_values"
    assert seen.share_of_time == pytest.approx(840192 / (840192 + 2 * 29408))


def made(**values: float) -> KernelCounters:
    """A kernel with these counters, which are known by short names."""
    names = {
        "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "seconds": "gpu__time_duration.sum",
        "waves": "launch__waves_per_multiprocessor",
        "occupancy": "sm__maximum_warps_per_active_cycle_pct",
        "used": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
        "sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
        "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "passes": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "registers": "launch__registers_per_thread",
        "stall": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    }
    return KernelCounters("k", {names[name]: value for name, value in values.items()}, block=256, grid=64)


def first(launch: KernelCounters, zone: str = "memory", launches: int = 1) -> Bottleneck:
    seen = replace(ncu_rules.longest_kernel([launch], zone=zone, arch="sm_90a", resources=()), launches=launches)
    return compose_digest(ncu_rules.diagnoses(seen), source="").bottleneck


def test_the_other_bottlenecks() -> None:
    assert first(made(compute=88, dram=20)) is Bottleneck.COMPUTE
    assert first(made(compute=12, memory=18, waves=0.2, occupancy=100)) is Bottleneck.PARALLELISM
    assert first(made(compute=12, memory=18, waves=4, occupancy=100, stall=9.0)) is Bottleneck.LATENCY
    assert first(made(compute=2, memory=3, seconds=2e-6, waves=0.1), zone="latency") is Bottleneck.LAUNCH
    assert first(made(compute=2, memory=3, seconds=2e-6, waves=4), launches=4) is Bottleneck.LAUNCH
    assert first(KernelCounters("k", {})) is Bottleneck.UNKNOWN


def test_what_looks_alike_is_told_apart() -> None:
    # All lanes of a warp read one address: a fraction of the sector is used, and nothing is wasted.
    assert first(made(used=12.5, sectors=100, requests=100, compute=85)) is Bottleneck.COMPUTE
    # Where bytes are not counted, more sectors than any vector load needs are proof enough.
    assert first(made(sectors=3200, requests=100, memory=70)) is Bottleneck.UNCOALESCED
    assert first(made(sectors=1600, requests=100, dram=90)) is Bottleneck.BANDWIDTH
    # Conflicts in a unit that is idle, or behind a bus that is full, cost nothing.
    assert first(made(conflicts=90, passes=100, l1=5, compute=80)) is Bottleneck.COMPUTE
    assert first(made(conflicts=90, passes=100, l1=60, dram=91)) is Bottleneck.BANDWIDTH
    # Occupancy does not matter to a kernel that keeps the device busy.
    assert first(made(occupancy=12.5, compute=90, registers=255)) is Bottleneck.COMPUTE


def test_occupancy_is_worked_out_where_the_tool_does_not_say() -> None:
    seen = ncu_rules.longest_kernel(
        [made(registers=200, compute=20, memory=20, waves=4)], zone="compute", arch="sm_90a", resources=()
    )
    digest = compose_digest(ncu_rules.diagnoses(seen), source="")

    assert digest.bottleneck is Bottleneck.LOW_OCCUPANCY
    assert "registers is the limit" in digest.sentence
    assert "12 % of the warps" in digest.text


def test_every_strategy_named_is_in_the_catalogue_for_that_backend() -> None:
    catalogue = strategies()
    cuda = {name for names in (*STRATEGIES.values(), *ncu_rules._FOR_LIMIT.values()) for name in names}
    on_cpu = {name for names in CPU_STRATEGIES.values() for name in names}
    on_cpu |= {name for _, _, names in cpu_report._REASONS for name in names} | {"loop-interchange", "vector-exp"}

    assert [name for name in cuda if "cuda" not in catalogue[name].backends] == []
    assert [name for name in on_cpu if "cpu" not in catalogue[name].backends] == []


# --- logs as they come ---


def test_units_and_groups_of_digits_are_understood() -> None:
    (launch,) = parse(log_of("uncoalesced_transpose"))

    assert launch.seconds == pytest.approx(98.432e-6)
    assert launch.kernel == "transpose_naive"
    assert (launch.block, launch.grid) == (256, 65536)
    assert parse(log_of("bank_conflicted_tile"))[0].kernel == "tile_transpose"
    scaled = '"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum.per_second"\n'
    scaled += '"","","us","Gbyte/s"\n"0","k","12.5","3"\n'
    assert parse(scaled)[0].values == {
        "gpu__time_duration.sum": pytest.approx(12.5e-6),
        "dram__bytes.sum.per_second": pytest.approx(3e9),
    }


HEADER = '"ID","Kernel Name","sm__throughput.avg.pct_of_peak_sustained_elapsed"\n'


@pytest.mark.parametrize(
    ("log", "launches"),
    [
        ("", 0),
        ("==PROF== Connected\nno table at all\n", 0),
        (HEADER, 0),
        (HEADER + '"","","%"\n', 0),
        (HEADER + '"","","%"\n"0","k"\n', 0),  # cut off
        (HEADER + '"","","%"\n"0","k","80"\n"1","k"', 1),
        (HEADER + '"","","%"\n==WARNING== something\n"0","k","80"\nwhat the program printed\n"1","k","n/a"\n', 2),
        (HEADER + '"","","%"\n"0","k","nan"\n', 1),
        (HEADER + '"","","%"\n"0","k","80\n', 0),  # a field without end
        (HEADER + '"","","%"\n"x","k","80"\n', 0),
        ("\x00\x00" + HEADER, 0),
        ('"ID","Kernel Name"\n"",""\n"0","k"\n', 1),  # no counters at all
    ],
)
def test_a_malformed_log_gives_what_is_whole_in_it(log: str, launches: int) -> None:
    found = parse(log)

    assert len(found) == launches
    if found:
        seen = ncu_rules.longest_kernel(found, zone="memory", arch="sm_90a", resources=())
        assert compose_digest(ncu_rules.diagnoses(seen), source="").text  # and never an exception


def test_what_the_tool_complains_of_is_heard() -> None:
    log = "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n"

    assert complaint(log).startswith("ERR_NVGPUCTRPERM")
    assert complaint("==PROF== Connected\n") == ""


def test_sections_follow_the_zone() -> None:
    def sections(zone: str) -> set[str]:
        words = ncu.command(Path("ncu"), zone, Path("log"))
        return {words[i + 1] for i, word in enumerate(words) if word == "--section"}

    assert "MemoryWorkloadAnalysis" in sections("memory") - sections("compute")
    assert "ComputeWorkloadAnalysis" in sections("compute") - sections("memory")
    assert sections("middle") >= sections("memory") | sections("compute")
    words = " ".join(ncu.command(Path("ncu"), "memory", Path("log"), kernels=("softmax.kernel",)))
    assert "--clock-control none" in words
    assert r"--kernel-name regex:^(softmax\.kernel)" in words
    assert "--launch-count" in words


def test_kernels_of_a_python_file_are_those_it_defines() -> None:
    text = "@triton.jit\ndef one(x):\n    pass\n@triton.jit(do_not_specialize=['n'])\ndef two(x):\n    pass\n"
    text += "def launch(x): ...\n"

    assert ncu.kernels_of(Candidate((SourceFile("k.py", text),), "triton")) == ("one", "two")
    assert ncu.kernels_of(Candidate((SourceFile("k.cu", text),), "cuda")) == ()
