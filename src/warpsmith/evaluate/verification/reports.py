"""Reads the reports of sanitizers: one sentence for the first fault, with the candidate's own line where it is named.

Knows the texts of AddressSanitizer and UndefinedBehaviorSanitizer (g++ and clang++) and of NVIDIA's compute-sanitizer.
Runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ASAN = re.compile(r"ERROR: AddressSanitizer: (?P<what>[^\n]*?)(?: on (?:unknown )?address| \(|$)", re.M)
_UBSAN = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?: runtime error: (?P<what>.+)$", re.M)
_ASSERTION = re.compile(r"(?P<file>[^\s:]+):(?P<line>\d+): .*Assertion '(?P<what>[^']+)' failed", re.M)
_ACCESS = re.compile(r"^(READ|WRITE) of size (\d+)", re.M)
_FRAME = re.compile(r"^ *#\d+ 0x[0-9a-f]+ in (?P<function>.+?) (?P<file>[^\s]+?):(?P<line>\d+)(?::\d+)?$", re.M)
_HEAP = re.compile(r"is located (\d+) bytes (?:to the (right|left) of|(after|before|inside of)) (\d+)-byte region")
_GLOBAL = re.compile(r"global variable '([^']+)'")
_LOCAL = re.compile(r"'([^']+)'(?: \(line \d+\))? <== Memory access at offset \d+ (overflows|underflows|is inside)")

_CUDA_LINE = re.compile(r"^=========(?: (.*))?$", re.M)
_CUDA_PLACE = re.compile(r"^ +at (?:0x[0-9a-f]+ in )?(?P<place>.+)$")
_CUDA_SUMMARY = re.compile(r"^ERROR SUMMARY: (\d+) errors?")
_RACE_SUMMARY = re.compile(r"^RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)")
_CUDA_BANNER = re.compile(r"COMPUTE-SANITIZER|^ *(?:Saved host backtrace|Host Frame|Target application)")
_FOLDER = re.compile(r"(?<=[ :])/\S*/")
_MOST_CHARS = 300


@dataclass(frozen=True)
class CpuReport:
    """The first fault."""

    undefined: bool  # undefined behaviour rather than a wrong address
    sentence: str


def cpu_report(text: str, files: Sequence[str]) -> CpuReport | None:
    """What the CPU's sanitizers say; None where they say nothing. `files` are the candidate's own."""
    undefined = _UBSAN.search(text)
    address = _ASAN.search(text)
    if undefined and (address is None or undefined.start() < address.start()):
        place = f"{_plain(undefined['file'])}:{undefined['line']}"
        return CpuReport(True, _cut(f"{place}: {undefined['what']}."))
    if address is None:
        return None
    said = address["what"].strip().rstrip(":")
    asserted = _ASSERTION.search(text)
    if asserted and said.startswith("ABRT"):
        said = f"the assertion {asserted['what']} of {_plain(asserted['file'])} failed"
    after = text[address.start() :]
    access = _ACCESS.search(after)
    if access:
        said += f", {access[1].lower()} of {access[2]} bytes"
    return CpuReport(False, _cut(f"{said}{_where(after)}{_line(after, files)}."))


def _where(text: str) -> str:
    heap, known, local = _HEAP.search(text), _GLOBAL.search(text), _LOCAL.search(text)
    if local:
        return f" beside the local variable {local[1]!r}"
    if known:
        return f" beside the global variable {known[1]!r}"
    if heap:
        side = {"right": "past the end of", "left": "before", "after": "past the end of"}.get(heap[2] or heap[3])
        return f" {heap[1]} bytes {side or heap[3]} a buffer of {heap[4]} bytes"
    return ""


def _line(text: str, files: Sequence[str]) -> str:
    """The innermost line of the candidate's own."""
    for frame in _FRAME.finditer(text):
        if _plain(frame["file"]) in files:
            return f" ({_plain(frame['file'])}:{frame['line']} in {frame['function'].partition('(')[0]})"
    return ""


@dataclass(frozen=True)
class DeviceReport:
    """What a tool of compute-sanitizer counted, and its first finding in a sentence."""

    errors: int
    warnings: int
    sentence: str


def device_report(text: str) -> DeviceReport | None:
    """What compute-sanitizer wrote; None where it did not come to a summary, so that nothing can be concluded."""
    lines = [match[1] or "" for match in _CUDA_LINE.finditer(text)]
    errors, warnings, counted = 0, 0, False
    for line in lines:
        if match := _CUDA_SUMMARY.match(line):
            errors, counted = errors + int(match[1]), True
        elif match := _RACE_SUMMARY.match(line):
            errors, warnings, counted = errors + int(match[1]), warnings + int(match[2]), True
    if not counted:
        return None
    return DeviceReport(errors, warnings, first_finding(lines, errors > 0))


def first_finding(lines: Sequence[str], serious: bool = True) -> str:
    """The head of the first finding and the place it names; "" where there is none."""
    for index, line in enumerate(lines):
        if not line.strip() or line[:1] == " " or _CUDA_BANNER.search(line) or "SUMMARY" in line:
            continue
        if serious and line.startswith("Warning:"):
            continue
        said = line.removeprefix("Error: ").removeprefix("Warning: ").strip().rstrip(".")
        details = [_detail(text) for text in lines[index + 1 : index + 6] if text.startswith("  ")]
        return _cut(_FOLDER.sub("", ", ".join([said, *(d for d in details if d)])) + ".")
    return ""


def _detail(line: str) -> str:
    place = _CUDA_PLACE.match(line)
    if place:
        return f"at {place['place'].strip()}"
    text = line.strip().rstrip(".")
    return text if text.startswith(("and ", "Access at")) else ""


def _plain(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MOST_CHARS else flat[: _MOST_CHARS - 1] + "…"
