"""cuPilot through the session: who is asked what and when, and what becomes of ideas and of their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.searching import factor, invalid, judged, new_session, reply_text, run_setup, source, valid
from warpsmith.methods.load import ablated, load
from warpsmith.model.brief import Brief, Precedent, Reply, TrialOutcome, TrialRecord
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.method import Method, Move, Product, Show
from warpsmith.model.usage import TokenUsage
from warpsmith.prompts.renderer import render
from warpsmith.run_log.events import Budget, PrecedentsFound
from warpsmith.run_log.log import RunLog
from warpsmith.search.next_brief import precedent_of
from warpsmith.search.session import Session, read_state
from warpsmith.strategies.pool import PoolRecord

CUPILOT = load("cupilot")
COST = TokenUsage(100, 50, cost_usd=0.01)


def ask(session: Session) -> Brief:
    brief = session.ask()
    assert brief is not None, session.stop_reason
    return brief


def tell(session: Session, brief: Brief, text: str) -> TrialRecord:
    return session.answer(brief, Reply(text, "canned", COST))


def strategies(*texts: str) -> str:
    return "".join(f"strategy: {text}\nthought: because\n" for text in texts)


def kernel(number: int, strategy: str) -> str:
    return reply_text(number).replace(f"strategy: s{number}", f"strategy: {strategy}")


def speeds(table: dict[int, float]) -> Callable[[Candidate], Evaluation]:
    """Programs by their number: so fast, or wrong where they are not named."""
    return lambda c: valid(c, table[factor(c)]) if factor(c) in table else invalid(c)


def two_parents(session: Session) -> None:
    """The first epoch: two strategies, translated, valid and aligned."""
    brief = ask(session)
    assert (brief.role, brief.product, brief.move) == ("strategist", Product.STRATEGIES, Move.INIT)
    tell(session, brief, strategies("vector-loads(width=4) + unroll(factor=2)", "warp-per-row"))
    for number, told in ((1, "vector-loads(width=4) + unroll(factor=2)"), (2, "warp-per-row")):
        brief = ask(session)
        assert (brief.role, brief.operator) == ("translator", "translate")
        assert brief.idea is not None
        assert brief.idea.strategy == told
        tell(session, brief, kernel(number, told))
        judged(session, speeds({1: 1.5, 2: 1.2}))
        brief = ask(session)
        assert (brief.role, brief.product) == ("aligner", Product.ALIGNMENT)
        assert brief.subject is not None
        assert brief.subject.strategy == told
        tell(session, brief, f"strategy: {told}\nthought: none")


def test_a_first_epoch_goes_from_strategies_to_aligned_kernels(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        first = ask(session)
        assert (first.wanted, first.epoch, first.epochs) == (2, 1, 4)  # a quarter of the trials
        assert first.strategies
        assert session.ask() is None  # no second strategist while the first one thinks
        session.failed(first, "timed out")
        two_parents(session)
        state = session.state
        assert state.totals.trials == 2
        assert state.totals.replies == 5
        assert state.totals.tokens == 5 * 150  # words are paid for, too
        assert [idea.speedup for idea in state.ideas.known.values()] == [1.5, 1.2]


def test_children_are_asked_for_with_the_strategies_of_both_parents_and_carry_them(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        two_parents(session)
        brief = ask(session)
        assert (brief.operator, brief.move, brief.epoch) == ("cross", Move.CROSS, 2)
        told = {parent.strategy: parent.speedup for parent in brief.parents}
        assert told == {"vector-loads(width=4) + unroll(factor=2)": 1.5, "warp-per-row": 1.2}
        tell(session, brief, strategies("vector-loads(width=4) + unroll(factor=2) + warp-per-row"))
        brief = ask(session)
        assert [parent.trial for parent in brief.parents] == [1, 2]  # with their code, for the translator
        tell(session, brief, kernel(3, "vector-loads(width=4) + unroll(factor=2) + warp-per-row"))
        judged(session, speeds({3: 1.8}))
        child = session.state.trials[3]
        assert child.parents == (1, 2)
        assert child.effect == pytest.approx(1.8 / 1.5)
        (effect,) = session.state.effects
        assert (effect.strategy, effect.zone, effect.count) == ("warp-per-row", "memory", 1)
        assert effect.factor == pytest.approx(1.2)
        tell(session, ask(session), "strategy: warp-per-row + vector-loads(width=4)")
        # The code has no unrolling after all: so leaving that out has its share in the gain.
        shares = {each.strategy: each.factor for each in session.state.effects}
        assert shares == {"warp-per-row": pytest.approx(1.2**0.5), "unroll": pytest.approx(1.2**-0.5)}
        brief = ask(session)
        assert brief.operator == "mutate"
        assert brief.effects == session.state.effects


def test_alignment_changes_what_the_code_does_not_honour(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        tell(session, ask(session), strategies("tensor cores with a running maximum"))
        tell(session, ask(session), kernel(1, "tensor cores with a running maximum"))  # a plain loop, in truth
        judged(session, speeds({1: 1.1}))
        brief = ask(session)
        assert brief.subject is not None
        assert "for (int64_t" in brief.subject.files[0].text
        tell(session, brief, "**Strategy:** a plain loop over all elements\n**Thought:** no tensor cores anywhere.")
        assert session.state.trials[1].strategy == "a plain loop over all elements"
        assert session.state.ideas.known[1].aligned == "a plain loop over all elements"
        tell(session, ask(session), strategies("one warp per row"))
        tell(session, ask(session), kernel(2, "one warp per row"))
        judged(session, speeds({2: 1.05}))
        tell(session, ask(session), "strategy: one warp per row")
        shown = {parent.strategy for parent in ask(session).parents}
        assert shown == {"a plain loop over all elements", "one warp per row"}
        # What the author said stays in the log.
        assert session.candidate(1).strategy == "tensor cores with a running maximum"


def test_a_failed_kernel_is_revised_and_then_its_idea_tried_once_more(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=20)) as session:
        tell(session, ask(session), strategies("split the sum", "one block per row"))
        tell(session, ask(session), kernel(1, "split the sum"))
        judged(session, invalid)
        for attempt in (1, 2):  # repairs go before all else
            brief = ask(session)
            assert (brief.role, brief.operator, brief.attempt) == ("revisor", "revise", attempt)
            assert brief.wording == "cupilot/revise"
            assert brief.idea is not None
            assert brief.idea.strategy == "split the sum"
            tell(session, brief, kernel(1 + attempt, "split the sum"))
            judged(session, invalid)
        ideas = session.state.ideas
        assert (ideas.known[1].tries, ideas.known[1].failures, ideas.known[1].speedup) == (1, 1, None)
        other = ask(session)
        assert other.idea is not None
        assert other.idea.strategy == "one block per row"  # what nobody has tried comes first
        tell(session, other, kernel(7, "one block per row"))
        again = ask(session)
        assert again.idea is not None
        assert (again.idea.strategy, again.idea.failures) == ("split the sum", 1)
        tell(session, again, kernel(8, "split the sum"))
        judged(session, speeds({7: 1.1, 8: 2.0}))
        assert (ideas.known[1].tries, ideas.known[1].failures, ideas.known[1].speedup) == (2, 1, 2.0)
        assert session.state.trials[session.state.best].idea == 1


def test_an_idea_has_a_bounded_number_of_tries(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=20), repairs=0) as session:
        tell(session, ask(session), strategies("split the sum"))
        for number in (1, 2):
            tell(session, ask(session), kernel(number, "split the sum"))
            judged(session, invalid)
        brief = ask(session)
        assert brief.product is Product.STRATEGIES
        assert [(idea.tries, idea.failures) for idea in brief.ideas] == [(2, 2)]
        tell(session, brief, strategies("Split the sum."))
        assert ask(session).product is Product.STRATEGIES  # thought of again, and not carried out a third time


def test_strategies_that_say_the_same_are_carried_out_once(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=45)) as session:
        brief = ask(session)
        said = (
            "use vector loads of 128 bits with one row per block",
            "One row per block, with vector loads of 128 bits",
            "use vector loads of 64 bits with one row per block",
            "vector-loads(width=4) + unroll(factor=2)",
            "unroll( factor = 2 ) + vector-loads(width=4)",
            "unroll(factor=4) + vector-loads(width=4)",
        )
        tell(session, brief, strategies(*said))
        assert [idea.strategy for idea in session.state.ideas.known.values()] == [said[i] for i in (0, 2, 3, 5)]


def test_kernels_of_one_strategy_take_one_place_in_the_population(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=20)) as session:
        tell(session, ask(session), strategies("simd + unroll(factor=2)", "simd + unroll(factor=4)"))
        for number in (1, 2):
            tell(session, ask(session), kernel(number, "simd"))
            judged(session, speeds({1: 1.5, 2: 1.6}))
            tell(session, ask(session), "strategy: simd")
        assert [member.score for member in session.state.population.members] == [1.6]


def test_a_strategist_that_makes_no_sense_is_asked_again_and_then_given_up(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=20)) as session:
        first = ask(session)
        record = tell(session, first, "I would rather not say")
        assert (record.trial, record.outcome) == (0, TrialOutcome.UNREADABLE)
        assert record.reason
        again = ask(session)
        assert (again.operator, again.attempt, again.wanted) == (first.operator, 1, first.wanted)
        assert again.failure is not None
        assert "I would rather not" in again.failure.files[0].text
        session.failed(again, "timed out")
        assert ask(session).failure == again.failure  # the question is not lost with the call
        count = 2
        tell(session, session.brief(max(session.state.in_flight)), "no")
        while (brief := session.ask()) is not None:
            count += 1
            tell(session, brief, "no")
        assert session.stop_reason == "no_strategies"
        assert count == 5
        assert session.state.totals.trials == 0
        assert session.state.totals.tokens == 150 * count
    with Session.resume(tmp_path / "run") as session:
        assert session.ask() is not None  # somebody else may know more


def test_a_strategist_that_repeats_itself_ends_the_run(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=20)) as session:
        tell(session, ask(session), strategies("simd"))
        tell(session, ask(session), kernel(1, "simd"))
        judged(session, speeds({1: 1.5}))
        tell(session, ask(session), "strategy: simd")
        asked = 0
        while (brief := session.ask()) is not None:
            asked += 1
            tell(session, brief, strategies("simd"))
        assert (session.stop_reason, asked) == ("no_strategies", 5)


def test_an_alignment_that_makes_no_sense_is_given_up_and_costs_no_trial(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=20)) as session:
        tell(session, ask(session), strategies("simd"))
        tell(session, ask(session), kernel(1, "simd"))
        judged(session, speeds({1: 1.5}))
        for attempt in (0, 1, 2):
            brief = ask(session)
            assert (brief.role, brief.attempt) == ("aligner", attempt)
            tell(session, brief, "")
        assert ask(session).role == "strategist"
        assert session.state.trials[1].strategy == "simd"
        assert session.state.totals.trials == 1


def test_what_is_lost_with_a_process_is_asked_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with new_session(folder, CUPILOT, budget=Budget(trials=20)) as session:
        tell(session, ask(session), strategies("simd", "one block per row"))
        tell(session, ask(session), kernel(1, "simd"))
        judged(session, speeds({1: 1.5}))
        lost = [ask(session), ask(session)]
        assert [brief.role for brief in lost] == ["aligner", "translator"]
    with Session.resume(folder) as session:
        again = [ask(session), ask(session)]
        assert [brief.role for brief in again] == ["aligner", "translator"]
        assert [brief.subject for brief in again] == [brief.subject for brief in lost]
        assert [brief.idea for brief in again] == [brief.idea for brief in lost]


def test_a_fault_of_ours_costs_an_idea_nothing(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=20)) as session:
        tell(session, ask(session), strategies("simd"))
        tell(session, ask(session), kernel(1, "simd"))
        judged(session, lambda c: invalid(c, Status.NOT_JUDGED, "the device fell off"))
        brief = ask(session)
        assert brief.idea is not None
        assert (brief.idea.strategy, brief.idea.failures) == ("simd", 0)


@pytest.mark.parametrize(
    ("scores", "speedup", "failures"),
    [
        ({1: 1.5}, 1.5, 0),
        ({}, None, 1),
    ],
)
def test_an_idea_whose_kernel_repeats_one_that_is_not_judged_yet_hears_of_its_verdict(
    scores: dict[int, float], speedup: float | None, failures: int, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with new_session(folder, CUPILOT, budget=Budget(trials=8), repairs=0) as session:
        tell(session, ask(session), strategies("vector-loads(width=4)", "warp-per-row"))
        first, second = ask(session), ask(session)  # both under way at once
        assert tell(session, first, kernel(1, "vector-loads(width=4)")).outcome is TrialOutcome.PENDING
        assert tell(session, second, kernel(1, "warp-per-row")).outcome is TrialOutcome.DUPLICATE
        assert [(idea.speedup, idea.failures) for idea in session.state.ideas.known.values()] == [(None, 0)] * 2
    with Session.resume(folder) as session:
        judged(session, speeds(scores))
        known = session.state.ideas.known.values()
        assert [(idea.speedup, idea.failures) for idea in known] == [(speedup, failures)] * 2
        assert sorted(session.state.ideas.waiting) == ([1, 2] if failures else [])  # to be carried out once more


def test_the_second_measurement_of_a_kernel_is_that_of_all_ideas_behind_it(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8), repairs=0) as session:
        tell(session, ask(session), strategies("vector-loads(width=4)", "warp-per-row"))
        first, second = ask(session), ask(session)
        tell(session, first, kernel(1, "vector-loads(width=4)"))
        (job,) = session.pending()
        session.judge(job, valid(job.candidate, 2.0))  # would be the best, by one measurement
        tell(session, second, kernel(1, "warp-per-row"))
        assert session.state.ideas.known[2].speedup == 2.0
        judged(session, speeds({1: 1.4}))
        assert [idea.speedup for idea in session.state.ideas.known.values()] == [1.4, 1.4]


def test_a_fault_of_ours_costs_no_idea_behind_a_kernel_anything(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        tell(session, ask(session), strategies("vector-loads(width=4)", "warp-per-row"))
        first, second = ask(session), ask(session)
        tell(session, first, kernel(1, "vector-loads(width=4)"))
        tell(session, second, kernel(1, "warp-per-row"))
        judged(session, lambda c: invalid(c, Status.NOT_JUDGED, "the device is away"))
        assert [(idea.tries, idea.failures) for idea in session.state.ideas.known.values()] == [(0, 0)] * 2
        assert sorted(session.state.ideas.waiting) == [1, 2]


def test_what_other_runs_know_is_kept_with_the_run_and_shown_to_the_strategist(tmp_path: Path) -> None:
    precedents = (Precedent("softmax", "online-softmax", "some GPU", 1.7), Precedent("", "simd", ""))
    with Session.create(tmp_path / "run", run_setup(CUPILOT), lambda problem: precedents) as session:
        brief = ask(session)
        assert brief.precedents == precedents[:1]  # the catalogue's own advice is shown as such
        tell(session, brief, strategies("online-softmax"))
        assert ask(session).precedents == ()  # the translator has its strategy
    with RunLog.read(tmp_path / "run") as log:
        assert read_state(log, log.setup()).precedents == precedents
    with Session.create(
        tmp_path / "no advice", run_setup(ablated(CUPILOT, roofline=False)), lambda _: precedents
    ) as session:
        assert ask(session).precedents == precedents[:1]  # the ablated advice does not come back as a precedent
    method = ablated(CUPILOT, retrieval=False)
    with Session.create(tmp_path / "without", run_setup(method), lambda problem: precedents) as session:
        assert ask(session).precedents == ()
    with RunLog.read(tmp_path / "without") as log:
        assert not [entry for entry in log.entries() if isinstance(entry.event, PrecedentsFound)]


def test_the_translator_and_the_revisor_get_the_cards_of_the_strategies_that_the_plan_names(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        first = ask(session)
        assert first.cards == ()
        tell(session, first, strategies("simd + tensor-cores + made-up", "plain"))
        brief = ask(session)
        assert [card.name for card in brief.cards] == ["simd"]  # tensor-cores is a card for GPUs
        assert brief.cards[0].example
        tell(session, brief, kernel(1, "simd"))
        judged(session, invalid)
        brief = ask(session)
        assert (brief.role, [card.name for card in brief.cards]) == ("revisor", ["simd"])


def test_lessons_of_the_pool_become_precedents() -> None:
    files = (SourceFile("k.cpp", "int after;\n"),)
    record = PoolRecord("key", "softmax", "simd", "cpu", files, speedup=1.4, effect=1.2, device="some CPU")

    assert precedent_of(record) == Precedent("softmax", "simd", "some CPU", 1.2, 1.4, after="int after;")
    assert precedent_of(record).measured
    advice = PoolRecord("key", "", "simd", "cpu", (), measured=False, note="Often helps.")
    assert not precedent_of(advice).measured


def test_a_profile_is_shown_only_to_those_who_are_to_see_it(tmp_path: Path) -> None:
    for name, method in (("with", CUPILOT), ("without", _without_profiles())):
        with new_session(tmp_path / name, method, budget=Budget(trials=8)) as session:
            two_parents(session)
            session.profiled(1, "memory-bound")
            profiles = {parent.profile for parent in ask(session).parents}
            assert profiles == ({"", "memory-bound"} if name == "with" else {""})


def _without_profiles() -> Method:
    stages = tuple(
        replace(stage, operators=tuple(replace(each, shows=each.shows - {Show.PROFILE}) for each in stage.operators))
        for stage in CUPILOT.stages
    )
    return replace(CUPILOT, name="blind", stages=stages)


def test_without_alignment_nobody_is_asked_what_the_code_does(tmp_path: Path) -> None:
    method = ablated(CUPILOT, alignment=False)
    with new_session(tmp_path / "run", method, budget=Budget(trials=8)) as session:
        tell(session, ask(session), strategies("simd"))
        tell(session, ask(session), kernel(1, "simd"))
        judged(session, speeds({1: 1.5}))
        assert ask(session).role == "strategist"


def test_the_code_of_a_source_handed_in_by_a_person_is_a_translation_too(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        brief = ask(session)
        session.answer(brief, Reply("- one block per row\n- one warp per row\n", "person"))
        brief = ask(session)
        record = session.answer(brief, Reply(source(4), "person", file="mine.cpp"))
        assert record.outcome is TrialOutcome.PENDING
        assert session.state.trials[record.trial].idea == 1


def test_a_slow_kernel_is_revised_once_with_its_profile(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        tell(session, ask(session), strategies("vector-loads(width=4)"))
        tell(session, ask(session), kernel(1, "vector-loads(width=4)"))
        judged(session, lambda c: valid(c, 1.5, share=0.2))  # below a quarter of the limit
        assert session.unprofiled() == (1,)
        session.profiled(1, "Latency-bound: too few loads in flight.")
        brief = ask(session)
        assert (brief.role, brief.move, brief.attempt) == ("revisor", Move.REPAIR, 1)
        assert brief.failure is not None
        assert (brief.failure.status, brief.failure.speedup) == (Status.OK, 1.5)
        asked = render(brief).messages[1].text
        for words in ("# The kernel to revise", "too few loads in flight", "far slower than the hardware allows"):
            assert words in asked, words
        tell(session, brief, kernel(2, "vector-loads(width=4)"))
        judged(session, lambda c: valid(c, 1.2, share=0.1))  # slower still: the idea keeps its best, nobody asks again
        assert session.state.ideas.known[1].speedup == 1.5
        assert not session.state.repairs
        assert session.state.totals.trials == 2  # a revision is a trial


def test_a_revision_that_fails_leaves_the_valid_kernel_and_its_idea(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", CUPILOT, budget=Budget(trials=8)) as session:
        tell(session, ask(session), strategies("vector-loads(width=4)"))
        tell(session, ask(session), kernel(1, "vector-loads(width=4)"))
        judged(session, lambda c: valid(c, 1.5, share=0.2))
        for number in (2, 3):  # the revision and its repair
            tell(session, ask(session), kernel(number, "vector-loads(width=4)"))
            judged(session, invalid)
        idea = session.state.ideas.known[1]
        assert (idea.speedup, idea.failures) == (1.5, 0)
        assert not session.state.ideas.waiting
        assert session.state.best == 1


@pytest.mark.parametrize(("method", "repairs"), [(CUPILOT, 0), (ablated(CUPILOT, repairs=False), None)])
def test_without_repairs_a_slow_kernel_is_not_revised(method: Method, repairs: int | None, tmp_path: Path) -> None:
    with new_session(tmp_path / "run", method, budget=Budget(trials=8), repairs=repairs) as session:
        tell(session, ask(session), strategies("vector-loads(width=4)"))
        tell(session, ask(session), kernel(1, "vector-loads(width=4)"))
        judged(session, lambda c: valid(c, 1.5, share=0.2))
        assert ask(session).role != "revisor"


def test_strategists_are_told_the_best_advice_always_and_the_other_advice_in_turn(tmp_path: Path) -> None:
    told = []
    with Session.create(tmp_path / "run", run_setup(CUPILOT, budget=Budget(trials=24)), lambda _: ()) as session:
        number = 0
        while (brief := session.ask()) is not None:
            if brief.product is Product.STRATEGIES:
                told.append([each.name for each in brief.strategies])
                tell(session, brief, strategies(*(f"idea {len(brief.ideas)} {n}" for n in range(brief.wanted))))
            elif brief.product is Product.ALIGNMENT:
                assert brief.subject is not None
                tell(session, brief, f"strategy: {brief.subject.strategy}\nthought: none")
            else:
                number += 1
                assert brief.idea is not None
                tell(session, brief, kernel(number, brief.idea.strategy))
            judged(session, lambda c: valid(c, 1 + factor(c) / 10))

    assert len(told) > 2
    assert {tuple(names[:5]) for names in told} == {tuple(told[0][:5])}
    assert all(len(set(names)) == 7 for names in told)
    assert len({name for names in told for name in names[5:]}) > 2
