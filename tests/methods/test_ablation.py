"""Methods without parts of themselves: what is gone, what stays, and that the rest still makes sense."""

from __future__ import annotations

import itertools

import pytest

from warpsmith.methods.check import method_errors
from warpsmith.methods.load import ablated, methods
from warpsmith.model.method import Method, Product, Show

METHODS = methods()
PARTS = ("roofline", "retrieval", "alignment", "failures", "repairs")


def shown(method: Method) -> set[Show]:
    return {show for operator in method.operators for show in operator.shows}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_ablation_of_every_method_is_sound_and_lacks_what_it_should(method: Method) -> None:
    names = set()
    for kept in itertools.product((True, False), repeat=5):
        less = ablated(method, **dict(zip(PARTS, kept, strict=True)))
        names.add(less.name)
        roofline, retrieval, alignment, failures, repairs = kept
        assert list(method_errors(less)) == []
        expected = shown(method) - (set() if roofline else {Show.ROOFLINE, Show.STRATEGIES, Show.PROFILE})
        expected -= set() if retrieval else {Show.RETRIEVED, Show.PRECEDENTS}
        expected -= set() if failures else {Show.FAILURES}
        assert shown(less) == expected
        assert less.repairs == (method.repairs if repairs else 0)
        assert alignment or not any(each.product is Product.ALIGNMENT for each in less.operators)
        assert (less == method) == all(kept)
    assert len(names) == 32


def test_cupilot_has_all_that_can_be_taken_away() -> None:
    cupilot = METHODS["cupilot"]

    assert {Show.ROOFLINE, Show.STRATEGIES, Show.PROFILE, Show.RETRIEVED} <= shown(cupilot)
    less = ablated(cupilot, roofline=False, alignment=False)
    assert less.name == "cupilot-no-roofline-no-alignment"
    assert less.roles == ("strategist", "translator", "revisor")
    assert (less.repairs, less.tries, less.population) == (cupilot.repairs, cupilot.tries, cupilot.population)
