"""Device facts: what CUDA_VISIBLE_DEVICES shows, which architecture to build for, what --device means."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.hardware import device
from warpsmith.hardware.device import (
    CpuInfo,
    _cpu_name,
    arch_of,
    cpu_info,
    cpu_threads,
    select_device,
    vector_instructions,
    visible_gpus,
    visible_uuids,
)
from warpsmith.model.errors import ToolMissing, UsageError

UUIDS = ("GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3")


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (None, UUIDS),
        ("", ()),
        ("1", (UUIDS[1],)),
        ("2,0", (UUIDS[2], UUIDS[0])),
        (" 2 , 0 ", (UUIDS[2], UUIDS[0])),
        ("0,7,1", (UUIDS[0],)),  # the list ends at the first entry that names nothing
        ("0,-1,1", (UUIDS[0],)),
        ("-1", ()),
        ("1,1", ()),  # CUDA shows nothing then
        ("GPU-cccc", (UUIDS[2],)),
        ("GPU-aa", ()),  # ambiguous
        ("gpu", ()),
        ("GPU-aabb-2,0", (UUIDS[1], UUIDS[0])),
        ("MIG-1234", ("MIG-1234",)),
    ],
)
def test_visible_devices_follow_cudas_rules(setting: str | None, shown: tuple[str, ...]) -> None:
    assert visible_uuids(UUIDS, setting) == shown


@given(st.text(alphabet="0123,-GPUac ", max_size=20))
def test_any_setting_shows_distinct_installed_gpus(setting: str) -> None:
    shown = visible_uuids(UUIDS, setting)
    assert len(set(shown)) == len(shown)
    assert set(shown) <= set(UUIDS)


@pytest.mark.parametrize(
    ("capability", "arch"), [((9, 0), "sm_90a"), ((8, 6), "sm_86"), ((10, 0), "sm_100a"), ((12, 0), "sm_120a")]
)
def test_arch_has_the_suffix_where_it_exists(capability: tuple[int, int], arch: str) -> None:
    assert arch_of(capability) == arch


@pytest.mark.parametrize(
    ("said", "used"),
    [("1", 1), ("2", 2), ("2,1", 2), ("99", 4), ("", 4), ("0", 4), ("many", 4), ("-1", 4), (None, 4)],
)
def test_kernels_get_the_threads_that_openmp_is_told_to_use(
    said: str | None, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    if said is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert cpu_threads() == used


def test_measurements_with_fewer_threads_are_another_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_info", lambda: CpuInfo("a processor", 4, "flags", 1 << 20, 1 << 30))
    monkeypatch.setattr(device, "cpu_threads", lambda: 4)
    whole = select_device("cpu")
    monkeypatch.setattr(device, "cpu_threads", lambda: 2)
    half = select_device("cpu")
    assert half.key == f"{whole.key}|2 threads"
    assert half.hardware == whole.hardware, "they still wait for each other"


def test_cpu_facts_are_those_of_this_process() -> None:
    found = cpu_info()
    assert found.name
    assert found.cores == len(os.sched_getaffinity(0))
    assert 64 << 10 <= found.cache_bytes <= 16 << 30
    assert found.memory_bytes > 256 << 20
    assert cpu_info() is found


def test_cpu_is_always_there() -> None:
    device = select_device("cpu")
    assert (device.kind, device.spec, device.arch) == ("cpu", "cpu", "native")
    assert device.label == f"{cpu_info().name} (cpu)"
    assert str(cpu_info().cores) in device.key
    assert cpu_info().name in device.key


def test_auto_takes_a_gpu_where_there_is_one() -> None:
    assert select_device("auto").kind == ("cuda" if visible_gpus() else "cpu")


def test_a_gpu_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ToolMissing, match=r"^device cuda:99 does not exist here: .*cpu\.$"):
        select_device("cuda:99")


@pytest.mark.parametrize("spec", ["", "gpu", "cuda:", "cuda:-1", "CPU", "cuda:x", "cpu:0"])
def test_a_device_that_means_nothing_is_a_usage_error(spec: str) -> None:
    with pytest.raises(UsageError, match="auto, cpu, cuda or cuda:n"):
        select_device(spec)


def test_hidden_gpus_are_not_seen() -> None:
    source = Path(__file__).parents[2] / "src"
    code = (
        "from warpsmith.hardware.device import select_device, visible_gpus; "
        "print(visible_gpus(), select_device('auto').kind)"
    )
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["()", "cpu"]


def test_device_facts_and_limits_do_not_need_torch() -> None:
    source = Path(__file__).parents[2] / "src"
    code = (
        "import sys, warpsmith.hardware.device, warpsmith.hardware.roofline as r; r.Zone; "
        "warpsmith.hardware.device.select_device('auto'); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(source)}, check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not visible_gpus(), reason="no NVIDIA GPU is visible")
def test_gpu_facts_agree_with_torch() -> None:
    import torch

    assert len(visible_gpus()) == torch.cuda.device_count()
    for gpu in visible_gpus():
        properties = torch.cuda.get_device_properties(gpu.index)
        assert gpu.name == properties.name
        assert gpu.capability == (properties.major, properties.minor)
        assert gpu.uuid == f"GPU-{properties.uuid}"


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("model name\t: AMD EPYC  7B13\nflags\t: fpu", "AMD EPYC 7B13"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd4f", "Arm Neoverse-V2"),
        ("CPU implementer\t: 0x99\nCPU part\t: 0x123", f"{platform.machine()} 0x99 0x123"),
        ("", platform.machine()),
    ],
)
def test_processors_have_names(info: str, name: str) -> None:
    assert _cpu_name(info) == name


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("fpu sse2 avx avx2 avx512f amx_tile", "AVX-512 and AMX"),
        ("sse avx avx2", "AVX2"),
        ("fp asimd sve sve2", "SVE2"),
        ("fp asimd", "NEON"),
        ("", ""),
    ],
)
def test_the_widest_vector_instructions_are_named(flags: str, words: str) -> None:
    assert vector_instructions(flags) == words
