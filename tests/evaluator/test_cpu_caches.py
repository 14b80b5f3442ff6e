"""Dropping cache lines: contents stay, whatever the addresses."""

from __future__ import annotations

import os

import pytest
import torch

from warpsmith.evaluator.judge.cpu_caches import CpuCaches
from warpsmith.evaluator.supervisor.worker_pool import LINES, native_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    built = native_library(LINES, tmp_path_factory.mktemp("lines"), os.environ)
    assert built, "lines.c does not compile here"
    return built


@pytest.mark.parametrize("length", [1, 63, 64, 65, 100_003])
def test_dropped_memory_keeps_its_contents(library: str, length: int) -> None:
    values = torch.arange(length, dtype=torch.int32)
    odd = torch.frombuffer(bytearray(range(7)) + bytearray(length), dtype=torch.uint8)[3:]
    kept, odd_kept = values.clone(), odd.clone()
    caches = CpuCaches(1 << 12, library)

    caches.drop((values, odd, torch.empty(0)))
    caches.overwrite()

    assert torch.equal(values, kept)
    assert torch.equal(odd, odd_kept)


def test_lines_are_dropped_where_that_is_less_work_than_overwriting(library: str) -> None:
    caches = CpuCaches(1 << 20, library)

    assert caches.drops_lines(2 << 20)
    assert not caches.drops_lines((2 << 20) + 1)
    assert not CpuCaches(1 << 20, "").drops_lines(1)
