"""What comes back from a model that answers: its text, how it ended, what it cost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.llm.connections import KEY, PROMPT, PROVIDERS, base_url, connected, provider_named
from tests.scripted import Body, ScriptedServer, Step, say, status
from warpsmith.llm.model import ModelContext, ModelOptions, RetryPolicy
from warpsmith.llm.request_deadline import Call
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
        "stream": True,
        "stream_options": {"include_usage": True},
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
        "stream": True,
    }


def test_what_all_prompts_of_a_run_share_is_cached_by_anthropic() -> None:
    asked = Prompt((PROMPT.messages[0], Message(Role.USER, "# Task\n\n# What is wanted", len("# Task"))))
    with ScriptedServer([say("yes")], repeat=True) as server:
        for provider in PROVIDERS:
            with connected(server, provider) as model:
                model.complete(asked)

    openai, anthropic = (seen.body["messages"][-1]["content"] for seen in server.requests)
    assert openai == "# Task\n\n# What is wanted"  # caches what it has seen by itself
    assert anthropic == [
        {"type": "text", "text": "# Task", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "\n\n# What is wanted"},
    ]


def test_the_effort_of_reasoning_is_sent_in_each_ones_form() -> None:
    with ScriptedServer([say("yes")], repeat=True) as server:
        for provider in PROVIDERS:
            with connected(server, provider, options=ModelOptions(effort="high")) as model:
                model.complete(PROMPT)

    openai, anthropic = (seen.body for seen in server.requests)
    assert openai["reasoning_effort"] == "high"
    assert anthropic["output_config"] == {"effort": "high"}


@by_provider
def test_a_long_reply_comes_in_pieces_and_thoughts_are_not_part_of_it(provider: str) -> None:
    said = "a kernel\n" * 2000
    step = say(said, prompt=120, completion=30, cached=100, reasoning="let me see", finish="length")
    with ScriptedServer([step]) as server, connected(server, provider) as model:
        reply = model.complete(PROMPT)

    assert (reply.text, reply.finish) == (said, "length")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_tokens) == (120, 30, 100)


@by_provider
def test_an_endpoint_that_does_not_stream_is_understood(provider: str) -> None:
    refusal = status(400, error="stream is not supported here")
    with ScriptedServer([say("whole", whole=True), refusal, say("again", whole=True), say("third")]) as server:
        with connected(server, provider) as model:
            assert [model.complete(PROMPT).text for _ in range(3)] == ["whole", "again", "third"]

    assert ["stream" in seen.body for seen in server.requests] == [True, True, False, False]


@by_provider
def test_a_stream_that_ends_early_or_reports_an_error_is_asked_for_again(provider: str) -> None:
    broken = b'data: {"type": "message_start", "choices": [{"delta": {"content": "half of"}}]}\n\n'
    failed = b'data: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    steps = [Step(raw=raw, content_type="text/event-stream") for raw in (broken, failed)]
    with ScriptedServer([*steps, say("whole")]) as server, connected(server, provider) as model:
        assert model.complete(PROMPT).text == "whole"

    assert len(server.requests) == 3


@dataclass
class Arriving:
    """A body of which more and more is there."""

    num_bytes_downloaded: int = 0


def expired(call: Call, request: int) -> bool:
    call._expire(request)
    return call.timed_out


def test_a_stream_has_time_while_it_goes_on_but_not_for_ever() -> None:
    call, body = Call(), Arriving()
    call.begin(1000.0)
    call.watch(body)
    for _ in range(11):
        body.num_bytes_downloaded += 4000
        assert not expired(call, call.requests)
    body.num_bytes_downloaded += 4000
    assert expired(call, call.requests)  # twelve times the time of a request
    call.begin(1000.0)
    call.watch(body)
    body.num_bytes_downloaded += 100
    assert not expired(call, call.requests - 1)  # of the request before: late
    call.watch(Arriving(100))
    assert expired(call, call.requests)  # a byte now and then is no stream
    call.end()


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
