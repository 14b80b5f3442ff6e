"""Measured peaks: plausible figures, kept in a cache that survives anything found in it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from warpsmith.hardware.device import visible_gpus
from warpsmith.hardware.peaks import Peaks, load_or_measure, measure_peaks
from warpsmith.model.task import Precision

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def peaks(cache: Path) -> Peaks:
    return load_or_measure(cache, "this cpu", CPU)


def test_cpu_figures_are_plausible(peaks: Peaks) -> None:
    assert peaks.kind == "cpu"
    assert 0.5e9 < peaks.bandwidth_bytes_s < 2000e9
    assert peaks.bandwidth_bytes_s <= peaks.cache_bandwidth_bytes_s < 50e12
    assert 1e8 < peaks.flops_s(Precision.FP64) < 1e14
    assert 1e8 < peaks.flops_s(Precision.FP32) < 1e14
    assert 1e-8 < peaks.launch_overhead_s < 1e-2
    assert peaks.sms == torch.get_num_threads()


def test_a_coarser_type_is_never_slower_than_fp32(peaks: Peaks) -> None:
    for precision in (Precision.FP16, Precision.BF16, Precision.TF32):
        assert peaks.flops_s(precision) >= peaks.flops_s(Precision.FP32)


def test_flags_are_left_as_they_were() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        threads = torch.get_num_threads()
        measure_peaks(CPU)
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_num_threads() == threads
        assert not torch.is_inference_mode_enabled()
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_second_time_comes_from_the_cache(cache: Path, peaks: Peaks) -> None:
    assert load_or_measure(cache, "this cpu", CPU) == peaks
    assert [path.suffix for path in (cache / "peaks").iterdir()] == [".json"]


@pytest.mark.parametrize("content", [b"", b'{"kind": "cpu"}', b"\xff\xfe"])
def test_a_broken_file_is_measured_again(cache: Path, peaks: Peaks, content: bytes) -> None:
    (file,) = (cache / "peaks").glob("*.json")
    file.write_bytes(content)
    again = load_or_measure(cache, "this cpu", CPU)
    assert replace(again, measured_at="") != replace(peaks, measured_at="")  # figures of another measurement
    assert load_or_measure(cache, "this cpu", CPU) == again


def test_another_device_has_its_own_figures(cache: Path, peaks: Peaks) -> None:
    other = load_or_measure(cache, "another cpu", CPU)
    assert other.device_key == "another cpu"
    assert load_or_measure(cache, "this cpu", CPU).device_key == "this cpu"


def _kept(cache: Path, peaks: Peaks, **changes: object) -> Peaks:
    """The peaks with changes, as the only file of a cache."""
    changed = replace(peaks, **changes)  # type: ignore[arg-type]
    (file,) = (cache / "peaks").glob("*.json")
    file.write_bytes(TypeAdapter(Peaks).dump_json(changed))
    return changed


def test_figures_of_a_busy_machine_are_measured_again_and_the_better_count(tmp_path: Path) -> None:
    good = load_or_measure(tmp_path, "this cpu", CPU)
    busy = {"load": 0.6, "bandwidth_bytes_s": good.bandwidth_bytes_s / 50, "launch_overhead_s": 1e-9}
    now = datetime.now(UTC)
    recent = _kept(tmp_path, good, **busy, measured_at=now.isoformat())
    assert load_or_measure(tmp_path, "this cpu", CPU) == recent, "not at every use"
    _kept(tmp_path, good, **busy, measured_at=(now - timedelta(hours=1)).isoformat())
    again = load_or_measure(tmp_path, "this cpu", CPU)
    assert again.bandwidth_bytes_s > 5 * recent.bandwidth_bytes_s
    assert again.launch_overhead_s == 1e-9
    steady = _kept(tmp_path, good, load=0.0, spread=0.0, measured_at=(now - timedelta(days=9)).isoformat())
    assert load_or_measure(tmp_path, "this cpu", CPU) == steady


def test_the_load_of_others_is_seen(peaks: Peaks) -> None:
    assert 0 <= peaks.load <= 1
    assert peaks.spread >= 0
    endless = "import sys\nprint(flush=True)\nwhile True: pass"
    others = [
        subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE) for _ in range(os.cpu_count() or 1)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        found = measure_peaks(CPU)
    finally:
        for other in others:
            other.kill()
            other.communicate()
    assert found.load > 0.15
    assert not found.steady


@pytest.mark.gpu
@pytest.mark.skipif(not visible_gpus(), reason="no NVIDIA GPU is visible")
def test_gpu_figures_are_plausible() -> None:
    device = torch.device("cuda:0")
    found = measure_peaks(device)
    assert found.kind == "cuda"
    assert 50e9 < found.bandwidth_bytes_s < found.cache_bandwidth_bytes_s
    assert found.flops_s(Precision.FP32) <= found.flops_s(Precision.TF32)
    assert found.flops_s(Precision.FP32) < found.flops_s(Precision.FP16)
    assert 1e-7 < found.launch_overhead_s < 1e-4
    assert torch.cuda.memory_reserved(device) < 256 << 20
