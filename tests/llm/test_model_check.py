"""`warpsmith models check` against a scripted endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.llm.connections import KEY, PROVIDERS, base_url
from tests.scripted import Body, ScriptedServer, Step, say, status
from warpsmith.cli.main import app
from warpsmith.llm.adapter import ProviderAdapter

KERNEL = """extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] > 0 ? 0.5f * x[i] : 0.0f;
    return 0;
}
"""
REPLY = f"name: plain\nstrategy: none\nthought: plain\ncode:\n```cpp\n{KERNEL}```\n"
OPENAI_CALL = {"type": "function", "id": "1", "function": {"name": "give_answer", "arguments": '{"answer": "Paris"}'}}
PRICES = '[openai."scripted"]\ninput = 1.0\noutput = 10.0\n[anthropic."scripted"]\ninput = 1.0\noutput = 10.0\n'


def able(number: int, body: Body) -> Step:
    """An endpoint that offers everything."""
    if "tools" in body:
        if "input_schema" in body["tools"][0]:  # Anthropic
            call = {"type": "tool_use", "id": "1", "name": "give_answer", "input": {"answer": "Paris"}}
            content: dict[str, Any] = {"content": [call], "stop_reason": "tool_use"}
            return Step(raw=json.dumps(content | {"usage": {"input_tokens": 10, "output_tokens": 5}}).encode())
        message = {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        return Step(raw=json.dumps({"choices": [{"message": message}], "usage": usage}).encode())
    if "response_format" in body or "output_config" in body:
        return say('{"answer": "Paris"}', 10, 5, whole=True)
    return say(REPLY, 1000, 200, cached=0 if number == 1 else 800)


def check(server: ScriptedServer, provider: str, *words: str) -> Any:
    environ = {f"{provider.upper()}_API_KEY": KEY, f"{provider.upper()}_BASE_URL": base_url(server, provider)}
    return CliRunner().invoke(app, ["models", "check", f"{provider}:scripted", *words], env=environ)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_an_endpoint_offers_and_what_a_run_costs(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prices.toml").write_text(PRICES)
    cards = ({"id": "scripted", "max_model_len": 32768},)
    monkeypatch.setattr(ProviderAdapter, "model_cards", lambda *_: cards)
    with ScriptedServer(able) as server:
        found = check(server, provider, "--json", "--prices", str(tmp_path / "prices.toml"))
        assert found.exit_code == 0, found.output
        said = json.loads(found.stdout)
        requests = len(server.requests)

    assert requests == 4
    assert said["readable"]
    assert [said[name]["works"] for name in ("streaming", "caching", "tools", "structured_output")] == [True] * 4
    assert said["caching"]["detail"].startswith("800 of 1000 tokens" if provider == "openai" else "800 of ")
    assert said["context_tokens"] == 32768
    assert said["latency_s"] <= said["run"]["seconds"]
    assert said["run"]["completion_tokens"] == 45 * 200
    expected = 45 * (said["prompt_tokens"] * 1.0 + 200 * 10.0) / 1e6
    assert said["run"]["usd"] == pytest.approx(expected)
    assert said["check_usd"] > 0


def test_a_price_that_is_not_known_is_said_and_not_guessed() -> None:
    def poor(number: int, body: Body) -> Step:
        return status(400, error="tools are not supported") if "tools" in body else say(REPLY, 1000, 200)

    with ScriptedServer(poor) as server:
        found = check(server, "openai")
        assert found.exit_code == 0, found.output

    lines = {line.split("  ")[1]: line for line in found.stdout.splitlines()[1:]}
    assert "no (openai:scripted takes no tools" in lines["tool calls"]
    assert "no (the reply was no object of the schema)" in lines["structured output"]
    assert "not stated by the endpoint" in lines["context"]
    assert "price unknown; 45000 tokens in and 9000 out at least" in lines["a run of 45 trials"]
    assert "price unknown" in lines["this check"]


def test_a_reply_without_a_kernel_is_status_1_and_says_why() -> None:
    with ScriptedServer([say("I would rather not.", 900, 9)], repeat=True) as server:
        found = check(server, "openai")

    assert found.exit_code == 1
    assert "no kernel was found in the reply" in found.stdout
    assert "The reply holds no code." in found.stdout


def test_no_reply_is_one_line_and_status_2() -> None:
    with ScriptedServer([status(401, error="bad key")], repeat=True) as server:
        found = check(server, "openai")

    assert found.exit_code == 2
    assert found.stderr.count("\n") == 1
    assert "OPENAI_API_KEY" in found.stderr
    assert CliRunner().invoke(app, ["models", "check", "openai:a,openai:b"]).exit_code == 2
