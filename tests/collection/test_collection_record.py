"""The record of the collection: how many kernels are begun in the time that is left."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.collection_record import BATCH, Sitting, batch_seconds, with_lineage
from benchmarks.side_by_side import admitted

from warpsmith.hardware.device import select_device
from warpsmith.kernels.collection import CollectedKernel, collection, find_kernel
from warpsmith.kernels.facts import DeviceFacts, MedianTime, PytorchRecord, PytorchTimes, read_device, read_facts


@pytest.mark.parametrize("at_once", [0, 8])
@pytest.mark.parametrize("limit_s", [5.0, 40.0, 150.0, 5000.0])
def test_a_batch_is_the_largest_that_can_be_finished_before_the_limit(
    tmp_path: Path, limit_s: float, at_once: int
) -> None:
    nothing = DeviceFacts("cpu", "", {}, {})
    sitting = Sitting(select_device("cpu"), tmp_path / "facts.json", nothing, time.monotonic(), limit_s, None)

    count = sitting.fitting(50, at_once)

    assert not count or batch_seconds(count, at_once) <= limit_s
    assert count == BATCH or batch_seconds(count + 1, at_once) > limit_s - 1  # a second may have passed
    assert sitting.fitting(0, at_once) == 0


def test_a_new_record_keeps_what_is_known_of_torch_compile(tmp_path: Path) -> None:
    """Here of a kernel that cannot be judged: its task's file is missing."""
    (suite,) = {kernel.task for kernel in collection() if kernel.task.name == "cumsum"}
    lost = CollectedKernel(replace(suite, path=tmp_path / "absent.py"), find_kernel("cumsum").candidate, "")
    times = PytorchTimes((MedianTime(2.0, 1.9, 2.1),), (MedianTime(1.0, 0.9, 1.1),))
    known = DeviceFacts("cpu", "", {}, {}, PytorchRecord("2026-01-01", {}, "fp32", {suite.title: times}))
    sitting = Sitting(select_device("cpu"), tmp_path / "facts.json", known, time.monotonic(), 600.0, None)

    sitting.record_batch([lost], 0)

    written = read_device(tmp_path / "facts.json")
    assert written is not None
    assert written.kernels[suite.title].status == "fault"
    assert written.pytorch == known.pytorch


GIB = 1 << 30


@pytest.mark.parametrize(
    ("pending", "running", "expected"),
    [
        ({"a": 10 * GIB, "b": 10 * GIB, "c": 10 * GIB}, [], ["a", "b"]),  # two places
        ({"a": 10 * GIB, "b": 10 * GIB}, [("x", GIB)], ["a"]),
        ({"large": 100 * GIB, "b": 20 * GIB}, [("x", 90 * GIB)], ["b"]),
        ({"larger than the device": 500 * GIB, "b": GIB}, [], ["larger than the device"]),
        ({"large": 100 * GIB}, [("x", 90 * GIB)], []),
        ({"a": GIB}, [("x", GIB), ("y", GIB)], []),
    ],
)
def test_kernels_begin_as_places_and_memory_allow(
    pending: dict[str, int], running: list[tuple[str, int]], expected: list[str]
) -> None:
    assert admitted(pending, running, at_once=2) == expected


def test_a_kernel_that_is_judged_again_keeps_its_lineage_and_another_one_does_not() -> None:
    known = next(each for device in read_facts() for each in device.kernels.values() if each.lineage)
    again = replace(known, lineage="", speedup=1.0)
    assert with_lineage(again, known).lineage == known.lineage
    assert with_lineage(replace(again, candidate="another"), known).lineage == ""
    assert with_lineage(again, None) == again
