"""Agents that work on a brief: what they evaluate is a trial of the run, within its budgets; lines of versions."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.searching import (
    CannedJudge,
    CannedProposer,
    answered,
    factor,
    invalid,
    judged,
    new_session,
    reply_text,
    snapshot,
    source,
    valid,
)
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Prompt, Reply, TrialOutcome
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import ProposerFault, UsageError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.run_tools import RunTools, StepVerdict
from warpsmith.model.usage import TokenUsage
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.profiles import ProfileResult
from warpsmith.search.session import Session

AGENTIC = load("agentic")
SPENT = TokenUsage(10, 5, cost_usd=0.001)


class Working(CannedProposer):
    """Calls the run's tools as its function says, which returns the number of the kernel it proposes."""

    def __init__(self, work: Callable[[Brief, RunTools], int]) -> None:
        super().__init__(lambda brief: "")
        self._work = work
        self.tools: RunTools | None = None

    def bind(self, tools: RunTools) -> None:
        self.tools = tools

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        assert self.tools is not None
        return Reply(source(self._work(brief, self.tools)), "agent", SPENT, file="kernel.cpp")


def by_number(candidate: Candidate) -> Evaluation:
    return invalid(candidate) if factor(candidate) % 10 == 9 else valid(candidate, 1 + factor(candidate) / 100)


def evaluate(tools: RunTools, brief: Brief, number: int) -> StepVerdict:
    return tools.evaluate(brief.number, Reply(source(number), "agent", SPENT, file="kernel.cpp"))


def run(session: Session, proposer: Working, profile: bool = False, parallel: int = 1) -> StopReason:
    def digest(candidate: Candidate, evaluation: Evaluation) -> ProfileResult:
        return ProfileResult(f"Bottleneck: number {factor(candidate)}", 0.25)

    judge, watcher = CannedJudge(by_number), SearchObserver()
    found = digest if profile else None
    return SearchLoop(session, proposer, judge, watcher, parallel=parallel, profile=found).run()


def test_what_an_agent_has_evaluated_is_a_trial_like_any_other(tmp_path: Path) -> None:
    heard: list[StepVerdict] = []

    def work(brief: Brief, tools: RunTools) -> int:
        first = 10 * brief.number
        with suppress(UsageError):  # the last step has one evaluation
            for each in (1, 9, 2):
                heard.append(evaluate(tools, brief, first + each))
        return first + 2  # known to the run by now

    folder = tmp_path / "run"
    with new_session(folder, AGENTIC, budget=Budget(trials=8)) as session:
        assert run(session, Working(work)) == "trials"
        state = session.state
        session.end(StopReason.TRIALS)
        assert [trial.step > 0 for trial in state.trials.values()].count(True) == state.totals.trials - 1 == 7
        assert [each.shown.status for each in heard[:3]] == [Status.OK, Status.WRONG, Status.OK]
        assert heard[0].shown.speedup == pytest.approx(1.11)
        assert not state.repairs  # an agent repairs what it tries
        assert state.trials[state.best].measured == 2
        assert state.totals.prompt_tokens == 10 * (7 + 3)  # evaluations and replies
        left = snapshot(state)
    with Session.resume(folder) as resumed:
        assert snapshot(resumed.state) == left


def test_a_proposal_that_the_agent_had_evaluated_spends_no_second_trial(tmp_path: Path) -> None:
    def work(brief: Brief, tools: RunTools) -> int:
        with suppress(UsageError):  # the last step has no evaluation
            evaluate(tools, brief, 10 * brief.number)
            assert evaluate(tools, brief, 10 * brief.number).known
        return 10 * brief.number

    with new_session(tmp_path / "run", AGENTIC, budget=Budget(trials=5)) as session:
        run(session, Working(work))
        assert session.state.totals.trials == 5
        assert session.state.totals.duplicates == 0
        assert [trial.outcome for trial in session.state.trials.values()] == [TrialOutcome.JUDGED] * 5
        assert [bool(trial.step) for trial in session.state.trials.values()] == [True] * 4 + [False]


