"""Figures as people read them, in the words of a report. The page's own script says them the same way."""

from __future__ import annotations

import math

NO_BREAK = "\u00a0"  # between a number and its unit


def number(value: float, digits: int = 3) -> str:
    """With so many significant digits and no exponent."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "–"
    before = math.floor(math.log10(abs(value))) + 1
    rounded = round(value, digits - before)
    before = math.floor(math.log10(abs(rounded))) + 1 if rounded else 1
    return f"{rounded:.{max(digits - before, 0)}f}"


def ratio(value: float) -> str:
    """A speedup: near 1 with a digit more."""
    return f"{value:.3f}×" if 0.9 <= value < 1.1 else f"{number(value)}×"


def percent(share: float) -> str:
    """A share of one."""
    return f"{number(100 * share)}{NO_BREAK}%"


def duration(milliseconds: float) -> str:
    """A kernel's time."""
    if milliseconds < 1:
        return f"{number(1e3 * milliseconds)}{NO_BREAK}µs"
    return f"{number(milliseconds)}{NO_BREAK}ms" if milliseconds < 1e3 else f"{number(milliseconds / 1e3)}{NO_BREAK}s"


def span(seconds: float) -> str:
    """A person's time."""
    if seconds < 100:
        return f"{number(seconds, 2)}{NO_BREAK}s"
    minutes = seconds / 60
    return f"{minutes:.0f}{NO_BREAK}min" if minutes < 100 else f"{number(minutes / 60, 2)}{NO_BREAK}h"


def count(value: int) -> str:
    """A large number in three digits: 1.25 M."""
    for factor, sign in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= 10 * factor or (factor > 10**3 and value >= factor):
            return f"{number(value / factor)} {sign}"
    return str(value)


def usd(value: float) -> str:
    """Money."""
    return f"${value:.2f}" if value >= 1 or value == 0 else f"${number(value, 2)}"
