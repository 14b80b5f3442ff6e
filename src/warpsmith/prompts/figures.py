"""Formats numbers of prompts: rounded, with their unit. Exact figures are in the run log."""

from __future__ import annotations

from warpsmith.model.evaluation import Interval, Status
from warpsmith.model.numbers import number

STATUS_WORDS = {
    Status.OK: "is valid",
    Status.BUILD_ERROR: "did not compile",
    Status.WRONG: "gave a wrong result",
    Status.UNWRITTEN: "left part of an output unwritten",
    Status.OUT_OF_BOUNDS: "touched memory outside its buffers",
    Status.INPUT_MODIFIED: "changed an input",
    Status.LAUNCH_FAILED: "reported an error",
    Status.CRASHED: "crashed",
    Status.TIMED_OUT: "did not come back in time",
    Status.OUT_OF_MEMORY: "asked for too much memory",
    Status.BELOW_FLOOR: "was faster than the hardware allows, so it left work out",
    Status.REJECTED: "broke a rule",
    Status.NOT_JUDGED: "could not be judged",
}


def three_digits(value: float) -> str:
    """Three significant digits; no trailing zeros below 1."""
    return number(value, zeros=value >= 0.9995, scientific=False)


def time(value_ms: float) -> str:
    """A run time in µs, ms or s."""
    if value_ms < 0.1:
        return f"{three_digits(value_ms * 1e3)} µs"
    return f"{three_digits(value_ms)} ms" if value_ms < 1e3 else f"{three_digits(value_ms / 1e3)} s"


def times(value: float) -> str:
    """A speedup, e.g. "3.42×"."""
    return f"{value:.2f}×" if value >= 0.1 else f"{value:.2g}×"


def interval(value: Interval) -> str:
    """The interval of a speedup, e.g. "3.21–3.60"."""
    return f"{value.low:.2f}–{value.high:.2f}"


def clipped(text: str, limit: int) -> str:
    """The text; if it is longer than the limit, its beginning and end with the length of the gap."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    gap = len(text) - head - tail
    return f"{text[:head].rstrip()}\n[... {gap} characters left out here ...]\n{text[len(text) - tail :].lstrip()}"