def test_the_run_keeps_one_trial_for_the_proposal_and_refuses_the_rest(tmp_path: Path) -> None:
    refused: list[str] = []

    def work(brief: Brief, tools: RunTools) -> int:
        assert tools.room(brief.number).trials == 2
        for number in (1, 2, 3, 4):
            try:
                evaluate(tools, brief, number)
            except UsageError as error:
                refused.append(str(error))
        return 5

    with new_session(tmp_path / "run", AGENTIC, budget=Budget(trials=3)) as session:
        assert run(session, Working(work)) == "trials"
        assert session.state.totals.trials == 3
        assert [factor(session.candidate(number)) for number in session.state.trials] == [1, 2, 5]
    assert refused == ["the run has no trial left but the one for your proposal; leave your best kernel and end."] * 2


@pytest.mark.parametrize(
    ("budget", "why"),
    [(Budget(trials=9, device_seconds=0.4), "device time"), (Budget(trials=9, tokens=20), "the tokens are spent")],
)
def test_every_limit_of_the_run_holds_in_a_step(tmp_path: Path, budget: Budget, why: str) -> None:
    said: list[str] = []

    def work(brief: Brief, tools: RunTools) -> int:
        for number in (1, 2, 3):
            try:
                evaluate(tools, brief, number)
            except UsageError as error:
                said.append(str(error))
        return 1

    with new_session(tmp_path / "run", AGENTIC, budget=budget) as session:
        assert run(session, Working(work)) in ("tokens", "device_time")
        assert session.state.totals.trials <= 2
    assert why in said[-1]


def test_nothing_is_lost_when_an_agent_fails_after_evaluating(tmp_path: Path) -> None:
    def work(brief: Brief, tools: RunTools) -> int:
        with suppress(UsageError):
            evaluate(tools, brief, 10 * brief.number)
        raise ProposerFault("the agent crashed", SPENT)

    with new_session(tmp_path / "run", AGENTIC, budget=Budget(trials=4)) as session:
        reason = run(session, Working(work))
        assert reason == "proposer_failed"  # the last trial is reserved for a proposal that never comes
        assert session.state.totals.valid == 3
        assert session.state.best
        assert session.state.totals.failed_calls >= 3


def test_an_agent_profiles_valid_trials_once(tmp_path: Path) -> None:
    heard: list[str] = []

    def work(brief: Brief, tools: RunTools) -> int:
        good, bad = evaluate(tools, brief, 1), evaluate(tools, brief, 9)
        heard.extend([tools.profile(good.shown.trial), tools.profile(good.shown.trial)])
        for trial in (bad.shown.trial, 77):
            with pytest.raises(UsageError, match="is no valid kernel of this run"):
                tools.profile(trial)
        assert [shown.trial for shown in tools.trials()] == [1, 2]
        assert tools.trial(1).files[0].text.count("1.0f") == 1
        with pytest.raises(UsageError, match="there is no trial 5"):
            tools.trial(5)
        return 2

    with new_session(tmp_path / "run", AGENTIC, budget=Budget(trials=3)) as session:
        run(session, Working(work), profile=True)
        assert session.state.profiled == {1}
        assert session.state.totals.device_seconds == pytest.approx(0.25 + 0.5 * 5)
    assert heard == ["Bottleneck: number 1"] * 2


def test_an_interrupted_run_answers_its_agents(tmp_path: Path) -> None:
    said: list[str] = []
    started = threading.Event()

    def work(brief: Brief, tools: RunTools) -> int:
        started.set()
        while not said:
            try:
                evaluate(tools, brief, 1)
                threading.Event().wait(0.01)
            except UsageError as error:
                said.append(str(error))
        return 2

    with new_session(tmp_path / "run", AGENTIC) as session:
        proposer = Working(work)
        loop = SearchLoop(session, proposer, CannedJudge(by_number), SearchObserver(), parallel=1)

        def interrupt() -> None:
            started.wait()
            loop.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        assert loop.run() == "interrupted"
        thread.join()
        assert session.state.totals.replies in (1, 2)  # 1: the interruption came before the first evaluation
        assert proposer.tools is not None
        with pytest.raises(UsageError, match="the run has ended"):
            proposer.tools.room(1)
    assert re.search("nothing more is evaluated, because it was interrupted|is judged when the run goes on", said[0])


