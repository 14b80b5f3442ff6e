"""The offline proposer, with small templates of its own instead of real code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.strategies.problems import SOURCE, make_problem
from warpsmith import kernel_templates as templates
from warpsmith.backends.source import backend_named
from warpsmith.model.brief import Brief, Effect, Idea, Precedent, Problem, Reply, Role, ShownCandidate
from warpsmith.model.candidate import SourceFile
from warpsmith.model.errors import ProposerRefused
from warpsmith.model.evaluation import Status
from warpsmith.model.method import Move, Product
from warpsmith.model.strategy import Plan, Strategy, StrategyParameter
from warpsmith.model.task import Family, Operation, Outline, OutlineValue
from warpsmith.prompts.parser import parse
from warpsmith.proposers.templates import COLLECTED, TemplateProposer
from warpsmith.strategies import plan_space

PROBLEM = make_problem(backend="cpu")


def ability(name: str, values: tuple[str, ...] = (), excludes: tuple[str, ...] = ()) -> Strategy:
    parameters = (StrategyParameter("size", values),) if values else ()
    return Strategy(name, name, ("cpu",), (), (), "do it", f"{name} helps by 10 %.", "x", parameters, excludes=excludes)


class Fake:
    """Writes a plan as one line; says what is really in it, which leaves out "pretence"."""

    strategies: tuple[Strategy, ...] = (
        ability("simd"),
        ability("unroll", ("2", "4", "8")),
        ability("fast-intrinsics"),
        ability("rows", excludes=("columns",)),
        ability("columns"),
    )

    def abilities(self, problem: Problem) -> tuple[Strategy, ...]:
        known = problem.outline is not None and problem.outline.family is not Family.OTHER
        return self.strategies if known else ()

    def expected_times(self, problem: Problem) -> Mapping[str, float | None]:
        return {}

    def risky_strategies(self, problem: Problem) -> frozenset[str]:
        return frozenset({"fast-intrinsics"})

    def translate(self, problem: Problem, plan: Plan) -> str:
        real = Plan(tuple(choice for choice in plan.choices if choice.strategy != "pretence"))
        return f"/* {real} */ int launch();\n"

    def plan_in_source(self, problem: Problem, source: str) -> Plan | None:
        found = re.match(r"/\* (.*?) \*/", source)
        return Plan.read(found[1]) if found else None


def exhibit(id: str, strategy: str, text: str = "", status: Status = Status.OK, reason: str = "") -> ShownCandidate:
    return ShownCandidate(id, id, (SourceFile("kernel.cpp", text),), "", strategy, status, reason, 1)


def brief(move: Move, *, seed: int = 1, tried: tuple[str, ...] = (), problem: Problem = PROBLEM) -> Brief:
    return Brief(1, "operator", move, "wording", problem, seed, tried=tried)


def propose(asked: Brief, fake: Fake | None = None) -> Reply:
    proposer = TemplateProposer(fake or Fake())
    return proposer.propose(asked, proposer.prompt(asked))


def field(reply: Reply, name: str) -> str:
    found = re.search(rf"^{name}: (.*)$", reply.text, re.MULTILINE)
    assert found is not None, reply.text
    return found[1]


def plan(reply: Reply) -> Plan:
    read = plan_space.plan_of(field(reply, "strategy"), Fake.strategies)
    assert read is not None
    return read


def softmax_problem(backend: str) -> Problem:
    """With an outline and a contract as the judge and the backend give them."""
    problem = make_problem(backend=backend)
    matrix = OutlineValue("x", "float32", ("rows", "cols"))
    node = Operation("aten._softmax.default", '[{"$": "x"}, -1, false]', "{}", (replace(matrix, name="%0"),))
    return replace(
        problem,
        contract=backend_named(backend).contract(problem.task),
        outline=Outline(Family.ROW_REDUCTION, (matrix,), (node,), ("%0",)),
    )


def exhaust(move: Move, fake: Fake) -> tuple[list[str], str]:
    """Ask until it refuses: the strategies it told, and why there are no more."""
    tried: list[str] = []
    while True:
        try:
            reply = propose(brief(move, seed=len(tried), tried=tuple(tried)), fake)
        except ProposerRefused as refused:
            return tried, str(refused)
        tried.append(field(reply, "strategy"))


def test_a_reply_has_the_form_that_is_asked_of_every_proposer() -> None:
    reply = propose(brief(Move.INIT))
    form = r"name: .+\nstrategy: .+\nthought: .+\ncode:\n```cpp\n(?P<code>(?:.*\n)+)```\n"
    found = re.fullmatch(form, reply.text)

    assert found is not None
    assert found["code"] == "/* rows + simd + unroll(size=2) */ int launch();\n"
    assert reply.model == "template"
    assert reply.usage.tokens == reply.usage.cost_usd == 0


def test_the_same_brief_gets_the_same_reply_and_another_seed_another_one() -> None:
    parent = exhibit("p", "simd")
    replies = {
        seed: [propose(replace(brief(Move.MUTATE, seed=seed), parents=(parent,))).text for _ in range(2)]
        for seed in range(8)
    }

    assert all(first == second for first, second in replies.values())
    assert len({first for first, _ in replies.values()}) > 1


def test_a_new_kernel_starts_mostly_from_the_best_where_that_is_shown() -> None:
    best = exhibit("b", "columns + unroll(size=8)")
    plans = [plan(propose(replace(brief(Move.INIT, seed=seed), best=best))) for seed in range(20)]
    start = Plan.read(best.strategy)
    assert start is not None

    assert sum(plan_space.distance(start, each) <= 2 for each in plans) > 10
    assert all(str(each) != best.strategy for each in plans)


def test_a_crossing_has_what_both_parents_have() -> None:
    asked = replace(brief(Move.CROSS), parents=(exhibit("p", "rows + simd"), exhibit("q", "rows + unroll(size=4)")))
    reply = propose(asked)

    assert field(reply, "strategy") == "rows + simd + unroll(size=4)"
    assert "From p and q: combined their strategies." in field(reply, "thought")


def test_tuning_keeps_the_strategies_and_mutates_where_there_is_nothing_to_set() -> None:
    tuned = plan(propose(replace(brief(Move.TUNE), parents=(exhibit("p", "simd + unroll(size=2)"),))))
    forced = plan(propose(replace(brief(Move.TUNE), parents=(exhibit("p", "simd"),))))

    assert tuned.names == ("simd", "unroll")
    assert str(tuned) != "simd + unroll(size=2)"
    assert str(forced) != "simd"


def test_something_divergent_is_unlike_the_parents() -> None:
    reply = propose(replace(brief(Move.DIVERGE), parents=(exhibit("p", "rows + simd"),)))

    assert plan_space.distance(plan(reply), Plan.read("rows + simd") or Plan()) >= 3
    assert field(reply, "thought").startswith("Unlike p:")


def test_a_repair_drops_the_strategy_that_such_failures_are_often_due_to() -> None:
    failed = exhibit("f", "columns + fast-intrinsics + unroll(size=2)", status=Status.WRONG, reason="too far off")
    reply = propose(replace(brief(Move.REPAIR), failure=failed, attempt=1))

    assert field(reply, "strategy") == "columns + unroll(size=2)"
    assert "From f, which failed (wrong): dropped fast-intrinsics." in field(reply, "thought")


def test_the_thought_says_what_changed_and_what_to_expect_of_it() -> None:
    asked = replace(brief(Move.MUTATE, tried=("plain", "rows", "columns", "fast-intrinsics", "simd")))
    reply = propose(replace(asked, parents=(exhibit("p", "plain"),)))

    assert field(reply, "strategy") == "unroll(size=2)"
    assert field(reply, "thought") == "From p: added unroll(size=2). Expected of unroll: unroll helps by 10 %."


@pytest.mark.parametrize("said", ["", "process rows with vectors"])
def test_a_parent_that_names_no_plan_is_read_from_its_code(said: str) -> None:
    parent = exhibit("p", said, "/* columns + unroll(size=8) */ int launch();")
    child = plan(propose(replace(brief(Move.TUNE), parents=(parent,))))

    assert child.names == ("columns", "unroll")


def test_the_strategy_told_is_the_one_the_code_contains() -> None:
    class Pretending(Fake):
        strategies = (ability("simd"), ability("pretence"))

    told, _ = exhaust(Move.INIT, Pretending())

    assert sorted(told) == ["plain", "simd"]


def test_when_every_plan_was_tried_it_says_so_and_what_to_do() -> None:
    tried, reason = exhaust(Move.MUTATE, Fake())

    # simd or not, fast-intrinsics or not, three unrollings or none, rows or columns or neither
    assert len(tried) == len(set(tried)) == 2 * 2 * 4 * 3
    assert re.fullmatch(r"every plan .* softmax was tried; [^.]*--proposer [^.]*\.", reason)


def test_a_task_outside_the_families_is_refused_with_the_way_out() -> None:
    other = make_problem(backend="cpu", family=Family.OTHER)

    assert not TemplateProposer.supports(other, Fake())
    assert TemplateProposer.supports(PROBLEM, Fake())
    with pytest.raises(ProposerRefused, match=r"could not be recorded; connect a model with --proposer openai:MODEL"):
        propose(brief(Move.INIT, problem=other))


def test_what_is_to_be_written_as_text_is_the_reference() -> None:
    reply = propose(brief(Move.WRITE, problem=make_problem(family=Family.OTHER)))

    assert f"```python\n{SOURCE}\n```" in reply.text


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_with_the_real_templates_every_move_gives_a_candidate_whose_strategy_is_in_its_code(backend: str) -> None:
    problem = softmax_problem(backend)
    able = templates.abilities(problem)
    proposer = TemplateProposer()
    shown: list[ShownCandidate] = []
    for number, move in enumerate([move for move in Move if move is not Move.WRITE] * 3):
        tried = tuple(each.strategy for each in shown)
        asked = replace(brief(move, seed=number, tried=tried, problem=problem), parents=tuple(shown[-2:]))
        if shown:
            asked = replace(asked, best=shown[0], failure=replace(shown[-1], status=Status.WRONG, reason="it is off."))
        proposal = parse(proposer.propose(asked, proposer.prompt(asked)), asked)
        candidate = proposal.candidate
        assert candidate is not None, proposal.failure
        read = plan_space.plan_of(candidate.strategy, able)
        assert read is not None
        assert str(templates.plan_in_source(problem, candidate.main.text)) == str(read)
        assert candidate.strategy not in tried
        assert proposal.name
        assert candidate.thought
        shown.append(exhibit(candidate.id, candidate.strategy, candidate.main.text))

    assert TemplateProposer.supports(problem)
    assert len({each.id for each in shown}) == len(shown)


@pytest.mark.parametrize("move", Move)
def test_the_prompt_tells_the_archive_what_was_asked(move: Move) -> None:
    asked = replace(
        brief(move, tried=("simd", "simd", "rows")),
        best=exhibit("b", "simd"),
        parents=(exhibit("p", ""),),
        failure=exhibit("f", "rows", status=Status.CRASHED, reason="it died."),
    )
    (message,) = TemplateProposer(Fake()).prompt(asked).messages

    assert message.role is Role.USER
    for part in ("softmax", "cpu", "Parent p: plain", "Best so far b: simd", "crashed", "it died.", "before: 2"):
        assert part in message.text


def think(move: Move, wanted: int, fake: Fake | None = None, **more: object) -> list[Plan]:
    """As the strategist: the plans it tells."""
    asked = replace(brief(move), product=Product.STRATEGIES, wanted=wanted, **more)  # type: ignore[arg-type]
    drafts = parse(propose(asked, fake), asked).drafts
    plans = [plan_space.plan_of(draft.strategy, (fake or Fake()).strategies) for draft in drafts]
    assert all(draft.thought for draft in drafts)
    return [each for each in plans if each is not None]


def test_as_the_strategist_it_tells_as_many_different_plans_as_are_wanted() -> None:
    plans = think(Move.INIT, 5)

    assert len({str(each) for each in plans}) == 5
    assert plans == think(Move.INIT, 5)  # by the brief alone
    again = think(Move.INIT, 5, tried=tuple(map(str, plans)))
    assert not {str(each) for each in again} & {str(each) for each in plans}


def test_as_the_strategist_it_crosses_so_that_children_carry_strategies_of_both_parents() -> None:
    parents = (exhibit("p", "simd + unroll(size=2)"), exhibit("q", "columns + fast-intrinsics"))
    for seed in range(10):
        child, *_ = think(Move.CROSS, 2, parents=parents, seed=seed)
        assert set(child.names) & {"simd", "unroll"}
        assert set(child.names) & {"columns", "fast-intrinsics"}


def test_as_the_strategist_it_goes_by_what_was_measured() -> None:
    parent = exhibit("p", "rows + simd")

    def share(name: str, *effects: Effect) -> int:
        told = [think(Move.MUTATE, 1, parents=(parent,), seed=seed, effects=effects)[0].names for seed in range(40)]
        return sum(name in names for names in told)

    helped, harmed = (
        Effect(name, "memory", "", factor, 8) for name, factor in (("fast-intrinsics", 3.0), ("rows", 0.3))
    )
    assert share("fast-intrinsics", helped) > 1.5 * share("fast-intrinsics")
    assert share("rows", harmed) < share("rows")


def test_as_the_strategist_it_starts_from_what_helped_before() -> None:
    precedents = (
        Precedent("layer_norm", "columns + unroll(size=8) + tensor-cores", "some CPU", 1.4),
        Precedent("relu", "Write it well.", "some CPU", 1.2),  # prose, which the catalogue cannot follow
        Precedent("", "simd", "", note="Often helps."),  # advice: the catalogue has it anyway
    )
    first, *_ = think(Move.INIT, 3, precedents=precedents)

    assert str(first) == "columns + unroll(size=8)"
    assert str(first) not in map(str, think(Move.INIT, 3, precedents=precedents, tried=(str(first),)))


def test_as_the_strategist_it_says_when_nothing_is_left() -> None:
    tried, _ = exhaust(Move.INIT, Fake())
    with pytest.raises(ProposerRefused, match="every plan of the catalogue"):
        think(Move.INIT, 2, tried=tuple(tried))


def test_as_the_translator_it_writes_the_strategy_it_is_given() -> None:
    asked = replace(brief(Move.TRANSLATE), idea=Idea(3, "columns + unroll(size=8)"))
    reply = propose(asked)

    assert field(reply, "strategy") == "columns + unroll(size=8)"
    assert "/* columns + unroll(size=8) */" in reply.text
    retried = propose(replace(asked, idea=Idea(3, "columns + unroll(size=8)", tries=1, failures=1)))
    assert "/* columns + unroll(size=8) */" not in retried.text
    assert field(retried, "strategy") != "columns + unroll(size=8)"


def test_as_the_aligner_it_reads_back_what_the_code_contains() -> None:
    class Pretender(Fake):
        strategies = (*Fake.strategies, ability("pretence"))

    reply = propose(replace(brief(Move.TRANSLATE), idea=Idea(1, "pretence + simd")), Pretender())
    assert field(reply, "strategy") == "pretence + simd"  # as it was told to; the code has no such thing
    subject = exhibit("k", "pretence + simd", reply.text.partition("```cpp\n")[2])
    aligning = replace(brief(Move.ALIGN), product=Product.ALIGNMENT, subject=subject)
    assert parse(propose(aligning, Pretender()), aligning).text == "simd"


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_with_the_real_templates_what_the_aligner_says_is_what_the_code_says(backend: str) -> None:
    problem = softmax_problem(backend)
    proposer = TemplateProposer()
    thinking = replace(brief(Move.INIT, problem=problem), product=Product.STRATEGIES, wanted=3)
    drafts = parse(proposer.propose(thinking, proposer.prompt(thinking)), thinking).drafts
    for number, draft in enumerate(each for each in drafts if each.strategy != COLLECTED):
        asked = replace(brief(Move.TRANSLATE, problem=problem), idea=Idea(number, draft.strategy))
        written = parse(proposer.propose(asked, proposer.prompt(asked)), asked).candidate
        assert written is not None
        subject = exhibit("k", written.strategy, written.main.text)
        aligning = replace(brief(Move.ALIGN, problem=problem), product=Product.ALIGNMENT, subject=subject)
        said = parse(proposer.propose(aligning, proposer.prompt(aligning)), aligning).text
        assert said == plan_space.text_of(templates.plan_in_source(problem, written.main.text) or Plan())
