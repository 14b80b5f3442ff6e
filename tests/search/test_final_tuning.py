"""The end of a run: values of the best kernel's tunables are tried, and a better point goes the way of every kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.searching import new_session, valid
from warpsmith.backends.tunables import macros
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.methods.load import load
from warpsmith.model.brief import Reply
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.model.usage import TokenUsage
from warpsmith.run_log.events import Budget, StopReason, TrialJudged, TrialTuned
from warpsmith.run_log.log import RunLog
from warpsmith.search.final_tuning import POINTS, can_tune, tune_and_judge, tune_best
from warpsmith.search.loop import judge_pending
from warpsmith.search.session import Session, read_state
from warpsmith.search.trust import TASK_FILE, sign_run

FREE = load("evoengineer-free")
HEAD = 'extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream)'
PLAIN = f"{HEAD} {{ return 0; }}\n"
TUNABLE = f"// tune: STEP = 1, 2, 4\n{HEAD} {{ return STEP; }}\n"
Speed = Callable[[str], float]  # by the value of STEP


def verdict(speed: Speed, candidate: Candidate) -> Evaluation:
    return valid(candidate, speed(dict(macros(candidate)).get("STEP", "1")))


class Bench:
    """Judges by the value of STEP, as a run's bench and as a tuner's judge; counts."""

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self.judged = 0

    def __call__(
        self, candidates: Sequence[Candidate], settings: Settings | None = None, *, fresh: bool
    ) -> Iterator[tuple[int, Evaluation]]:
        for place, candidate in enumerate(candidates):
            self.judged += 1
            yield place, verdict(self.speed, candidate)


def tell(session: Session, code: str, speed: Speed) -> None:
    brief = session.ask()
    assert brief is not None, session.stop_reason
    text = f"name: a kernel\nstrategy: strides\nthought: why not\ncode:\n```cpp\n{code}```\n"
    session.answer(brief, Reply(text, "canned", TokenUsage(100, 50, cost_usd=0.01)))
    judge_pending(session, Bench(speed), lambda record, evaluation: None)


def faster(step: str) -> float:
    return {"1": 1.0, "2": 1.5, "4": 1.2}[step]


def test_a_better_value_becomes_the_best_kernel_and_spends_no_trial(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FREE, budget=Budget(trials=2)) as session:
        tell(session, TUNABLE, faster)
        tell(session, PLAIN, lambda step: 0.5)
        assert session.stop_reason == "trials"
        assert can_tune(session, StopReason.TRIALS)
        before = session.state.best
        bench = Bench(faster)
        tuned = tune_best(session, bench, Settings())
        assert (tuned.tried, tuned.total, tuned.improved) == (3, 3, True)
        assert bench.judged <= POINTS
        judge_pending(session, bench, lambda record, evaluation: None)
        state = session.state
        best = state.trials[state.best]
        assert (best.score, best.measured, best.parents, best.strategy) == (1.5, 2, (before,), "strides")
        assert best.effect == pytest.approx(1.5)
        candidate = session.candidate(state.best)
        assert "// tune: STEP = 2, 1, 4\n" in candidate.main.text
        assert candidate.defines == ()
        totals = state.totals
        assert (totals.trials, totals.judged, totals.valid, totals.replies) == (2, 2, 2, 2)
        assert set(state.standings) == {"canned"}
        assert not can_tune(session, StopReason.TRIALS)  # what was tuned is not tuned again
        members = state.population.members
    with RunLog.read(tmp_path / "run") as log:
        events = [entry.event for entry in log.entries()]
        again = read_state(log, log.setup())
    assert [(e.trial, e.tried, e.total) for e in events if isinstance(e, TrialTuned)] == [(before, 3, 3)]
    assert [(e.trial, e.again) for e in events if isinstance(e, TrialJudged)][-2:] == [(3, False), (3, True)]
    assert (again.trials, again.best, again.population.members) == (state.trials, state.best, members)
    assert again.totals.device_seconds == state.totals.device_seconds > 0
    with Session.resume(tmp_path / "run", budget=Budget(trials=3)) as session:
        assert session.state.best == best.number
        brief = session.ask()
        assert brief is not None
        assert (brief.number, brief.operator) == (4, "init")
        assert brief.best is not None
        assert session.state.trials[session.state.best].score == 1.5


def test_a_difference_within_the_noise_changes_nothing(tmp_path: Path) -> None:
    def hardly(step: str) -> float:
        return 1.01 if step == "2" else 1.0

    with new_session(tmp_path / "run", FREE, budget=Budget(trials=1)) as session:
        tell(session, TUNABLE, hardly)
        assert not tune_best(session, Bench(hardly), Settings()).improved
        assert not session.pending()
        assert list(session.state.trials) == [1]
        assert session.state.tuned == {1}


def test_a_lucky_value_does_not_stay(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FREE, budget=Budget(trials=1)) as session:
        tell(session, TUNABLE, faster)
        tune_best(session, Bench(faster), Settings())
        judge_pending(session, Bench(lambda step: 0.8), lambda record, evaluation: None)
        assert session.state.best == 1
        assert not session.state.repairs


@pytest.mark.parametrize("reason", ["time", "device_time", "interrupted", "speed_of_light", "evaluator_failed"])
def test_a_run_that_has_no_time_left_or_nothing_to_gain_is_not_tuned(tmp_path: Path, reason: str) -> None:
    with new_session(tmp_path / "run", FREE, budget=Budget(trials=1)) as session:
        tell(session, TUNABLE, faster)
        assert not can_tune(session, StopReason(reason))


def test_what_cannot_be_tuned_or_afforded_is_not(tmp_path: Path) -> None:
    with new_session(tmp_path / "none", FREE, budget=Budget(trials=2)) as session:
        assert not can_tune(session, StopReason.PROPOSER_REFUSED)
        tell(session, PLAIN, faster)
        assert not can_tune(session, StopReason.TRIALS)
    with new_session(tmp_path / "poor", FREE, budget=Budget(trials=1, device_seconds=2.0)) as session:
        tell(session, TUNABLE, faster)  # has cost one second
        assert not can_tune(session, StopReason.TRIALS)
    with new_session(tmp_path / "rich", FREE, budget=Budget(trials=1, device_seconds=100.0)) as session:
        tell(session, TUNABLE, faster)
        assert can_tune(session, StopReason.TRIALS)


def test_a_judge_that_stops_ends_the_tuning(tmp_path: Path) -> None:
    many = "".join(f"// tune: T{i} = 1, 2, 3, 4\n" for i in range(3)) + PLAIN

    def silent(candidates: Sequence[Candidate], settings: Settings, *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        return iter(())

    with new_session(tmp_path / "run", FREE, budget=Budget(trials=1)) as session:
        tell(session, many, faster)
        tuned = tune_best(session, silent, Settings())
        assert (tuned.best, tuned.tried, tuned.total) == (None, 0, 64)
        assert not session.pending()


class Stand:
    """Stands in for an evaluator: judges by the value of STEP and remembers how it was set."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.renewed: list[Settings] = []
        self.judged = 0

    def renew(self, settings: Settings) -> None:
        self.settings = settings
        self.renewed.append(settings)

    def evaluate(
        self, task: str, candidates: Sequence[Candidate], precision: Precision | None, *, fresh: bool
    ) -> Iterator[tuple[int, Evaluation]]:
        for place, candidate in enumerate(candidates):
            self.judged += 1
            yield place, verdict(faster, candidate)


