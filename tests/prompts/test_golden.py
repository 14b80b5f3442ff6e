"""Every prompt of every operator, word for word. After a wanted change: `python -m tests.prompts.golden`."""

from __future__ import annotations

import pytest

from tests.prompts.golden import FOLDER, briefs, shown
from warpsmith.prompts.renderer import render

BRIEFS = briefs()


def test_every_operator_has_a_golden_prompt_and_every_golden_prompt_an_operator() -> None:
    assert {path.name for path in FOLDER.glob("*.txt")} == set(BRIEFS)


@pytest.mark.parametrize("name", sorted(BRIEFS))
def test_the_prompt_is_the_golden_one(name: str) -> None:
    assert shown(render(BRIEFS[name])) == (FOLDER / name).read_text(encoding="utf-8")
