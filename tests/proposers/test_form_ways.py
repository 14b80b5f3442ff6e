"""The offline proposer and the ways of a form: each is a strategy, and a search tries them before their variants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.collection.test_convolution_ways import CASES, case_of
from tests.kernel_templates.bundle import problem_of
from tests.proposers.test_template import brief, exhibit, field
from warpsmith import kernel_templates as templates
from warpsmith.kernels.plain import plain_kernel
from warpsmith.model.brief import Brief, Idea, Problem, Reply, ShownCandidate
from warpsmith.model.candidate import SourceFile
from warpsmith.model.errors import ProposerRefused
from warpsmith.model.evaluation import Status
from warpsmith.model.method import Move, Product
from warpsmith.model.strategy import Plan, StrategyChoice
from warpsmith.prompts.parser import parse
from warpsmith.proposers.templates import COLLECTED, TemplateProposer
from warpsmith.strategies import plan_space
from warpsmith.tasks.load import load_task


def problem_for(name: str, folder: Path, backend: str = "cuda") -> Problem:
    case_of(name, folder)
    return problem_of(load_task(folder / "mine.py"), backend)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return problem_for("forward", tmp_path)


def propose(asked: Brief) -> Reply:
    proposer = TemplateProposer()
    return proposer.propose(asked, proposer.prompt(asked))


def source_in(reply: Reply) -> str:
    found = re.search(r"```(?:cuda|cpp)\n(.*)```", reply.text, re.DOTALL)
    assert found is not None
    return found[1]


def names(text: str) -> set[str]:
    return set((Plan.read(text) or Plan()).names)


# --- plans ---


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_every_plan_has_one_way_and_is_read_back_from_its_source(name: str, backend: str, tmp_path: Path) -> None:
    problem = problem_for(name, tmp_path, backend)
    able = templates.abilities(problem)
    assert all(set(each.excludes) == {e.name for e in able} - {each.name} for each in able)
    assert len(able) != 1 or able[0].parameters  # no choice is no strategy
    for each in able:
        values = tuple((p.name, p.values[-1]) for p in each.parameters)
        for plan in (
            Plan((StrategyChoice(each.name, values),)),
            plan_space.fit(Plan((StrategyChoice(each.name),)), able),
        ):
            assert plan_space.valid(plan, able)
            assert str(templates.plan_in_source(problem, templates.translate(problem, plan))) == str(plan)


def test_ways_that_should_take_ten_times_as_long_are_not_offered(problem: Problem) -> None:
    assert [each.name for each in templates.abilities(problem)] == ["shifted-taps", "held-sums", "implicit-gemm"]
    times = templates.expected_times(problem)
    assert list(times) == ["shifted-taps", "held-sums", "implicit-gemm"]
    assert all(50 < (time or 0) < 200 for time in times.values())


def test_a_plan_without_a_way_is_the_plain_kernel(problem: Problem) -> None:
    assert problem.outline is not None
    plain = plain_kernel(problem.task, problem.contract, problem.outline)
    assert plain is not None
    assert templates.translate(problem, Plan()) == plain.source
    assert templates.plan_in_source(problem, plain.source) == Plan()
    assert templates.plan_in_source(problem, "int launch() { return 0; }") is None


def test_another_gpu_has_no_ways(problem: Problem) -> None:
    assert templates.abilities(replace(problem, arch="sm_80")) == ()


# --- a search ---


def search(problem: Problem, moves: list[Move]) -> Iterator[tuple[Move, Brief, Reply]]:
    """The replies to one brief after the other; all kernels are parents, and the last one fails before a repair."""
    shown: list[ShownCandidate] = []
    for number, move in enumerate(moves):
        tried = tuple(each.strategy for each in shown)
        asked = replace(brief(move, seed=number, tried=tried, problem=problem), parents=tuple(shown[-2:]))
        if shown:
            asked = replace(asked, best=shown[0])
        if move is Move.REPAIR:
            failed = replace(shown[-1], status=Status.WRONG, reason="it is off.")
            asked = replace(asked, failure=failed, parents=tuple(shown[-3:-1]))
        reply = propose(asked)
        yield move, asked, reply
        shown.append(exhibit(f"k{number}", field(reply, "strategy"), source_in(reply)))


def test_a_search_begins_with_the_forms_kernel_and_goes_on_with_the_fastest_other_way(problem: Problem) -> None:
    replies = [reply for *_, reply in search(problem, [Move.INIT] * 4)]

    told = [field(reply, "strategy") for reply in replies]
    assert told[0] == COLLECTED
    assert "It is shifted-taps(columns=64, rows=4). Estimated for an H200: shifted-taps 9" in field(
        replies[0], "thought"
    )
    assert [names(text) for text in told[1:3]] == [{"held-sums"}, {"implicit-gemm"}]
    assert "Estimated for an H200, with usual values: 120 us." in field(replies[2], "thought")
    assert told[3] not in ("shifted-taps(columns=64, rows=4)", *told[:3])  # a variant, not the form's kernel again


@pytest.mark.parametrize("name", ["forward", "few images", "transposed, three axes", "depthwise"])
def test_every_move_gives_a_new_kernel_that_is_what_it_says(name: str, tmp_path: Path) -> None:
    problem = problem_for(name, tmp_path)
    rounds = [Move.INIT, Move.INIT, Move.MUTATE, Move.CROSS, Move.TUNE, Move.DIVERGE, Move.REPAIR] * 2
    sources, tried = set(), set()
    for move, asked, reply in search(problem, rounds):
        candidate = parse(reply, asked).candidate
        assert candidate is not None
        strategy = field(reply, "strategy")
        assert strategy not in tried
        assert strategy != plan_space.PLAIN
        if strategy != COLLECTED:
            assert str(templates.plan_in_source(problem, candidate.main.text)) == strategy
            assert len(names(strategy)) == 1
        if move is Move.TUNE and len(asked.parents) > 1 and "(" in asked.parents[0].strategy:
            assert names(strategy) == names(asked.parents[0].strategy)
        tried.add(strategy)
        sources.add(candidate.main.text)
    assert len(sources) == len(rounds)
    assert len({name for text in tried for name in names(text)} - {COLLECTED}) >= 3


def test_a_failed_kernel_is_mended_by_another_way(problem: Problem) -> None:
    failed = exhibit("f", "held-sums", templates.translate(problem, Plan((StrategyChoice("held-sums"),))))
    asked = brief(Move.REPAIR, problem=problem, tried=(COLLECTED, "held-sums"))

    reply = propose(replace(asked, failure=replace(failed, status=Status.WRONG, reason="off")))

    assert names(field(reply, "strategy")) == {"implicit-gemm"}


def test_a_run_of_an_older_version_goes_on_with_the_ways(problem: Problem) -> None:
    collected = source_in(propose(brief(Move.INIT, problem=problem)))
    best = exhibit("b", COLLECTED, collected)
    tried = (COLLECTED, "held-sums", str(plan_space.plan_of("implicit-gemm", templates.abilities(problem))))

    told = [
        field(
            propose(replace(brief(Move.MUTATE, seed=seed, problem=problem, tried=tried), parents=(best,))), "strategy"
        )
        for seed in range(12)
    ]

    assert all(text not in (*tried, plan_space.PLAIN, "shifted-taps(columns=64, rows=4)") for text in told)
    assert any(text.startswith("shifted-taps(") for text in told)  # the parent's way with other values


def test_the_search_ends_when_every_plan_was_tried(tmp_path: Path) -> None:
    problem = problem_for("forward", tmp_path, "cpu")
    tried: list[str] = []
    for _ in range(1 + 3 * 3):
        tried.append(field(propose(brief(Move.MUTATE, problem=problem, tried=tuple(tried))), "strategy"))
    with pytest.raises(ProposerRefused, match="every plan of the catalogue"):
        propose(brief(Move.MUTATE, problem=problem, tried=tuple(tried)))

    assert tried[0] == COLLECTED
    assert len(set(tried)) == len(tried)
    assert all(text.startswith("im2col(") for text in tried[1:])  # with each of its values


# --- strategies and their translation ---


def test_as_the_strategist_it_tells_the_ways_by_their_times_and_then_variants(problem: Problem) -> None:
    asked = replace(brief(Move.INIT, problem=problem), product=Product.STRATEGIES, wanted=6)
    drafts = parse(propose(asked), asked).drafts

    assert len(drafts) == 6
    assert [names(each.strategy) for each in drafts[:3]] == [{COLLECTED}, {"held-sums"}, {"implicit-gemm"}]
    assert len({each.strategy for each in drafts}) == 6
    assert all(each.strategy != "shifted-taps(columns=64, rows=4)" for each in drafts)


def test_a_strategy_is_translated_and_aligned(problem: Problem) -> None:
    asked = replace(brief(Move.TRANSLATE, problem=problem), idea=Idea(2, "shifted-taps(columns=32, rows=2)"))
    written = propose(asked)

    assert field(written, "strategy") == "shifted-taps(columns=32, rows=2)"
    assert "constexpr int kColumns = 32;" in written.text
    assert "// tune: TUNE_ROWS = 2, 4" in written.text
    subject = replace(exhibit("k", "other"), files=(SourceFile("kernel.cu", source_in(written)),))
    aligning = replace(brief(Move.ALIGN, problem=problem), product=Product.ALIGNMENT, subject=subject)
    assert field(propose(aligning), "strategy") == "shifted-taps(columns=32, rows=2)"


@pytest.mark.parametrize("strategy", ["Keep the filters in registers.", COLLECTED])
def test_prose_and_a_failed_first_kernel_are_translated_to_a_way(strategy: str, problem: Problem) -> None:
    idea = Idea(1, strategy, tries=1, failures=int(strategy == COLLECTED))
    asked = replace(brief(Move.TRANSLATE, problem=problem, tried=(COLLECTED,)), idea=idea)

    told = field(propose(asked), "strategy")

    assert names(told) == ({"held-sums"} if idea.failures else {"shifted-taps"})
