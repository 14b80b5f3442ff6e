"""Every way in which an endpoint can fail, over a real connection, for both providers."""

from __future__ import annotations

import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.llm.connections import KEY, PROMPT, PROVIDERS, connected, provider_named
from tests.scripted import ScriptedServer, Step, junk, say, status
from warpsmith.llm.model import ModelContext, ModelOptions, RetryPolicy
from warpsmith.model.brief import Reply
from warpsmith.model.errors import ProposerFault, ProposerRefused, WarpsmithError
from warpsmith.model.usage import TokenUsage

SOON = {"retry-after-ms": "5"}
by_provider = pytest.mark.parametrize("provider", PROVIDERS)
SLOW = {
    "hangs": Step(hang=True),
    "drips": say("slow", drip_s=0.02),
    "drips headers": say("slow", drip_head_s=0.02),
    "drips an error": status(500, drip_s=0.02),
}
PASSING = {
    "429": status(429, SOON),
    "500": status(500, SOON),
    "503": status(503, SOON),
    "529": status(529, SOON),
    "408": status(408, SOON),
    "409": status(409, SOON),
    "dropped before": Step(drop="before"),
    "dropped in the body": say("half of this is lost" * 20, drop="body"),
    "junk": junk(),
    "malformed": Step(raw=b'{"choices": [{"message": {"content": "cut'),
    "another shape": Step(raw=b'{"choices": [], "content": "x", "usage": 3}'),
    "a list": Step(raw=b"[1, 2]"),
    "a web page": Step(raw=b"<html>Sign in</html>", content_type="text/html"),
    "nothing": Step(raw=b""),
    "an error with status 200": Step(raw=b'{"error": {"message": "busy", "code": 503}}'),
}


@by_provider
@pytest.mark.parametrize("kind", PASSING)
def test_what_passes_is_asked_again(provider: str, kind: str) -> None:
    with ScriptedServer([PASSING[kind], say("at last", prompt=11, completion=3)]) as server:
        with connected(server, provider) as model:
            reply = model.complete(PROMPT)

    assert reply.text == "at last"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.requests) == (11, 3, 2)


@by_provider
@pytest.mark.parametrize("kind", SLOW)
def test_what_takes_too_long_is_asked_again(provider: str, kind: str) -> None:
    with ScriptedServer([SLOW[kind], say("at last", prompt=11, completion=3)], repeat=True) as server:
        with connected(server, provider, options=ModelOptions(retries=RetryPolicy(request_s=0.3))) as model:
            reply = model.complete(PROMPT)

    assert (reply.text, reply.usage.tokens) == ("at last", 14)
    assert reply.usage.requests == len(server.requests) >= 2


@by_provider
def test_a_reply_of_the_wrong_content_type_is_still_read(provider: str) -> None:
    with ScriptedServer([say("fine", content_type="text/plain")]) as server:
        with connected(server, provider) as model:
            reply = model.complete(PROMPT)

    assert reply.text == "fine"


@by_provider
def test_requests_are_bounded_and_the_last_reason_is_told(provider: str) -> None:
    options = ModelOptions(retries=RetryPolicy(attempts=4))
    with ScriptedServer([status(503, SOON, error="try later")], repeat=True) as server:
        with connected(server, provider, options=options) as model:
            with pytest.raises(
                ProposerFault, match=r"gave no reply to 4 requests: http.* answered 503 .try later."
            ) as caught:
                model.complete(PROMPT)

    assert not isinstance(caught.value, ProposerRefused)
    assert len(server.requests) == 4


@by_provider
def test_a_wait_that_the_endpoint_asks_for_is_kept(provider: str) -> None:
    with ScriptedServer([status(429, {"retry-after": "1.2"}), say("ok")]) as server:
        with connected(server, provider) as model:
            since = time.monotonic()
            model.complete(PROMPT)

    assert time.monotonic() - since >= 1.2  # by itself the SDK would wait half a second


