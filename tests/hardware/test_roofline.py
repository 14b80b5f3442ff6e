"""Floors, hard limits and zones from given figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from warpsmith.hardware.roofline import (
    Peaks,
    Work,
    Zone,
    floor_ms,
    permitted_flops_s,
    reject_below_ms,
    ridges,
    zone,
)
from warpsmith.model.build import DeviceKind
from warpsmith.model.task import Precision

H200 = Peaks(
    device_key="cuda|H200",
    kind=DeviceKind.CUDA,
    bandwidth_bytes_s=4.3e12,
    cache_bandwidth_bytes_s=8e12,
    flops=(("fp64", 64e12), ("fp32", 51e12), ("tf32", 400e12), ("fp16", 750e12), ("bf16", 790e12)),
    launch_overhead_s=1.2e-6,
    l2_bytes=60 << 20,
    sms=132,
    measured_at="2026-01-01T00:00:00+00:00",
    torch="2.13.0",
)
LAPTOP = replace(
    H200,
    kind=DeviceKind.CPU,
    bandwidth_bytes_s=20e9,
    cache_bandwidth_bytes_s=100e9,
    flops=(("fp64", 80e9), ("fp32", 170e9)),
    launch_overhead_s=5e-6,
    l2_bytes=36 << 20,
)
GIB = 1 << 30


def work(read: int, written: int, flops: int = 0, essential_flops: int = 0) -> Work:
    return Work(read, written, flops, read, essential_flops, 1)


def gemm(n: int, item: int = 4) -> Work:
    return work(2 * item * n * n, item * n * n, 2 * n**3, int(2 * n**3 / (8 / 7) ** 2))


sizes = st.integers(0, 1 << 36)
works = st.builds(
    lambda read, written, flops, share, kept: Work(read, written, flops, int(read * share), int(flops * kept), 1),
    sizes,
    sizes,
    st.integers(0, 1 << 46),
    st.floats(0, 1),
    st.floats(0, 1),
)


def test_floor_of_a_stream_is_bytes_over_bandwidth() -> None:
    assert floor_ms(work(GIB, GIB), H200, Precision.FP32) == pytest.approx(2 * GIB / 4.3e12 * 1e3)


def test_floor_of_a_product_depends_on_the_precision() -> None:
    fp32, tf32 = (floor_ms(gemm(8192), H200, p) for p in (Precision.FP32, Precision.TF32))
    half = dict(H200.flops)["fp16"]
    assert fp32 == pytest.approx(2 * 8192**3 / (half / 3) * 1e3)  # from two fp16 halves of each factor
    assert tf32 == pytest.approx(fp32 / 3)


def test_a_type_the_device_lacks_runs_at_the_fp32_rate() -> None:
    assert floor_ms(gemm(512), LAPTOP, Precision.BF16) == floor_ms(gemm(512), LAPTOP, Precision.FP32)


def test_three_tf32_products_may_stand_for_one_fp32_product() -> None:
    assert permitted_flops_s(H200, Precision.FP32) >= 400e12 / 3
    no_halves = replace(H200, flops=(("fp64", 64e12), ("fp32", 51e12)))
    assert permitted_flops_s(no_halves, Precision.FP32) == pytest.approx(51e12)


def test_skipped_reads_fall_below_the_limit() -> None:
    stream = work(GIB, GIB)
    honest_ms = 2 * GIB / 4.3e12 * 1e3
    limit = reject_below_ms(stream, H200, Precision.FP32)
    assert 0.8 * honest_ms < limit < honest_ms
    assert honest_ms / 2 < limit  # a kernel that only writes is caught


def test_peaks_of_a_busy_machine_reject_less() -> None:
    task, busy = gemm(256), replace(LAPTOP, load=0.8, spread=0.2)
    assert LAPTOP.steady
    assert not busy.steady
    assert reject_below_ms(task, busy, Precision.FP32) == pytest.approx(
        reject_below_ms(task, LAPTOP, Precision.FP32) * 0.2 / 1.2
    )
    assert replace(LAPTOP, load=0.1, spread=0.2).certainty == 1


def test_small_outputs_may_stay_in_the_cache() -> None:
    small = work(32 << 20, 32 << 20)
    assert reject_below_ms(small, H200, Precision.FP32) <= (32 << 20) / 4.3e12 * 1e3


def test_a_warm_cache_serves_reads() -> None:
    small = work(16 << 20, 4)
    assert reject_below_ms(small, H200, Precision.FP32, cold=False) < reject_below_ms(small, H200, Precision.FP32)
    # On the CPU nobody can promise a cold cache.
    warm, cold = (reject_below_ms(small, LAPTOP, Precision.FP32, cold=c) for c in (False, True))
    assert warm == cold < (16 << 20) / 20e9 * 1e3


def test_skipped_arithmetic_falls_below_the_limit() -> None:
    limit = reject_below_ms(gemm(8192), H200, Precision.FP32)
    assert 0 < limit < floor_ms(gemm(8192), H200, Precision.FP32)
    assert limit > floor_ms(gemm(8192, 2), H200, Precision.BF16)  # not even tensor cores in half precision


@given(works, st.sampled_from(list(Precision)), st.sampled_from([H200, LAPTOP]), st.booleans())
def test_the_hard_limit_is_never_above_what_an_honest_kernel_needs(
    task: Work, precision: Precision, peaks: Peaks, cold: bool
) -> None:
    traffic_ms = (task.essential_read_bytes + task.written_bytes) / peaks.bandwidth_bytes_s * 1e3
    arithmetic_ms = task.essential_flops / permitted_flops_s(peaks, precision) * 1e3
    assert 0 <= reject_below_ms(task, peaks, precision, cold=cold) <= max(traffic_ms, arithmetic_ms)


@given(works, works, st.sampled_from(list(Precision)))
def test_more_work_never_lowers_a_limit(one: Work, more: Work, precision: Precision) -> None:
    both = Work(
        one.read_bytes + more.read_bytes,
        one.written_bytes + more.written_bytes,
        one.flops + more.flops,
        one.essential_read_bytes + more.essential_read_bytes,
        one.essential_flops + more.essential_flops,
        1,
    )
    assert floor_ms(both, H200, precision) >= floor_ms(one, H200, precision)
    assert reject_below_ms(both, H200, precision) >= reject_below_ms(one, H200, precision)


@pytest.mark.parametrize(
    ("task", "precision", "expected"),
    [
        (work(GIB, GIB, GIB // 4), Precision.FP32, Zone.MEMORY),
        (gemm(8192), Precision.FP32, Zone.COMPUTE),
        (gemm(8192, 2), Precision.BF16, Zone.COMPUTE),
        (work(GIB, GIB, 2 * GIB * 50), Precision.BF16, Zone.MIDDLE),
        (work(4096, 4096, 1024), Precision.FP32, Zone.LATENCY),
    ],
)
def test_zones(task: Work, precision: Precision, expected: Zone) -> None:
    assert zone(task, H200, precision) is expected


@given(works, st.sampled_from(list(Precision)))
def test_zones_follow_the_ridges(task: Work, precision: Precision) -> None:
    found = zone(task, H200, precision)
    assume(found is not Zone.LATENCY)
    plain, tensor = ridges(H200, precision)
    assert plain <= tensor
    assert (found is Zone.MEMORY) == (task.intensity < plain)
    assert (found is Zone.COMPUTE) == (task.intensity >= tensor)
