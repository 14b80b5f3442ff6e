"""A whole run over a real HTTP server that misbehaves in every way, with real compiling, checking and timing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripted import ScriptedServer, Step, junk, say, status
from warpsmith.archive.events import Budget, Prompted, Replied
from warpsmith.archive.log import Archive
from warpsmith.core.evaluation import Status
from warpsmith.core.search import Outcome
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.llm.model import Options, Patience, Surroundings
from warpsmith.llm.spec import parse
from warpsmith.methods.loading import load
from warpsmith.propose.chat import connect
from warpsmith.run import opening
from warpsmith.run.loop import Loop, Watcher
from warpsmith.run.session import Session

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


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_run_survives_everything_and_ends_with_the_right_kernel(
    provider: str, evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with ScriptedServer(SCRIPT) as server:
        url = server.openai_url if provider == "openai" else server.anthropic_url
        options = Options(patience=Patience(request_s=1.0, attempts=4, first_wait_s=0.01, longest_wait_s=0.05))
        environ = {f"{provider.upper()}_BASE_URL": url, f"{provider.upper()}_API_KEY": KEY}
        proposer = connect(parse(f"{provider}:scripted"), options, Surroundings.gather(environ))
        order = opening.Order(
            task=str(task_file("relu")),
            method=load("evoengineer-full"),
            proposer=proposer.name,
            budget=Budget(trials=8),
            folder=folder,
            device="cpu",
            settings=evaluator.settings,
            enough_share=None,
        )
        with opening.begin(order, evaluator, "cpu") as session:
            reason = Loop(session, proposer, opening.bench_of(session, evaluator), Watcher(), parallel=1).run()
            proposer.close()
            ledger = session.ledger
            assert reason == "trials"
            statuses = [(trial.outcome, trial.status) for trial in ledger.trials.values()]
            assert statuses == [
                (Outcome.JUDGED, Status.BUILD_ERROR),
                (Outcome.UNREADABLE, None),
                (Outcome.UNREADABLE, None),
                (Outcome.UNREADABLE, None),
                (Outcome.JUDGED, Status.WRONG),
                (Outcome.JUDGED, Status.OK),
                (Outcome.DUPLICATE, None),
                (Outcome.JUDGED, Status.OK),
            ]
            assert ledger.best in (6, 8)
            assert "x[i] > 0" in session.candidate(ledger.best).main.text
            assert (ledger.totals.prompt_tokens, ledger.totals.completion_tokens) == TOKENS
            assert ledger.totals.cached_tokens == 1000
            assert len(server.requests) == len(SCRIPT)
            assert ledger.totals.failed_calls == 0
    _check_archive(folder)


def _check_archive(folder: Path) -> None:
    """Every prompt came before its reply, each is there once, and the key is nowhere."""
    with Archive.read(folder) as archive:
        entries = [entry.event for entry in archive.entries()]
        prompted = [event.brief for event in entries if isinstance(event, Prompted)]
        replied = [event.brief for event in entries if isinstance(event, Replied)]
        assert replied == prompted == sorted(set(prompted))
        junk_reply = archive.of_brief(replied[3], Replied)
    assert junk_reply is not None
    assert len(junk_reply.reply.text) == 1 << 20
    assert all(KEY.encode() not in path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_a_model_the_endpoint_refuses_ends_the_run_at_once(
    evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    with ScriptedServer([status(404, error=f"no model like this for {KEY}")], repeat=True) as server:
        environ = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": KEY}
        proposer = connect(parse("openai:absent"), Options(), Surroundings.gather(environ))
        order = opening.Order(
            task=str(task_file("relu")),
            method=load("evoengineer-free"),
            proposer=proposer.name,
            budget=Budget(trials=8),
            folder=tmp_path / "run",
            settings=evaluator.settings,
        )
        with opening.begin(order, evaluator, "cpu") as session:
            loop = Loop(session, proposer, opening.bench_of(session, evaluator), Watcher(), parallel=1)
            assert loop.run() == "proposer_refused"
            proposer.close()
            assert "absent" in loop.refused
            assert KEY not in loop.refused
            assert session.ledger.totals.trials == 0
        assert len(server.requests) == 1
    with Session.resume(tmp_path / "run") as session:
        assert session.ask() is not None  # with another model it goes on


def test_a_task_with_other_line_ends_is_known_again(
    evaluator: Evaluator, task_file: Callable[[str], Path], tmp_path: Path
) -> None:
    task = tmp_path / "relu.py"
    task.write_bytes(task_file("relu").read_bytes().replace(b"\n", b"\r\n"))
    order = opening.Order(
        task=str(task),
        method=load("evoengineer-full"),
        proposer="person",
        budget=Budget(trials=1),
        folder=tmp_path / "run",
        device="cpu",
        settings=evaluator.settings,
    )
    with opening.begin(order, evaluator, "cpu") as session:
        assert opening.task_of(session.folder, session.ledger.begun.config) == str(task)
