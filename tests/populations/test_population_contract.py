"""What every population promises, asked of every plugin with its default options."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.model.brief import Member, Population
from warpsmith.model.errors import UsageError
from warpsmith.model.method import PopulationSpec
from warpsmith.populations.create import PACKAGE, create
from warpsmith.system.plugins import plugins

KINDS = sorted(plugins(PACKAGE))

every = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, *members: Member) -> Population:
    population = create(PopulationSpec(kind))
    for member in members:
        population.insert(member)
    return population


def herd(*scores: float) -> list[Member]:
    return [Member(f"k{trial}", score, trial, 0, 100 + trial) for trial, score in enumerate(scores, start=1)]


def events(population: Population, seed: int, scale: float = 1.0) -> list[object]:
    """A run of inserts, revisions, removals and picks, by chance; what was picked and kept."""
    draw = random.Random(seed)
    seen: list[object] = []
    members: list[Member] = []
    for trial in range(1, 60):
        pick = population.pick(2, draw.randrange(1000))
        seen.append(pick)
        event = draw.random()
        if members and event < 0.15:
            old = draw.choice(members)
            population.insert(replace(old, score=old.score * draw.uniform(0.8, 1.2)))
        elif members and event < 0.25:
            population.remove(draw.choice(members).id)
        else:
            score = scale * draw.uniform(0.5, 4)
            members.append(Member(f"k{trial}", score, trial, pick.place, draw.randrange(200, 4000)))
            population.insert(members[-1])
        seen.append([member.id for member in population.members])
    return seen


def test_the_three_kinds_are_there() -> None:
    assert set(KINDS) >= {"best", "elite", "islands"}


@every
def test_an_empty_one_has_no_members_and_picks_none(kind: str) -> None:
    population = made(kind)

    assert population.members == ()
    assert population.pick(2, 0).ids == ()


@every
def test_the_best_is_first_and_an_earlier_one_wins_a_tie(kind: str) -> None:
    early, late = Member("late-by-name", 2.0, trial=3), Member("early-by-name", 2.0, trial=7)

    for order in ((early, late), (late, early)):
        population = made(kind, Member("slow", 1.0, trial=1), *order)
        assert population.members[0].id == early.id


@every
@pytest.mark.parametrize("count", [0, 1, 2, 5, 50])
def test_picks_are_different_members_best_first_and_never_too_many(kind: str, count: int) -> None:
    population = made(kind, *herd(1.0, 3.0, 2.0, 2.01, 5.0, 0.3, 2.5))
    rank = [member.id for member in population.members]

    for seed in range(40):
        ids = population.pick(count, seed).ids
        assert len(ids) == len(set(ids)) <= count
        assert [rank.index(id) for id in ids] == sorted(rank.index(id) for id in ids)
        assert ids or not count


@every
def test_a_known_id_is_revised_upwards_and_downwards(kind: str) -> None:
    first, second = herd(2.0, 3.0)
    population = made(kind, first, second)

    population.insert(replace(first, score=4.0))
    assert (population.members[0].id, population.members[0].score) == ("k1", 4.0)

    population.insert(replace(first, score=1.0))
    assert population.members[0].id == "k2"
    assert [member.id for member in population.members].count("k1") <= 1


@every
def test_what_was_outdone_comes_back_when_its_victor_falls(kind: str) -> None:
    population = made(kind, *herd(1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0))

    population.remove("k7")
    assert population.members[0].id == "k6"

    population.insert(Member("k6", 0.1, 6))
    assert population.members[0].id == "k5"


@every
def test_the_last_can_be_removed_and_a_stranger_too(kind: str) -> None:
    population = made(kind, *herd(1.0))

    population.remove("never-seen")
    assert [member.id for member in population.members] == ["k1"]
    population.remove("k1")
    assert population.members == ()
    assert population.pick(2, 0).ids == ()

    population.insert(Member("k2", 1.0, 2))
    assert population.pick(2, 0).ids == ("k2",)


@every
def test_picking_changes_nothing(kind: str) -> None:
    population = made(kind, *herd(1.0, 3.0, 2.0, 2.01, 5.0))
    before = population.members, [population.pick(2, seed) for seed in range(20)]

    after = population.members, [population.pick(2, seed) for seed in range(20)]

    assert after == before


@every
@given(seed=st.integers(0, 10_000))
@settings(max_examples=15)
def test_the_same_events_give_the_same_population_and_picks(kind: str, seed: int) -> None:
    assert events(made(kind), seed) == events(made(kind), seed)


@every
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-6, 0.37, 2.0, 60.0, 1000.0]))
@settings(max_examples=15)
def test_only_ratios_of_scores_count(kind: str, seed: int, scale: float) -> None:
    assert events(made(kind), seed, scale) == events(made(kind), seed)


@every
def test_it_stays_small_however_long_the_run(kind: str) -> None:
    population = made(kind)
    draw = random.Random(1)
    for trial in range(3000):
        population.insert(Member(f"k{trial}", draw.uniform(0.5, 4), trial, population.pick(1, trial).place))

    assert 1 <= len(population.members) <= 500
    assert max(member.score for member in population.members) == population.members[0].score


@every
@pytest.mark.parametrize("score", [0.0, -1.0, float("inf"), float("nan")])
def test_a_score_that_no_valid_kernel_has_is_a_fault_of_ours(kind: str, score: float) -> None:
    with pytest.raises(ValueError, match="finite and positive"):
        made(kind, Member("k1", score, 1))


@every
def test_an_unknown_option_is_answered_with_the_known_ones(kind: str) -> None:
    known = [option.name for option in plugins(PACKAGE)[kind].options]

    with pytest.raises(UsageError, match=f"the population '{kind}' has no option 'colour'; ") as caught:
        create(PopulationSpec(kind, (("colour", 3),)))

    assert all(name in str(caught.value) for name in known)


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        ("elite", "size", 0),
        ("elite", "size", 2.5),
        ("elite", "size", float("nan")),
        ("islands", "islands", 1e9),
        ("islands", "temperature", 0),
        ("islands", "temperature", float("inf")),
        ("islands", "reset_every", -1),
    ],
)
def test_an_impossible_value_is_answered_with_what_is_possible(kind: str, option: str, value: float) -> None:
    with pytest.raises(UsageError, match=rf"^{option} = .* is not possible for the population '{kind}': give .* from"):
        create(PopulationSpec(kind, ((option, value),)))


def test_an_unknown_kind_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown population 'herd'; known: best, elite, islands"):
        create(PopulationSpec("herd"))
