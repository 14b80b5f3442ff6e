"""How a run ends with kernels that nobody has measured twice: when its time is up, and when it is interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.searching import CannedProposer, ScriptedJudge, new_session, proposed, reply_text
from warpsmith.cli import export, pool, runs
from warpsmith.cli.json_documents import optimize_document
from warpsmith.cli.live import best_line
from warpsmith.methods.load import load
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import RunError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.report.run_history import read_history
from warpsmith.report.run_page import figures
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search.best_kernel import why_no_best, write_best
from warpsmith.search.budget import doubled_option
from warpsmith.search.evaluation_thread import DroppedTrials, EvaluationThread, JudgedTrial, ProfiledTrial
from warpsmith.search.loop import SearchLoop, SearchObserver, judge_pending
from warpsmith.search.session import PendingTrial, Session

FULL = load("evoengineer-full")
SIX = (1, 2, 3, 4, 5, 6)
HOLDING: dict[int, Sequence[float | Status]] = {number: [1 + number / 10] for number in SIX}
FALLING: dict[int, Sequence[float | Status]] = {number: [1 + number / 10, 0.5] for number in SIX}


class Notes(SearchObserver):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


class ActingJudge(ScriptedJudge):
    """Does something while it measures."""

    act: Callable[[bool], None] = staticmethod(lambda fresh: None)

    def verdict(self, candidate: Candidate, *, fresh: bool) -> Evaluation:
        self.act(fresh)
        return super().verdict(candidate, fresh=fresh)


def loop_of(session: Session, judge: ScriptedJudge, watcher: SearchObserver | None = None) -> SearchLoop:
    proposer = CannedProposer(lambda brief: reply_text(brief.number))
    return SearchLoop(session, proposer, judge, watcher or SearchObserver(), parallel=6)


def found_six(session: Session) -> None:
    """Six valid kernels, each measured once."""
    proposed(session, *SIX)
    judge = ScriptedJudge(HOLDING)
    for job in session.pending():
        session.judge(job, judge.verdict(job.candidate, fresh=False))
    assert len(session.state.confirmation.waiting) == 6


@pytest.mark.parametrize(("scores", "again"), [(HOLDING, [6]), (FALLING | {5: [1.5]}, [6, 5])])
def test_of_a_batch_only_the_fastest_is_measured_again(
    tmp_path: Path, scores: dict[int, Sequence[float | Status]], again: list[int]
) -> None:
    judge = ScriptedJudge(scores)
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=6)) as session:
        proposed(session, *SIX)
        assert loop_of(session, judge).run() == "trials"
        assert judge.again == again
        assert session.state.best == again[-1]
        assert not session.state.pending
        assert not session.state.confirmation.waiting


@pytest.mark.parametrize("trials", [7, 6])  # 6: all have been proposed, which is another reason to stop
def test_time_that_is_up_leaves_a_batch_and_measures_its_best_again(trials: int, tmp_path: Path) -> None:
    seconds = 0.2
    notes, judge = Notes(), ActingJudge(HOLDING)
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=trials, seconds=seconds)) as session:
        proposed(session, *SIX)

        def last(fresh: bool) -> None:
            while session.elapsed() < seconds:
                time.sleep(0.01)
            time.sleep(0.0 if fresh else 0.3)  # until the loop has noticed, too

        judge.act = last
        assert loop_of(session, judge, notes).run() == "time"
        first = [number for number, fresh in judge.seen if not fresh]
        assert 1 <= len(first) < 6  # the verdict being reached was the last one
        assert judge.again == [first[-1]]
        assert session.state.best == first[-1]
        assert [job.again for job in session.pending()] == [False] * (6 - len(first))
    assert notes.said == ["the time is up: measuring the best kernel a second time"]


def test_device_time_that_is_spent_leaves_room_for_the_best(tmp_path: Path) -> None:
    notes, judge = Notes(), ScriptedJudge(HOLDING)
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=9, device_seconds=3.0)) as session:
        found_six(session)
        assert loop_of(session, judge, notes).run() == "device_time"
        assert judge.seen == [(6, True)]
        assert session.state.best == 6
        assert not session.state.confirmation.waiting
    assert notes.said == ["the device time is spent: measuring the best kernel a second time"]


def test_no_more_than_three_are_measured_again_when_the_time_is_up(tmp_path: Path) -> None:
    folder, notes, judge = tmp_path / "run", Notes(), ScriptedJudge({n: [0.5] for n in SIX} | {6: [Status.WRONG]})
    with new_session(folder, FULL, repairs=0, budget=Budget(trials=9, device_seconds=3.0)) as session:
        found_six(session)
        assert loop_of(session, judge, notes).run() == "device_time"
        assert judge.seen == [(6, True), (5, True), (4, True)]
        assert session.state.best == 5
        assert list(session.state.confirmation.waiting) == [1, 2, 3]
        session.end(StopReason.DEVICE_TIME)
    assert len(notes.said) == 1
    with Session.resume(folder) as session:  # the next sitting goes on with the others
        assert [job.trial for job in session.pending()] == [3]
        assert loop_of(session, judge).run() == "device_time"
        assert session.state.best == 5
        assert not session.state.confirmation.waiting


def test_an_interruption_measures_nothing_again_and_resuming_does(tmp_path: Path) -> None:
    folder, notes, judge = tmp_path / "run", Notes(), ActingJudge(HOLDING)
    with new_session(folder, FULL, budget=Budget(trials=6)) as session:
        proposed(session, *SIX)
        loop = loop_of(session, judge, notes)
        judge.act = lambda fresh: loop.interrupt() if len(judge.seen) == 3 else None
        assert loop.run() == "interrupted"
        assert judge.again == []
        assert len(judge.seen) >= 4
        assert not session.state.best
        assert session.state.confirmation.waiting
        session.end(StopReason.INTERRUPTED)
    assert notes.said == []
    with Session.resume(folder) as session:
        assert loop_of(session, ScriptedJudge(HOLDING)).run() == "trials"
        assert session.state.best == 6
        assert not session.state.confirmation.waiting


def test_an_interruption_ends_what_is_made_after_the_time(tmp_path: Path) -> None:
    judge = ActingJudge({number: [0.5] for number in SIX})
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=9, device_seconds=3.0)) as session:
        found_six(session)
        loop = loop_of(session, judge)
        judge.act = lambda fresh: loop.interrupt()
        assert loop.run() == "interrupted"
        assert judge.again == [6]  # it was begun
        assert session.state.best == 6
        assert len(session.state.confirmation.waiting) == 5


def test_resuming_a_run_whose_time_is_up_confirms_what_it_found(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with new_session(folder, FULL, budget=Budget(trials=9, device_seconds=3.0)) as session:
        found_six(session)
        session.end(StopReason.INTERRUPTED)
    with Session.resume(folder) as session:
        assert loop_of(session, ScriptedJudge(HOLDING)).run() == "device_time"
        assert session.state.best == 6


def test_a_step_confirms_what_a_run_found(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        found_six(session)
        assert judge_pending(session, ScriptedJudge(HOLDING), lambda record, evaluation: None) == 1
        assert session.state.best == 6


def test_whoever_asks_for_the_best_is_told_what_is_missing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with new_session(folder, FULL) as session:
        assert (
            why_no_best(session) == f"{folder} has no valid kernel yet; `warpsmith show {folder}` lists what was tried."
        )
        assert best_line(session.state) == "best: none yet"
        found_six(session)
        session.end(StopReason.INTERRUPTED)
        said = f"{folder} has 6 valid kernels, not measured a second time yet; `warpsmith step {folder}`"
        assert why_no_best(session) == f"{said} does that."
        assert best_line(session.state) == "best: none yet, 1.60x (trial 6) measured once"
        assert write_best(session) is None
        document = optimize_document(session, None, folder, "interrupted")
        assert (document["status"], document["valid"], document["best"]) == ("unconfirmed", 6, None)
    asking: tuple[Callable[[], int], ...] = (
        lambda: runs.show(str(folder), "best"),
        lambda: export.export(str(folder)),
        lambda: pool.pool(pool.PoolAction.ADD, str(folder)),
    )
    for ask in asking:
        with pytest.raises(RunError, match="measured a second time yet"):
            ask()
    assert next(iter(figures(read_history(folder)))).note == "6 valid, none measured twice yet"


def test_it_is_said_where_the_second_measurement_failed(tmp_path: Path) -> None:
    judge = ScriptedJudge({number: [Status.NOT_JUDGED] for number in SIX})
    with new_session(tmp_path / "run", FULL) as session:
        found_six(session)
        judge_pending(session, judge, lambda record, evaluation: None)
        assert judge.again == [6, 5, 4, 3, 2, 1]
        assert not session.state.best
        assert "which could not be measured a second time" in why_no_best(session)


def test_a_dropped_batch_ends_with_the_verdict_being_reached(tmp_path: Path) -> None:
    begun, dropped, over = threading.Event(), threading.Event(), threading.Event()
    arrived: list[JudgedTrial | DroppedTrials | ProfiledTrial | BaseException] = []

    def deliver(found: JudgedTrial | DroppedTrials | ProfiledTrial | BaseException) -> None:
        arrived.append(found)
        if not isinstance(found, JudgedTrial) or found.job.again:
            over.set()

    def wait(fresh: bool) -> None:
        begun.set()
        assert dropped.wait(60)

    judge = ActingJudge(HOLDING)
    judge.act = wait
    with new_session(tmp_path / "run", FULL) as session:
        proposed(session, *SIX)
        jobs = list(session.pending())
    judging = EvaluationThread(judge, deliver)
    judging.submit(jobs[:4])
    assert begun.wait(60)
    judging.submit(jobs[4:])
    assert judging.drop() == tuple(jobs[4:])
    dropped.set()
    assert over.wait(60)
    assert [each.job for each in arrived if isinstance(each, JudgedTrial)] == jobs[:1]
    assert arrived[1:] == [DroppedTrials(tuple(jobs[1:4]))]
    over.clear()
    again = PendingTrial(jobs[0].trial, jobs[0].candidate, again=True)
    judging.submit([again])  # what is handed in after that is judged
    assert over.wait(60)
    judging.close()
    assert [each.job for each in arrived if isinstance(each, JudgedTrial)] == [jobs[0], again]


@pytest.mark.parametrize(
    ("reason", "option"),
    [
        ("trials", "--trials 40"),
        ("time", "--time 24"),
        ("tokens", "--tokens 3000000"),
        ("cost", "--cost 0.5"),
        ("device_time", "--device-time 60"),
        ("interrupted", ""),
        ("evaluator_failed", ""),
    ],
)
def test_going_on_takes_more_of_what_was_spent(reason: str, option: str) -> None:
    budget = Budget(trials=20, seconds=12.0, tokens=1_500_000, usd=0.25, device_seconds=30.0)
    assert doubled_option(StopReason(reason), budget) == option
    assert doubled_option(StopReason.TIME, Budget(trials=20)) == ""
