"""The loop: parallel proposals, verdicts meanwhile, and every way a run can end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.searching import CannedJudge, CannedProposer, factor, invalid, new_session, reply_text, valid
from warpsmith.llm.model import RetryPolicy
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Prompt, Reply, TrialOutcome, TrialRecord
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import HarnessFault, ProposerFault, ProposerRefused
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search import loop as loop_module
from warpsmith.search.budget import MAX_FAILURES_IN_A_ROW
from warpsmith.search.loop import SearchLoop, SearchObserver, judge_pending
from warpsmith.search.session import Session

FULL = load("evoengineer-full")


def judge() -> CannedJudge:
    return CannedJudge(lambda c: invalid(c) if factor(c) % 4 == 3 else valid(c, 1 + factor(c) / 100))


class Notes(SearchObserver):
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.records: list[TrialRecord] = []
        self.failures: list[str] = []

    def failed(self, brief: Brief, reason: str) -> None:
        self.failures.append(reason)

    def recorded(self, record: TrialRecord, evaluation: Evaluation | None) -> None:
        self.records.append(record)


def test_a_run_spends_its_trials_and_keeps_the_best(tmp_path: Path) -> None:
    notes, judging = Notes(), judge()
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=30)) as session:
        reason = SearchLoop(session, CannedProposer(lambda b: reply_text(b.number)), judging, notes).run()
        state = session.state
        assert reason == "trials"
        assert state.totals.trials == 30
        assert not state.pending
        assert not state.in_flight
        scores = [trial.score for trial in state.trials.values() if trial.score]
        assert state.trials[state.best].score == max(scores)
        assert judging.judged == 30 + judging.again
        assert sum(record.outcome is TrialOutcome.JUDGED for record in notes.records) == 30


def test_proposals_overlap_with_each_other_and_with_verdicts(tmp_path: Path) -> None:
    four, verdict, verdict_meanwhile = threading.Barrier(4), threading.Event(), False
    lock, thinking, most = threading.Lock(), 0, 0

    class Pondering(CannedProposer):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            nonlocal verdict_meanwhile, thinking, most
            with lock:
                thinking += 1
                most = max(most, thinking)
            if brief.number <= 4:
                four.wait(60)  # nobody goes on before all four are under way
            if brief.number == 4:
                verdict_meanwhile = verdict.wait(60)
            with lock:
                thinking -= 1
            return super().propose(brief, prompt)

    def judged(candidate: Candidate) -> Evaluation:
        verdict.set()
        return valid(candidate, 1 + factor(candidate) / 100)

    with new_session(tmp_path / "run", FULL, budget=Budget(trials=24)) as session:
        proposer = Pondering(lambda b: reply_text(b.number), concurrency=4)
        SearchLoop(session, proposer, CannedJudge(judged), SearchObserver(), parallel=4).run()
        assert session.state.totals.trials == 24
    assert most == 4
    assert verdict_meanwhile


def test_verdicts_keep_up_with_a_proposer_that_answers_at_once(tmp_path: Path) -> None:
    ahead = 0

    def slowly(candidate: Candidate) -> Evaluation:
        nonlocal ahead
        time.sleep(0.005)
        ahead = max(ahead, len(session.state.pending))
        return valid(candidate, 1 + factor(candidate) / 100)

    with new_session(tmp_path / "run", FULL, budget=Budget(trials=20)) as session:
        SearchLoop(
            session, CannedProposer(lambda b: reply_text(b.number)), CannedJudge(slowly), SearchObserver(), parallel=3
        ).run()
    assert ahead <= 4


class FailingProposer(CannedProposer):
    """Every second call fails."""

    calls = 0

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        FailingProposer.calls += 1
        if FailingProposer.calls % 2:
            raise ProposerFault("the endpoint did not answer")
        return super().propose(brief, prompt)


def test_failed_calls_spend_no_trial(tmp_path: Path) -> None:
    notes = Notes()
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=10)) as session:
        proposer = FailingProposer(lambda b: reply_text(b.number))
        assert SearchLoop(session, proposer, judge(), notes, parallel=1).run() == "trials"
        assert session.state.totals.trials == 10
        assert session.state.totals.failed_calls == len(notes.failures) == 10


class RefusingProposer(CannedProposer):
    """Works for a while, then gives up."""

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        if brief.number > 5:
            raise ProposerRefused("the account has no credit left; top it up and resume.")
        return super().propose(brief, prompt)


def test_a_proposer_that_gives_up_ends_the_run_with_what_there_is(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        loop = SearchLoop(session, RefusingProposer(lambda b: reply_text(b.number)), judge(), SearchObserver())
        assert loop.run() == "proposer_refused"
        assert "no credit" in loop.refused
        assert session.state.totals.trials == 5
        assert session.state.best
        assert not session.state.pending


def interrupt_when(loop: SearchLoop, started: threading.Event) -> None:
    started.wait()
    loop.interrupt()


def test_an_interruption_waits_for_replies_and_leaves_verdicts_for_later(tmp_path: Path) -> None:
    started, both = threading.Event(), threading.Barrier(2)
    folder = tmp_path / "run"

    class Patient(CannedProposer):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            both.wait(timeout=60)  # two are under way before the interruption comes, however slow the machine is
            started.set()
            time.sleep(0.2)
            return super().propose(brief, prompt)

    with new_session(folder, FULL) as session:
        loop = SearchLoop(
            session, Patient(lambda b: reply_text(b.number), concurrency=2), judge(), SearchObserver(), parallel=2
        )
        threading.Thread(target=interrupt_when, args=(loop, started)).start()
        assert loop.run() == "interrupted"
        assert session.state.totals.replies == 2
        session.end(StopReason.INTERRUPTED)
    with Session.resume(folder) as session:
        assert len(session.pending()) == 2
        assert judge_pending(session, judge(), lambda record, evaluation: None) >= 2
        assert session.state.best


def test_a_second_interruption_does_not_wait(tmp_path: Path) -> None:
    release, started = threading.Event(), threading.Event()

    class Stuck(CannedProposer):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            started.set()
            release.wait(20)
            return super().propose(brief, prompt)

    with new_session(tmp_path / "run", FULL) as session:
        loop = SearchLoop(session, Stuck(lambda b: reply_text(b.number)), judge(), SearchObserver(), parallel=1)

        def twice() -> None:
            started.wait()
            loop.interrupt()
            time.sleep(0.05)
            loop.interrupt()

        threading.Thread(target=twice).start()
        begun = time.monotonic()
        assert loop.run() == "interrupted"
        assert time.monotonic() - begun < 15
        release.set()


def test_time_ends_a_run_though_nothing_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpsmith.search.loop._LAST_CALLS_S", 0.1)
    release = threading.Event()

    class Stuck(CannedProposer):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            release.wait(20)
            return super().propose(brief, prompt)

    with new_session(tmp_path / "run", FULL, budget=Budget(trials=9, seconds=0.3)) as session:
        assert (
            SearchLoop(session, Stuck(lambda b: reply_text(b.number)), judge(), SearchObserver(), parallel=1).run()
            == "time"
        )
    release.set()


def test_a_trial_that_we_failed_to_judge_last_is_asked_for_again(tmp_path: Path) -> None:
    """All trials were spent until that verdict came."""
    judging = CannedJudge(
        lambda c: invalid(c, Status.NOT_JUDGED, "fell off") if factor(c) == 6 else valid(c, 1 + factor(c) / 100)
    )
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=6)) as session:
        assert (
            SearchLoop(session, CannedProposer(lambda b: reply_text(b.number)), judging, SearchObserver()).run()
            == "trials"
        )
        assert session.state.totals.trials == session.state.totals.judged == 6


def test_a_judge_that_never_reaches_a_verdict_ends_the_run(tmp_path: Path) -> None:
    judging = CannedJudge(lambda c: invalid(c, Status.NOT_JUDGED, "fell off"))
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=2)) as session:
        reason = SearchLoop(session, CannedProposer(lambda b: reply_text(b.number)), judging, SearchObserver()).run()
        assert reason == "evaluator_failed"
        assert MAX_FAILURES_IN_A_ROW <= judging.judged < MAX_FAILURES_IN_A_ROW + 4


def test_a_late_reply_does_not_undo_that_the_proposer_failed(tmp_path: Path) -> None:
    failed = threading.Event()

    class Flaky(CannedProposer):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            if brief.number > 1:
                raise ProposerFault("503")
            failed.wait(60)
            return super().propose(brief, prompt)

    class Leaving(Notes):
        def message(self, text: str) -> None:
            failed.set()  # it waits for the reply now

    notes = Leaving()
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=6)) as session:
        proposer = Flaky(lambda b: reply_text(b.number), concurrency=2)
        assert SearchLoop(session, proposer, judge(), notes, parallel=2).run() == "proposer_failed"
        assert len(notes.failures) == MAX_FAILURES_IN_A_ROW
        assert session.state.totals.trials == session.state.totals.judged == 1
        assert not session.stop_reason


def test_replies_under_way_are_kept_where_the_evaluator_fails(tmp_path: Path) -> None:
    broken = threading.Event()

    class Slow(CannedProposer):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            if brief.number > 1:
                broken.wait(60)
                time.sleep(0.1 * brief.number)
            return super().propose(brief, prompt)

    def breaking(candidate: Candidate) -> Evaluation:
        broken.set()
        raise HarnessFault("the device is gone")

    with new_session(tmp_path / "run", FULL, budget=Budget(trials=6)) as session:
        proposer = Slow(lambda b: reply_text(b.number), concurrency=4)
        with pytest.raises(HarnessFault, match="the device is gone"):
            SearchLoop(session, proposer, CannedJudge(breaking), SearchObserver(), parallel=4).run()
        assert session.state.totals.replies == 4
        assert not session.state.in_flight


def test_a_reply_that_cannot_be_taken_does_not_cost_the_others(tmp_path: Path) -> None:
    three = threading.Barrier(3)

    class Buggy(CannedProposer):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            three.wait(60)
            if brief.number < 3:
                raise AttributeError(f"bug {brief.number}")
            time.sleep(0.3)
            return super().propose(brief, prompt)

    with new_session(tmp_path / "run", FULL, budget=Budget(trials=6)) as session:
        proposer = Buggy(lambda b: reply_text(b.number), concurrency=3)
        with pytest.raises(AttributeError, match=r"bug [12]") as raised:
            SearchLoop(session, proposer, judge(), SearchObserver(), parallel=3).run()
        assert raised.value.__context__ is None  # the first, and not while another was handled
        assert session.state.totals.replies == 1


def test_one_interruption_leaves_the_replies_of_a_run_that_failed(tmp_path: Path) -> None:
    release, started = threading.Event(), threading.Event()

    class Stuck(CannedProposer):
        def propose(self, brief: Brief, prompt: Prompt) -> Reply:
            if brief.number > 1:
                started.set()
                release.wait(20)
            return super().propose(brief, prompt)

    class Impatient(SearchObserver):
        def message(self, text: str) -> None:
            loop.interrupt()

    def breaking(candidate: Candidate) -> Evaluation:
        started.wait(60)
        raise HarnessFault("the device is gone")

    with new_session(tmp_path / "run", FULL) as session:
        proposer = Stuck(lambda b: reply_text(b.number), concurrency=2)
        loop = SearchLoop(session, proposer, CannedJudge(breaking), Impatient(), parallel=2)
        begun = time.monotonic()
        with pytest.raises(HarnessFault):
            loop.run()
        assert time.monotonic() - begun < 15
        release.set()


def test_replies_are_waited_for_as_long_as_a_request_may_take() -> None:
    assert RetryPolicy().request_s < loop_module._LAST_CALLS_S


def _failing() -> list[tuple[int, Evaluation]]:
    raise HarnessFault("no such device")


def test_a_fault_in_the_evaluator_surfaces(tmp_path: Path) -> None:
    def broken(candidates: Sequence[Candidate], *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        yield from _failing()

    with new_session(tmp_path / "run", FULL) as session:
        loop = SearchLoop(session, CannedProposer(lambda b: reply_text(b.number)), broken, SearchObserver())
        with pytest.raises(HarnessFault, match="no such device"):
            loop.run()
    with Session.resume(tmp_path / "run") as session:
        assert session.pending()
