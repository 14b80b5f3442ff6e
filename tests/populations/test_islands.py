from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from warpsmith.model.brief import Member
from warpsmith.populations.islands import CLUSTER_WIDTH, Islands

NEVER = 1_000_000


def on_islands(population: Islands, islands: int, seeds: int = 400) -> dict[int, set[str]]:
    """What lies where, as far as picks of everything can tell."""
    found: dict[int, set[str]] = defaultdict(set)
    for seed in range(seeds):
        pick = population.pick(1000, seed)
        found[pick.place].update(pick.ids)
    assert set(found) == set(range(islands))
    return found


def shares(population: Islands, draws: int = 3000) -> dict[str, float]:
    found = Counter(population.pick(1, seed).ids[0] for seed in range(draws))
    return {id: times / draws for id, times in found.items()}


def test_the_first_member_starts_every_island_and_the_next_stays_on_its_own() -> None:
    population = Islands(4, 0.2, NEVER)
    population.insert(Member("adam", 1.0, 1, place=2))
    population.insert(Member("eve", 1.5, 2, place=1))

    assert on_islands(population, 4) == {0: {"adam"}, 1: {"adam", "eve"}, 2: {"adam"}, 3: {"adam"}}
    assert [member.id for member in population.members] == ["eve", "adam"]


def test_before_the_first_member_briefs_are_spread_over_the_islands() -> None:
    assert {Islands(4, 0.2, NEVER).pick(2, seed).place for seed in range(100)} == {0, 1, 2, 3}


def test_parents_come_from_one_island() -> None:
    population = Islands(3, 0.2, NEVER)
    for trial in range(30):
        population.insert(Member(f"k{trial}", 1 + trial / 10, trial, place=trial % 3))
    home = {f"k{trial}": trial % 3 for trial in range(1, 30)}

    for seed in range(200):
        pick = population.pick(2, seed)
        assert len(pick.ids) == 2
        assert {home.get(id, pick.place) for id in pick.ids} == {pick.place}


def test_a_revision_reaches_every_copy() -> None:
    population = Islands(3, 0.001, NEVER)
    population.insert(Member("adam", 5.0, 1))
    for place in range(3):
        population.insert(Member(f"k{place}", 2.0, 2 + place, place))

    population.insert(Member("adam", 1.0, 1))

    # At this temperature only the fastest cluster is ever drawn.
    assert "adam" not in shares(population, draws=200)
    assert population.members[-1] == Member("adam", 1.0, 1)


def test_an_island_that_loses_its_last_member_starts_again_from_the_best() -> None:
    population = Islands(2, 0.2, NEVER)
    population.insert(Member("adam", 1.0, 1))
    population.insert(Member("eve", 2.0, 2, place=1))

    population.remove("adam")

    assert on_islands(population, 2) == {0: {"eve"}, 1: {"eve"}}


def test_clusters_are_drawn_by_a_softmax_over_the_logarithm_of_speed() -> None:
    temperature, steps = 0.3, (0, 4, 10)
    population = Islands(1, temperature, NEVER)
    for step in steps:
        population.insert(Member(f"k{step}", 3.0 * 1.05**-step, step))
    weights = {f"k{step}": 2.718281828 ** (-step * CLUSTER_WIDTH / temperature) for step in steps}

    found = shares(population)

    for id, weight in weights.items():
        assert found[id] == pytest.approx(weight / sum(weights.values()), abs=0.035)


def test_a_cluster_counts_once_however_many_members_it_has() -> None:
    population = Islands(1, 1000, NEVER)  # so hot that all clusters are equally likely
    population.insert(Member("lonely", 1.0, 0))
    for trial in range(1, 10):
        population.insert(Member(f"crowd{trial}", 3.0 + trial / 1000, trial))

    assert shares(population)["lonely"] == pytest.approx(0.5, abs=0.04)


def test_of_about_equally_fast_programs_the_shorter_is_preferred() -> None:
    population = Islands(1, 0.2, NEVER)
    population.insert(Member("long", 2.01, 1, length=5000))
    population.insert(Member("short", 2.0, 2, length=500))

    found = shares(population)

    assert found["short"] > 0.65
    assert found["long"] > 0.2


def test_it_cools_until_the_reset_and_is_warm_again_after() -> None:
    population = Islands(1, 1.0, reset_every=20)
    population.insert(Member("slow", 1.0, 0))
    population.insert(Member("fast", 2.0, 1))
    warm = shares(population)["slow"]
    for trial in range(2, 19):
        population.insert(Member(f"dud{trial}", 0.01, trial))  # far too slow to be drawn often
    cold = shares(population).get("slow", 0.0)
    population.insert(Member("dud19", 0.01, 19))

    assert warm > 0.25
    assert cold < 0.01
    assert shares(population)["slow"] > 0.2


@pytest.mark.parametrize(("islands", "lost"), [(1, 0), (2, 1), (4, 2), (5, 2)])
def test_a_reset_empties_the_weaker_half_and_seeds_it_from_the_stronger(islands: int, lost: int) -> None:
    population = Islands(islands, 0.2, reset_every=islands + 1)
    population.insert(Member("adam", 0.5, 0))
    speeds = {place: 1.0 + (place * 2) % islands for place in range(islands)}  # not in the order of the islands
    for place, speed in speeds.items():
        population.insert(Member(f"king{place}", speed, place + 1, place))
    order = sorted(speeds, key=lambda place: (-speeds[place], place))

    found = on_islands(population, islands)

    for place in order[: islands - lost]:
        assert found[place] == {"adam", f"king{place}"}
    for strong, weak in zip(order, reversed(order[islands - lost :]), strict=False):
        assert found[weak] == {f"king{strong}"}


def test_measuring_again_does_not_bring_a_reset_nearer() -> None:
    population = Islands(2, 0.2, reset_every=3)
    population.insert(Member("adam", 1.0, 1))
    population.insert(Member("eve", 2.0, 2, place=1))
    for score in (1.1, 1.2, 1.3):
        population.insert(Member("adam", score, 1))

    assert on_islands(population, 2) == {0: {"adam"}, 1: {"adam", "eve"}}


def test_no_reset_loses_the_best() -> None:
    population = Islands(5, 0.2, reset_every=3)
    best = 0.0
    for trial in range(200):
        score = 1 + (trial * 37 % 101) / 50
        best = max(best, score)
        population.insert(Member(f"k{trial}", score, trial, place=trial % 5))
        assert population.members[0].score == best


def test_an_island_that_does_not_exist_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="island 5 of 5"):
        Islands(5, 0.2, NEVER).insert(Member("k", 1.0, 1, place=5))
