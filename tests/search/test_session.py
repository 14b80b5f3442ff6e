"""Ask and tell: what is asked, what becomes of an answer, and that the log alone says all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.searching import (
    answer_to,
    answered,
    factor,
    invalid,
    judged,
    new_session,
    reply_text,
    run_setup,
    slower,
    snapshot,
    source,
    valid,
)
from warpsmith.methods.load import ablated, load, methods
from warpsmith.model.brief import Brief, Precedent, Problem, Prompt, Proposal, Reply, TrialOutcome
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import RunError, UsageError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.method import Move
from warpsmith.model.usage import TokenUsage
from warpsmith.prompts.renderer import render
from warpsmith.run_log.events import BriefAsked, Budget, PromptSent, ReplyReceived
from warpsmith.run_log.log import RunLog
from warpsmith.search.session import Session, read_state

FULL = load("evoengineer-full")


def test_a_memory_that_cannot_be_read_leaves_no_run_behind(tmp_path: Path) -> None:
    def unreadable(problem: Problem) -> tuple[Precedent, ...]:
        raise UsageError("the pool cannot be read.")

    recalling = run_setup(load("cupilot"))
    with pytest.raises(UsageError, match="the pool"):
        Session.create(tmp_path / "run", recalling, unreadable)
    assert not (tmp_path / "run").exists()
    with Session.create(tmp_path / "run", recalling) as session:
        assert session.ask() is not None


def by_factor(candidate: Candidate) -> Evaluation:
    """The larger the number in a program, the faster it is."""
    return valid(candidate, 1.0 + factor(candidate) / 10)


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_log_replays_to_the_same_ledger(tmp_path: Path, name: str) -> None:
    with new_session(tmp_path / "run", load(name), budget=Budget(trials=25)) as session:
        number = 0
        while (brief := session.ask()) is not None:
            number += 1
            session.answer(brief, Reply(answer_to(brief, number), "canned", TokenUsage(7, 3)))
            judged(session, lambda c: invalid(c) if factor(c) % 3 == 2 else by_factor(c))
        live = session.state
        assert live.totals.trials == 25
        assert live.best
        assert live.totals.duplicates
        with RunLog.read(tmp_path / "run") as log:
            again = read_state(log, log.setup())
        assert snapshot(again) == snapshot(live)


def test_the_best_is_measured_twice_before_it_stands(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        answered(session, 5)
        (job,) = session.pending()
        assert not job.again
        assert not session.judge(job, valid(job.candidate, 3.0)).best
        (job,) = session.pending()
        assert job.again
        record = session.judge(job, valid(job.candidate, 2.0))
        assert record.best
        assert record.speedup == 2.0
        # A lucky measurement does not unseat it ...
        answered(session, 6)
        (job,) = session.pending()
        session.judge(job, valid(job.candidate, 4.0))
        (job,) = session.pending()
        assert not session.judge(job, valid(job.candidate, 1.5)).best
        # ... and its place in the population is that of the second measurement.
        scores = [member.score for member in session.state.population.members]
        assert scores == [2.0, 1.5]


def test_one_that_fails_when_measured_again_is_out(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        answered(session, 5)
        (job,) = session.pending()
        session.judge(job, valid(job.candidate, 3.0))
        (job,) = session.pending()
        record = session.judge(job, invalid(job.candidate, Status.REJECTED, "caches results"))
        assert record.status is Status.REJECTED
        assert session.state.population.members == ()
        assert not session.state.best
        assert session.state.totals.valid == 0


def test_a_fault_of_ours_costs_the_candidate_nothing(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        answered(session, 5)
        (job,) = session.pending()
        session.judge(job, invalid(job.candidate, Status.NOT_JUDGED, "the device fell off"))
        assert session.state.totals.trials == 0
        brief = answered(session, 5)  # the same program may be proposed again, and is no duplicate
        assert brief.failure is None
        assert session.pending()


def test_a_duplicate_is_recognised_before_it_is_judged(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        answered(session, 5)
        judged(session, by_factor)
        brief = session.ask()
        assert brief is not None
        text = reply_text(5).replace("for (int64_t i", "// the same, said differently\n   for (int64_t   i")
        record = session.answer(brief, Reply(text, "canned"))
        assert record.outcome is TrialOutcome.DUPLICATE
        assert record.twin == session.state.trials[1].candidate
        assert session.pending() == ()
        assert session.state.totals.trials == 2


def test_an_error_reaches_the_next_brief_a_bounded_number_of_times(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL, repairs=2) as session:
        answered(session, 5)
        judged(session, lambda c: invalid(c, reason="out[3] is 7 instead of 8"))
        for attempt in (1, 2):
            brief = answered(session, 5 + attempt)
            assert (brief.move, brief.attempt) == (Move.REPAIR, attempt)
            assert brief.failure is not None
            assert "out[3] is 7" in brief.failure.reason
            assert f"{4 + attempt}.0f" in brief.failure.files[0].text
            judged(session, invalid)
        brief = answered(session, 9)
        assert brief.move is Move.INIT
        # Those after that still hear of it, without the code.
        assert [len(each.files) for each in brief.failures] == [0, 0, 0]


def test_what_could_not_be_read_goes_back_too(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        brief = session.ask()
        assert brief is not None
        record = session.answer(brief, Reply("I am sorry, I cannot.", "canned"))
        assert record.outcome is TrialOutcome.UNREADABLE
        assert record.reason
        brief = session.ask()
        assert brief is not None
        assert brief.move is Move.REPAIR
        assert brief.failure is not None
        assert "I am sorry" in brief.failure.files[0].text


def test_a_failed_call_spends_no_trial_and_the_question_is_asked_again(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        answered(session, 5)
        judged(session, invalid)
        first = session.ask()
        assert first is not None
        assert first.move is Move.REPAIR
        session.failed(first, "timed out", TokenUsage(30, 0))
        second = session.ask()
        assert second is not None
        assert (second.move, second.failure) == (first.move, first.failure)
        assert session.state.totals.trials == 1
        assert session.state.totals.failed_calls == 1
        assert session.state.totals.tokens == 150 + 30


def test_calls_that_keep_failing_end_the_run(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        while (brief := session.ask()) is not None:
            session.failed(brief, "timed out")
        assert session.stop_reason == "proposer_failed"
        assert session.state.totals.trials == 0


def test_parents_are_different_and_shown_with_what_was_measured(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        for number in (3, 4, 5):
            answered(session, number)
            judged(session, by_factor)
        seen = set()
        for number in range(6, 12):
            brief = answered(session, number)
            judged(session, by_factor)
            seen.add(brief.move)
            assert len({parent.id for parent in brief.parents}) == len(brief.parents) >= 1
            assert brief.best is not None
            assert brief.best.speedup == max(parent.speedup or 0 for parent in (brief.best, *brief.parents))
            assert all(parent.files and parent.latency_ms for parent in brief.parents)
            assert len(brief.insights) <= 3
            for insight in brief.insights:
                assert insight.text.startswith("idea")
                assert insight.speedup > 0
        assert seen == {Move.CROSS, Move.MUTATE}


def test_insights_come_from_the_population_and_carry_their_effect(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", load("evoengineer-insight"), repairs=0) as session:
        for number in range(1, 17):
            answered(session, number)
            judged(session, lambda c: by_factor(c) if factor(c) % 2 else invalid(c))
        seen = set()
        for number in (20, 22, 24, 26):  # none is valid: the population stays as it is
            brief = answered(session, number)
            judged(session, invalid)
            assert len(brief.insights) == 3
            seen |= {int(insight.text.removeprefix("idea ")) for insight in brief.insights}
        assert seen == {7, 9, 11, 13, 15}  # the 5 best, not all 8 valid kernels
        for insight in brief.insights:
            number = int(insight.text.removeprefix("idea "))
            assert insight.speedup == pytest.approx(1 + number / 10)
            if number > 1:
                assert insight.effect == pytest.approx((1 + number / 10) / (1 + (number - 2) / 10))


def test_free_shows_the_code_of_the_best_kernel_and_nothing_else_of_it(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", ablated(load("evoengineer-free"), failures=False, repairs=False)) as session:
        answered(session, 1)
        judged(session, by_factor)
        answered(session, 2)
        judged(session, invalid)
        brief = session.ask()
        assert brief is not None
        assert brief.best is not None
        assert brief.best.files[0].text == source(1)
        shown = (brief.best.name, brief.best.thought, brief.best.strategy, brief.best.profile, brief.best.reason)
        assert (shown, brief.best.speedup, brief.best.latency_ms, brief.best.resources) == (("",) * 5, None, (), ())
        assert (brief.move, brief.failures, brief.failure) == (Move.INIT, (), None)
        assert f"# The best kernel so far\n\n```cpp\n{source(1)}" in render(brief).messages[1].text


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(trials=3), "trials"),
        (Budget(trials=50, tokens=600), "tokens"),
        (Budget(trials=50, usd=0.05), "cost"),
        (Budget(trials=50, device_seconds=4.0), "device_time"),
    ],
)
def test_every_budget_ends_a_run(tmp_path: Path, budget: Budget, reason: str) -> None:
    with new_session(tmp_path / "run", FULL, budget=budget) as session:
        number = 0
        while session.ask() is not None:
            number += 1
            (brief,) = session.state.in_flight
            session.answer(
                session.brief(brief), Reply(reply_text(number), "canned", TokenUsage(100, 50, cost_usd=0.01))
            )
            judged(session, by_factor)
        assert session.stop_reason == reason
        assert number < 20


def test_no_more_is_in_flight_than_trials_are_left(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL, budget=Budget(trials=3)) as session:
        briefs = [session.ask() for _ in range(5)]
        assert sum(brief is not None for brief in briefs) == 3


def test_a_run_stops_at_the_speed_of_light(tmp_path: Path) -> None:
    from dataclasses import replace

    start = run_setup(FULL)
    start = replace(start, config=replace(start.config, enough_share=0.9))
    with Session.create(tmp_path / "run", start) as session:
        answered(session, 5)
        judged(session, lambda c: valid(c, 2.0, share=0.92))
        assert session.stop_reason == "speed_of_light"
        assert session.ask() is None


def test_a_run_does_not_stop_on_a_floor_that_was_beaten(tmp_path: Path) -> None:
    """A share above 1 says that the floor is wrong: the peaks were measured on a busy machine."""
    from dataclasses import replace

    start = run_setup(FULL)
    start = replace(start, config=replace(start.config, enough_share=0.9))
    with Session.create(tmp_path / "run", start) as session:
        answered(session, 5)
        judged(session, lambda c: valid(c, 2.0, share=1.2))
        assert session.stop_reason is None
        answered(session, 2)
        judged(session, lambda c: valid(c, 3.0, share=0.95))
        assert session.stop_reason is None


def test_a_run_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with new_session(folder, FULL) as session:
        answered(session, 5)
        judged(session, by_factor)
        answered(session, 6)  # proposed, not judged
        unread = session.ask()
        lost = session.ask()
        assert unread is not None
        assert lost is not None
        session.received(unread, Reply(reply_text(7), "canned", TokenUsage(100, 50)))  # kept, not looked at
        before = session.state.totals.tokens
    with Session.resume(folder) as session:
        assert session.state.totals.tokens == before
        assert [factor(job.candidate) for job in session.pending()] == [6, 7]
        assert session.state.in_flight == {}
        judged(session, by_factor)
        assert factor(session.candidate(session.state.best)) == 7
        with pytest.raises(RunError, match="brief 4"):
            session.brief(lost.number)
        answered(session, 8)
        assert list(session.state.trials) == [1, 2, 3, 4]
    with RunLog.read(folder) as log:
        replies = [entry.event.brief for entry in log.entries() if isinstance(entry.event, ReplyReceived)]
    assert replies == [1, 2, 3, 5]


def test_an_agents_brief_waits_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with new_session(folder, FULL) as session:
        first = session.ask()
        assert first is not None
    with Session.resume(folder, keep=True) as session:
        same = session.brief(first.number)
        assert same == first
        proposal = Proposal(Reply(source(5), "person", file="k.cpp"), failure="not this time")
        assert session.tell(same, proposal).outcome is TrialOutcome.UNREADABLE
        with pytest.raises(RunError, match="answered already"):
            session.tell(same, proposal)


def test_a_better_model_stands_better(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        for number, model in enumerate(("good", "bad", "good", "bad"), start=1):
            brief = session.ask()
            assert brief is not None
            session.answer(brief, Reply(reply_text(number), model, TokenUsage(10, 10, cost_usd=0.5)))
            judged(session, lambda c: by_factor(c) if factor(c) % 2 else slower(by_factor(c), 3.0))
        brief = session.ask()
        assert brief is not None
        bad, good = brief.models
        assert (good.model, good.replies, good.cost_usd, good.tokens) == ("good", 2, 1.0, 40)
        assert good.gain > 0 == bad.gain


def test_a_brief_and_its_prompt_are_stored_at_once(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:

        def word(brief: Brief) -> Prompt:
            assert not any(isinstance(entry.event, BriefAsked) for entry in session._log.entries())
            return render(brief)

        asked = session.ask_and_word(word)
        assert asked is not None
        brief, prompt = asked
        assert [type(entry.event) for entry in session._log.entries()][-2:] == [BriefAsked, PromptSent]
        assert session.conversation(brief.number)[0] == prompt
        session.answer(brief, Reply(reply_text(1), "canned"))
        known = snapshot(session.state)
    with RunLog.read(tmp_path / "run") as log:
        assert snapshot(read_state(log, log.setup())) == known


def test_a_brief_whose_prompt_cannot_be_worded_is_asked_again(tmp_path: Path) -> None:
    def refuse(brief: Brief) -> Prompt:
        raise UsageError("the template cannot be read.")

    with new_session(tmp_path / "run", FULL) as session, pytest.raises(UsageError, match="the template"):
        session.ask_and_word(refuse)
    with Session.resume(tmp_path / "run") as session:
        assert not session.state.in_flight
        assert session.ask_and_word(render) is not None
