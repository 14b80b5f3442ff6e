"""Every method with the offline catalogue on the CPU: real compiling, checking and timing, on small budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.archive.events import Budget
from warpsmith.archive.log import Archive
from warpsmith.core.evaluation import Status
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.methods.loading import load, methods
from warpsmith.propose.template import TemplateProposer
from warpsmith.run import opening
from warpsmith.run.loop import Loop, Watcher
from warpsmith.run.session import Session, fold

TASK = """
import torch
from warpsmith import normal, task

@task(x=normal("rows, cols"), workloads=[{"rows": 48, "cols": 200}])
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
"""
TRIALS = {"evoengineer-full": 5, "eoh": 8}  # as many as it takes to leave the first stage


@pytest.fixture(scope="module")
def small_softmax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("task") / "softmax.py"
    path.write_text(TASK)
    return path


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_method_finds_a_valid_kernel_and_its_log_replays(
    name: str, evaluator: Evaluator, small_softmax: Path, tmp_path: Path
) -> None:
    trials = TRIALS.get(name, 4)
    order = opening.Order(
        task=str(small_softmax),
        method=load(name),
        proposer="template",
        budget=Budget(trials=trials),
        folder=tmp_path / "run",
        device="cpu",
        settings=evaluator.settings,
        enough_share=None,
    )
    with opening.begin(order, evaluator, "cpu") as session:
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
