"""The proposer that asks models: what is sent, who is asked, what comes back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.prompts.briefs import EVERYTHING, brief
from tests.scripted import ScriptedServer, say, status
from warpsmith.llm.model import ModelContext, ModelOptions, RetryPolicy
from warpsmith.llm.spec import ModelSpec, parse
from warpsmith.model.brief import Brief
from warpsmith.model.errors import ProposerFault, UsageError
from warpsmith.model.usage import ModelUsage
from warpsmith.proposers.models import ModelProposer, connect, pick_model, ucb, weighted

BRIEF = brief(EVERYTHING)
NAMES = ["openai:good", "openai:poor", "anthropic:dear"]


def standing(model: str, replies: int, gain: float, cost_usd: float = 0.0, tokens: int = 0) -> ModelUsage:
    return ModelUsage(model, replies, gain, cost_usd, tokens)


def with_standings(*standings: ModelUsage, number: int = 1, seed: int = 7) -> Brief:
    return replace(BRIEF, models=standings, number=number, seed=seed)


def test_the_prompt_of_the_brief_is_what_the_model_gets() -> None:
    with ScriptedServer([say("```cuda\nint x;\n```", prompt=9, completion=4)]) as server:
        context = ModelContext.load({"OPENAI_BASE_URL": server.openai_url})
        proposer = connect(parse("openai:tiny"), ModelOptions(concurrency=3), context)
        prompt = proposer.prompt(BRIEF)
        reply = proposer.propose(BRIEF, prompt)
        proposer.close()

    assert (proposer.name, proposer.concurrency) == ("openai:tiny", 3)
    assert [message["content"] for message in server.requests[0].body["messages"]] == [m.text for m in prompt.messages]
    assert "softmax" in prompt.messages[-1].text
    assert (reply.text, reply.model, reply.usage.tokens) == ("```cuda\nint x;\n```", "tiny", 13)


def test_several_models_over_two_protocols_are_asked_by_their_weights() -> None:
    with ScriptedServer(lambda number, body: say(body["model"])) as server:
        urls = {"OPENAI_BASE_URL": server.openai_url, "ANTHROPIC_BASE_URL": server.anthropic_url}
        proposer = connect(parse("openai:a=3,anthropic:b=1"), ModelOptions(), ModelContext.load(urls))
        briefs = [replace(BRIEF, seed=seed) for seed in range(24)]
        asked = Counter(proposer.propose(each, proposer.prompt(each)).text for each in briefs)
        proposer.close()

    assert proposer.name == "openai:a,anthropic:b"
    assert set(asked) == {"a", "b"}
    assert asked["a"] > asked["b"]


def test_a_fault_of_the_model_is_the_proposers() -> None:
    with ScriptedServer([status(500)], repeat=True) as server:
        options = ModelOptions(retries=RetryPolicy(attempts=2))
        proposer = connect(parse("openai:a"), options, ModelContext.load({"OPENAI_BASE_URL": server.openai_url}))
        with pytest.raises(ProposerFault, match="openai:a gave no reply to 2 requests"):
            proposer.propose(BRIEF, proposer.prompt(BRIEF))
        proposer.close()


def test_a_proposer_without_models_is_an_error() -> None:
    with pytest.raises(UsageError, match="no model is named"):
        ModelProposer([])


def test_weights_are_shares_and_a_brief_always_goes_to_the_same() -> None:
    pick = weighted([8.0, 1.0, 1.0])
    picks = [pick(replace(BRIEF, seed=seed)) for seed in range(500)]

    assert picks == [pick(replace(BRIEF, seed=seed)) for seed in range(500)]
    shares = Counter(picks)
    assert 350 < shares[0] < 450
    assert min(shares[1], shares[2]) > 20


def test_ucb_tries_every_model_first() -> None:
    pick = ucb(NAMES)

    assert {pick(with_standings(number=number)) for number in range(1, 4)} == {0, 1, 2}


def test_ucb_prefers_what_improves_for_what_it_costs() -> None:
    pick = ucb(NAMES)
    cheap = standing("openai:good", 10, gain=1.0, cost_usd=0.1, tokens=1000)
    useless = standing("openai:poor", 10, gain=0.0, cost_usd=0.1, tokens=1000)
    dear = standing("anthropic:dear", 10, gain=2.0, cost_usd=4.0, tokens=1000)

    assert pick(with_standings(cheap, useless, dear)) == 0
    # The same gains at the same price: then the one that gained more.
    assert pick(with_standings(cheap, useless, replace(dear, cost_usd=0.1))) == 2
    # One without a price: then tokens count.
    assert pick(with_standings(replace(cheap, cost_usd=0.0), useless, dear)) == 2


def test_ucb_comes_back_to_what_was_asked_rarely() -> None:
    pick = ucb(NAMES[:2])

    often = standing("openai:good", 200, gain=1.0, tokens=200)
    assert pick(with_standings(often, standing("openai:poor", 1, gain=0.0, tokens=1))) == 1
    assert pick(with_standings(often, standing("openai:poor", 100, gain=0.0, tokens=100))) == 0


def test_ucb_does_not_wait_for_a_model_that_never_answers() -> None:
    pick = ucb(NAMES)
    known = (standing("openai:good", 5, 1.0, tokens=5), standing("openai:poor", 5, 0.0, tokens=5))

    picks = Counter(pick(with_standings(*known, number=number)) for number in range(30))

    assert picks == {2: 10, 0: 20}


def test_ucb_knows_models_by_the_name_in_their_replies() -> None:
    known = (standing("good", 5, 0.0, tokens=5), standing("poor", 5, 1.0, tokens=5), standing("dear", 5, 0.0, tokens=5))

    assert ucb(NAMES)(with_standings(*known)) == 1


def test_ucb_breaks_ties_by_the_seed() -> None:
    pick = ucb(NAMES)
    level = tuple(standing(name, 5, 0.0, tokens=5) for name in NAMES)
    picks = [pick(with_standings(*level, seed=seed)) for seed in range(30)]

    assert set(picks) == {0, 1, 2}
    assert picks == [pick(with_standings(*level, seed=seed)) for seed in range(30)]


def test_a_choice_by_an_unknown_name_is_an_error() -> None:
    assert pick_model("ucb", NAMES, [1.0] * 3)(with_standings(number=1)) == 1
    with pytest.raises(UsageError, match="unknown choice among models 'best'; known: weighted, ucb"):
        pick_model("best", NAMES, [1.0] * 3)


def test_a_role_with_a_model_of_its_own_is_played_by_it() -> None:
    with ScriptedServer(lambda number, body: say(body["model"])) as server:
        urls = {"OPENAI_BASE_URL": server.openai_url, "ANTHROPIC_BASE_URL": server.anthropic_url}
        roles = {"translator": ModelSpec("anthropic", "b"), "aligner": ModelSpec("openai", "a")}
        proposer = connect(parse("openai:a"), ModelOptions(), ModelContext.load(urls), roles=roles)
        asked = [replace(BRIEF, role=role) for role in ("translator", "strategist", "aligner", "")]
        played = [proposer.propose(each, proposer.prompt(each)).text for each in asked]
        proposer.close()

    assert played == ["b", "a", "a", "a"]
    assert proposer.name == "openai:a,aligner=openai:a,translator=anthropic:b"
