"""C++ from templates: right for every operator and plan, honest about what it carries."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.kernel_templates.bundle import case_of, drawn, every, load_case, wrong_cases
from tests.kernel_templates.operators import OPERATORS
from warpsmith import kernel_templates as templates
from warpsmith.backends.tunables import tunables
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.kernel_templates import Unsupported
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Status
from warpsmith.model.strategy import Plan, StrategyChoice
from warpsmith.model.task import Family

HONEST = Path(__file__).resolve().parent.parent / "honest"
JUDGED = ("softmax",)
JUDGED_PATIENTLY = (
    "matmul",
    *("layer_norm", "mse_fp64", "gelu_tanh", "column_sum", "cross_entropy", "rms_norm_fp16", "gemv", "max_with_index"),
)


def test_every_operator_is_right_with_every_kind_of_plan(operators_file: Path, tmp_path: Path) -> None:
    random = Random(7)
    cases = []
    for operator in OPERATORS:
        program, problem = load_case(operators_file, operator.name, "cpu")
        assert templates.abilities(problem), f"no template for {operator.name}"
        cases += [case_of(program, problem, plan) for plan in (Plan(), drawn(problem, random))]

    assert wrong_cases(cases, tmp_path) == []


@pytest.mark.parametrize("name", [*JUDGED, *(pytest.param(n, marks=pytest.mark.slow) for n in JUDGED_PATIENTLY)])
def test_the_evaluator_accepts_plain_and_rich_kernels(name: str, evaluator: Evaluator) -> None:
    _, problem = load_case(HONEST / f"{name}.py", name, "cpu")
    plans = (Plan(), every(problem, without=("unroll", "online-softmax")))
    candidates = [
        Candidate((SourceFile("kernel.cpp", templates.translate(problem, plan)),), "cpu", strategy=str(plan))
        for plan in plans
    ]

    verdicts = dict(evaluator.evaluate(HONEST / f"{name}.py", candidates))

    assert [verdicts[n].status for n in (0, 1)] == [Status.OK, Status.OK], [verdicts[n].reason for n in (0, 1)]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["softmax", "new_gelu", "mse", "mm", "column_mean"])
def test_each_ability_shows_in_the_code_it_gives(name: str, backend: str, operators_file: Path) -> None:
    _, problem = load_case(operators_file, name, backend)
    strategies = {s.name: s for s in templates.abilities(problem)}
    assert templates.plan_in_source(problem, templates.translate(problem, Plan())) == Plan()

    for strategy in strategies.values():
        wanted = {strategy.name}
        for _ in strategies:
            wanted |= {need for name in wanted for need in strategies[name].needs}
        last = {p.name: p.values[-1] for p in strategy.parameters}
        choices = [StrategyChoice(n, tuple(last.items()) if n == strategy.name else ()) for n in sorted(wanted)]
        found = templates.plan_in_source(problem, templates.translate(problem, Plan(tuple(choices))))
        assert found is not None
        settings = {choice.strategy: dict(choice.settings) for choice in found.choices}
        assert settings.get(strategy.name) == last, strategy.name


def test_a_comment_that_claims_a_strategy_is_not_believed(operators_file: Path) -> None:
    _, problem = load_case(operators_file, "softmax", "cpu")
    plain = templates.translate(problem, Plan())

    assert templates.plan_in_source(problem, "// #pragma omp parallel for\n/* stream_out( */\n" + plain) == Plan()


def test_what_does_not_apply_or_is_excluded_is_left_out(operators_file: Path) -> None:
    _, problem = load_case(operators_file, "relu", "cpu")
    plan = Plan(
        (StrategyChoice("simd"), StrategyChoice("unroll"), StrategyChoice("split-k"), StrategyChoice("static-chunks"))
    )

    found = templates.plan_in_source(problem, templates.translate(problem, plan))

    assert found is not None
    assert found.names == ("simd",)  # unroll excludes it, static-chunks needs parallel-rows, split-k is for products


def test_parameters_become_tunables_with_the_chosen_value_first(operators_file: Path) -> None:
    _, problem = load_case(operators_file, "mm", "cuda")
    plan = Plan((StrategyChoice("shared-tile", (("depth", "32"),)),))

    (depth,) = [t for t in tunables(templates.translate(problem, plan)) if t.name == "TILE_DEPTH"]

    assert depth.values[0] == "32"
    assert set(depth.values) == {"8", "16", "32"}


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("softmax", "vector_exp_below"),  # of differences from the maximum
        ("elu", "vector_expm1_below"),  # of what lies below zero
        ("logsigmoid", "vector_exp_below"),  # of -|x|
        ("sigmoid", "vector_exp"),  # of anything: e^100 must not become e^-78
    ],
)
def test_exponentials_that_cannot_overflow_are_not_held_back(name: str, function: str, operators_file: Path) -> None:
    _, problem = load_case(operators_file, name, "cpu")
    text = templates.translate(problem, Plan((StrategyChoice("vector-exp"),)))
    body = text[text.index('extern "C" int launch') :]
    assert f"{function}(" in body
    assert not {"vector_exp(", "vector_exp_below(", "vector_expm1("} - {f"{function}("} & set(
        re.findall(r"\w+\(", body)
    )


def test_equal_plans_give_equal_text(operators_file: Path) -> None:
    _, problem = load_case(operators_file, "layer_norm", "cpu")
    plan = every(problem)

    assert templates.translate(problem, plan) == templates.translate(problem, Plan(plan.choices[::-1]))


@pytest.mark.parametrize("name", ["sort_rows", "cumsum", "complex_multiply", "attention"])
def test_no_template_fits_what_templates_do_not_know(name: str) -> None:
    _, problem = load_case(HONEST / f"{name}.py", name, "cpu")

    assert templates.abilities(problem) == ()
    assert templates.plan_in_source(problem, "int launch() { return 0; }") is None
    with pytest.raises(Unsupported):
        templates.translate(problem, Plan())


def test_without_an_outline_there_is_no_template(operators_file: Path) -> None:
    _, problem = load_case(operators_file, "relu", "cpu")
    assert problem.outline is not None

    assert templates.abilities(replace(problem, outline=None)) == ()
    assert templates.abilities(replace(problem, outline=replace(problem.outline, family=Family.OTHER))) == ()
    assert templates.abilities(replace(problem, backend="triton")) == ()
