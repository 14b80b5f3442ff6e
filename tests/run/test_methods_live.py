"""Every method with the offline catalogue on the CPU: real compiling, checking and timing, on small budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.archive.events import Budget
from warpsmith.archive.log import Archive
from warpsmith.core.evaluation import Status
from warpsmith.core.method import Method
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.methods.ablation import ablated
from warpsmith.methods.loading import load, methods
from warpsmith.propose.template import TemplateProposer
from warpsmith.run import opening
from warpsmith.run.loop import Loop, Watcher
from warpsmith.run.session import Session, fold
from warpsmith.strategies import genome, templates

TASK = """
import torch
from warpsmith import normal, task

@task(x=normal("rows, cols"), workloads=[{"rows": 48, "cols": 200}])
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
"""
PRODUCT = """
import torch
from warpsmith import normal, task

@task(a=normal("n, k"), b=normal("k, m"), workloads=[{"n": 48, "k": 40, "m": 56}])
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
"""
TRIALS = {"evoengineer-full": 5, "eoh": 8}  # as many as it takes to leave the first stage


@pytest.fixture(scope="module")
def small_softmax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("task") / "softmax.py"
    path.write_text(TASK)
    return path


def begun(task: Path, method: Method, trials: int, evaluator: Evaluator, folder: Path) -> Session:
    order = opening.Order(
        task=str(task),
        method=method,
        proposer="template",
        budget=Budget(trials=trials),
        folder=folder,
        device="cpu",
        settings=evaluator.settings,
        enough_share=None,
    )
    return opening.begin(order, evaluator, "cpu")


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_method_finds_a_valid_kernel_and_its_log_replays(
    name: str, evaluator: Evaluator, small_softmax: Path, tmp_path: Path
) -> None:
    with begun(small_softmax, load(name), TRIALS.get(name, 4), evaluator, tmp_path / "run") as session:
        bench = opening.bench_of(session, evaluator)
        reason = Loop(session, TemplateProposer(), bench, Watcher(), parallel=2).run()
        ledger = session.ledger
        session.end(reason)
        statuses = [trial.status for trial in ledger.trials.values()]
        assert reason == "trials", (reason, statuses)
        assert Status.OK in statuses
        best = ledger.trials[ledger.best]
        assert best.measured == 2
        assert "launch" in session.candidate(ledger.best).main.text
        assert best.strategy
        members = ledger.population.members
        assert members
    with Archive.read(tmp_path / "run") as archive:
        assert fold(archive, archive.begun()).population.members == members
    with Session.resume(tmp_path / "run") as resumed:
        assert resumed.ledger.population.members == members
        assert resumed.ledger.best == best.number


def test_cupilot_crosses_the_strategies_of_matrix_products_as_their_code_has_them(
    evaluator: Evaluator, tmp_path: Path
) -> None:
    task = tmp_path / "product.py"
    task.write_text(PRODUCT)
    with begun(task, load("cupilot"), 4, evaluator, tmp_path / "run") as session:
        bench = opening.bench_of(session, evaluator)
        assert Loop(session, TemplateProposer(), bench, Watcher(), parallel=1).run() == "trials"
        ledger = session.ledger
        problem = ledger.begun.problem
        assert {idea.operator for idea in ledger.ideas.known.values()} == {"translate"}
        assert any(len(idea.parents) == 2 for idea in ledger.ideas.known.values()), ledger.ideas
        aligned = [trial for trial in ledger.trials.values() if trial.aligned]
        assert len(aligned) >= 2
        for trial in aligned:
            really = templates.carried(problem, session.candidate(trial.number).main.text)
            assert really is not None
            assert trial.strategy == genome.text_of(really)


@pytest.mark.slow  # three runs
@pytest.mark.parametrize("part", ["roofline", "retrieval", "alignment"])
def test_cupilot_runs_without_any_of_its_parts(
    part: str, evaluator: Evaluator, small_softmax: Path, tmp_path: Path
) -> None:
    method = ablated(load("cupilot"), **{part: False})
    with begun(small_softmax, method, 2, evaluator, tmp_path / "run") as session:
        bench = opening.bench_of(session, evaluator)
        assert Loop(session, TemplateProposer(), bench, Watcher(), parallel=1).run() == "trials"
        assert session.ledger.best
        assert any(trial.aligned for trial in session.ledger.trials.values()) == (part != "alignment")
