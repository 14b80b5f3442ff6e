"""Where tasks and candidates stand under a roof that is given, or that follows from floors."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.strategies.problems import make_problem

from warpsmith.hardware.roofline import Peaks, achieved, analyse, ceilings, known_peaks
from warpsmith.model.brief import Problem, WorkloadBound
from warpsmith.model.build import DeviceKind
from warpsmith.model.evaluation import Environment, Evaluation, Status, WorkloadResult
from warpsmith.model.task import Precision

TERA = 1e12
PEAKS = Peaks(
    device_key="cuda|H",
    kind=DeviceKind.CUDA,
    bandwidth_bytes_s=4 * TERA,
    cache_bandwidth_bytes_s=10 * TERA,
    flops=(("fp64", 30 * TERA), ("fp32", 50 * TERA), ("tf32", 400 * TERA), ("fp16", 800 * TERA)),
    launch_overhead_s=2e-6,
    l2_bytes=50 << 20,
    sms=132,
    measured_at="2026-01-01T00:00:00+00:00",
    torch="2",
)


def problem_with(*bounds: WorkloadBound, precision: Precision = Precision.FP32) -> Problem:
    return replace(make_problem(precision=precision), bounds=bounds)


def bound(name: str, nbytes: float, flops: float, floor_ms: float, zone: str) -> WorkloadBound:
    return WorkloadBound(name, (), int(nbytes), int(flops), floor_ms, zone, 1.0)


COPY = bound("copy", 4e9, 1e9, 1.0, "memory")
PRODUCT = bound("product", 2e8, 1.4e11, 2.8, "compute")


def test_both_ridges_come_from_the_precision_class() -> None:
    tf32 = ceilings(problem_with(COPY, precision=Precision.TF32), PEAKS)
    fp64 = ceilings(problem_with(COPY, precision=Precision.FP64), PEAKS)

    assert tf32.ridges == pytest.approx((12.5, 200.0))  # plain fp32, and fp16 products, which have tf32's significand
    assert fp64.plain_flops_s == 30 * TERA
    assert fp64.ridges == pytest.approx((7.5, 20.0))
    assert tf32.launch_ms == pytest.approx(0.002)


def test_a_problem_is_analysed_workload_by_workload() -> None:
    found = analyse(problem_with(COPY, PRODUCT), PEAKS)

    assert [each.intensity for each in found.workloads] == pytest.approx([0.25, 700.0])
    assert [each.zone for each in found.workloads] == ["memory", "compute"]
    assert "memory bandwidth" in found.workloads[0].reason
    assert found.largest.workload == "product"
    assert analyse(problem_with(bound("none", 0, 5, 1.0, "compute"))).workloads[0].intensity == math.inf


def test_without_peaks_floors_tell_what_they_can() -> None:
    both, one = ceilings(problem_with(COPY, PRODUCT)), ceilings(problem_with(COPY))

    assert both.bandwidth_bytes_s == pytest.approx(4 * TERA)
    assert both.best_flops_s == pytest.approx(50 * TERA)
    assert both.ridges == pytest.approx((12.5, 12.5))
    assert (one.best_flops_s, one.ridges) == (None, None)


def test_what_a_candidate_reached() -> None:
    environment = Environment("H", "cuda", "nvcc", "2")
    result = WorkloadResult("copy", (), 2.0, "graph", (), 0.0, 1.0, 1.0, 4_000_000_000, 1_000_000_000, 2, "fp64")
    valid = Evaluation("t", "c", Status.OK, "", environment, "fp32", (result,))
    invalid = Evaluation("t", "c", Status.WRONG, "it is wrong.", environment, "fp32")

    (found,) = achieved(valid, ceilings(problem_with(COPY), PEAKS))
    (bare,) = achieved(valid, ceilings(problem_with(PRODUCT)))

    assert found.bandwidth_bytes_s == pytest.approx(2 * TERA)
    assert found.flops_s == pytest.approx(0.5 * TERA)
    assert (found.share_of_floor, found.share_of_bandwidth) == pytest.approx((0.5, 0.5))
    assert found.share_of_flops == pytest.approx(0.5 / (800 / 3))
    assert bare.share_of_bandwidth is None
    assert achieved(invalid, ceilings(problem_with(COPY))) == ()


def test_peaks_are_read_from_where_a_judge_kept_them(tmp_path: Path) -> None:
    assert known_peaks(tmp_path, "cuda|H") is None
    folder = tmp_path / "peaks"
    folder.mkdir()
    later = replace(PEAKS, measured_at="2026-02-01T00:00:00+00:00", bandwidth_bytes_s=5 * TERA)
    for name, peaks in (("a", later), ("b", PEAKS), ("c", replace(PEAKS, device_key="cpu|other"))):
        (folder / f"{name}.json").write_text(json.dumps(asdict(peaks)))
    (folder / "half.json").write_text('{"device_key": "cuda|H"')

    assert known_peaks(tmp_path, "cuda|H") == later
    assert known_peaks(tmp_path, "cuda|none") is None
