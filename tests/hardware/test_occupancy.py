"""Occupancy against figures of NVIDIA's own calculator, and the limits of each architecture."""

from __future__ import annotations

import pytest

from warpsmith.hardware.occupancy import MULTIPROCESSORS, OccupancyLimit, multiprocessor, occupancy


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared_bytes", "blocks", "warps", "limit"),
    [
        ("sm_90a", 256, 32, 0, 8, 64, OccupancyLimit.REGISTERS),  # full; registers and block size allow the same
        ("sm_80", 256, 40, 0, 6, 48, OccupancyLimit.REGISTERS),
        ("sm_80", 1024, 32, 0, 2, 64, OccupancyLimit.REGISTERS),
        ("sm_86", 1024, 16, 0, 1, 32, OccupancyLimit.BLOCK_SIZE),
        ("sm_86", 256, 16, 0, 6, 48, OccupancyLimit.BLOCK_SIZE),
        ("sm_89", 32, 16, 0, 24, 24, OccupancyLimit.BLOCKS),
        ("sm_90", 32, 16, 0, 32, 32, OccupancyLimit.BLOCKS),
        ("sm_90", 128, 168, 0, 3, 12, OccupancyLimit.REGISTERS),
        ("sm_90", 128, 255, 0, 2, 8, OccupancyLimit.REGISTERS),
        ("sm_90a", 128, 32, 100 << 10, 2, 8, OccupancyLimit.SHARED_MEMORY),
        ("sm_100a", 128, 32, 227 << 10, 1, 4, OccupancyLimit.SHARED_MEMORY),
        ("sm_120a", 128, 32, 48 << 10, 2, 8, OccupancyLimit.SHARED_MEMORY),
        ("sm_80", 33, 16, 0, 32, 64, OccupancyLimit.BLOCK_SIZE),  # two warps for 33 threads
    ],
)
def test_blocks_and_warps_of_an_sm(
    arch: str, threads: int, registers: int, shared_bytes: int, blocks: int, warps: int, limit: OccupancyLimit
) -> None:
    found = occupancy(arch, threads, registers, shared_bytes)

    assert found is not None
    assert (found.blocks, found.warps, found.limit) == (blocks, warps, limit)
    sm = multiprocessor(arch)
    assert sm is not None
    assert found.share == pytest.approx(warps / sm.warps)


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "limit"),
    [
        (2048, 32, 0, OccupancyLimit.BLOCK_SIZE),
        (1024, 128, 0, OccupancyLimit.REGISTERS),
        (128, 32, 228 << 10, OccupancyLimit.SHARED_MEMORY),
        (128, 256, 0, OccupancyLimit.REGISTERS),
    ],
)
def test_a_block_that_does_not_fit_is_said_not_to(
    threads: int, registers: int, shared_bytes: int, limit: OccupancyLimit
) -> None:
    found = occupancy("sm_90a", threads, registers, shared_bytes)

    assert found is not None
    assert not found.fits
    assert (found.limit, found.share) == (limit, 0.0)


def test_what_is_not_known_is_none() -> None:
    assert occupancy("sm_35", 128, 32) is None
    assert occupancy("native", 128, 32) is None
    assert occupancy("sm_90a", 0, 32) is None
    assert {80, 86, 89, 90, 100, 120} <= set(MULTIPROCESSORS)
