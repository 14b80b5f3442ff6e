"""Strategies found in replies, in the forms that models really choose."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.prompts.briefs import brief
from warpsmith.methods.cupilot import ALIGN, INITIALISE
from warpsmith.model.brief import Proposal, Reply, StrategyDraft
from warpsmith.model.method import Move, Product
from warpsmith.prompts.parser import LONGEST_REPLY_CHARS, parse

ASKED, ALIGNING = brief(INITIALISE), brief(ALIGN)
TWO = (
    StrategyDraft("one warp per row", "no barriers"),
    StrategyDraft("vector loads of 16 bytes", "fewer instructions"),
)


def read(text: str, finish: str = "stop", wanted: int = 6) -> Proposal:
    return parse(Reply(text, "model", finish=finish), replace(ASKED, wanted=wanted))


FORMS = {
    "as asked": "strategy: one warp per row\nthought: no barriers\nstrategy: vector loads of 16 bytes\n"
    "thought: fewer instructions\n",
    "apart": "strategy: one warp per row\nthought: no barriers\n\nSome words between.\n\n"
    "strategy: vector loads of 16 bytes\nthought: fewer instructions\n\nThat is all.",
    "with chatter": "Here are two strategies:\n\n1. **Strategy:** one warp per row\n   **Thought:** no barriers\n"
    "2. **Strategy:** vector loads of 16 bytes\n   **Thought:** fewer instructions\n\nGood luck!",
    "numbered": "### Strategy 1: one warp per row\nThought: no barriers\n### Strategy 2: vector loads of 16 bytes\n"
    "Rationale: fewer instructions",
    "fenced": "```\nstrategy: one warp per row\nthought: no barriers\nstrategy: vector loads of 16 bytes\n"
    "thought: fewer instructions\n```",
    "thinking": "<think>strategy: a bad one\nthought: no</think>\nstrategy: one warp per row\nthought: no barriers\n"
    "strategy: vector loads of 16 bytes\nthought: fewer instructions",
    "json list": '[{"strategy": "one warp per row", "thought": "no barriers"},\n'
    ' {"strategy": "vector loads of 16 bytes", "thought": "fewer instructions"}]',
    "json object": 'Sure:\n```json\n{"strategies": [{"name": "a", "strategy": "one warp per row", "why": "no barriers"}'
    ', {"name": "b", "strategy": "vector loads of 16 bytes", "rationale": "fewer instructions"}]}\n```',
    "over two lines": "strategy: one warp\n  per row\nthought: no\n  barriers\nstrategy: vector loads of 16 bytes\n"
    "thought: fewer instructions",
}


@pytest.mark.parametrize("form", FORMS)
def test_two_strategies_are_found(form: str) -> None:
    assert read(FORMS[form]).drafts == TWO


def test_a_list_without_heads_is_a_list_of_strategies() -> None:
    assert [d.strategy for d in read("- one warp per row\n- tiles of [64, 64] in shared memory\n").drafts] == [
        "one warp per row",
        "tiles of [64, 64] in shared memory",
    ]
    assert [d.strategy for d in read('["simd", "unroll(factor=2)"]').drafts] == ["simd", "unroll(factor=2)"]
    parts = read('{"strategies": [{"optimisations": ["simd", "unroll(factor=2)"]}]}').drafts
    assert [d.strategy for d in parts] == ["simd + unroll(factor=2)"]


def test_no_more_are_taken_than_were_wanted_and_none_twice() -> None:
    said = "".join(f"strategy: {name}\n" for name in ("a1", "a1", "a2", "a3", "a4"))

    assert [draft.strategy for draft in read(said, wanted=3).drafts] == ["a1", "a2", "a3"]


def test_a_reply_that_was_cut_off_gives_what_was_whole() -> None:
    assert read(FORMS["as asked"], finish="length").drafts == TWO[:1]
    failure = read("strategy: one warp per", finish="length").failure
    assert "cut off" in failure


@pytest.mark.parametrize("text", ["", "I cannot help with that.", "strategy:\nthought: none", "```cpp\nint x;\n```"])
def test_without_a_strategy_the_reason_says_how_to_answer(text: str) -> None:
    proposal = read(text)

    assert not proposal.drafts
    assert "`strategy: ...`" in proposal.failure
    assert "one fenced block" not in read("x" * (LONGEST_REPLY_CHARS + 1)).failure


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("strategy: vector-loads(width=4) + simd\nthought: the unrolling is not there", "vector-loads(width=4) + simd"),
        ("**Strategy:** a plain loop\n\n**Thought:** none", "a plain loop"),
        ("strategy: a first try\nNo, wait.\n\nstrategy: a plain loop", "a plain loop"),
        ('{"strategy": "a plain loop", "thought": "none"}', "a plain loop"),
        ("A plain loop over all rows, without vector loads.", "A plain loop over all rows, without vector loads."),
        ("```\na plain loop\n```", "a plain loop"),
        ("<think>hm</think>a plain loop", "a plain loop"),
    ],
)
def test_the_strategy_of_an_alignment_is_found(text: str, meant: str) -> None:
    assert parse(Reply(text, "model"), ALIGNING).text == meant


@pytest.mark.parametrize("text", ["", "First paragraph.\n\nSecond paragraph.", "word " * 400])
def test_an_alignment_without_a_strategy_is_none(text: str) -> None:
    assert "`strategy: ...`" in parse(Reply(text, "model"), ALIGNING).failure


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(["strategy:", "thought:", "[", "{", '"', "```", "\n", "1.", "a", "\0", "<think>"])),
    finish=st.sampled_from(["stop", "length"]),
    asked=st.sampled_from([ASKED, ALIGNING]),
)
def test_whatever_comes_is_strategies_a_text_or_a_reason(pieces: list[str], finish: str, asked: object) -> None:
    assert asked in (ASKED, ALIGNING)
    wanted = ASKED if asked == ASKED else ALIGNING
    proposal = parse(Reply("".join(pieces), "model", finish=finish), wanted)

    assert (wanted.move is Move.ALIGN) == (wanted.product is Product.ALIGNMENT)
    assert not proposal.candidate
    assert all("\0" not in draft.strategy and draft.strategy.strip() for draft in proposal.drafts)