@by_provider
@pytest.mark.parametrize(
    ("step", "advice"),
    [
        (status(401, error="bad key"), "answered 401 .bad key.; check that the key in {key_name} is valid"),
        (status(403, error="no access"), "answered 403 .no access.; check that the key in {key_name}"),
        (status(404, error="no such model"), "it serves one, two: name one of these instead of 'scripted'"),
        (status(400, error="what is this"), "answered 400 .what is this.; correct the value that the message names"),
        (status(400, error="temperature is not supported"), "leave the temperature out"),
        (status(400, error="Your credit balance is too low"), "add credit"),
        (status(402, error="Insufficient Balance"), "add credit"),
        (status(307, {"location": "http://127.0.0.1:9/v1"}), "it points elsewhere: give the final base URL"),
    ],
    ids=lambda value: f"{value.status} {value.error}" if isinstance(value, Step) else "",
)
def test_what_a_person_must_change_is_refused_at_once(provider: str, step: Step, advice: str) -> None:
    with ScriptedServer([step], models=["one", "two"]) as server:
        with connected(server, provider) as model:
            with pytest.raises(
                ProposerRefused, match=advice.format(key_name=provider_named(provider).key_name)
            ) as caught:
                model.complete(PROMPT)

    assert str(caught.value).startswith(f"{provider}:scripted: http://127.0.0.1:")
    assert str(caught.value).endswith(".")
    assert len(server.requests) == 1


def test_an_account_without_quota_is_not_asked_again() -> None:
    with ScriptedServer(
        [Step(status=429, raw=b'{"error": {"code": "insufficient_quota", "message": "pay"}}')]
    ) as server:
        with connected(server, "openai") as model:
            with pytest.raises(ProposerRefused, match="add credit"):
                model.complete(PROMPT)

    assert len(server.requests) == 1


@by_provider
@pytest.mark.parametrize("step", [status(400, error="prompt is too long: 9 > 8"), status(413)], ids=["400", "413"])
def test_a_prompt_that_is_too_long_is_this_prompts_fault_only(provider: str, step: Step) -> None:
    with ScriptedServer([step]) as server:
        with connected(server, provider) as model:
            with pytest.raises(ProposerFault, match="too long for scripted") as caught:
                model.complete(PROMPT)

    assert not isinstance(caught.value, ProposerRefused)
    assert len(server.requests) == 1


@by_provider
def test_an_address_where_nothing_answers_is_for_a_person_to_change(provider: str) -> None:
    with ScriptedServer() as server:
        pass
    with connected(server, provider, options=ModelOptions(retries=RetryPolicy(attempts=2))) as model:
        with pytest.raises(ProposerRefused, match=r"refused.*: nothing answers at http.*; start the server") as caught:
            model.complete(PROMPT)
    assert caught.value.usage is not None
    assert caught.value.usage.requests == 2


@by_provider
def test_a_server_that_goes_away_is_a_fault(provider: str) -> None:
    with ExitStack() as stack:
        with ScriptedServer([say("hello")]) as server:
            options = ModelOptions(retries=RetryPolicy(attempts=2))
            model = stack.enter_context(connected(server, provider, options=options))
            assert model.complete(PROMPT).text == "hello"
        with pytest.raises(ProposerFault, match="gave no reply to 2 requests: the connection failed") as caught:
            model.complete(PROMPT)
    assert not isinstance(caught.value, ProposerRefused)


@by_provider
@pytest.mark.parametrize("kind", SLOW)
def test_a_server_that_does_not_end_is_ended(provider: str, kind: str) -> None:
    patience = RetryPolicy(request_s=0.1, attempts=1)
    with ScriptedServer([SLOW[kind]]) as server:
        with connected(server, provider, options=ModelOptions(retries=patience)) as model:
            with pytest.raises(ProposerFault, match=r"gave no reply to 1 request: no .*answer came"):
                model.complete(PROMPT)


