"""Reads what `ptxas -v` says each kernel uses, and turns mangled names into readable ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

from warpsmith.core.evaluation import Resources

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?([^'\s]+)'?")
_STACK = re.compile(r"(\d{1,12}) bytes stack frame, (\d{1,12}) bytes spill stores, (\d{1,12}) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d{1,12}) registers")
_SHARED = re.compile(r"(\d{1,12})(?:\+\d+)? bytes smem")

INFO = re.compile(r"^ptxas info|^\s+\d+ bytes stack frame|^nvlink info")
"""Lines of a build log that are figures rather than messages."""


def resources(log: str) -> tuple[Resources, ...]:
    """One record per kernel of a build log, in the log's order."""
    found: dict[str, list[int]] = {}  # kernel -> registers, spill, shared, stack
    entry = described = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
            found[entry] = [0, 0, 0, 0]
        elif match := _PROPERTIES.search(line):
            described = match[1]
        elif (match := _STACK.search(line)) and described == entry and entry:
            # Device functions that were not inlined have lines of their own: only the kernel's counts here.
            found[entry][3] = int(match[1])
            found[entry][1] = int(match[2]) + int(match[3])
        elif (match := _REGISTERS.search(line)) and entry:
            found[entry][0] = int(match[1])
            if shared := _SHARED.search(line):
                found[entry][2] = int(shared[1])
    names = demangled(tuple(found))
    return tuple(
        Resources(name, registers, spill, shared_bytes, stack)
        for name, (registers, spill, shared_bytes, stack) in zip(names, found.values(), strict=True)
    )


def demangled(names: Sequence[str]) -> tuple[str, ...]:
    """Readable names without parameter lists: by c++filt where it is there, else the plain part."""
    tool = shutil.which("c++filt")
    if names and tool:
        try:
            answer = subprocess.run(
                [tool, "-p"],
                input="\n".join(names) + "\n",
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=10,
            )
        except (OSError, subprocess.TimeoutExpired):
            return tuple(plain_name(n) for n in names)
        lines = answer.stdout.splitlines()
        if answer.returncode == 0 and len(lines) == len(names):
            return tuple(lines)
    return tuple(plain_name(n) for n in names)


def plain_name(mangled: str) -> str:
    """The function's name out of an Itanium-mangled one; template arguments and scopes are lost."""
    if not mangled.startswith("_Z"):
        return mangled
    rest = mangled[2:].lstrip("NLK")
    name = mangled
    while match := re.match(r"\d{1,6}", rest):
        length, start = int(match[0]), match.end()
        name, rest = rest[start : start + length], rest[start + length :]
        if not mangled.startswith("_ZN"):
            break
    return name
