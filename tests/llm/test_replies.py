"""What comes back from a model that answers: its text, how it ended, what it cost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.llm.connections import KEY, PROMPT, PROVIDERS, base_url, connected, provider_named
from tests.scripted import Body, ScriptedServer, Step, say, status
from warpsmith.llm.model import ModelContext, ModelOptions, RetryPolicy
from warpsmith.model.brief import Message, Prompt, Role
from warpsmith.model.errors import ProposerRefused

by_provider = pytest.mark.parametrize("provider", PROVIDERS)


@by_provider
def test_a_reply_holds_the_text_and_what_was_used(provider: str) -> None:
    with ScriptedServer([say("a kernel", prompt=120, completion=30, cached=100)]) as server:
        with connected(server, provider) as model:
            reply = model.complete(PROMPT)

    assert (reply.text, reply.model, reply.finish) == ("a kernel", "scripted", "stop")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_tokens) == (120, 30, 100)
    assert reply.usage.requests == 1
    assert reply.usage.cost_usd is None  # nobody has said what this model costs
    assert model.name == f"{provider}:scripted"


def test_openai_is_asked_in_its_own_form() -> None:
    with ScriptedServer([say("yes")]) as server:
        with connected(server, "openai", options=ModelOptions(max_tokens=50)) as model:
            model.complete(PROMPT)

    seen = server.requests[0]
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body == {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": "You write kernels."},
            {"role": "user", "content": "Write one."},
        ],
        "max_tokens": 50,
    }


def test_anthropic_is_asked_in_its_own_form() -> None:
    talk = Prompt((*PROMPT.messages, Message(Role.ASSISTANT, "Like this?"), Message(Role.USER, "Faster.")))
    with ScriptedServer([say("yes")]) as server:
        with connected(server, "anthropic", options=ModelOptions(max_tokens=50, temperature=0.5)) as model:
            model.complete(talk)

    seen = server.requests[0]
    assert seen.path == "/v1/messages"
    assert KEY in (seen.headers.get("x-api-key"), seen.headers.get("authorization", "").removeprefix("Bearer "))
    assert seen.body == {
        "model": "scripted",
        "max_tokens": 50,
        "temperature": 0.5,
        "system": "You write kernels.",
        "messages": [
            {"role": "user", "content": "Write one."},
            {"role": "assistant", "content": "Like this?"},
            {"role": "user", "content": "Faster."},
        ],
    }


@by_provider
def test_a_prompt_without_a_system_message_is_sent_without_one(provider: str) -> None:
    with ScriptedServer([say("yes")]) as server:
        with connected(server, provider) as model:
            model.complete(Prompt((Message(Role.USER, "Write one."),)))

    assert server.requests[0].body["messages"] == [{"role": "user", "content": "Write one."}]
    assert "system" not in server.requests[0].body


@by_provider
def test_a_reply_that_was_cut_off_says_so(provider: str) -> None:
    with ScriptedServer([say("half a ker", finish="length")]) as server:
        with connected(server, provider) as model:
            reply = model.complete(PROMPT)

    assert (reply.text, reply.finish) == ("half a ker", "length")


@by_provider
def test_what_was_only_thought_is_no_part_of_the_text(provider: str) -> None:
    with ScriptedServer([say("the kernel", completion=500, reasoning="hmm, a secret plan")]) as server:
        with connected(server, provider) as model:
            reply = model.complete(PROMPT)

    assert reply.text == "the kernel"
    assert reply.usage.completion_tokens == 500


@by_provider
@pytest.mark.parametrize("text", ["", "I cannot help with that."])
def test_an_empty_reply_and_a_refusal_are_replies(provider: str, text: str) -> None:
    with ScriptedServer([say(text, finish="refusal" if text else "stop")]) as server:
        with connected(server, provider) as model:
            reply = model.complete(PROMPT)

    assert reply.text == text
    assert len(server.requests) == 1


def test_text_in_parts_is_put_together() -> None:
    parts = (
        b'{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"type": "thinking"}, {"text": "b"}]}}]}'
    )
    with ScriptedServer([Step(raw=parts)]) as server:
        with connected(server, "openai") as model:
            reply = model.complete(PROMPT)

    assert reply.text == "ab"
    assert reply.usage.tokens == 0


@by_provider
def test_a_reply_costs_what_the_price_table_says(provider: str, tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(f"[{provider}.scripted]\ninput = 2.0\noutput = 10.0\ncached_input = 0.5\n")
    with ScriptedServer([say("dear", prompt=1000, completion=100, cached=600)]) as server:
        with connected(server, provider, environ={"WARPSMITH_PRICES": str(table)}) as model:
            reply = model.complete(PROMPT)

    assert reply.usage.cost_usd == pytest.approx((400 * 2.0 + 600 * 0.5 + 100 * 10.0) / 1e6)


@by_provider
def test_no_usage_reported_is_no_cost_even_with_a_price(provider: str, tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(f"[{provider}.scripted]\ninput = 2.0\noutput = 10.0\n")
    with ScriptedServer([say("free?", usage=False)]) as server:
        with connected(server, provider, environ={"WARPSMITH_PRICES": str(table)}) as model:
            reply = model.complete(PROMPT)

    assert reply.usage.cost_usd is None


def test_the_name_of_the_limit_is_changed_once_and_remembered() -> None:
    def choosy(number: int, body: Body) -> Step:
        if "max_tokens" in body:
            return status(400, error="Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return say("fine")

    with ScriptedServer(choosy) as server:
        with connected(server, "openai", options=ModelOptions(max_tokens=99, retries=RetryPolicy(attempts=1))) as model:
            first, second = model.complete(PROMPT), model.complete(PROMPT)

    assert (first.text, first.usage.requests, second.usage.requests) == ("fine", 2, 1)
    assert [sorted({"max_tokens", "max_completion_tokens"} & set(seen.body)) for seen in server.requests] == [
        ["max_tokens"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]


def test_a_limit_that_no_name_helps_is_refused() -> None:
    with ScriptedServer(
        [status(400, error="max_tokens and max_completion_tokens are too large")], repeat=True
    ) as server:
        with connected(server, "openai", options=ModelOptions(max_tokens=10**9)) as model:
            with pytest.raises(ProposerRefused, match="too large"):
                model.complete(PROMPT)

    assert len(server.requests) == 2


@by_provider
def test_an_endpoint_gets_no_more_requests_at_once_than_allowed(provider: str) -> None:
    with ScriptedServer([say("slow", delay_s=0.05)], repeat=True) as server:
        with connected(server, provider, options=ModelOptions(concurrency=2)) as model, ThreadPoolExecutor(6) as pool:
            texts = [reply.text for reply in pool.map(lambda _: model.complete(PROMPT), range(6))]

    assert texts == ["slow"] * 6
    assert server.most_at_once == 2


def test_models_of_one_endpoint_share_its_limit() -> None:
    with ScriptedServer([say("slow", delay_s=0.05)], repeat=True) as server:
        context = ModelContext.load({"OPENAI_BASE_URL": server.openai_url})
        plug = provider_named("openai")
        models = [plug.connect(name, ModelOptions(concurrency=1), context) for name in ("a", "b")]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda model: model.complete(PROMPT), models * 2))
        for model in models:
            model.close()

    assert server.most_at_once == 1


@by_provider
def test_closing_ends_a_request_under_way(provider: str) -> None:
    with ScriptedServer([Step(hang=True)]) as server:
        with connected(server, provider, options=ModelOptions(retries=RetryPolicy(attempts=3))) as model:
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(model.complete, PROMPT)
                while not server.requests:
                    threading.Event().wait(0.005)
                model.close()
                error = waiting.exception(timeout=5)

    assert str(error) == f"{provider}:scripted gave no reply to 1 request: it was closed."
    assert len(server.requests) == 1


@by_provider
def test_an_endpoint_says_which_models_it_serves(provider: str) -> None:
    plug = provider_named(provider)
    with ScriptedServer(models=["one", "two"]) as server:
        context = ModelContext.load({plug.url_name: base_url(server, provider)})

        assert plug.list_models(ModelOptions(), context) == ("one", "two")
