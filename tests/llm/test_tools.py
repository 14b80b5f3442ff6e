"""Tool calls in the protocols of both providers: offered, called, answered; and endpoints that take none."""

from __future__ import annotations

import pytest

from tests.llm.connections import PROVIDERS, connected
from tests.scripted import ScriptedServer, Step, say, status, use
from warpsmith.llm.conversation import ChatTurn, ToolSpec, ToolsRefused, ToolUse
from warpsmith.model.brief import Role
from warpsmith.model.errors import ProposerFault

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = ToolSpec("read", "Read a file.", SCHEMA)
ASKED = (ChatTurn(Role.SYSTEM, "You write kernels."), ChatTurn(Role.USER, "Write one."))


@pytest.mark.parametrize("whole", [False, True], ids=["stream", "whole"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_calls_tools_and_hears_what_they_found(provider: str, whole: bool) -> None:
    both = (("read", '{"path": "' + "a" * 5000 + '"}'), ("read", '{"path": "b"}'))  # the first comes in two pieces
    calling = Step(text="I look.", prompt=10, completion=5, uses=both, whole=whole)
    with ScriptedServer([calling, say("done")]) as server, connected(server, provider) as model:
        first = model.converse(ASKED, [READ])
        heard = [ChatTurn(Role.USER, f"file {each.id}", answers=each.id) for each in first.uses]
        second = model.converse((*ASKED, ChatTurn(Role.ASSISTANT, first.text, first.uses), *heard), [READ])

    assert (first.text, [each.name for each in first.uses]) == ("I look.", ["read", "read"])
    assert [each.parsed for each in first.uses] == [{"path": "a" * 5000}, {"path": "b"}]
    assert (first.usage.tokens, second.text, second.uses) == (15, "done", ())
    sent = server.requests[1].body
    if provider == "openai":
        assert sent["tools"] == [
            {"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": SCHEMA}}
        ]
        assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "tool", "tool"]
        assert [each["id"] for each in sent["messages"][2]["tool_calls"]] == ["use-0", "use-1"]
        assert sent["messages"][4] == {"role": "tool", "tool_call_id": "use-1", "content": "file use-1"}
    else:
        assert sent["tools"] == [{"name": "read", "description": "Read a file.", "input_schema": SCHEMA}]
        assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
        blocks = sent["messages"][1]["content"]
        assert [block["type"] for block in blocks] == ["text", "tool_use", "tool_use"]
        assert blocks[2]["input"] == {"path": "b"}
        assert sent["messages"][2]["content"] == [
            {"type": "tool_result", "tool_use_id": f"use-{number}", "content": f"file use-{number}"}
            for number in (0, 1)
        ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_endpoint_without_tools_is_told_apart_from_other_refusals(provider: str) -> None:
    script = [status(400, error='"auto" tool choice requires --enable-auto-tool-choice'), status(400, error="bad")]
    with ScriptedServer(script) as server, connected(server, provider) as model:
        with pytest.raises(ToolsRefused, match="takes no tools"):
            model.converse(ASKED, [READ])
        with pytest.raises(ProposerFault) as other:
            model.converse(ASKED, [READ])
    assert not isinstance(other.value, ToolsRefused)


@pytest.mark.parametrize("arguments", ["{", "[]", '"text"', "[" * 100_000])
def test_arguments_that_are_no_object_are_none(arguments: str) -> None:
    assert ToolUse("1", "read", arguments).parsed is None


def test_a_call_without_arguments_has_none() -> None:
    with ScriptedServer([use("finish")]) as server, connected(server, "openai") as model:
        (called,) = model.converse(ASKED, [READ]).uses
    assert called.parsed == {}
    assert ToolUse("1", "finish", "").parsed == {}
