"""Numbers as a model reads them: rounded, with their unit. Exact figures are in the archive."""

from __future__ import annotations

from warpsmith.core.evaluation import Interval, Status

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
    """Three significant digits, never in scientific notation for the sizes that occur."""
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.9995 else f"{value:.3g}"


def time(value_ms: float) -> str:
    """A run time in the unit that keeps it short."""
    if value_ms < 0.1:
        return f"{three_digits(value_ms * 1e3)} µs"
    return f"{three_digits(value_ms)} ms" if value_ms < 1e3 else f"{three_digits(value_ms / 1e3)} s"


def times(value: float) -> str:
    """A speedup."""
    return f"{value:.2f}×" if value >= 0.1 else f"{value:.2g}×"


def interval(value: Interval) -> str:
    """An interval of a speedup."""
    return f"{value.low:.2f}–{value.high:.2f}"


def percent(share: float) -> str:
    """A share."""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def amount(value: float, unit: str) -> str:
    """A number of bytes or operations: "33.6 MB"."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{three_digits(value / factor)} {prefix}{unit}"
    return f"{value:.0f} {unit}"


def clipped(text: str, limit: int) -> str:
    """The text, or its beginning and end with the gap named."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    gap = len(text) - head - tail
    return f"{text[:head].rstrip()}\n[... {gap} characters left out here ...]\n{text[len(text) - tail :].lstrip()}"
