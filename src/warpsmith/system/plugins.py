"""Finds plugins: modules of a package that define `PLUGIN`, and entry points of other packages.

Adding a backend, method, guard or provider means adding one file; no other file lists them.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from warpsmith.model.errors import UsageError


@cache
def plugins(package: str) -> dict[str, Any]:
    """All plugins of e.g. "warpsmith.backends" by name; outside ones come from that entry-point group."""
    found: dict[str, Any] = {}
    root = importlib.import_module(package)
    for info in pkgutil.iter_modules(root.__path__):
        plugin = getattr(importlib.import_module(f"{package}.{info.name}"), "PLUGIN", None)
        if plugin is not None:
            found[plugin.name] = plugin
    for entry in _all_entry_points().select(group=package):
        plugin = entry.load()
        found.setdefault(plugin.name, plugin)
    return found


def _all_entry_points() -> Any:
    with _reading:  # takes long: one thread reads what all threads of a bench need at its start
        return _entry_points(tuple(sys.path))


_reading = threading.Lock()


@cache
def _entry_points(_: tuple[str, ...]) -> Any:
    return entry_points()


def plugin(package: str, name: str) -> Any:
    """One plugin; an unknown name is an error that lists the known ones."""
    known = plugins(package)
    if name not in known:
        noun = package.rsplit(".", 1)[-1].removesuffix("s")
        raise UsageError(f"unknown {noun} {name!r}; known: {', '.join(sorted(known))}.")
    return known[name]
