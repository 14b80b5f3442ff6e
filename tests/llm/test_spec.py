"""Models by name, and what is taken where none is named."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tests.llm.connections import provider_named
from tests.scripted import ScriptedServer
from warpsmith.llm import spec
from warpsmith.llm.model import ModelContext, ModelOptions, RetryPolicy
from warpsmith.llm.spec import ModelSpec, connect, detect_models, parse
from warpsmith.model.errors import ToolMissing, UsageError


def test_one_model() -> None:
    assert parse("openai:gpt-5") == (ModelSpec("openai", "gpt-5", 1.0),)


def test_several_models_with_weights() -> None:
    assert parse("openai:org/model:8b=2, anthropic:b") == (
        ModelSpec("openai", "org/model:8b", 2.0),
        ModelSpec("anthropic", "b", 1.0),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nobody:x", "unknown provider 'nobody' in 'nobody:x'; known: anthropic, openai"),
        ("gpt-5", "'gpt-5' names no model; write PROVIDER:MODEL"),
        ("openai:", "names no model"),
        ("openai:a=0", "weight in 'openai:a=0' is not above zero"),
        ("openai:a=-1", "is not above zero"),
        ("openai:a=nan", "is not above zero"),
        ("openai:a,openai:a=2", "openai:a is named twice"),
        ("openai:a,", "'' names no model"),
    ],
)
def test_a_name_that_is_wrong_says_how_to_write_it(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse(text)


def test_connecting_gives_models_in_order() -> None:
    context = ModelContext.load({"OPENAI_API_KEY": "sk-1234567", "ANTHROPIC_API_KEY": "sk-1234567"})

    models = connect(parse("anthropic:b,openai:a"), ModelOptions(), context)

    assert [model.name for model in models] == ["anthropic:b", "openai:a"]
    for model in models:
        model.close()


def test_one_base_url_is_for_one_provider() -> None:
    with pytest.raises(UsageError, match="one base URL cannot serve several providers"):
        connect(parse("anthropic:b,openai:a"), ModelOptions(base_url="http://here/v1"), ModelContext.load({}))


@pytest.mark.parametrize("url", ["localhost:8000/v1", "http://", "http://[", "http://host:port/v1", "ftp://host"])
def test_a_base_url_that_is_none_is_an_error(url: str) -> None:
    with pytest.raises(UsageError, match="base URL"):
        connect(parse("openai:a"), ModelOptions(), ModelContext.load({"OPENAI_BASE_URL": url}))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda: ModelOptions(concurrency=0), "0 requests at once"),
        (lambda: ModelOptions(max_tokens=0), "0 tokens are too few"),
        (lambda: ModelOptions(base_url="here"), "does not begin with http"),
        (lambda: RetryPolicy(attempts=0), "at least one attempt"),
        (lambda: RetryPolicy(request_s=0), "time limit above zero"),
    ],
)
def test_options_that_make_no_sense_are_errors(wrong: object, complaint: str) -> None:
    assert callable(wrong)
    with pytest.raises(UsageError, match=complaint):
        wrong()


def test_a_missing_sdk_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)

    with pytest.raises(ToolMissing, match=r"need the package openai; run `pip install 'warpsmith\[llm\]'`"):
        connect(parse("openai:a"), ModelOptions(), ModelContext.load({"OPENAI_API_KEY": "sk-1234567"}))


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_key_alone_gives_the_default_model(name: str) -> None:
    plug = provider_named(name)

    found = detect_models(ModelOptions(), ModelContext.load({plug.key_name: "sk-1234567"}))

    assert found.models == (ModelSpec(name, plug.default_model),)
    assert found.why == f"{plug.key_name} is set; {plug.default_model} is the default where no model is named."


def test_a_named_model_is_taken() -> None:
    key = {"ANTHROPIC_API_KEY": "sk-1234567"}

    bare = detect_models(ModelOptions(), ModelContext.load({**key, "WARPSMITH_MODEL": "claude-x"}))
    whole = detect_models(ModelOptions(), ModelContext.load({**key, "WARPSMITH_MODEL": "openai:a=2,anthropic:b"}))

    assert bare.models == (ModelSpec("anthropic", "claude-x"),)
    assert bare.why == "ANTHROPIC_API_KEY is set and WARPSMITH_MODEL names claude-x."
    assert whole.models == (ModelSpec("openai", "a", 2.0), ModelSpec("anthropic", "b"))


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_the_only_model_of_an_endpoint_is_taken(name: str) -> None:
    with ScriptedServer(models=["tiny:8b"]) as server:
        url = server.openai_url if name == "openai" else server.anthropic_url
        found = detect_models(ModelOptions(), ModelContext.load({provider_named(name).url_name: url}))

    assert found.models == (ModelSpec(name, "tiny:8b"),)
    assert found.why.endswith("and tiny:8b is what it serves.")


def test_an_endpoint_with_many_models_is_not_guessed_at() -> None:
    with ScriptedServer(models=["a", "b"]) as server:
        found = detect_models(ModelOptions(base_url=server.openai_url), ModelContext.load({}))

    assert found.models == ()
    assert "serves 2 models (a, b): name one with WARPSMITH_MODEL or --proposer." in found.why


def test_an_endpoint_that_is_not_there_is_told_of() -> None:
    with ScriptedServer() as server:
        pass
    found = detect_models(ModelOptions(), ModelContext.load({"OPENAI_BASE_URL": server.openai_url}))

    assert found.models == ()
    assert found.why.startswith(f"OPENAI_BASE_URL is {server.openai_url}, but no model is named:")


def test_nothing_set_is_said() -> None:
    found = detect_models(ModelOptions(), ModelContext.load({}))

    assert found.models == ()
    assert found.why.startswith("No model is connected: none of ANTHROPIC_API_KEY")


def test_a_key_without_its_sdk_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(spec, "find_spec", lambda name: None if name == "openai" else real(name))

    found = detect_models(ModelOptions(), ModelContext.load({"OPENAI_API_KEY": "sk-1234567"}))

    assert found.models == ()
    assert "pip install 'warpsmith[llm]'" in found.why


def test_an_address_is_shown_without_its_password() -> None:
    context = ModelContext.load({"OPENAI_BASE_URL": "http://me:hidden@127.0.0.1:9/v1?token=hidden"})

    assert "hidden" not in detect_models(ModelOptions(), context).why
