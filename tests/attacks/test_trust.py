"""The page on trust says what the tests try, no more and no less."""

from __future__ import annotations

from tests.attacks import trust
from warpsmith.evaluator.guards.attack_classes import CLASSES


def test_the_page_is_up_to_date() -> None:
    assert trust.PAGE.read_text(encoding="utf-8") == trust.render(), "run `make trust`"


def test_every_class_is_attacked_in_three_forms() -> None:
    page = trust.render()
    for each in CLASSES:
        section = page.partition(f"### {each.number} {each.title}\n")[2].partition("\n##")[0]
        assert section.count("\n| [") >= 3, each.title
