"""The method agentic end to end on the CPU: the reference agent over a scripted model, real compiling and timing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.scripted import Body, ScriptedServer, Step, use
from tests.search.test_models import BROKEN, PARALLEL, PLAIN
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.methods.load import load
from warpsmith.model.evaluation import Status
from warpsmith.proposers.choose import ProposerOptions, choose
from warpsmith.run_log.events import Budget, RunConfig
from warpsmith.search import open_run
from warpsmith.search.active_run import ActiveRun
from warpsmith.search.loop import SearchObserver
from warpsmith.search.session import Session


def write(code: str) -> Step:
    return use("write", path="kernel.cpp", text=f"// strategy: as scripted\n{code}")


SCRIPT = [
    *(use("read", path="BRIEF.md"), write(BROKEN), use("evaluate"), write(PLAIN), use("evaluate")),
    *(use("profile", trial=2), use("finish", summary="a plain loop")),
    *(use("read", path="lineage"), write(PARALLEL), use("finish")),  # not evaluated by the agent: the run does it
]


def test_agentic_finds_a_kernel_with_the_reference_agent(
    evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    heard: list[Any] = []

    def script(number: int, body: Body) -> Step:
        heard.append(body["messages"])
        return SCRIPT[number - 1]

    folder = tmp_path / "run"
    with ScriptedServer(script) as server:
        environ = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "sk-scripted"}
        choice = choose("agent:openai:scripted", ProposerOptions(step_trials=4), environ=environ)
        config = RunConfig(
            task=str(task_file("relu")),
            device="cpu",
            backend="cpu",
            proposer=choice.spec,
            budget=Budget(trials=3),
            settings=evaluator.settings,
            repairs=0,
            enough_share=None,
            parallel=1,
        )
        with open_run.begin(config, load("agentic"), evaluator, folder=folder) as session:
            ending = ActiveRun(session, evaluator, choice, tune=False, parallel=1).search(SearchObserver())
            state = session.state
            assert ending.reason == "trials"
            assert [trial.status for trial in state.trials.values()] == [Status.BUILD_ERROR, Status.OK, Status.OK]
            assert [bool(trial.step) for trial in state.trials.values()] == [True, True, False]
            assert ending.best is not None
            assert "x[i] > 0" in ending.best.read_text()
            assert state.trials[2].strategy == "as scripted"
            assert (state.totals.replies, state.totals.tokens) == (2 + 2, 120 * len(server.requests))
            assert 2 in state.profiled
    assert len(server.requests) == len(SCRIPT)
    assert "error" in heard[3][-1]["content"]  # the compiler's message came back
    assert "Bottleneck: " in heard[6][-1]["content"]
    assert "trial_2_kernel.cpp" in heard[8][-1]["content"]
    with Session.resume(folder) as resumed:
        assert resumed.state.population.members[-1].trial == 2
