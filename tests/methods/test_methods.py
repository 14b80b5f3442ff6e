"""The methods that come with Warpsmith: well-formed, declarative, and what the papers say."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.methods.table import PAGE, page
from warpsmith import methods as package
from warpsmith.methods import load
from warpsmith.methods.check import method_errors
from warpsmith.methods.deviations import RUNS
from warpsmith.model.method import KernelFact, Method, Move, Product, Show, Until
from warpsmith.populations.create import create

METHODS = load.methods()
FOLDER = Path(package.__file__).parent
MOST_LINES = 70

every = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@dataclass(frozen=True)
class Fact:
    """What is known of a method from its paper."""

    operators: dict[str, tuple[Move, int, int]]  # move, parents, times a generation
    ends: tuple[Until, ...]  # of its stages
    shows: set[Show]
    population: str
    size: float | None = None


LASTS = Until()
FACTS = {
    "evoengineer-free": Fact({"init": (Move.INIT, 0, 1)}, (LASTS,), {Show.BEST}, "best"),
    "evoengineer-insight": Fact(
        {"init": (Move.INIT, 0, 1)}, (LASTS,), {Show.BEST, Show.INSIGHTS, Show.PROFILE}, "elite", 5
    ),
    "evoengineer-full": Fact(
        {"init": (Move.INIT, 0, 1), "crossover": (Move.CROSS, 2, 2), "mutation": (Move.MUTATE, 1, 2)},
        (Until(valid=2), LASTS),
        {Show.BEST, Show.PARENTS, Show.INSIGHTS, Show.PROFILE},
        "elite",
        5,
    ),
    "eoh": Fact(
        {
            "i1": (Move.INIT, 0, 1),
            "e1": (Move.DIVERGE, 2, 1),
            "e2": (Move.CROSS, 2, 1),
            "m1": (Move.MUTATE, 1, 1),
            "m2": (Move.TUNE, 1, 1),
        },
        (Until(valid=5), LASTS),
        {Show.PARENTS},
        "elite",
        5,
    ),
    "cupilot": Fact(
        {
            "initialise": (Move.INIT, 0, 1),
            "cross": (Move.CROSS, 2, 1),
            "mutate": (Move.MUTATE, 1, 1),
            "translate": (Move.TRANSLATE, 2, 1),
            "align": (Move.ALIGN, 0, 1),
            "revise": (Move.REPAIR, 0, 1),
        },
        (Until(share=0.25), Until(share=0.5), Until(share=0.75), LASTS),  # four epochs
        {
            *(Show.ROOFLINE, Show.STRATEGIES, Show.RETRIEVED, Show.IDEAS, Show.EFFECTS),
            *(Show.START, Show.PARENTS, Show.PROFILE, Show.CARDS),
        },
        "tournament",
        5,
    ),
    "funsearch": Fact({"evolve": (Move.MUTATE, 2, 1)}, (LASTS,), {Show.PARENTS}, "islands", 5),
    "ai-cuda-engineer": Fact(
        {
            "convert": (Move.WRITE, 0, 1),
            "translate": (Move.INIT, 0, 1),
            "evolve": (Move.CROSS, 5, 1),
            "retrieve": (Move.INIT, 0, 1),
        },
        (Until(proposals=1), Until(valid=1), Until(share=40 / 45), LASTS),
        {Show.BEST, Show.PARENTS, Show.PROFILE, Show.NOTES, Show.RETRIEVED},
        "elite",
        5,
    ),
}


@every
def test_it_is_well_formed(method: Method) -> None:
    assert list(method_errors(method)) == []
    assert all((method.title, method.paper, method.summary, method.deviations))


@pytest.mark.parametrize("name", FACTS)
def test_it_is_what_the_paper_says(name: str) -> None:
    method, fact = METHODS[name], FACTS[name]

    assert {each.name: (each.move, each.parents, each.times) for each in method.operators} == fact.operators
    assert tuple(stage.until for stage in method.stages) == fact.ends
    assert {show for each in method.operators for show in each.shows} - {Show.FAILURES} == fact.shows
    assert method.population.name == fact.population
    sizes = [value for option, value in method.population.options if option in ("size", "islands")]
    assert sizes == ([] if fact.size is None else [fact.size])


SAID = {
    "evoengineer-free": set(),
    "funsearch": set(),
    "eoh": {KernelFact.MEASURED, KernelFact.THOUGHT},
    "evoengineer-insight": {KernelFact.NAME, KernelFact.MEASURED, KernelFact.THOUGHT},
    "evoengineer-full": {KernelFact.NAME, KernelFact.MEASURED, KernelFact.THOUGHT},
    "ai-cuda-engineer": {KernelFact.MEASURED},
    "cupilot": set(KernelFact),
}


@pytest.mark.parametrize("name", SAID)
def test_of_kernels_it_says_what_the_paper_says(name: str) -> None:
    kernels = {Show.BEST, Show.PARENTS, Show.RETRIEVED}

    assert [each.facts for each in METHODS[name].operators if each.shows & kernels and each.facts != SAID[name]] == []


@every
def test_its_deviations_name_what_every_run_does_otherwise_and_how_to_turn_it_off(method: Method) -> None:
    assert set(RUNS) <= set(method.deviations)
    said = " ".join(method.deviations)
    shows = {show for each in method.operators for show in each.shows}
    for option, needed in {
        "--no-failures": Show.FAILURES in shows and method.revise is None,
        "--no-profile": Show.PROFILE in shows and method.revise is None,
        "--start": True,
        "--stop-at 0": True,
        "--no-tune": True,
    }.items():
        assert (option in said) or not needed, option
    assert (method.population.name == "tournament") == any("mutate strategies" in text for text in method.deviations)


def test_insights_are_at_most_three() -> None:
    shown = {each.insights for method in METHODS.values() for each in method.operators if Show.INSIGHTS in each.shows}

    assert shown == {3}


@pytest.mark.parametrize(("name", "operator"), [("funsearch", "evolve"), ("ai-cuda-engineer", "evolve")])
def test_where_a_series_is_shown_the_best_comes_last(name: str, operator: str) -> None:
    orders = {each.name: each.order for each in METHODS[name].operators}

    assert orders.pop(operator) == "worst_first"
    assert set(orders.values()) <= {"best_first"}


@every
def test_every_request_for_a_kernel_tells_what_failed(method: Method) -> None:
    kernels = [each for each in method.operators if each.is_trial and each.move != Move.WRITE]
    silent = [each.name for each in kernels if Show.FAILURES not in each.shows]

    assert silent == []
    assert method.repairs == (2 if method.revise else 1)


def test_cupilot_has_four_roles_one_after_the_other() -> None:
    cupilot = METHODS["cupilot"]
    chains = {tuple(each.role for each in operator.chain) for stage in cupilot.stages for operator in stage.operators}

    assert chains == {("strategist", "translator", "aligner")}
    assert cupilot.revise is not None
    assert [each.role for each in cupilot.revise.chain] == ["revisor", "aligner"]
    assert {each.role: each.product for each in cupilot.operators} == {
        "strategist": Product.STRATEGIES,
        "translator": Product.KERNEL,
        "revisor": Product.KERNEL,
        "aligner": Product.ALIGNMENT,
    }
    # With 45 trials an epoch has 11; one reply of a strategist must leave room for another in it.
    assert max(each.yields for each in cupilot.operators) <= 11 / 2 + 1


@every
def test_a_wording_is_named_after_the_operator_it_words(method: Method) -> None:
    for operator in method.operators:
        folder, _, name = operator.wording.partition("/")
        assert method.name.startswith(folder)
        assert name in (operator.name, "insight")


@every
def test_its_population_can_serve_its_operators(method: Method) -> None:
    assert create(method.population).members == ()
    size = dict(method.population.options).get("size")
    assert size is None or max(each.parents for each in method.operators) <= size


@pytest.mark.parametrize("name", METHODS)
def test_it_is_one_small_file_that_only_declares(name: str) -> None:
    path = FOLDER / f"{name.replace('-', '_')}.py"
    text = path.read_text(encoding="utf-8")

    assert len(text.splitlines()) <= MOST_LINES
    allowed = (ast.Expr, ast.ImportFrom, ast.Assign)
    assert {type(statement) for statement in ast.parse(text).body} <= set(allowed)
    control = (ast.IfExp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
    assert [node for node in ast.walk(ast.parse(text)) if isinstance(node, control)] == []


def test_the_page_says_what_the_methods_are() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert page(text) == text, "run python -m tests.methods.table"
    assert all(f"### `{name}`" in text for name in METHODS)


def test_every_method_of_the_papers_is_there() -> None:
    assert set(FACTS) <= set(METHODS)
