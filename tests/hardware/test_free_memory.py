"""How much memory there is: a container may have less than its machine."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from warpsmith.hardware.device import available_memory

MIB = 1 << 20


def group(folder: Path, limit: str, usage: int, cache: int, *, first: bool = False) -> None:
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    limit_name, usage_name, cache_name = names if first else ("memory.max", "memory.current", "inactive_file")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limit_name).write_text(f"{limit}\n")
    (folder / usage_name).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{cache_name} {cache}\n")


@pytest.fixture(autouse=True)
def large_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000 * MIB}))


def test_the_smallest_limit_of_the_groups_counts(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/pod/task\n")
    group(tmp_path / "groups" / "pod" / "task", "max", 0, 0)
    assert available_memory(tmp_path / "groups", tmp_path / "own") == 1000 * MIB
    group(tmp_path / "groups" / "pod", str(300 * MIB), 120 * MIB, 20 * MIB)
    assert available_memory(tmp_path / "groups", tmp_path / "own") == 200 * MIB
    group(tmp_path / "groups" / "pod" / "task", str(100 * MIB), 130 * MIB, 0)
    assert available_memory(tmp_path / "groups", tmp_path / "own") == 0


def test_limits_of_the_first_version_are_read(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("9:cpu,cpuacct:/\n4:memory:/box\n")
    group(tmp_path / "groups" / "memory" / "box", str(64 * MIB), 4 * MIB, 0, first=True)
    assert available_memory(tmp_path / "groups", tmp_path / "own") == 60 * MIB


def test_without_groups_the_machine_counts(tmp_path: Path) -> None:
    assert available_memory(tmp_path, tmp_path / "own") == 1000 * MIB
