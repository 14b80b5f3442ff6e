"""Numbers as text: digits, units, and the values at which a unit changes."""

from __future__ import annotations

import pytest

from warpsmith.model import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1.5, "1.50"), (999.96, "1000"), (0.0004, "4.00e-04"), (2e6, "2.00e+06"), (-0.25, "-0.250")],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert numbers.number(value) == text


def test_zeros_and_exponents_can_be_left_out() -> None:
    assert numbers.number(1.5, zeros=False) == "1.5"
    assert numbers.number(100.0, zeros=False) == "100"
    assert numbers.number(0.00042, 2, scientific=False) == "0.00042"


def test_units() -> None:
    assert numbers.quantity(4.02e12, "B/s") == "4.02 TB/s"
    assert numbers.quantity(33554432, "B", zeros=True) == "33.6 MB"
    assert numbers.quantity(12, "FLOP", zeros=True) == "12 FLOP"
    assert numbers.memory_size(1023) == "1023 B"
    assert numbers.memory_size(3 << 20) == "3.00 MiB"
    assert [numbers.count(each) for each in (9999, 12_500, 1_250_000)] == ["9999", "12.5 k", "1.25 M"]
    assert [numbers.elapsed(each) for each in (7.5, 125.0, 7200.0)] == ["7.5 s", "2 min", "2.0 h"]
    assert [numbers.dollars(each) for each in (0, 0.00042, 3.456)] == ["$0.00", "$0.00042", "$3.46"]


def test_shares_and_speedups() -> None:
    assert numbers.percent(0.5034) == "50.3 %"
    assert [numbers.whole_percent(each) for each in (0.503, 0.004)] == ["50 %", "0.4 %"]
    assert [numbers.ratio(each) for each in (1.0042, 1.6234, 12.345)] == ["1.004", "1.62", "12.3"]
