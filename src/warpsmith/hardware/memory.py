"""Memory that this process can still use on the machine: the limit of a container counts."""

from __future__ import annotations

from pathlib import Path

import psutil

_LIMITS = (  # files of a control group, version 2 and 1: the limit, the usage, and the cache in it that can be dropped
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes that can be allocated without swapping: of the machine, or of the control group where that has less."""
    free = int(psutil.virtual_memory().available)
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return free
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller, limit, usage, droppable in _LIMITS:
            if controller in controllers.split(","):
                top = groups / controller
                inside = top / path.lstrip("/")
                for folder in (inside, *inside.parents):  # a group has the limits of those around it, too
                    free = min(free, _left(folder, limit, usage, droppable, free))
                    if folder == top:
                        break
    return max(free, 0)


def _left(folder: Path, limit: str, usage: str, droppable: str, unlimited: int) -> int:
    """What a control group leaves of its limit; `unlimited` where it has none or cannot be read."""
    try:
        most, used = (folder / limit).read_text().strip(), int((folder / usage).read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return unlimited if most == "max" else int(most) - used + int(statistics.get(droppable, 0))
    except (OSError, ValueError):
        return unlimited
