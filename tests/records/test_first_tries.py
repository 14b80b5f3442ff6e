"""The record of first tries: replies are kept, read with the package as it is, and compared with intervals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import first_tries
from benchmarks.first_tries import Outcome, asks_for_kernel, difference, kept_replies, outcomes, plan, rates, wilson

from tests.scripted import Body, ScriptedServer, Step, say

TASK = "warpsmith-100/relu@small"
RIGHT = "for (int64_t i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;"
KERNEL = (
    "name: loop\nstrategy: one loop\nthought: Simple.\ncode:\n```cpp\n"
    'extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream)'
    " {{\n"
    "  const int64_t n = rows * cols;\n  {body}\n  return 0;\n}}\n```\n"
)


def reply(number: int, body: Body) -> Step:
    """A right kernel, a wrong one, one that does not compile, no kernel, and strategies where these are asked for."""
    asked = body["messages"][-1]["content"]
    if "You are the strategist" in asked:
        return say("strategy: one loop\nthought: It is simple.")
    bodies = {1: RIGHT, 2: RIGHT.replace("x[i] : 0", "x[i] : 1"), 3: "oops(x);"}
    return say(KERNEL.format(body=bodies[number])) if number in bodies else say("I cannot do that.")


def test_replies_are_kept_and_judged_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(reply) as server:
        words = ["ask", f"{TASK}:cpu", "--model", "openai:tiny", "--base-url", server.openai_url, "--at-once", "1"]
        words += ["--out", str(tmp_path)]
        first_tries.main(words)
        asked = len(server.requests)
        first_tries.main(words)  # nothing is asked twice
        assert len(server.requests) == asked == 6

    rows = kept_replies(tmp_path)
    assert [row["operator"] for row in rows.values()] == ["init", "init", "i1", "evolve", "initialise", "translate"]
    assert all(row["prompt"]["messages"] and row["reply"]["text"] for row in rows.values())  # type: ignore[index]

    first_tries.main(["judge", str(tmp_path), "--as", "now"])
    first_tries.main(["judge", str(tmp_path), "--as", "now"])  # nothing is judged twice
    found = outcomes(tmp_path, "now")
    assert [each.status for each in found] == ["ok", "wrong", "build_error", "unreadable", "unreadable"]
    assert [each.compiled for each in found] == [True, True, False, False, False]
    assert "oops" in found[2].reason

    capsys.readouterr()
    record = tmp_path / "record.json"
    first_tries.main(["compare", f"{tmp_path}:now", f"{tmp_path}:now", "--json", str(record)])
    document = json.loads(record.read_text())
    assert document["sides"]["now"]["rates"]["valid, C++"]["good"] == 1
    assert document["differences"]["now - now"]["compiled"] == [0, 0, 0]


def test_tasks_take_the_languages_and_the_long_methods_in_turn() -> None:
    found = plan(["a", "b", "c:cuda", "d"])

    assert [language for _, language, _ in found] == ["cpu", "cuda", "cuda", "cuda"]
    assert [methods[-1] for _, _, methods in found] == ["cupilot", "cupilot", "ai-cuda-engineer", "ai-cuda-engineer"]


def test_texts_and_strategies_are_no_kernels() -> None:
    assert asks_for_kernel("kernel", "init")
    assert not asks_for_kernel("kernel", "write")
    assert not asks_for_kernel("strategies", "init")


def test_the_interval_of_a_share() -> None:
    found = wilson(5, 20)

    assert (round(found.low, 3), round(found.high, 3)) == (0.112, 0.469)  # as in tables of the Wilson interval
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)


def test_a_difference_is_drawn_by_task() -> None:
    outcome = Outcome("k", "t", "cpu", "m", "init", "stop", 9, True, False, False, "build_error", "", "")
    before = [replace(outcome, task=f"task {number % 8}") for number in range(40)]
    after = [replace(each, compiled=number % 8 < 5) for number, each in enumerate(before)]  # five tasks of eight

    share, low, high = difference(before, after, "compiled") or (0.0, 0.0, 0.0)
    assert share == 5 / 8
    assert (low, high) == (0.25, 0.875)  # by reply, the interval would be half as wide
    assert difference(before, [replace(each, task="other") for each in after], "compiled") is None
    assert rates(after)["compiled, CUDA"].total == 0
