"""The offline proposer, with small templates of its own instead of real code."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.strategies.problems import SOURCE, make_problem
from warpsmith.backends.source import backend_named
from warpsmith.core.candidate import SourceFile
from warpsmith.core.errors import ProposerRefused
from warpsmith.core.evaluation import Status
from warpsmith.core.method import Move
from warpsmith.core.outline import Family, Node, Outline, Value
from warpsmith.core.search import Brief, Exhibit, Problem, Reply, Role
from warpsmith.core.strategy import Parameter, Plan, Strategy
from warpsmith.prompts.parser import parse
from warpsmith.propose.template import TemplateProposer
from warpsmith.strategies import genome, templates

PROBLEM = make_problem(backend="cpu")


def ability(name: str, values: tuple[str, ...] = (), excludes: tuple[str, ...] = ()) -> Strategy:
    parameters = (Parameter("size", values),) if values else ()
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

    def translate(self, problem: Problem, plan: Plan) -> str:
        real = Plan(tuple(choice for choice in plan.choices if choice.strategy != "pretence"))
        return f"/* {real} */ int launch();\n"

    def carried(self, problem: Problem, source: str) -> Plan | None:
        found = re.match(r"/\* (.*?) \*/", source)
        return Plan.read(found[1]) if found else None


def exhibit(id: str, strategy: str, text: str = "", status: Status = Status.OK, reason: str = "") -> Exhibit:
    return Exhibit(id, id, (SourceFile("kernel.cpp", text),), "", strategy, status, reason, 1)


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
    read = genome.plan_of(field(reply, "strategy"), Fake.strategies)
    assert read is not None
    return read


def softmax_problem(backend: str) -> Problem:
    """With an outline and a contract as the judge and the backend give them."""
    problem = make_problem(backend=backend)
    matrix = Value("x", "float32", ("rows", "cols"))
    node = Node("aten._softmax.default", '[{"$": "x"}, -1, false]', "{}", (replace(matrix, name="%0"),))
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

    assert sum(genome.distance(start, each) <= 2 for each in plans) > 10
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

    assert genome.distance(plan(reply), Plan.read("rows + simd") or Plan()) >= 3
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
    with pytest.raises(ProposerRefused, match=r"element-wise .*matrix products.*--proposer openai:MODEL"):
        propose(brief(Move.INIT, problem=other))


def test_what_is_to_be_written_as_text_is_the_reference() -> None:
    reply = propose(brief(Move.WRITE, problem=make_problem(family=Family.OTHER)))

    assert f"```python\n{SOURCE}\n```" in reply.text


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_with_the_real_templates_every_move_gives_a_candidate_whose_strategy_is_in_its_code(backend: str) -> None:
    problem = softmax_problem(backend)
    able = templates.abilities(problem)
    proposer = TemplateProposer()
    shown: list[Exhibit] = []
    for number, move in enumerate([move for move in Move if move is not Move.WRITE] * 3):
        tried = tuple(each.strategy for each in shown)
        asked = replace(brief(move, seed=number, tried=tried, problem=problem), parents=tuple(shown[-2:]))
        if shown:
            asked = replace(asked, best=shown[0], failure=replace(shown[-1], status=Status.WRONG, reason="it is off."))
        proposal = parse(proposer.propose(asked, proposer.prompt(asked)), asked)
        candidate = proposal.candidate
        assert candidate is not None, proposal.failure
        read = genome.plan_of(candidate.strategy, able)
        assert read is not None
        assert str(templates.carried(problem, candidate.main.text)) == str(read)
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
