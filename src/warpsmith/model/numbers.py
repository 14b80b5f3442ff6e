"""Numbers as text for people and prompts: rounded to a few significant digits, with units."""

from __future__ import annotations

import math

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: float, digits: int = 3, *, zeros: bool = True, scientific: bool = True) -> str:
    """Round to significant digits, without an exponent between 0.001 and a million.

    `zeros` keeps trailing zeros ("1.50"); `scientific=False` writes no exponent for any value.
    """
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    if scientific and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits - 1}e}")  # first, since 999.96 has one digit more afterwards
    before = math.floor(math.log10(abs(rounded))) + 1
    text = f"{rounded:.{max(digits - before, 0)}f}"
    return text if zeros or "." not in text else text.rstrip("0").rstrip(".")


def ratio(value: float) -> str:
    """A speedup; three decimals near 1, where the third still matters."""
    return f"{value:.3f}" if 0.9 <= value < 1.1 else number(value)


def percent(share: float) -> str:
    """A share of 1 with three digits: "97.3 %"; four digits from 100 % on."""
    return f"{number(100 * share, 3 if share < 1 else 4)} %"


def whole_percent(share: float) -> str:
    """A share of 1 without decimals: "97 %"; one digit below 1 %."""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def quantity(value: float, unit: str, *, zeros: bool = False) -> str:
    """A quantity with a decimal prefix: "1.52 TB/s"."""
    for factor, prefix in _PREFIXES:
        if value >= factor:
            return f"{number(value / factor, zeros=zeros)} {prefix}{unit}"
    return f"{number(value, zeros=False)} {unit}"


def memory_size(count: int) -> str:
    """A number of bytes with a binary unit: "1.50 MiB"."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{number(value) if unit != 'B' else count} {unit}"
        value /= 1024
    return f"{number(value)} TiB"


def count(value: int) -> str:
    """A large integer in three digits: "1.25 M"; smaller than 10 000 in full."""
    return str(value) if value < 10_000 else quantity(value, "", zeros=True)


def duration(milliseconds: float, digits: int = 4) -> str:
    """The time of one kernel call: "8.123 µs"."""
    for limit, factor, unit in ((1e-3, 1e6, "ns"), (1.0, 1e3, "µs"), (1e3, 1.0, "ms")):
        if milliseconds < limit:
            return f"{number(milliseconds * factor, digits)} {unit}"
    return f"{number(milliseconds / 1e3, digits)} s"


def elapsed(seconds: float) -> str:
    """The time that a run takes: seconds up to 100, minutes up to 100, then hours."""
    if seconds < 100:
        return f"{number(seconds, 2)} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{number(minutes / 60, 2)} h"


def dollars(value: float) -> str:
    """An amount of money; two significant digits below one dollar."""
    return f"${value:.2f}" if value >= 1 or value == 0 else f"${number(value, 2, scientific=False)}"
