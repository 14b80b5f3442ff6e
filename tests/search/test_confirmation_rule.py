"""Who is measured a second time: the fastest of those that would be the best, and whoever follows where it falls."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.searching import ScriptedJudge, answer_to, invalid, new_session, proposed, snapshot, valid
from warpsmith.methods.load import load
from warpsmith.model.brief import Reply, TrialOutcome, TrialRecord
from warpsmith.model.evaluation import Evaluation, Interval, Status
from warpsmith.run_log.events import Budget, StopReason, TrialJudged
from warpsmith.run_log.log import RunLog
from warpsmith.search.budget import MAX_FAILURES_IN_A_ROW
from warpsmith.search.confirmation import MAX_RETRIES, Confirmation
from warpsmith.search.loop import judge_pending
from warpsmith.search.run_state import RunState
from warpsmith.search.session import PendingTrial, Session, read_state
from warpsmith.search.trial_reader import TrialReader

FULL = load("evoengineer-full")


def quiet(record: TrialRecord, evaluation: Evaluation) -> None:
    """Nobody listens."""


def judge(session: Session, trial: int, score: float | Status, *, again: bool = False) -> TrialRecord:
    """A verdict on a trial, whether it is pending or not."""
    candidate = session.candidate(trial)
    evaluation = invalid(candidate, score) if isinstance(score, Status) else valid(candidate, score)
    return session.judge(PendingTrial(trial, candidate, again), evaluation)


def replayed(folder: Path) -> RunState:
    with RunLog.read(folder) as log:
        return read_state(log, log.setup())


def scores(state: RunState) -> list[float]:
    return sorted(member.score for member in state.population.members)


def test_the_fastest_is_measured_next_and_of_equals_the_earliest() -> None:
    assert Confirmation().next is None
    assert Confirmation({3: 1.0, 7: 2.0, 5: 2.0}).next == 5
    assert Confirmation({3: 1.0, 7: 2.0, 5: 3.0}).update(2.0, 0) == (3, 7)
    assert Confirmation({3: 1.0}).update(None, 0) == ()


def test_a_wide_interval_does_not_beat_a_certain_speedup(tmp_path: Path) -> None:
    def measured(trial: int, low: float, high: float, score: float) -> None:
        first = session.state.trials[trial].measured == 0
        candidate = session.candidate(trial)
        session.judge(PendingTrial(trial, candidate, not first), valid(candidate, score, Interval(low, high)))

    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, 1, 2)
        for _ in range(2):
            measured(1, 1.44, 1.55, 1.5)
        assert session.state.best == 1
        measured(2, 0.22, 2.17, 1.87)
        assert session.state.best == 1
        assert not session.state.confirmation.waiting  # a second measurement is not spent on it
        assert session.state.trials[2].score == 1.87
        for _ in range(2):
            measured(2, 1.46, 1.50, 1.48)
        assert session.state.best == 2


@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 2, 1), (3, 6, 1, 5, 2, 4)])
def test_one_of_six_is_measured_again_where_that_holds(tmp_path: Path, order: tuple[int, ...]) -> None:
    judge = ScriptedJudge({number: [1 + number / 10] for number in order})
    records: list[TrialRecord] = []
    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, *order)
        assert judge_pending(session, judge, lambda record, _: records.append(record)) == 7
        state = session.state
        assert judge.again == [6]
        assert state.trials[state.best].score == 1.6
        assert scores(state) == [1.2, 1.3, 1.4, 1.5, 1.6]  # an elite of five
        assert sorted(state.found) == [1, 2, 3, 4, 5, 6]
        assert not state.confirmation.waiting
        assert not state.pending
    # Whoever watches hears of every one that it counts now, whether it was measured again or not.
    assert sorted(each.trial for each in records if each.outcome is TrialOutcome.JUDGED) == [1, 2, 3, 4, 5, 6]


def test_the_next_one_is_measured_again_where_the_first_falls_below_it(tmp_path: Path) -> None:
    judge = ScriptedJudge({1: [1.1], 2: [1.5], 3: [1.2], 4: [1.6, 1.3], 5: [1.3], 6: [1.4]})
    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, 1, 2, 3, 4, 5, 6)
        judge_pending(session, judge, quiet)
        assert judge.again == [4, 2]
        assert session.state.best == 2
        assert scores(session.state) == [1.2, 1.3, 1.3, 1.4, 1.5]  # an elite of five
        assert [trial.measured for trial in session.state.trials.values()] == [1, 2, 1, 2, 1, 1]


@pytest.mark.parametrize("second", [Status.WRONG, Status.NOT_JUDGED])
def test_the_next_one_moves_up_where_the_first_drops_out(tmp_path: Path, second: Status) -> None:
    judge = ScriptedJudge({1: [1.1], 2: [1.5], 3: [1.6, second]})
    with new_session(tmp_path / "run", FULL, repairs=0) as session:
        proposed(session, 1, 2, 3)
        judge_pending(session, judge, quiet)
        assert judge.again == [3, 2]
        assert session.state.best == 2
        known = [1.1, 1.5, 1.6] if second is Status.NOT_JUDGED else [1.1, 1.5]  # its first verdict stands
        assert scores(session.state) == known
        assert session.state.totals.valid == len(known)


def test_a_kernel_that_we_failed_to_measure_again_is_measured_once_more(tmp_path: Path) -> None:
    folder, judge = tmp_path / "run", ScriptedJudge({1: [5.0, Status.NOT_JUDGED, 4.8], 2: [3.0]})
    with new_session(folder, FULL) as session:
        proposed(session, 1)
        judge_pending(session, judge, quiet)
        state = session.state
        assert judge.seen == [(1, False), (1, True), (1, True)]
        assert state.best == 1
        assert not state.confirmation.unconfirmed
        assert state.trials[1].score == pytest.approx(4.8)
        assert (state.found, state.totals.valid, len(state.population.members)) == ([1], 1, 1)
        proposed(session, 2)
        judge_pending(session, judge, quiet)
        assert state.best == 1
        assert snapshot(replayed(folder)) == snapshot(state)


def test_it_is_measured_twice_more_at_most_and_stays_what_it_was(tmp_path: Path) -> None:
    folder, judge = tmp_path / "run", ScriptedJudge({1: [2.0], 2: [5.0, Status.NOT_JUDGED], 3: [Status.WRONG]})
    with new_session(folder, FULL, repairs=0) as session:
        proposed(session, 2)
        records: list[TrialRecord] = []
        judge_pending(session, judge, lambda record, _: records.append(record))
        assert judge.again == [2, 2, 2]
        assert [each.outcome for each in records] == [TrialOutcome.PENDING] * 3 + [TrialOutcome.JUDGED]
        proposed(session, 3)
        judge_pending(session, judge, quiet)
        assert judge.again == [2, 2, 2]  # no more for every other verdict
        state = session.state
        assert (state.best, state.confirmation.waiting, state.pending) == (0, {}, {})
        assert state.confirmation.unconfirmed == {1: pytest.approx(5.0 * 0.99)}
        assert (state.found, state.totals.valid) == ([1], 1)
        known = state.trials[1]
        assert (known.status, known.share, known.measured) == (Status.OK, 0.5, 4)
        assert snapshot(replayed(folder)) == snapshot(state)


def test_a_slower_best_does_not_end_its_chance(tmp_path: Path) -> None:
    """It is measured when the run is opened again, and only while it would be the best."""
    folder = tmp_path / "run"
    judge = ScriptedJudge({1: [1.5], 2: [1.6, Status.NOT_JUDGED, 1.55], 3: [1.52, Status.NOT_JUDGED]})
    with new_session(folder, FULL) as session:
        proposed(session, 1, 2, 3)
        judge_pending(session, judge, quiet)
        assert judge.again == [2, 3, 1]
        assert session.state.best == 1
        assert session.state.confirmation.unconfirmed == {2: pytest.approx(1.6 * 0.99), 3: pytest.approx(1.52 * 0.99)}
        session.end(StopReason.TOLD)
    with Session.resume(folder) as session:
        assert session.state.confirmation.waiting == {2: pytest.approx(1.6 * 0.99), 3: pytest.approx(1.52 * 0.99)}
        assert [(job.trial, job.again) for job in session.pending()] == [(2, True)]
        judge_pending(session, judge, quiet)
        assert judge.again == [2, 3, 1, 2]  # which is above the other one now
        assert session.state.best == 2
        assert not session.state.confirmation.unconfirmed
        assert snapshot(replayed(folder)) == snapshot(session.state)


def test_it_is_over_once_a_faster_one_is_the_best(tmp_path: Path) -> None:
    folder, judge = tmp_path / "run", ScriptedJudge({1: [1.5], 2: [1.6, Status.NOT_JUDGED], 3: [1.7]})
    with new_session(folder, FULL) as session:
        proposed(session, 1, 2)
        judge_pending(session, judge, quiet)
        assert list(session.state.confirmation.unconfirmed) == [2]
        proposed(session, 3)
        judge_pending(session, judge, quiet)
        assert session.state.best == 3
        assert not session.state.confirmation.unconfirmed
    with Session.resume(folder) as session:
        assert not session.pending()


def test_opening_a_run_for_one_command_after_the_other_does_not_measure_it_every_time(tmp_path: Path) -> None:
    folder, judge = tmp_path / "run", ScriptedJudge({1: [1.5], 2: [1.6, Status.NOT_JUDGED]})
    with new_session(folder, FULL) as session:
        proposed(session, 1, 2)
        judge_pending(session, judge, quiet)
    for _ in range(4):
        with Session.resume(folder, keep=True) as session:
            judge_pending(session, judge, quiet)
    assert judge.again == [2, 1, 2, 2]
    with Session.resume(folder) as session:
        assert [job.trial for job in session.pending()] == [2]


def test_an_evaluator_that_fails_at_everything_is_not_asked_once_more() -> None:
    assert retried({1: 2.0, 2: 3.0}, {}, MAX_FAILURES_IN_A_ROW - 1) == 2
    assert retried({1: 2.0, 2: 3.0}, {2: MAX_RETRIES}, 0) == 1
    assert retried({1: 2.0, 2: 3.0}, {}, MAX_FAILURES_IN_A_ROW) is None
    assert retried({1: 2.0}, {1: MAX_RETRIES}, 0) is None


def retried(unconfirmed: dict[int, float], retries: dict[int, int], failures_in_a_row: int) -> int | None:
    """The trial that is measured again though its second measurement failed, in a run that has no best."""
    confirmation = Confirmation()
    for trial, times in retries.items():
        for _ in range(times):
            confirmation.unconfirmed[trial] = unconfirmed[trial]
            confirmation.update(None, 0)
            confirmation.remove(trial)
    confirmation.unconfirmed.update(unconfirmed)
    confirmation.update(None, failures_in_a_row)
    return confirmation.next


def test_whoever_asks_sees_the_verdict_that_stands(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    judge = ScriptedJudge({1: [1.5], 2: [1.6, Status.NOT_JUDGED], 3: [1.7, Status.WRONG], 4: [Status.NOT_JUDGED]})
    with new_session(folder, FULL, repairs=0) as session:
        proposed(session, 1, 2, 3, 4)
        judge_pending(session, judge, quiet)
    for reopened in (Session.resume(folder), Session.read(folder)):
        with reopened as session:
            statuses = [each.status for trial in (1, 2, 3, 4) if (each := session.evaluation(trial)) is not None]
            assert statuses == [Status.OK, Status.OK, Status.WRONG, Status.NOT_JUDGED]
            shown = TrialReader(session._log, session.state).read(2)
            assert (shown.status, shown.reason) == (Status.OK, "")
            assert shown.speedup == pytest.approx(1.6)
            assert (shown.share_of_floor, session.state.trials[2].share) == (0.5, 0.5)
            assert (shown.error_share, shown.error_limit) == (0.1, 1.0)  # error 0.1, limit 1.0
            record = session.record(2)
            assert (record.status, record.reason) == (Status.OK, "")
            assert record.speedup == pytest.approx(1.6)


def test_the_effect_of_a_kernel_stays_where_we_fail_to_measure_it_again(tmp_path: Path) -> None:
    judge = ScriptedJudge({1: [2.0], 2: [3.0, Status.NOT_JUDGED]})
    with new_session(tmp_path / "run", FULL) as session:
        for number in (1, 2):
            proposed(session, number)
            judge_pending(session, judge, quiet)
        assert session.state.trials[2].parents == (1,)
        assert session.state.trials[2].effect == pytest.approx(1.5)


def test_one_at_a_time_is_pending_and_nobody_who_waits_is_a_parent(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, 1, 2, 3)
        state = session.state
        assert judge(session, 1, 1.1).outcome is TrialOutcome.PENDING
        assert state.pending == {1: True, 2: False, 3: False}
        assert judge(session, 2, 1.3).outcome is TrialOutcome.PENDING
        assert state.pending == {2: True, 3: False}
        assert judge(session, 3, 1.2).outcome is TrialOutcome.PENDING
        assert state.pending == {2: True}
        assert session.record(1).outcome is TrialOutcome.PENDING
        assert (state.population.members, state.found, state.best) == ((), [], 0)
        assert judge(session, 2, 1.15, again=True).best
        assert state.pending == {3: True}
        assert state.found == [2, 1]
        assert not judge(session, 3, 1.1, again=True).best
        assert not state.pending


def test_a_log_with_more_second_measurements_than_are_made_now_replays(tmp_path: Path) -> None:
    """As it was: everything that beat the best by then was measured once more, whatever came of the others."""
    folder = tmp_path / "run"
    with new_session(folder, FULL, repairs=0) as session:
        proposed(session, 1, 2, 3, 4)
        for trial, score in ((1, 3.0), (2, 2.0), (3, 1.8), (4, 1.7)):
            judge(session, trial, score)
        assert judge(session, 1, 2.5, again=True).best  # the others need no second measurement now
        assert not session.state.pending
        assert judge(session, 2, 2.6, again=True).best
        judge(session, 3, Status.REJECTED, again=True)
        judge(session, 4, 1.6, again=True)
        live = session.state
        assert live.best == 2
        assert [(each.trials, each.score) for each in live.best_at] == [(4, 2.5), (4, 2.6)]
        assert scores(live) == [1.6, 2.5, 2.6]
        assert sorted(live.found) == [1, 2, 4]
        assert live.totals.valid == 3
        assert not live.confirmation.waiting
        assert session.ask() is not None
    assert live.best == replayed(folder).best
    assert replayed(folder).population.members == live.population.members


@pytest.mark.parametrize("name", ["evoengineer-full", "funsearch", "cupilot", "eoh"])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_was_measured_twice_and_nobody_who_was_not_is_above_it(tmp_path: Path, name: str, seed: int) -> None:
    """Whatever is measured in whatever order, and at any moment the log says the same as the run."""
    rng, folder, number = Random(seed), tmp_path / "run", 0
    failing = (Status.WRONG, Status.NOT_JUDGED)
    with new_session(folder, load(name), budget=Budget(trials=40)) as session:
        state = session.state
        while True:
            for _ in range(rng.randint(1, 6)):
                if (brief := session.ask()) is not None:
                    number += 1
                    session.answer(brief, Reply(answer_to(brief, number), "canned"))
            jobs = session.pending()
            if not jobs and session.stop_reason:
                break
            for job in rng.sample(jobs, rng.randint(0, len(jobs))):
                judge(
                    session,
                    job.trial,
                    rng.choice(failing) if rng.random() < 0.2 else round(rng.uniform(1, 2), 1),
                    again=job.again,
                )
                again = [trial for trial, twice in state.pending.items() if twice]
                assert again == [trial for trial in [state.confirmation.next] if trial is not None]
                held = state.trials[state.best].score if state.best else None
                assert held is None or all(score > held for score in state.confirmation.waiting.values())
            if rng.random() < 0.2:
                assert snapshot(replayed(folder)) == snapshot(state)
        assert not state.confirmation.waiting
        best = state.trials[state.best]
        assert best.measured == 2
        assert best.score is not None
        once = [trial for trial in state.trials.values() if trial.measured == 1 and trial.score is not None]
        assert all(trial.score is not None and trial.score <= best.score for trial in once)
        assert snapshot(replayed(folder)) == snapshot(state)
    with RunLog.read(folder) as log:
        verdicts = [entry.event for entry in log.entries() if isinstance(entry.event, TrialJudged)]
    assert sum(event.again for event in verdicts) < len(verdicts) / 2
