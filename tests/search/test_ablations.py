"""Ablations that ablate: both arms of a comparison are asked the same, apart from the ablated sections."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.searching import factor, invalid, judged, reply_text, run_setup, valid
from warpsmith.methods.load import ablated, load
from warpsmith.model.brief import Brief, Precedent, Reply
from warpsmith.model.method import Method, Move, Product
from warpsmith.prompts.renderer import render
from warpsmith.run_log.events import Budget
from warpsmith.search.session import Session

PRECEDENTS = (Precedent("scale", "simd + unroll(size=4)", "some CPU", 1.4, before="float a;", after="float b;"),)
SHARE = re.compile(r"; \d+ % of the hardware's limit in its worst workload")
PROFILE = "Memory-bound: 71 % of the bandwidth is used."
SECTIONS: dict[tuple[str, str], set[str]] = {
    ("cupilot", "roofline"): {"# What the hardware allows", "# Strategies that may help here"},
    ("cupilot", "retrieval"): {"# What helped similar tasks before"},
    ("cupilot", "alignment"): set(),
    ("cupilot", "failures"): {"# What went wrong lately: do not do it again"},
    ("ai-cuda-engineer", "roofline"): set(),
    ("ai-cuda-engineer", "retrieval"): {"# A similar kernel"},
    ("evoengineer-full", "failures"): {"# What went wrong lately: do not do it again"},
}


def sections(brief: Brief) -> dict[str, str]:
    """A prompt by its headings."""
    system, user = (message.text for message in render(brief).messages)
    found, heading = {"system": system}, ""
    for line in user.splitlines():
        heading = line if line.startswith("# ") else heading
        found[heading] = f"{found.get(heading, '')}{line}\n"
    return found


def answer(brief: Brief, number: int) -> str:
    """The same answer in both arms; the aligner agrees with what it is shown."""
    if brief.product is Product.STRATEGIES:
        first = len(brief.ideas)
        return "".join(f"strategy: simd + step-{first + i}\nthought: why\n" for i in range(brief.wanted))
    if brief.product is Product.ALIGNMENT:
        assert brief.subject is not None
        return f"strategy: {brief.subject.strategy}\nthought: none"
    if brief.move is Move.WRITE:
        return "as it is\n```python\npass\n```"
    text = reply_text(number)
    return text.replace(f"strategy: s{number}", f"strategy: {brief.idea.strategy}") if brief.idea else text


def asked(folder: Path, method: Method) -> list[tuple[str, dict[str, str]]]:
    """All prompts of a run but those of the aligner; every fourth kernel is wrong, later ones are faster."""
    found: list[tuple[str, dict[str, str]]] = []
    number = 0
    with Session.create(folder, run_setup(method, budget=Budget(trials=14)), lambda _: PRECEDENTS) as session:
        while True:
            for trial in session.unprofiled():
                session.profiled(trial, PROFILE)
            brief = session.ask()
            if brief is None:
                return found
            if brief.product is not Product.ALIGNMENT:
                found.append((brief.operator, sections(brief)))
            number += brief.product is Product.KERNEL
            session.answer(brief, Reply(answer(brief, number), "canned"))
            judged(session, lambda c: valid(c, 1 + factor(c) / 10) if factor(c) % 4 else invalid(c))


@pytest.mark.parametrize(("name", "part"), SECTIONS)
def test_first_and_later_prompts_differ_in_the_ablated_sections_alone(name: str, part: str, tmp_path: Path) -> None:
    method = load(name)
    whole = asked(tmp_path / "whole", method)
    less = asked(tmp_path / "less", ablated(method, **{part: False}))
    if part == "alignment":  # briefs have other numbers, and so seeds: parents are the same until there is a choice
        whole, less = ([*arm][: [each for each, _ in arm].index("cross") + 1] for arm in (whole, less))

    assert [operator for operator, _ in whole] == [operator for operator, _ in less]
    assert len(whole) >= 5
    missing: set[str] = set()
    profiles = 0
    for (_, more), (_, fewer) in zip(whole, less, strict=True):
        missing |= set(more) - set(fewer)
        assert set(fewer) <= set(more)
        for heading, text in fewer.items():
            assert "Profile:" not in text or part != "roofline"
            profiles += more[heading] != text
            expected = more[heading]
            if part == "roofline":
                expected = SHARE.sub("", expected.replace(f"Profile: {PROFILE}\n", ""))
            assert text == expected
    assert {heading.split(" (")[0] for heading in missing} == SECTIONS[name, part]
    assert bool(profiles) == (part == "roofline")
    if SECTIONS[name, part] and name == "cupilot" and part != "failures":
        assert SECTIONS[name, part] <= set(whole[0][1]) - set(less[0][1])  # from the first prompt on
