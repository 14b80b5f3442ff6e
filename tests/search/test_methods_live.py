"""Every method with the offline catalogue on the CPU: real compiling, checking and timing, on small budgets.

What is about cuPilot's strategies and not about their kernels is tried with real tasks and made-up verdicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests import searching
from tests.searching import CannedJudge, judged, valid
from warpsmith import kernel_templates as templates
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import cpu_info
from warpsmith.methods.load import ablated, load, methods
from warpsmith.model.brief import Brief, Precedent, Problem, Prompt, Reply
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.method import Method, Product
from warpsmith.model.strategy import Plan
from warpsmith.proposers.templates import TemplateProposer
from warpsmith.run_log.events import BriefAsked, Budget, RunConfig, TrialProfiled
from warpsmith.run_log.log import RunLog
from warpsmith.search import open_run
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.profiles import kernel_profiler
from warpsmith.search.session import Session, read_state
from warpsmith.search.start import AUTO, PLAIN, offline_start
from warpsmith.strategies import plan_space

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


@pytest.fixture(scope="module")
def problem(evaluator: Evaluator, small_softmax: Path) -> Problem:
    return evaluator.survey(small_softmax, "cpu")


def run_setup(task: Path, method: Method, trials: int, evaluator: Evaluator, folder: Path) -> Session:
    config = RunConfig(
        task=str(task),
        device="cpu",
        backend="cpu",
        proposer="template",
        budget=Budget(trials=trials),
        settings=evaluator.settings,
        enough_share=None,
    )
    return open_run.begin(config, method, evaluator, folder=folder)


_QUICK = ("cupilot",)  # the others with `make test-all`


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow) for name in sorted(methods())]
)
def test_a_method_finds_a_valid_kernel_and_its_log_replays(
    name: str, evaluator: Evaluator, small_softmax: Path, tmp_path: Path
) -> None:
    with run_setup(small_softmax, load(name), TRIALS.get(name, 4), evaluator, tmp_path / "run") as session:
        bench = open_run.task_evaluator(session, evaluator)
        with kernel_profiler(session, evaluator) as look:
            profiler = look if name == "cupilot" else None  # the only one the catalogue reads profiles for
            reason = SearchLoop(
                session, TemplateProposer(), bench, SearchObserver(), parallel=2, profile=profiler
            ).run()
        state = session.state
        session.end(reason)
        statuses = [trial.status for trial in state.trials.values()]
        assert reason == "trials", (reason, statuses)
        assert Status.OK in statuses
        best = state.trials[state.best]
        assert best.measured == 2
        assert "launch" in session.candidate(state.best).main.text
        assert best.strategy
        members = state.population.members
        assert members
    with RunLog.read(tmp_path / "run") as log:
        assert read_state(log, log.setup()).population.members == members
        events = [entry.event for entry in log.entries()]
    digests = {event.trial: event.digest for event in events if isinstance(event, TrialProfiled)}
    parents = {each for event in events if isinstance(event, BriefAsked) and profiler for each in event.parents}
    valid = {number for number, trial in state.trials.items() if trial.status is Status.OK}
    # Kernels that are parents, and valid ones that are so slow that they are revised.
    assert parents <= set(digests) <= (valid if profiler else set())
    assert all(digest.startswith("Bottleneck: ") for digest in digests.values())
    with Session.resume(tmp_path / "run") as resumed:
        assert resumed.state.population.members == members
        assert resumed.state.best == best.number


@pytest.mark.slow
def test_cupilot_crosses_the_strategies_of_matrix_products_as_their_code_has_them(
    evaluator: Evaluator, tmp_path: Path
) -> None:
    task = tmp_path / "product.py"
    task.write_text(PRODUCT)
    with run_setup(task, load("cupilot"), 4, evaluator, tmp_path / "run") as session:
        bench = open_run.task_evaluator(session, evaluator)
        assert SearchLoop(session, TemplateProposer(), bench, SearchObserver(), parallel=1).run() == "trials"
        state = session.state
        problem = state.setup.problem
        assert {idea.operator for idea in state.ideas.known.values()} == {"translate"}
        assert any(len(idea.parents) == 2 for idea in state.ideas.known.values()), state.ideas
        aligned = [trial for trial in state.trials.values() if trial.aligned]
        assert len(aligned) >= 2
        for trial in aligned:
            really = templates.plan_in_source(problem, session.candidate(trial.number).main.text)
            assert really is not None
            assert trial.strategy == plan_space.text_of(really)


def begun_catalogue(folder: Path, method: Method, problem: Problem, trials: int) -> Session:
    """A run of a real task, with what another run knows of it."""
    known = (Precedent("another softmax", "simd", "some CPU", 1.3),)
    start = replace(searching.run_setup(method, budget=Budget(trials=trials)), problem=problem)
    return Session.create(folder, start, lambda _: known)


def test_the_start_called_auto_is_the_first_kernel_of_the_offline_proposer(problem: Problem) -> None:
    start = offline_start(problem, AUTO)

    assert (start.backend, start.main.text.count("launch(")) == ("cpu", 1)
    assert templates.plan_in_source(problem, start.main.text) is not None
    assert offline_start(problem, AUTO).digest == start.digest


def test_the_start_called_plain_has_no_optimisation(problem: Problem) -> None:
    start = offline_start(problem, PLAIN)

    assert templates.plan_in_source(problem, start.main.text) == Plan()
    assert start.digest != offline_start(problem, AUTO).digest


def test_a_problem_has_the_figures_of_its_device(problem: Problem) -> None:
    figures = problem.figures

    assert figures is not None
    assert figures.units >= 1
    assert 1e8 < figures.bandwidth_bytes_s < 1e13
    assert dict(figures.flops_s)["fp32"] > 1e8
    assert figures.instructions == cpu_info().instructions


class Listener(TemplateProposer):
    """The catalogue; remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.briefs: list[Brief] = []

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        self.briefs.append(brief)
        return super().propose(brief, prompt)


