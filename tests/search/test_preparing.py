"""Kernels that are proposed while others are judged are built meanwhile, where that disturbs no clock."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.searching import CannedProposer, ScriptedJudge, factor, new_session, reply_text
from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.evaluator.supervisor.job import BUILD_ONLY, EvaluationJob
from warpsmith.methods.load import load
from warpsmith.model.build import Artifact, BuildFailure
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.run_log.events import Budget
from warpsmith.search import open_run
from warpsmith.search.loop import SearchLoop, SearchObserver

_PATIENCE_S = 20.0


class SlowJudge(ScriptedJudge):
    """Reaches no verdict before something has been prepared, or everything has been proposed."""

    def __init__(self, goes_on: threading.Event) -> None:
        super().__init__({number: [1.0] for number in range(1, 20)})
        self._goes_on = goes_on

    def verdict(self, candidate: Candidate, *, fresh: bool) -> Evaluation:
        assert self._goes_on.wait(_PATIENCE_S)
        return super().verdict(candidate, fresh=fresh)


def test_what_is_proposed_while_others_are_judged_is_prepared(tmp_path: Path) -> None:
    goes_on = threading.Event()
    prepared: list[int] = []

    def prepare(candidates: Sequence[Candidate]) -> None:
        prepared.extend(factor(candidate) for candidate in candidates)
        goes_on.set()

    judge = SlowJudge(goes_on)
    proposer = CannedProposer(lambda brief: reply_text(brief.number))
    with new_session(tmp_path / "run", load("evoengineer-full"), budget=Budget(trials=8)) as session:
        assert SearchLoop(session, proposer, judge, SearchObserver(), parallel=4, prepare=prepare).run() == "trials"
    assert prepared
    first = judge.seen[0][0]
    assert first not in prepared  # judged at once
    assert {number for number, _ in judge.seen} == set(range(1, 9))


@pytest.fixture
def opened(evaluator, monkeypatch: pytest.MonkeyPatch, task_file, kernel):  # type: ignore[no-untyped-def]
    """The evaluator with a task open, which notes what it builds and says; another candidate."""
    told: list[Progress] = []
    built: list[EvaluationJob] = []
    evaluator.describe(task_file("relu"))
    real = Evaluator._build

    def build(self: Evaluator, job: EvaluationJob) -> Artifact | BuildFailure:
        built.append(job)
        return real(self, job)

    monkeypatch.setattr(Evaluator, "_build", build)
    monkeypatch.setattr(evaluator, "_on_progress", told.append)
    bench = open_run.TaskEvaluator(evaluator, str(task_file("relu")), None)
    with ThreadPoolExecutor(2) as builders:
        monkeypatch.setattr(evaluator, "_builders", builders)
        yield evaluator, bench, _judged_nowhere(kernel("relu.cpp")), built, told


def _judged_nowhere(candidate: Candidate) -> Candidate:
    """The same kernel as another text: what another test had judged would not be built."""
    own = replace(candidate.main, text=candidate.main.text + "\nstatic int not_judged_before = 1;\n")
    return replace(candidate, files=(own, *candidate.files[1:]))


def test_nothing_is_built_on_a_cpu_ahead_of_time(opened) -> None:  # type: ignore[no-untyped-def]
    evaluator, bench, candidate, built, _ = opened
    bench.prepare([candidate])
    evaluator._builders.shutdown(wait=True)
    assert built == []


def test_a_gpu_is_not_waited_for(opened, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    evaluator, bench, candidate, built, told = opened
    monkeypatch.setattr("warpsmith.evaluator.supervisor.evaluator.devices_of", lambda _: ("cuda",))
    monkeypatch.setattr(evaluator, "device", replace(evaluator.device, kind="cuda"))
    with ThreadPoolExecutor(1) as other:  # as the thread of a run does
        other.submit(bench.prepare, [candidate]).result()
    open_run.TaskEvaluator(evaluator, "another.py", None).prepare([candidate])  # not open: nothing happens
    evaluator._builders.shutdown(wait=True)
    assert [job.index for job in built] == [BUILD_ONLY]
    assert told == []  # it is nobody's turn yet
