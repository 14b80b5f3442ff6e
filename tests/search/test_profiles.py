"""Profiles in a run: of whom, when, for whom, and what becomes of a run where they fail."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.searching import (
    CannedJudge,
    CannedProposer,
    answer_to,
    factor,
    invalid,
    judged,
    new_session,
    run_setup,
    valid,
)
from tests.strategies.problems import make_problem
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.methods.load import ablated, load
from warpsmith.model.brief import Brief, Prompt, Reply, ShownCandidate
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings
from warpsmith.model.strategy import Plan, StrategyChoice
from warpsmith.model.task import Family, Precision
from warpsmith.profiling.digest import STRATEGIES, Bottleneck, Digest
from warpsmith.prompts.renderer import render
from warpsmith.proposers.templates import predicted_gain
from warpsmith.run_log.events import BriefAsked, Budget, NoteAdded, PromptSent, TrialProfiled
from warpsmith.run_log.log import RunLog
from warpsmith.search import profiles
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.profiles import ProfileResult, profile_next, reads_profiles
from warpsmith.search.session import Session, read_state
from warpsmith.strategies.catalogue import strategies

CUPILOT = load("cupilot")
INSIGHT = load("evoengineer-insight")


@dataclass
class Looker:
    """Sees at once, and remembers whom it was shown."""

    reason: str = ""
    wait_s: float = 0.0
    seen: list[int] = field(default_factory=list)

    def __call__(self, candidate: Candidate, evaluation: Evaluation) -> ProfileResult:
        assert evaluation.ok
        assert evaluation.candidate == candidate.id
        self.seen.append(factor(candidate))
        time.sleep(self.wait_s)
        return ProfileResult("" if self.reason else f"Bottleneck: that of {factor(candidate)}.", 2.5, self.reason)


class Reader(CannedProposer):
    """Answers at once; its prompts are the real ones."""

    def prompt(self, brief: Brief) -> Prompt:
        return render(brief)


def judge() -> CannedJudge:
    return CannedJudge(lambda c: invalid(c) if factor(c) % 5 == 4 else valid(c, 1 + factor(c) / 100))


def reader() -> Reader:
    return Reader(lambda brief: answer_to(brief, brief.number))


def work(session: Session, look: Looker, *, parallel: int = 2) -> str:
    return SearchLoop(session, reader(), judge(), SearchObserver(), parallel=parallel, profile=look).run()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Looker]:
    """One run of cupilot with profiles."""
    folder, look = tmp_path_factory.mktemp("profiles") / "run", Looker()
    with new_session(folder, CUPILOT, budget=Budget(trials=24)) as session:
        assert work(session, look) == "trials"
    return folder, look


def test_only_kernels_about_to_be_parents_are_profiled_and_each_once(run: tuple[Path, Looker]) -> None:
    folder, look = run
    with RunLog.read(folder) as log:
        events = [entry.event for entry in log.entries()]
        state = read_state(log, log.setup())
    profiled = [event.trial for event in events if isinstance(event, TrialProfiled)]
    parents = {trial for event in events if isinstance(event, BriefAsked) for trial in event.parents}
    assert profiled
    assert len(set(profiled)) == len(profiled) == len(look.seen)
    assert set(profiled) <= set(state.found)
    assert parents <= set(profiled)  # nobody became one unseen
    assert len(profiled) < len(state.found)  # and by far not everybody was looked at
    assert state.profiled == set(profiled)
    judged_s = 0.5 * sum(trial.measured for trial in state.trials.values())
    assert state.totals.device_seconds == pytest.approx(judged_s + 2.5 * len(profiled))


def test_digests_reach_the_roles_that_are_to_see_them_and_nobody_else(run: tuple[Path, Looker]) -> None:
    folder, _ = run
    with RunLog.read(folder) as log:
        events = [entry.event for entry in log.entries()]
    asked = {event.brief: event for event in events if isinstance(event, BriefAsked)}
    told = {event.brief: event.prompt.messages[-1].text for event in events if isinstance(event, PromptSent)}
    reached = {asked[brief].operator for brief, text in told.items() if "Profile: Bottleneck: that of" in text}
    assert reached == {"cross", "mutate", "translate"}
    for brief, text in told.items():
        if asked[brief].parents and asked[brief].operator in reached:
            assert text.count("Profile: Bottleneck") == len(asked[brief].parents)


def test_a_resumed_run_profiles_nothing_twice(run: tuple[Path, Looker]) -> None:
    folder, before = run
    look = Looker()
    with RunLog.read(folder) as log:
        last = max(entry.seq for entry in log.entries())
    with Session.resume(folder, budget=Budget(trials=30)) as session:
        assert work(session, look) == "trials"
        assert session.state.totals.trials == 30
    with RunLog.read(folder) as log:
        later = [entry.event for entry in log.entries(after=last)]
    assert any(isinstance(event, BriefAsked) and event.parents for event in later)
    assert not set(look.seen) & set(before.seen)


def test_a_profile_that_fails_is_a_note_and_the_run_goes_on_without(tmp_path: Path) -> None:
    said: list[str] = []

    class Listener(SearchObserver):
        def message(self, text: str) -> None:
            said.append(text)

    look = Looker(reason="there is no profiler here.")
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=12)) as session:
        assert SearchLoop(session, reader(), judge(), Listener(), parallel=1, profile=look).run() == "trials"
    with RunLog.read(tmp_path / "run") as log:
        events = [entry.event for entry in log.entries()]
    profiled = [event for event in events if isinstance(event, TrialProfiled)]
    assert len(profiled) > 1
    assert {event.digest for event in profiled} == {""}
    assert len({event.trial for event in profiled}) == len(profiled)  # and not tried again
    notes = [event.text for event in events if isinstance(event, NoteAdded)]
    assert [note.partition(": ")[2] for note in notes] == ["there is no profiler here."]
    assert said == ["profiling: there is no profiler here."]


def test_without_the_roofline_nobody_is_profiled(tmp_path: Path) -> None:
    look, method = Looker(), ablated(CUPILOT, roofline=False)
    with new_session(tmp_path / "run", method, budget=Budget(trials=8)) as session:
        assert work(session, look) == "trials"
        assert session.state.totals.trials == 8
    assert look.seen == []


def test_a_profile_holds_up_no_reply_under_way(tmp_path: Path) -> None:
    looked, before_the_reply = threading.Event(), False

    class Pondering(Reader):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            nonlocal before_the_reply
            if brief.number == 4:  # thinks until somebody is profiled: the first three make the first parent
                before_the_reply = looked.wait(60)
            return super().propose(brief, prompt)

    class Watching(Looker):
        def __call__(self, candidate: Candidate, evaluation: Evaluation) -> ProfileResult:
            looked.set()
            return super().__call__(candidate, evaluation)

    proposer = Pondering(lambda brief: answer_to(brief, brief.number), concurrency=4)
    with new_session(tmp_path / "run", INSIGHT, budget=Budget(trials=16)) as session:
        SearchLoop(session, proposer, judge(), SearchObserver(), parallel=4, profile=Watching()).run()
        assert session.state.totals.trials == 16
    assert before_the_reply


def test_whoever_has_no_device_can_have_the_next_parents_profiled_where_there_is_one(tmp_path: Path) -> None:
    look = Looker()
    with new_session(tmp_path / "run", INSIGHT, budget=Budget(trials=8)) as session:
        assert profile_next(session, look) == 0
        for _ in range(2):
            brief = session.ask()
            assert brief is not None
            session.answer(brief, Reply(answer_to(brief, brief.number), "canned"))
        judged(session, lambda candidate: valid(candidate, 1.5))
        assert profile_next(session, look) == 1
        assert profile_next(session, look) == 0
        brief = session.ask()
        assert brief is not None
        assert brief.best is not None
        assert brief.best.profile == f"Bottleneck: that of {look.seen[0]}."


def test_profiles_are_taken_where_somebody_reads_them() -> None:
    assert reads_profiles(CUPILOT, "template")
    assert reads_profiles(CUPILOT, "openai:a-model")
    assert not reads_profiles(CUPILOT, "replay:runs/old")
    assert not reads_profiles(ablated(CUPILOT, roofline=False), "openai:a-model")
    assert reads_profiles(INSIGHT, "openai:a-model")
    assert not reads_profiles(INSIGHT, "template")  # it goes by plans alone there
    assert not reads_profiles(load("evoengineer-free"), "openai:a-model")


def test_the_catalogue_prefers_what_a_profile_asks_for_until_it_is_measured(tmp_path: Path) -> None:
    known = strategies()
    name = "non-temporal-stores"
    digest = Digest(Bottleneck.BANDWIDTH, "It waits.", ("99 % of the peak",), (name,)).text
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        brief = session.ask()
        assert brief is not None
    asked, profiled = (_with_parent(brief, text) for text in ("", digest))
    plan, other = (Plan((StrategyChoice(each),)) for each in (name, "parallel-rows"))
    assert predicted_gain(plan, profiled, known) > predicted_gain(plan, asked, known)
    assert predicted_gain(other, profiled, known) == predicted_gain(other, asked, known)


def _with_parent(brief: Brief, profile: str) -> Brief:
    return replace(brief, parents=(ShownCandidate("1", "a", (), "", "", Status.OK, "", 1, profile=profile),))


@pytest.mark.parametrize(
    ("precision", "advised"),
    [(Precision.FP32, "split-product, strength-reduction"), (Precision.TF32, "tensor-cores, strength-reduction")],
)
def test_a_digest_advises_nothing_that_the_precision_of_the_task_rules_out(
    precision: Precision, advised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Planted:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Planted:
            return self

        def __exit__(self, *_: object) -> None: ...

        def profile(self, *_: object) -> SimpleNamespace:
            digest = Digest(Bottleneck.COMPUTE, "The arithmetic is the limit.", (), STRATEGIES[Bottleneck.COMPUTE][:3])
            return SimpleNamespace(digest=digest, reason="")

    monkeypatch.setattr("warpsmith.profiling.profiler.Profiler", Planted)
    monkeypatch.setattr(profiles, "task_to_execute", lambda *_: "task.py")
    product = make_problem(
        family=Family.MATMUL,
        operations=("aten.mm.default",),
        precision=precision,
        source="def f(a, b):\n    return a @ b",
    )
    evaluator = cast(Evaluator, SimpleNamespace(settings=Settings(), device=None))
    with (
        Session.create(tmp_path / "run", replace(run_setup(CUPILOT), problem=product)) as session,
        profiles.kernel_profiler(session, evaluator) as profile,
    ):
        candidate = Candidate((SourceFile("k.cu", "int launch();"),), "cuda")
        assert profile(candidate, valid(candidate, 1.5)).digest.splitlines()[-1] == f"Try: {advised}."