@by_provider
def test_tokens_of_attempts_that_brought_nothing_are_counted(provider: str) -> None:
    paid = b'{"usage": {"prompt_tokens": 5, "completion_tokens": 2, "input_tokens": 5, "output_tokens": 2}}'
    steps = [Step(raw=paid), Step(status=500, raw=paid), status(500, SOON), say("ok", prompt=10, completion=4)]
    with ScriptedServer(steps) as server:
        with connected(server, provider) as model:
            reply = model.complete(PROMPT)

    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.requests) == (20, 8, 4)


@by_provider
def test_a_fault_says_what_was_spent_all_the_same(provider: str) -> None:
    paid = b'{"usage": {"prompt_tokens": 5, "completion_tokens": 2, "input_tokens": 5, "output_tokens": 2}}'
    with ScriptedServer([Step(raw=paid)], repeat=True) as server:
        with connected(server, provider, options=ModelOptions(retries=RetryPolicy(attempts=3))) as model:
            with pytest.raises(ProposerFault) as caught:
                model.complete(PROMPT)

    assert isinstance(caught.value.usage, TokenUsage)
    assert (caught.value.usage.tokens, caught.value.usage.requests) == (21, 3)


@by_provider
def test_no_key_leaves_through_an_error_or_a_reply(provider: str) -> None:
    echo = f"you sent {KEY}, and {KEY} is wrong"
    html = Step(status=502, raw=echo.encode(), content_type="text/html")
    shapes = [status(401, error=echo), status(400, error=echo), status(500, error=echo), html, Step(raw=echo.encode())]
    with ScriptedServer(lambda number, body: [*shapes, say(echo)][number - 1]) as server:
        with connected(server, provider, options=ModelOptions(retries=RetryPolicy(attempts=1))) as model:
            errors = [_fault(model.complete) for _ in shapes]
            reply = model.complete(PROMPT)
            told = [repr(model), str(vars(model))]

    assert all(KEY in str(seen.headers) for seen in server.requests)  # it was sent
    for error in errors:
        told += [str(error), repr(error), str(vars(error)), "".join(traceback.format_exception(error))]
        # The SDK's exception holds the request with its headers: it must not hang on ours.
        assert error.__cause__ is None
        assert error.__context__ is None
    assert [text for text in [*told, reply.text, repr(reply)] if KEY in text] == []
    assert reply.text == "you sent [key], and [key] is wrong"


def _fault(complete: object) -> WarpsmithError:
    assert callable(complete)
    with pytest.raises(ProposerFault) as caught:
        complete(PROMPT)
    return caught.value


@by_provider
def test_a_key_is_needed_for_the_providers_own_address_only(provider: str) -> None:
    plug = provider_named(provider)
    with pytest.raises(ProposerRefused, match=f"{provider} needs a key: set {plug.key_name}"):
        plug.connect("x", ModelOptions(), ModelContext.load({}))

    with ScriptedServer([say("no key needed")]) as server:
        with connected(server, provider, environ={plug.key_name: ""}) as model:
            assert model.complete(PROMPT).text == "no key needed"


@by_provider
def test_without_a_key_a_refusal_says_how_to_give_one(provider: str) -> None:
    plug = provider_named(provider)
    with ScriptedServer([status(401)]) as server:
        with connected(server, provider, environ={plug.key_name: ""}) as model:
            with pytest.raises(ProposerRefused, match=f"set {plug.key_name} or name a key file"):
                model.complete(PROMPT)


@pytest.mark.slow
def test_many_threads_through_many_failures_lose_nothing() -> None:
    def flaky(number: int, body: object) -> Step:
        return [status(429, SOON), Step(drop="before"), say("ok", prompt=1, completion=1)][number % 3]

    options = ModelOptions(concurrency=4, retries=RetryPolicy(attempts=12))
    with ScriptedServer(flaky) as server:
        with connected(server, "openai", options=options) as model, ThreadPoolExecutor(8) as pool:
            replies: list[Reply] = list(pool.map(lambda _: model.complete(PROMPT), range(16)))

    assert [reply.text for reply in replies] == ["ok"] * 16
    assert sum(reply.usage.tokens for reply in replies) == 32
    assert sum(reply.usage.requests for reply in replies) == len(server.requests)
