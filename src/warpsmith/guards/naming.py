"""Names in a reason: readable, not too long, and not too many of them."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.backends.ptxas import demangled

NAMED = 3  # names in a reason; the others are counted
_LONGEST = 90  # characters of a kernel's name


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def readable(kernels: Sequence[str]) -> list[str]:
    """Symbols of kernels as their source has them."""
    return [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in demangled(kernels)]
