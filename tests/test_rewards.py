"""Rewards: what a completion is worth, whatever it says and however a trainer hands it over."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.fake import FakeEngine, fake_evaluation
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.rewards import KernelReward, RewardScale, completion_text

ROOT = Path(__file__).resolve().parents[1]
RELU = "warpsmith-100/relu@small"
_LAUNCH = 'extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) { return 0; }'


def reply(words: str) -> str:
    return f"name: k\nthought: none\ncode:\n```cpp\n// {words}\n{_LAUNCH}\n```\n"


class Judging(FakeEngine):
    """Also tells the problem, which a real evaluator has read."""

    problem: Problem

    def survey(self, task: str | Path, backend: str, precision: Precision | None = None) -> Problem:
        return self.problem


@pytest.fixture(scope="module")
def problem(evaluator: Evaluator) -> Problem:
    return evaluator.survey(str(ROOT / "tests/kernels/tasks/softmax.py"), "cpu")


@pytest.fixture
def reward(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> KernelReward:
    made = KernelReward(RELU, backend="cpu")
    engine = Judging(Settings())
    engine.problem = problem
    monkeypatch.setattr(made, "_open", lambda: engine)
    return made


def test_the_reward_grows_with_what_a_kernel_achieves() -> None:
    scale = RewardScale()
    worth = {status: scale.reward(_evaluation(status)) for status in Status if status is not Status.OK}
    assert worth[Status.REJECTED] == worth[Status.BELOW_FLOOR] == worth[Status.NOT_JUDGED] == scale.unreadable == 0.0
    assert worth[Status.BUILD_ERROR] < worth[Status.CRASHED] == worth[Status.TIMED_OUT] < worth[Status.WRONG]
    assert worth[Status.WRONG] == worth[Status.OUT_OF_BOUNDS] < scale.reward(_valid(0.01)) < scale.reward(_valid(2.0))
    assert scale.reward(_valid(2.0)) == pytest.approx(2.5)
    assert scale.reward(_valid(1e6)) == pytest.approx(10.5)


def test_trl_gets_one_float_for_each_completion(reward: KernelReward) -> None:
    logged: dict[str, list[Any]] = {}
    texts = [reply("speed 3"), reply("no"), "I cannot help.", reply("speed 3")]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    for completions in (texts, chats):
        found = reward(
            prompts=["p"] * 4, completions=completions, completion_ids=[[1]] * 4, trainer_state=None, task=[RELU] * 4
        )
        assert found == pytest.approx([3.5, 0.3, 0.0, 3.5])
    reward(prompts=texts, completions=texts, log_extra=logged.__setitem__)
    assert logged["kernel_status"] == ["ok", "wrong", "unreadable", "ok"]
    assert reward.__name__ == "kernel_reward"
    assert reward(prompts=[], completions=[]) == []


def test_verl_gets_a_float_and_its_batch_manager_a_list(reward: KernelReward) -> None:
    one = reward.compute_score(data_source="d", solution_str=reply("speed 2"), ground_truth=RELU, extra_info=None)
    assert one == pytest.approx(2.5)
    many = reward.compute_scores(
        data_sources=["d", "d"],
        solution_strs=[reply("speed 2"), ""],
        ground_truths=[None, ""],
        extra_infos=[{"task": RELU}, None],
    )
    assert many == pytest.approx([2.5, 0.0])


def test_no_completion_raises(reward: KernelReward) -> None:
    strange = [
        *("", "\0", "\ud800", "```cpp\n", "{" * 100_000, "x" * 2_000_000, "<think>" * 1000),
        *(None, 7, 1.5, b"bytes", [], [None], [{}], {"content": None}, {"content": [{"type": "text", "text": "x"}]}),
        *([{"role": "assistant", "content": {"a": 1}}], object()),
        *(reply("\ud800 speed 2"), reply("\0 speed 2"), reply("x" * 2_000_000)),
        *(reply("speed 2")[:cut] for cut in range(0, 150, 7)),
    ]
    found = reward.score(strange)
    assert len(found) == len(strange)
    assert all(0.0 <= each.reward <= 10.5 for each in found)
    assert all(each.reward == 0.0 for each in found[:18])


def test_mutated_completions_never_raise(reward: KernelReward) -> None:
    whole = reply("speed 2")
    marks = ("```", "\n", "{", '"""', "\u2028", "code:", "#if 0\n")
    mutated = [whole[:at] + mark + whole[at + 3 :] for mark, at in itertools.product(marks, range(0, len(whole), 9))]
    assert len(reward(prompts=None, completions=mutated)) == len(mutated)


def test_a_fault_of_the_evaluator_is_a_warning_and_touches_no_other_completion(reward: KernelReward) -> None:
    with pytest.warns(RuntimeWarning, match="1 kernels could not be judged"):
        found = reward.score([reply("speed 2"), reply("fault"), reply("speed 4")])
    assert [each.status for each in found] == ["ok", "not_judged", "ok"]


def test_a_wrong_task_is_said_at_once(reward: KernelReward) -> None:
    with pytest.raises(UsageError, match="give one task for each"):
        reward.score(["a", "b"], [RELU])
    with pytest.raises(UsageError, match="no task is named"):
        KernelReward(backend="cpu").score(["a"])


def test_messages_of_a_chat_become_the_text_of_the_assistant() -> None:
    chat = [{"role": "user", "content": "write"}, {"role": "assistant", "content": [{"type": "text", "text": "done"}]}]
    assert completion_text(chat) == "done"


def test_recorded_replies_are_scored_by_a_real_evaluator(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch, kernel: Callable[[str], Candidate]
) -> None:
    lines = [json.loads(line) for line in (ROOT / "examples/rewards/replies.jsonl").read_text().splitlines()]
    chosen = [line["completion"] for line in lines if line["task"] == "softmax"]
    made = KernelReward(ROOT / "tests/kernels/tasks/softmax.py", backend="cpu")
    monkeypatch.setattr(made, "_open", lambda: evaluator)
    right = f"```cpp\n{kernel('softmax.cpp').main.text}\n```"
    scored = made.score([*chosen, right, "no kernel"])
    assert scored[0].status in ("crashed", "wrong", "out_of_bounds")
    assert scored[1].reward == pytest.approx(0.5 + min(scored[1].speedup or 0.0, 10.0))
    assert scored[1].status == "ok"
    assert scored[2].reward == 0.0


def _evaluation(status: Status) -> Evaluation:
    environment = fake_evaluation(_candidate("no")).environment
    return Evaluation("t", "c", status, "a reason.", environment, "fp32")


def _valid(speedup: float) -> Evaluation:
    return fake_evaluation(_candidate(f"speed {speedup}"))


def _candidate(text: str) -> Candidate:
    return Candidate((SourceFile("kernel.cpp", text),), "cpu")
