"""Tests that need an NVIDIA GPU and nvcc; elsewhere each is skipped, and says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import visible_gpus
from warpsmith.model.settings import Settings


@pytest.fixture(scope="session")
def gpu() -> None:
    """Skips where there is nothing to run on."""
    if not visible_gpus():
        pytest.skip("no NVIDIA GPU is visible on this machine")
    there = backend_named("cuda").available()
    if not there.build:
        pytest.skip(there.detail)


@pytest.fixture(scope="session")
def gpu_settings(quick_settings: Settings) -> Settings:
    """As on the CPU, with the time a device context and a compiler need."""
    limits = replace(quick_settings.limits, start_s=30.0, memory_bytes=8 << 30, workspace_bytes=1 << 30)
    return replace(quick_settings, limits=limits)


@pytest.fixture(scope="session")
def gpu_evaluator(gpu: None, gpu_settings: Settings, cache_folder: Path) -> Iterator[Evaluator]:
    """One evaluator on the first GPU."""
    with Evaluator("cuda", gpu_settings) as shared:
        yield shared