def made_up(candidate: Candidate) -> Evaluation:
    return valid(candidate, 1 + int(candidate.id, 16) % 1000 / 1000)


@pytest.mark.parametrize("part", ["", "roofline", "retrieval", "alignment"])
def test_cupilot_runs_without_any_of_its_parts(part: str, problem: Problem, tmp_path: Path) -> None:
    method = ablated(load("cupilot"), **({part: False} if part else {}))
    proposer = Listener()
    with begun_catalogue(tmp_path / "run", method, problem, 8) as session:
        assert SearchLoop(session, proposer, CannedJudge(made_up), SearchObserver(), parallel=1).run() == "trials"
        assert session.state.best
        assert any(trial.aligned for trial in session.state.trials.values()) == (part != "alignment")
    assert any(brief.roofline or brief.strategies for brief in proposer.briefs) == (part != "roofline")
    assert any(brief.precedents for brief in proposer.briefs) == (part != "retrieval")
    assert any(brief.role == "aligner" for brief in proposer.briefs) == (part != "alignment")


def answered(session: Session, change: Callable[[Brief, str], str] = lambda brief, text: text) -> Brief:
    """Ask, have the catalogue answer, perhaps otherwise than it would, and judge."""
    brief = session.ask()
    assert brief is not None, session.stop_reason
    proposer = TemplateProposer()
    reply = proposer.propose(brief, proposer.prompt(brief))
    session.answer(brief, replace(reply, text=change(brief, reply.text)))
    judged(session, made_up)
    return brief


def plan_text(problem: Problem, names: str) -> str:
    plan = plan_space.plan_of(names, templates.abilities(problem))
    assert plan is not None
    return plan_space.text_of(plan)


def test_children_carry_strategies_of_both_parents_into_their_code(problem: Problem, tmp_path: Path) -> None:
    parents = [plan_text(problem, names) for names in ("parallel-rows + static-chunks", "simd + vector-exp")]
    told = "".join(f"strategy: {text}\nthought: planted\n" for text in parents)
    with begun_catalogue(tmp_path / "run", load("cupilot"), problem, 8) as session:
        answered(session, lambda brief, text: told)
        for _ in range(4):  # each is translated, and aligned
            answered(session)
        crossing = answered(session)
        assert (crossing.operator, {each.strategy for each in crossing.parents}) == ("cross", set(parents))
        children = [idea for idea in session.state.ideas.known.values() if len(idea.parents) == 2]
        assert children
        translating = answered(session)
        assert translating.idea is not None
        code = session.candidate(session.state.last_trial).main.text
        carried = templates.plan_in_source(problem, code)
        assert carried is not None
        for child in (Plan.read(translating.idea.strategy), carried):
            assert child is not None
            for one, other in (parents, parents[::-1]):
                assert _names(child) & (_names(Plan.read(one)) - _names(Plan.read(other)))


def _names(plan: Plan | None) -> set[str]:
    assert plan is not None
    return set(plan.names)


def test_alignment_changes_a_strategy_that_the_code_does_not_honour(problem: Problem, tmp_path: Path) -> None:
    claimed, real = plan_text(problem, "simd + vector-exp + parallel-rows"), plan_text(problem, "parallel-rows")
    assert claimed != real

    def boast(brief: Brief, text: str) -> str:
        code = templates.translate(problem, plan_space.plan_of(real, templates.abilities(problem)) or Plan())
        return f"strategy: {claimed}\nthought: all of it\ncode:\n```cpp\n{code}```\n"

    with begun_catalogue(tmp_path / "run", load("cupilot"), problem, 8) as session:
        answered(session, lambda brief, text: f"strategy: {claimed}\nthought: planted\n")
        answered(session, boast)
        assert session.state.trials[1].strategy == claimed
        aligning = answered(session)
        assert (aligning.role, aligning.product) == ("aligner", Product.ALIGNMENT)
        trial, idea = session.state.trials[1], session.state.ideas.known[1]
        assert (trial.strategy, trial.aligned) == (real, True)
        assert (idea.strategy, idea.aligned) == (claimed, real)  # what was meant stays on record
        following = session.ask()
        assert following is not None
        assert [parent.strategy for parent in following.parents] in ([], [real])
        assert [each.aligned for each in following.ideas] == [real]