# --- the method ---


def scored(session: Session, *scores: float) -> list[Brief]:
    """Turns whose kernels have these scores, one after the other."""
    found = []
    for score in scores:
        number = session.state.last_trial + 1
        found.append(answered(session, number))
        judged(session, lambda candidate, score=score: valid(candidate, score))  # type: ignore[misc]
    return found


def test_a_line_that_stalls_is_redirected_and_then_left_for_an_earlier_version(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with new_session(folder, AGENTIC, budget=Budget(trials=30)) as session:
        briefs = scored(session, 1.0, 1.3, 1.6, *[1.1] * 4, 1.35, 1.7)
        parents = [[shown.trial for shown in brief.parents] for brief in briefs]
        # Versions are trials 1, 2, 3; trial 8 restarts from the second best and leads to trial 9, the new best.
        assert parents == [[], [1], [2], [3], [3], [3], [3], [2], [8]]
        assert [brief.stalled for brief in briefs] == [0, 0, 0, 0, 0, 2, 3, 4, 0]
        assert [brief.restarts for brief in briefs] == [False] * 7 + [True, False]
        directions = [brief.direction.name for brief in briefs if brief.direction]
        assert len(set(directions)) == len(directions) == 3
        assert [shown.trial for shown in briefs[8].lineage] == [2, 8]
        assert session.state.best == 9
        left = snapshot(session.state)
    with Session.resume(folder) as resumed:
        assert snapshot(resumed.state) == left
        again = resumed.ask()
        assert again is not None
        assert [shown.trial for shown in again.parents] == [9]


def test_steps_without_a_valid_kernel_stall_and_a_line_without_versions_starts_again(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", AGENTIC, budget=Budget(trials=30), repairs=0) as session:
        for number in range(1, 6):
            brief = answered(session, number)
            judged(session, invalid)
        assert (brief.restarts, brief.parents, brief.place) == (True, (), 1)


def test_what_an_agent_finds_on_the_way_is_a_gain_of_its_step(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", AGENTIC, budget=Budget(trials=30)) as session:
        scored(session, 1.0)
        for gained in (True, False):
            brief = session.ask()
            assert brief is not None
            if gained:
                session.step_trial(brief.number, Reply(source(50), "agent", file="kernel.cpp"))
                judged(session, lambda candidate: valid(candidate, 2.0))
            session.answer(brief, Reply(reply_text(60 + gained), "agent"))
            judged(session, lambda candidate: valid(candidate, 0.5))
            assert session.state.stalled == (0 if gained else 1)


def test_a_strategy_is_carried_out_by_what_its_agent_had_evaluated(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", load("cupilot"), budget=Budget(trials=9)) as session:
        strategist = session.ask()
        assert strategist is not None
        session.answer(strategist, Reply("strategy: one loop\nthought: short\n", "agent"))
        translator = session.ask()
        assert translator is not None
        with pytest.raises(UsageError, match="Answer with the lines"):
            session.step_trial(translator.number, Reply("no program at all", "agent"))
        session.step_trial(translator.number, Reply(source(3), "agent", file="kernel.cpp"))
        judged(session, lambda candidate: valid(candidate, 1.5))
        assert session.state.ideas.known[1].speedup is None
        record = session.answer(translator, Reply(source(3), "agent", file="kernel.cpp"))
        assert (record.trial, session.state.totals.trials) == (1, 1)
        assert session.state.ideas.known[1].speedup == pytest.approx(1.5)
