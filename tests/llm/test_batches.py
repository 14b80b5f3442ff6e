"""Batches of requests, and replies by a schema."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest

from tests.llm.batch_server import batch_server
from tests.llm.connections import KEY, PROMPT, PROVIDERS, provider_named
from tests.prompts.briefs import brief
from warpsmith.llm.adapter import ProviderAdapter, Response
from warpsmith.llm.batches import Batcher
from warpsmith.llm.conversation import ALIGNMENT, SCHEMAS, STRATEGIES, turns_of, with_form
from warpsmith.llm.model import Model, ModelContext, ModelOptions
from warpsmith.llm.prices import Prices
from warpsmith.llm.secrets import Keyring, Secret
from warpsmith.methods.load import load
from warpsmith.model.brief import Message, Prompt, Role
from warpsmith.model.errors import ProposerFault
from warpsmith.model.method import Product
from warpsmith.prompts.strategy_replies import read_drafts
from warpsmith.proposers.models import ModelProposer


def prompt(text: str) -> Prompt:
    return Prompt((Message(Role.USER, text),))


class FakeAdapter:
    """Answers a batch when it is asked about for the second time."""

    def __init__(self, refusal: Response | None = None) -> None:
        self.batches: list[list[str]] = []
        self.cancelled: list[str] = []
        self.refusal = refusal
        self.ends = True
        self._asked: dict[str, int] = {}

    def submit(self, prompts: Sequence[Prompt]) -> str | Response:
        self.batches.append([each.messages[0].text for each in prompts])
        return self.refusal or str(len(self.batches) - 1)

    def collect(self, batch: str) -> Mapping[int, Response] | Response | None:
        self._asked[batch] = self._asked.get(batch, 0) + 1
        if self._asked[batch] < 2 or not self.ends:
            return None if self._asked[batch] > 1 else Response(503)  # one question fails: it is asked again
        return {i: Response(200, f"to {text}") for i, text in enumerate(self.batches[int(batch)]) if text != "lost"}

    def cancel(self, batch: str) -> None:
        self.cancelled.append(batch)


def asked(batcher: Batcher, *texts: str) -> dict[str, Response]:
    found: dict[str, Response] = {}
    threads = [threading.Thread(target=lambda t=t: found.update({t: batcher.ask(prompt(t))})) for t in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    return found


def test_requests_of_several_threads_are_one_batch_and_each_gets_its_own_response() -> None:
    adapter = FakeAdapter()
    batcher = Batcher(adapter, quiet_s=0.3, poll_s=0.01)
    found = asked(batcher, "a", "b", "lost")
    assert [sorted(batch) for batch in adapter.batches] == [["a", "b", "lost"]]
    assert (found["a"].body, found["b"].body) == ("to a", "to b")
    assert found["lost"].lost
    assert asked(batcher, "later")["later"].body == "to later"
    assert len(adapter.batches) == 2
    batcher.close()


def test_a_refused_batch_is_the_response_to_all() -> None:
    batcher = Batcher(FakeAdapter(Response(401, "no key")), quiet_s=0.01, poll_s=0.01)
    assert asked(batcher, "a")["a"] == Response(401, "no key")
    batcher.close()


def test_closing_gives_up_and_cancels() -> None:
    adapter = FakeAdapter()
    adapter.ends = False
    batcher = Batcher(adapter, quiet_s=0.01, poll_s=0.01)
    threading.Timer(0.2, batcher.close).start()
    assert asked(batcher, "a")["a"].lost == "it was closed"
    assert adapter.cancelled == ["0"]
    assert batcher.ask(prompt("b")).lost == "it was closed"


# --- in the words of each provider ---


def adapter_of(provider: str, url: str = "", **options: Any) -> ProviderAdapter:
    plug = provider_named(provider)
    return plug.adapter("scripted", url or plug.home, Secret(KEY), ModelOptions(batch=True, **options))


def test_openai_gets_a_file_of_requests_and_gives_a_file_of_responses() -> None:
    batch: dict[str, object] = {
        "id": "b",
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    batch |= {"input_file_id": "file-1", "created_at": 1}
    lines = [
        {"custom_id": "1", "response": {"status_code": 200, "body": {"choices": []}}},
        {"custom_id": "0", "response": None, "error": {"code": "batch_expired"}},
    ]
    answers: dict[str, list[object]] = {
        "POST /v1/files": [{"id": "file-1", "object": "file", "bytes": 1, "created_at": 1, "filename": "batch.jsonl"}],
        "POST /v1/batches": [{**batch, "status": "validating"}],
        "GET /v1/batches/b": [
            {**batch, "status": "in_progress"},
            {**batch, "status": "completed", "output_file_id": "o"},
        ],
        "GET /v1/files/o/content": ["\n".join(map(json.dumps, lines))],
    }

    with batch_server(answers) as server, closing(adapter_of("openai", f"{server.url}/v1")) as adapter:
        assert adapter.submit([PROMPT, PROMPT]) == "b"
        assert adapter.collect("b") is None
        found = adapter.collect("b")

    uploaded = server.bodies["POST /v1/files"]
    sent = [json.loads(line) for line in uploaded.splitlines() if line.startswith(b'{"custom_id"')]
    assert b'name="purpose"\r\n\r\nbatch\r\n' in uploaded
    assert json.loads(server.bodies["POST /v1/batches"])["input_file_id"] == "file-1"
    assert [line["custom_id"] for line in sent] == ["0", "1"]
    assert sent[0]["url"] == "/v1/chat/completions"
    assert sent[0]["body"]["messages"][1]["content"] == "Write one."
    assert "stream" not in sent[0]["body"]
    assert isinstance(found, dict)
    assert found[1] == Response(200, '{"choices": []}')
    assert (found[0].status, "batch_expired" in found[0].body) == (500, True)


def test_anthropic_gets_and_gives_messages() -> None:
    batch: dict[str, object] = {"id": "b", "type": "message_batch", "created_at": "2026-01-01T00:00:00Z"}
    batch |= {"expires_at": "2026-01-02T00:00:00Z", "results_url": "{url}/v1/messages/batches/b/results"}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    lines = [
        {"custom_id": "1", "result": {"type": "succeeded", "message": message}},
        {"custom_id": "0", "result": {"type": "expired"}},
    ]
    answers: dict[str, list[object]] = {
        "POST /v1/messages/batches": [{**batch, "processing_status": "in_progress"}],
        "GET /v1/messages/batches/b": [
            {**batch, "processing_status": "in_progress"},
            {**batch, "processing_status": "ended"},
        ],
        "GET /v1/messages/batches/b/results": ["\n".join(map(json.dumps, lines)) + "\n"],
    }

    with batch_server(answers) as server, closing(adapter_of("anthropic", server.url)) as adapter:
        assert adapter.submit([PROMPT, PROMPT]) == "b"
        assert adapter.collect("b") is None
        found = adapter.collect("b")

    sent = json.loads(server.bodies["POST /v1/messages/batches"])["requests"]
    assert [request["custom_id"] for request in sent] == ["0", "1"]
    assert sent[0]["params"]["system"] == "You write kernels."
    assert isinstance(found, dict)
    assert found[1].status == 200
    assert json.loads(found[1].body)["content"] == []
    assert found[0].lost == "the request of the batch was expired"


def test_a_reply_of_a_batch_costs_half(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {
        "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0},
    }
    answers = {False: Response(200, json.dumps(body)), True: Response(lost="no")}

    def model(batch: bool) -> Model:
        plug = provider_named("openai")
        context = ModelContext(Keyring.load({plug.key_name: KEY}), Prices.load({}))
        return plug.connect(plug.default_model, ModelOptions(batch=batch), context)

    monkeypatch.setattr(Batcher, "ask", lambda *_: answers[False])
    monkeypatch.setattr(provider_named("openai").adapter, "send", lambda *_: answers[False])
    batched, usual = model(True).complete(PROMPT), model(False).complete(PROMPT)
    assert batched.text == usual.text == "hello"
    assert batched.usage.cost_usd == pytest.approx((usual.usage.cost_usd or 0.0) / 2)
    assert batched.usage.cost_usd
    monkeypatch.setattr(Batcher, "ask", lambda *_: answers[True])
    with pytest.raises(ProposerFault, match="no"):
        model(True).complete(PROMPT)


# --- replies by a schema ---


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_schema_is_sent_in_each_ones_form_until_it_is_refused(provider: str) -> None:
    adapter: Any = adapter_of(provider, effort="low")
    asking = with_form(PROMPT, STRATEGIES)

    def schema() -> object:
        body = adapter._body(turns_of(asking), schema=SCHEMAS[asking.form])
        if provider == "anthropic":
            assert body["output_config"]["effort"] == "low"
            return body["output_config"].get("format", {}).get("schema")
        return body.get("response_format", {}).get("json_schema", {}).get("schema")

    assert schema() == SCHEMAS[STRATEGIES]
    assert not adapter.adapt(Response(500, "json_schema"))
    assert adapter.adapt(Response(400, "json_schema is not supported"))
    assert schema() is None
    assert not adapter.adapt(Response(400, "json_schema is not supported"))


@pytest.mark.parametrize(
    ("form", "reply"),
    [
        (STRATEGIES, {"strategies": [{"strategy": "tiles(64)", "thought": "reuse"}]}),
        (ALIGNMENT, {"strategy": "tiles(64)", "thought": "reuse"}),
    ],
)
def test_replies_by_the_schemas_are_read(form: str, reply: Mapping[str, object]) -> None:
    assert set(reply) <= set(SCHEMAS[form]["properties"])  # type: ignore[call-overload]
    (draft,) = read_drafts(json.dumps(reply))
    assert (draft.strategy, draft.thought) == ("tiles(64)", "reuse")


def test_only_prompts_without_a_kernel_get_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        name = model = "silent"

    operators = {each.product: each for each in load("cupilot").operators}
    make: Callable[..., ModelProposer] = lambda s: ModelProposer([Silent()], structured=s)  # type: ignore[list-item]  # noqa: E731
    asks = brief(operators[Product.STRATEGIES])
    assert make(True).prompt(asks).form == STRATEGIES
    assert "as JSON" in make(True).prompt(asks).messages[-1].text
    assert make(False).prompt(asks).form == ""
    assert make(True).prompt(brief(operators[Product.KERNEL])).form == ""
