"""The reference agent over a scripted model: tools, budgets, costs, and models that cannot call tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.llm.connections import PROVIDERS, connected
from tests.scripted import Body, ScriptedServer, Step, say, status, use
from tests.searching import CannedJudge, factor, invalid, new_session, reply_text, source, valid
from warpsmith.llm.model import ModelOptions, RetryPolicy
from warpsmith.methods.load import load
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.proposers.model_agent import ModelAgent
from warpsmith.proposers.step import StepBudget
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.profiles import ProfileResult
from warpsmith.search.session import Session

ONCE = ModelOptions(retries=RetryPolicy(request_s=20.0, attempts=1))
AGENTIC = load("agentic")
PRICES = '[openai."scripted"]\ninput = 1.0\noutput = 10.0\n[anthropic."scripted"]\ninput = 1.0\noutput = 10.0\n'


def by_number(candidate: Candidate) -> Evaluation:
    return invalid(candidate) if factor(candidate) == 9 else valid(candidate, 1 + factor(candidate) / 100)


def digest(candidate: Candidate, evaluation: Evaluation) -> ProfileResult:
    return ProfileResult(f"Bottleneck: number {factor(candidate)}", 0.0)


def heard(body: Body) -> list[Any]:
    """What the tools have answered so far in a conversation, in either protocol."""
    found = []
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        found += [json.loads(each["content"]) for each in blocks if each.get("type") == "tool_result"]
        found += [json.loads(message["content"])] if message["role"] == "tool" else []
    return found


@contextmanager
def searched(
    folder: Path,
    script: list[Step] | Callable[[int, Body], Step],
    provider: str = "openai",
    budget: StepBudget | None = None,
    run: Budget | None = None,
) -> Iterator[tuple[Session, ScriptedServer, StopReason]]:
    (folder / "prices.toml").write_text(PRICES)
    environ = {"WARPSMITH_PRICES": str(folder / "prices.toml")}
    with ScriptedServer(script) as server, connected(server, provider, options=ONCE, environ=environ) as model:
        with new_session(folder / "run", AGENTIC, budget=run or Budget(trials=4), repairs=0) as session:
            agent, watcher = ModelAgent(model, budget), SearchObserver()
            loop = SearchLoop(session, agent, CannedJudge(by_number), watcher, parallel=1, profile=digest)
            yield session, server, loop.run()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_reads_writes_evaluates_profiles_and_finishes(provider: str, tmp_path: Path) -> None:
    script = [
        use("read", path="."),
        use("write", path="kernel.cpp", text=source(9)),
        use("evaluate"),
        use("write", path="kernel.cpp", text="// strategy: by two\n" + source(2)),
        use("evaluate", path="kernel.cpp"),
        use("profile", trial=2),
        use("read_run"),
        use("finish", summary="done"),
        use("write", path="kernel.cpp", text=source(3)),  # the next step, which has one trial left
        use("evaluate"),
        use("finish"),
    ]
    with searched(tmp_path, script, provider, run=Budget(trials=3)) as (session, server, reason):
        assert reason == "trials"
        state = session.state
        assert [factor(session.candidate(number)) for number in state.trials] == [9, 2, 3]
        assert [bool(trial.step) for trial in state.trials.values()] == [True, True, False]
        assert state.trials[2].strategy == "by two"
        assert {trial.model for trial in state.trials.values()} == {"scripted"}
        # Every request is counted, whichever trial it belongs to.
        assert (state.totals.prompt_tokens, state.totals.completion_tokens) == (11 * 100, 11 * 20)
        assert state.totals.cost_usd == pytest.approx(11 * (100 * 1.0 + 20 * 10.0) / 1e6)
        answers = heard(server.requests[7].body)
    assert {"BRIEF.md", "knowledge/"} <= set(answers[0]["files"])
    assert (answers[2]["status"], answers[4]["status"], answers[4]["speedup"]) == ("wrong", "ok", 1.02)
    assert answers[5] == {"trial": 2, "profile": "Bottleneck: number 2"}
    assert [trial["trial"] for trial in answers[6]["trials"]] == [1, 2]
    assert "no evaluation is left" in heard(server.requests[10].body)[1]["error"]


def test_what_it_may_not_do_is_answered_with_what_to_do(tmp_path: Path) -> None:
    calls = [
        *(use("read", path=path) for path in ("../secret", "/etc/passwd", "parents/none.cpp", "a\0b")),
        use("write", path="knowledge", text="x"),
        use("write", path="kernel.cpp", text="x" * (1 << 21)),
        use("write", path=7, text="x"),
        use("write", path="kernel.cpp"),
        use("evaluate"),
        use("evaluate", path="../../run/task.py"),
        *(use("profile", trial=trial) for trial in (1, "1")),
        use("read_run", trial="1"),
        use("shell", command="id"),
        Step(uses=(("read", '{"path": '),), prompt=1, completion=1, whole=True),
    ]
    script = [*calls, say(reply_text(5)), use("finish")]
    with searched(tmp_path, script, run=Budget(trials=1)) as (session, server, _):
        assert [factor(session.candidate(number)) for number in session.state.trials] == [5]
        answers = heard(server.requests[len(calls)].body)
    assert len(answers) == len(calls)
    assert all(set(answer) == {"error"} for answer in answers), answers


def plain(number: int, body: Body) -> Step:
    """A model that takes no tools: programs in its replies, better ones after each verdict, then DONE."""
    if "tools" in body:
        return status(400, error="this model does not support tools")
    asked = body["messages"][-1]["content"]
    said = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
    if said:
        assert asked.startswith('The verdict: {"trial": ')
    else:
        assert "You are an agent with tools" not in asked
    return say("DONE") if len(said) == 2 else say(reply_text(number))


def test_a_model_without_tools_answers_with_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KEEP_STEPS", str(tmp_path / "kept"))
    with searched(tmp_path, plain, run=Budget(trials=4)) as (session, server, reason):
        assert reason == "trials"
        # Tools are offered once. The second step ends with its last evaluation: nobody asks for what cannot be judged.
        assert ["tools" in seen.body for seen in server.requests] == [True] + [False] * 5
        assert [factor(session.candidate(number)) for number in session.state.trials] == [2, 3, 5, 6]
        assert [bool(trial.step) for trial in session.state.trials.values()] == [True, True, True, False]
        assert session.state.trials[1].strategy == "s2"
    first = min((tmp_path / "kept").iterdir())  # of three steps
    said = [turn["text"] for turn in json.loads((first / "transcript.json").read_text()) if turn["role"] == "assistant"]
    assert [text.splitlines()[0] for text in said] == ["name: kernel 2", "name: kernel 3", "DONE"]
    assert (first / "work/BRIEF.md").is_file()


def test_a_step_ends_with_its_turns_tokens_and_evaluations(tmp_path: Path) -> None:
    def endless(number: int, body: Body) -> Step:
        return say(reply_text(number)) if number % 2 else use("read", path="BRIEF.md")

    for name, budget, requests in (
        ("turns", StepBudget(turns=2), 2),
        ("tokens", StepBudget(tokens=250), 3),
        ("trials", StepBudget(trials=1), 1),
        ("silence", StepBudget(), 3),
    ):
        (tmp_path / name).mkdir()
        script = (lambda number, body: say("I think.")) if name == "silence" else endless
        with searched(tmp_path / name, script, budget=budget, run=Budget(trials=9, tokens=1)) as (session, server, _):
            assert len(server.requests) == requests, name
            assert session.state.totals.tokens == 120 * requests
            assert session.state.totals.failed_calls == (name == "silence")


def test_an_endpoint_that_fails_loses_nothing_that_was_evaluated(tmp_path: Path) -> None:
    script = [use("write", path="kernel.cpp", text=source(2)), use("evaluate"), status(503, error="broken")]
    script += [status(401, error="the key was withdrawn")]
    with searched(tmp_path, script, run=Budget(trials=9)) as (session, _, reason):
        assert reason == "proposer_refused"
        assert session.state.best == 1
        assert session.state.totals.replies == 2  # the evaluation, and the proposal that it left
        assert session.state.totals.tokens == 240
