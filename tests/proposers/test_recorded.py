"""The programs of a recording, proposed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.searching import PROBLEM, answered, factor, judged, new_session, reply_text, valid
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Reply
from warpsmith.model.errors import ProposerRefused, RunError
from warpsmith.model.method import Move, Product
from warpsmith.prompts.parser import parse
from warpsmith.proposers.recorded import RecordedProposer
from warpsmith.run_log.events import Budget

BRIEF = Brief(1, "init", Move.INIT, "evoengineer/init", PROBLEM, seed=1)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    with new_session(tmp_path / "old", load("evoengineer-full"), budget=Budget(trials=9), repairs=0) as session:
        for number in (4, 2):
            answered(session, number)
        answered(session, 4)  # a duplicate
        brief = session.ask()
        assert brief is not None
        session.answer(brief, Reply("no code at all", "canned"))
        answered(session, 7, "  // ```fences``` in a comment")
        judged(session, lambda c: valid(c, 1.0 + factor(c)))
    return tmp_path / "old"


def replayed(proposer: RecordedProposer) -> list[int]:
    numbers: list[int] = []
    while True:
        try:
            reply = proposer.propose(BRIEF, proposer.prompt(BRIEF))
        except ProposerRefused:
            return numbers
        candidate = parse(reply, BRIEF).candidate
        assert candidate is not None
        numbers.append(factor(candidate))
        assert candidate.thought == f"idea {numbers[-1]}"
        assert candidate.strategy == f"s{numbers[-1]}"


def test_every_program_comes_once_in_the_old_order(recording: Path) -> None:
    proposer = RecordedProposer(recording)
    assert replayed(proposer) == [4, 2, 7]
    proposer.close()


def test_a_resumed_run_goes_on_in_the_recording(recording: Path) -> None:
    proposer = RecordedProposer(recording, skip=2)
    assert replayed(proposer) == [7]
    proposer.close()


def test_the_program_is_the_same_to_the_letter(recording: Path) -> None:
    proposer = RecordedProposer(recording)
    candidate = parse(proposer.propose(BRIEF, proposer.prompt(BRIEF)), BRIEF).candidate
    proposer.close()
    assert candidate is not None
    assert candidate.main.text.strip() in reply_text(4)


def test_what_is_no_recording_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no folder"):
        RecordedProposer(tmp_path / "absent")


def test_who_asks_for_strategies_first_gets_every_program_all_the_same(recording: Path) -> None:
    proposer = RecordedProposer(recording)
    thinking = replace(BRIEF, product=Product.STRATEGIES, wanted=2)
    told = [
        draft.strategy
        for number in (1, 2)
        for draft in parse(proposer.propose(replace(thinking, number=number), proposer.prompt(BRIEF)), thinking).drafts
    ]
    assert len(set(told)) == 4
    assert replayed(proposer) == [4, 2, 7]
    proposer.close()
