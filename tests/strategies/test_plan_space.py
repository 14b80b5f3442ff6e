"""Whatever the abilities, every plan that comes out is valid, and none comes twice."""

from __future__ import annotations

from itertools import combinations, product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.model.strategy import Plan, Strategy, StrategyChoice, StrategyParameter
from warpsmith.strategies import plan_space

NAMES = ("a", "b", "c", "d", "e")
STRANGE = Plan((StrategyChoice("b", (("p", "9"),)), StrategyChoice("nonsense"), StrategyChoice("a")))


def ability(name: str, *, needs: tuple[str, ...] = (), excludes: tuple[str, ...] = (), values: str = "") -> Strategy:
    parameters = (StrategyParameter("p", tuple(values)),) if values else ()
    return Strategy(name, name, ("cpu",), (), (), "do", "good", "x", parameters, needs, excludes)


@st.composite
def abilities(draw: st.DrawFn) -> tuple[Strategy, ...]:
    """Up to five, with needs that may be missing, circular or contradictory."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES)))
    others = st.lists(st.sampled_from(NAMES), unique=True, max_size=2).map(tuple)
    return tuple(
        ability(name, needs=draw(others), excludes=draw(others), values=draw(st.sampled_from(["", "1", "12", "123"])))
        for name in names
    )


def every_plan(space: tuple[Strategy, ...]) -> set[str]:
    """All valid plans, by trying all there could be."""
    found = set()
    for count in range(len(space) + 1):
        for chosen in combinations(space, count):
            settings_of_each = [
                [
                    tuple(zip((p.name for p in s.parameters), values, strict=True))
                    for values in product(*(p.values for p in s.parameters))
                ]
                for s in chosen
            ]
            for settings_chosen in product(*settings_of_each):
                plan = Plan(
                    tuple(StrategyChoice(s.name, each) for s, each in zip(chosen, settings_chosen, strict=True))
                )
                if plan_space.valid(plan, space):
                    found.add(str(plan))
    return found


@settings(max_examples=40)
@given(abilities(), st.integers(0, 2**32))
def test_whatever_is_asked_for_the_plan_is_valid_and_new(space: tuple[Strategy, ...], seed: int) -> None:
    rng = Random(seed)
    tried: set[str] = set()
    one: Plan = STRANGE
    other = Plan()
    for turn in range(12):
        plan = (
            plan_space.initial(space, rng, tried),
            plan_space.mutate(one, space, rng, tried),
            plan_space.cross(one, other, space, rng, tried),
            plan_space.tune(one, space, rng, tried),
            plan_space.diverge([one, other], space, rng, tried),
            plan_space.repair(one, space, rng, tried, sound=[other], suspects=["c", "a"]),
        )[turn % 6]
        if plan is not None:
            assert plan_space.valid(plan, space)
            assert str(plan) not in tried
            tried.add(plan_space.text_of(plan))
            one, other = plan, one


@settings(max_examples=25)
@given(abilities(), st.integers(0, 2**32), st.sampled_from(["mutate", "initial", "cross", "diverge", "repair"]))
def test_every_valid_plan_comes_once_and_then_the_end_is_told(
    space: tuple[Strategy, ...], seed: int, operation: str
) -> None:
    rng = Random(seed)
    start = Plan()
    wanted = every_plan(space)
    tried = {str(start)} if operation == "repair" else set()
    while True:
        plan = {
            "mutate": lambda: plan_space.mutate(start, space, rng, tried),
            "initial": lambda: plan_space.initial(space, rng, tried),
            "cross": lambda: plan_space.cross(start, start, space, rng, tried),
            "diverge": lambda: plan_space.diverge([start], space, rng, tried),
            "repair": lambda: plan_space.repair(start, space, rng, tried),
        }[operation]()
        if plan is None:
            break
        assert str(plan) not in tried
        tried.add(str(plan))

    assert tried == wanted


@settings(max_examples=60)
@given(abilities(), st.integers(0, 2**32))
def test_a_child_carries_strategies_of_both_parents_wherever_that_is_possible(
    space: tuple[Strategy, ...], seed: int
) -> None:
    rng = Random(seed)
    one, other = (plan_space.fit(Plan(tuple(map(StrategyChoice, rng.sample(NAMES, 3)))), space) for _ in range(2))
    mine, yours = set(one.names) - set(other.names), set(other.names) - set(one.names)
    child = plan_space.cross(one, other, space, rng, ())
    both = [
        names
        for text in every_plan(space)
        if (plan := Plan.read(text)) is not None
        and (names := set(plan.names)) <= set(one.names) | set(other.names)
        and names & mine
        and names & yours
    ]

    assert child is not None
    assert set(child.names) <= set(one.names) | set(other.names)
    if both:
        assert set(child.names) & mine
        assert set(child.names) & yours


def test_a_child_prefers_what_lets_both_parents_speak() -> None:
    loud = tuple(ability(name, excludes=("b",)) for name in ("x", "y", "z"))
    space = (ability("a"), ability("b"), *loud)
    one, other = Plan(tuple(map(StrategyChoice, "axyz"))), Plan((StrategyChoice("b"),))

    assert {str(plan_space.cross(one, other, space, Random(seed), ())) for seed in range(20)} == {"a + b"}


def test_the_first_plan_has_all_that_goes_together_in_the_order_of_the_abilities() -> None:
    space = (ability("fast"), ability("wide", values="48"), ability("narrow", excludes=("wide",)), ability("risky"))

    assert str(plan_space.initial(space, Random(0), (), risky=("risky",))) == "fast + wide(p=4)"


def test_a_mutation_is_one_step() -> None:
    space = tuple(ability(name, values="123") for name in NAMES)
    parent = Plan((StrategyChoice("a", (("p", "1"),)), StrategyChoice("b", (("p", "2"),))))

    for seed in range(40):
        child = plan_space.mutate(parent, space, Random(seed), [str(parent)])
        assert child is not None
        assert 0 < plan_space.distance(parent, child) <= 2


def test_tuning_changes_settings_only_and_ends_when_all_were_tried() -> None:
    space = (ability("a", values="123"), ability("b", values="12"), ability("c"))
    parent = Plan((StrategyChoice("a", (("p", "1"),)), StrategyChoice("b", (("p", "1"),))))
    tried = [str(parent)]
    while (plan := plan_space.tune(parent, space, Random(1), tried)) is not None:
        assert plan.names == ("a", "b")
        tried.append(str(plan))

    assert len(tried) == len(set(tried)) == 6


def test_a_strategy_that_comes_in_brings_what_it_needs_and_drives_out_what_it_excludes() -> None:
    space = (ability("a", excludes=("c",)), ability("b", needs=("c",)), ability("c"))
    children = {
        str(plan_space.mutate(Plan((StrategyChoice("a"),)), space, Random(seed), ["a", "plain"])) for seed in range(30)
    }

    assert children == {"c", "b + c"}


def test_a_repair_drops_what_no_sound_plan_has_and_suspects_first() -> None:
    space = tuple(ability(name) for name in NAMES)
    broken, parent = Plan(tuple(map(StrategyChoice, "abcd"))), Plan((StrategyChoice("a"), StrategyChoice("b")))

    def mended(sound: list[Plan], suspects: list[str], tried: list[str]) -> str:
        return str(plan_space.repair(broken, space, Random(0), tried, sound=sound, suspects=suspects))

    assert mended([parent], [], []) == "a + b + d"
    assert mended([parent], ["d"], []) == "a + b + c"
    assert mended([], ["b"], []) == "a + c + d"
    assert mended([parent], ["d"], ["a + b + c"]) == "a + b + d"


def test_a_repair_does_not_bring_the_culprit_back_when_the_parent_was_tried() -> None:
    space = tuple(ability(name) for name in NAMES)
    broken, parent = Plan((StrategyChoice("a"), StrategyChoice("b"))), Plan((StrategyChoice("a"),))

    for seed in range(20):
        plan = plan_space.repair(broken, space, Random(seed), ["a", "plain"], sound=[parent])
        assert plan is not None
        assert "b" not in plan.names


def test_a_divergent_plan_is_farther_than_a_mutation() -> None:
    space = tuple(ability(name) for name in NAMES)
    parent = Plan(tuple(map(StrategyChoice, "abc")))
    far = plan_space.diverge([parent], space, Random(3), [str(parent)])

    assert far is not None
    assert plan_space.distance(parent, far) >= 3


def test_texts_are_recognised_in_any_order_and_spelling() -> None:
    space = (ability("a", values="12"), ability("b"))
    left = plan_space.mutate(Plan(), space, Random(0), ["plain", "b+a( p = 1 )", "a(p=2) + b", "b", "a(p=1)"])

    assert str(left) == "a(p=2)"
    assert plan_space.plan_of("use float4 loads", space) is None
    assert plan_space.plan_of("plain", space) == Plan()


def test_the_same_seed_gives_the_same_plan() -> None:
    space = tuple(ability(name, values="123") for name in NAMES)

    assert [plan_space.mutate(STRANGE, space, Random(5), ()) for _ in range(3)] == [
        plan_space.mutate(STRANGE, space, Random(5), ())
    ] * 3
