"""A whole run over a real HTTP server that misbehaves in every way, with real compiling, checking and timing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripted import ScriptedServer, Step, junk, say, status
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.llm.model import ModelContext, ModelOptions, RetryPolicy
from warpsmith.llm.spec import parse
from warpsmith.methods.load import load
from warpsmith.model.brief import TrialOutcome
from warpsmith.model.evaluation import Status
from warpsmith.proposers.models import connect
from warpsmith.run_log.events import Budget, PromptSent, ReplyReceived, RunConfig
from warpsmith.run_log.log import RunLog
from warpsmith.search import open_run
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.session import Session
from warpsmith.search.trust import task_of

KEY = "sk-very-secret-0123456789"
LAUNCH = 'extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream)'
PLAIN = LAUNCH + " {\n  for (int64_t i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;\n  return 0;\n}\n"
PARALLEL = PLAIN.replace("  for", "#pragma omp parallel for simd\n  for")
BROKEN = PLAIN.replace("x[i] > 0", "y[i] > 0")
WRONG = PLAIN.replace(": 0", ": x[i] * 0.5f")


def answer(code: str, name: str = "kernel") -> str:
    return f"name: {name}\nstrategy: plain\nthought: because it is {name}\ncode:\n```cpp\n{code}```\n"


SCRIPT: list[Step] = [
    status(429, {"retry-after": "0.05"}),
    status(500),
    say(answer(BROKEN, "broken"), prompt=1000, completion=100),  # 1: does not compile
    Step(drop="body", text=answer(PLAIN)),
    say("I would rather talk about the weather.", prompt=1100, completion=10),  # 2: the repair of 1, prose only
    Step(hang=True),
    say(answer(PLAIN)[:-30], prompt=900, completion=50, finish="length"),  # 3: cut off
    junk(),  # not a completion at all: asked again
    Step(raw=b"{", content_type="application/json"),
    say("x" * (1 << 20), prompt=950, completion=4000),  # 4: the repair of 3, a megabyte of junk
    Step(drop="before"),
    say(answer(WRONG, "wrong"), prompt=1200, completion=110, cached=1000),  # 5
    status(503, {"retry-after": "0"}),
    say(answer(PLAIN, "plain"), prompt=1300, completion=120),  # 6: the repair of 5
    say(answer("// the same again\n" + PLAIN), prompt=1400, completion=130),  # 7: a duplicate
    say(answer(PARALLEL, "parallel"), prompt=1500, completion=140),  # 8
]
TOKENS = (
    sum(step.prompt for step in SCRIPT if step.text and not step.drop),
    sum(step.completion for step in SCRIPT if step.text and not step.drop),
)


@pytest.mark.parametrize("provider", ["openai", pytest.param("anthropic", marks=pytest.mark.slow)])
def test_a_run_survives_everything_and_ends_with_the_right_kernel(
    provider: str, evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with ScriptedServer(SCRIPT) as server:
        url = server.openai_url if provider == "openai" else server.anthropic_url
        options = ModelOptions(retries=RetryPolicy(request_s=1.0, attempts=4))
        environ = {f"{provider.upper()}_BASE_URL": url, f"{provider.upper()}_API_KEY": KEY}
        proposer = connect(parse(f"{provider}:scripted"), options, ModelContext.load(environ))
        config = RunConfig(
            task=str(task_file("relu")),
            device="cpu",
            backend="cpu",
            proposer=proposer.name,
            budget=Budget(trials=8),
            settings=evaluator.settings,
            enough_share=None,
        )
        with open_run.begin(config, load("evoengineer-full"), evaluator, folder=folder) as session:
            reason = SearchLoop(
                session, proposer, open_run.task_evaluator(session, evaluator), SearchObserver(), parallel=1
            ).run()
            proposer.close()
            state = session.state
            assert reason == "trials"
            statuses = [(trial.outcome, trial.status) for trial in state.trials.values()]
            assert statuses == [
                (TrialOutcome.JUDGED, Status.BUILD_ERROR),
                (TrialOutcome.UNREADABLE, None),
                (TrialOutcome.UNREADABLE, None),
                (TrialOutcome.UNREADABLE, None),
                (TrialOutcome.JUDGED, Status.WRONG),
                (TrialOutcome.JUDGED, Status.OK),
                (TrialOutcome.DUPLICATE, None),
                (TrialOutcome.JUDGED, Status.OK),
            ]
            assert state.best in (6, 8)
            assert "x[i] > 0" in session.candidate(state.best).main.text
            assert (state.totals.prompt_tokens, state.totals.completion_tokens) == TOKENS
            assert state.totals.cached_tokens == 1000
            assert len(server.requests) == len(SCRIPT)
            assert state.totals.failed_calls == 0
    _check_archive(folder)


def _check_archive(folder: Path) -> None:
    """Every prompt came before its reply, each is there once, and the key is nowhere."""
    with RunLog.read(folder) as log:
        entries = [entry.event for entry in log.entries()]
        prompted = [event.brief for event in entries if isinstance(event, PromptSent)]
        replied = [event.brief for event in entries if isinstance(event, ReplyReceived)]
        assert replied == prompted == sorted(set(prompted))
        junk_reply = log.of_brief(replied[3], ReplyReceived)
    assert junk_reply is not None
    assert len(junk_reply.reply.text) == 1 << 20
    assert all(KEY.encode() not in path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_a_model_the_endpoint_refuses_ends_the_run_at_once(
    evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    with ScriptedServer([status(404, error=f"no model like this for {KEY}")], repeat=True) as server:
        environ = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": KEY}
        proposer = connect(parse("openai:absent"), ModelOptions(), ModelContext.load(environ))
        config = RunConfig(
            task=str(task_file("relu")),
            device="auto",
            backend="cpu",
            proposer=proposer.name,
            budget=Budget(trials=8),
            settings=evaluator.settings,
        )
        with open_run.begin(config, load("evoengineer-free"), evaluator, folder=tmp_path / "run") as session:
            loop = SearchLoop(
                session, proposer, open_run.task_evaluator(session, evaluator), SearchObserver(), parallel=1
            )
            assert loop.run() == "proposer_refused"
            proposer.close()
            assert "absent" in loop.refused
            assert KEY not in loop.refused
            assert session.state.totals.trials == 0
        assert len(server.requests) == 1
    with Session.resume(tmp_path / "run") as session:
        assert session.ask() is not None  # with another model it goes on


def test_a_task_with_other_line_ends_is_known_again(
    evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    task = tmp_path / "relu.py"
    task.write_bytes(task_file("relu").read_bytes().replace(b"\n", b"\r\n"))
    config = RunConfig(
        task=str(task),
        device="cpu",
        backend="cpu",
        proposer="person",
        budget=Budget(trials=1),
        settings=evaluator.settings,
    )
    with open_run.begin(config, load("evoengineer-full"), evaluator, folder=tmp_path / "run") as session:
        assert task_of(session.folder, session.state.setup.config) == str(task)
