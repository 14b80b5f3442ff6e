"""A starting kernel: judged first, no trial spent, in the population of every method, with figures over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.searching import PROBLEM, answer_to, factor, invalid, judged, run_setup, snapshot, source, valid
from warpsmith.cli.json_documents import optimize_document
from warpsmith.cli.live import best_line
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.methods.load import load, methods
from warpsmith.model.brief import Problem, Reply
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import CandidateError, UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.method import Product
from warpsmith.prompts.renderer import render
from warpsmith.run_log.events import Budget
from warpsmith.search import open_run
from warpsmith.search.session import Session
from warpsmith.search.start import AUTO, offline_start, read_start

START = Candidate((SourceFile("kernel.cpp", source(3)),), "cpu")


def by_factor(candidate: Candidate) -> Evaluation:
    return valid(candidate, 1 + factor(candidate) / 10)


def begun(folder: Path, name: str, trials: int = 6) -> Session:
    return Session.create(folder, run_setup(load(name), budget=Budget(trials=trials)), start=START)


@pytest.mark.parametrize("name", methods())
def test_every_method_begins_with_the_start_in_its_population(name: str, tmp_path: Path) -> None:
    with begun(tmp_path / "run", name) as session:
        state = session.state
        assert session.ask() is None  # nothing is asked before the start is judged
        judged(session, by_factor)
        assert [member.id for member in state.population.members] == [START.id]
        assert (state.best, state.totals.trials, state.totals.valid, state.totals.replies) == (state.starting, 0, 0, 0)
        prompts, number = [], 3
        while (brief := session.ask()) is not None:
            prompts.append(render(brief).messages[1].text)
            number += 1
            text = answer_to(brief, number)
            if brief.product is Product.KERNEL and brief.idea:
                text = text.replace(f"strategy: s{number % 17}", f"strategy: {brief.idea.strategy}")
            session.answer(brief, Reply(text, "canned"))
            judged(session, by_factor)
        assert state.totals.trials == 6  # the start is not one of them
        assert any(source(3).strip() in text for text in prompts)
        best = state.trials[state.best].score
        assert best is not None
        assert state.over_start == pytest.approx(best / 1.3)
        assert f"{state.over_start:.2f}x the start" in best_line(state)
        document: Any = optimize_document(session, tmp_path / "best.cpp", tmp_path, "trials")
        assert document["start"]["speedup"] == pytest.approx({"eager": 1.3})
        assert document["best"]["speedup_over_start"] == state.over_start
        known = snapshot(state)
    with Session.read(tmp_path / "run") as session:
        assert snapshot(session.state) == known
        assert session.state.starting == 1


def test_the_start_can_stay_the_best_and_repeating_it_is_a_duplicate(tmp_path: Path) -> None:
    with begun(tmp_path / "run", "evoengineer-free", trials=1) as session:
        judged(session, by_factor)
        brief = session.ask()
        assert brief is not None
        session.answer(brief, Reply(f"code:\n```cpp\n{source(3)}```\n", "canned"))
        assert (session.state.totals.duplicates, session.state.over_start) == (1, 1.0)


@dataclass
class Judge:
    """In the place of an evaluator."""

    verdict: Callable[[Candidate], Evaluation]

    def survey(self, task: str, backend: str, precision: object) -> Problem:
        return PROBLEM

    def evaluate(
        self, task: str, candidates: Sequence[Candidate], precision: object, *, fresh: bool
    ) -> Iterator[tuple[int, Evaluation]]:
        for number, each in enumerate(candidates):
            yield number, self.verdict(each)


def test_no_run_begins_from_a_kernel_that_is_not_valid(tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(PROBLEM.task.source)
    setup = run_setup(load("evoengineer-free"))
    config = replace(setup.config, task=str(tmp_path / "double.py"), start="kernel.cpp")
    begin = partial(open_run.begin, config, setup.method, folder=tmp_path / "run", start=START)

    with pytest.raises(CandidateError, match=r"starting kernel for double is not valid \(wrong\): out\[3\] is 7"):
        begin(cast(Evaluator, Judge(invalid)))
    assert not (tmp_path / "run").exists()
    with begin(cast(Evaluator, Judge(by_factor))) as session:
        assert session.state.best == session.state.starting == 1


def test_a_start_is_a_file_of_the_runs_language_or_what_is_written_offline(tmp_path: Path) -> None:
    (tmp_path / "kernel.cpp").write_text(source(1))
    given = read_start(str(tmp_path / "kernel.cpp"), "cpu")
    assert given is not None
    assert given.main.text == source(1)
    assert read_start("auto", "cpu") is read_start(None, "cpu") is None
    with pytest.raises(UsageError, match="is a cpu kernel, and the run proposes cuda kernels"):
        read_start(str(tmp_path / "kernel.cpp"), "cuda")
    with pytest.raises(CandidateError):
        read_start(str(tmp_path / "nowhere.cpp"), "cpu")
    with pytest.raises(CandidateError, match="--start: the offline proposer has no kernel for double in cpu"):
        offline_start(PROBLEM, AUTO)  # no outline: no template fits


def test_the_strategist_sees_the_start_that_its_strategies_are_applied_to(tmp_path: Path) -> None:
    with begun(tmp_path / "run", "cupilot") as session:
        judged(session, by_factor)
        brief = session.ask()
        assert brief is not None
        assert brief.product is Product.STRATEGIES
        asked = render(brief).messages[1].text
        assert "# The kernel to start from" in asked
        assert source(3).strip() in asked
        assert "carried out on the kernel above" in asked