def test_a_run_is_finished_with_its_own_evaluator_which_stays_as_it_was(tmp_path: Path) -> None:
    stand = Stand()
    with new_session(tmp_path / "run", FREE, budget=Budget(trials=1)) as session:
        tell(session, TUNABLE, faster)
        (tmp_path / "run" / TASK_FILE).write_text("# the task")
        sign_run(tmp_path / "run", session.state.setup)
        tuned = tune_and_judge(session, cast(Evaluator, stand))
        assert tuned.improved
        assert session.state.trials[session.state.best].score == 1.5
        assert not session.pending()
    assert stand.renewed  # screening is coarser
    assert stand.settings == Settings()


def test_whoever_stops_the_end_of_a_run_keeps_what_it_has(tmp_path: Path) -> None:
    stand = Stand()
    with new_session(tmp_path / "run", FREE, budget=Budget(trials=1)) as session:
        tell(session, TUNABLE, faster)
        (tmp_path / "run" / TASK_FILE).write_text("# the task")
        sign_run(tmp_path / "run", session.state.setup)
        tune_and_judge(session, cast(Evaluator, stand), lambda: stand.judged > 0)
        assert session.state.best == 1
        session.end(StopReason.INTERRUPTED)
    assert stand.judged == 1
    assert stand.settings == Settings()
    with Session.resume(tmp_path / "run") as session:  # half of it tried is not tuned
        assert not session.state.tuned
        assert can_tune(session, StopReason.TRIALS)
        tune_and_judge(session, cast(Evaluator, stand))
        assert session.state.trials[session.state.best].score == 1.5
