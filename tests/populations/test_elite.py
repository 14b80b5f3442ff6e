from __future__ import annotations

from collections import Counter, defaultdict
from itertools import permutations

import pytest

from warpsmith.model.brief import Member
from warpsmith.populations.elite import Elite

DRAWS = 4000


def elite(size: int, members: int) -> Elite:
    population = Elite(size)
    for number in range(members):
        population.insert(Member(f"k{number}", 10.0 - number, number))
    return population


def test_it_shows_the_best_and_no_more_than_its_size() -> None:
    assert [member.id for member in elite(3, members=8).members] == ["k0", "k1", "k2"]


@pytest.mark.parametrize("members", [2, 5])
def test_one_parent_is_drawn_in_proportion_to_one_over_rank_plus_n(members: int) -> None:
    population = elite(5, members)
    weights = [1 / (rank + members) for rank in range(1, members + 1)]

    found = Counter(population.pick(1, seed).ids[0] for seed in range(DRAWS))

    for number, weight in enumerate(weights):
        share = weight / sum(weights)
        deviation = (share * (1 - share) / DRAWS) ** 0.5
        assert abs(found[f"k{number}"] / DRAWS - share) < 4 * deviation


def test_two_parents_are_drawn_one_after_the_other_from_those_left() -> None:
    population = elite(3, members=3)
    weights = {f"k{rank - 1}": 1 / (rank + 3) for rank in (1, 2, 3)}
    total = sum(weights.values())
    expected: dict[tuple[str, ...], float] = defaultdict(float)
    for first, second in permutations(weights, 2):
        chance = weights[first] / total * weights[second] / (total - weights[first])
        expected[tuple(sorted((first, second)))] += chance

    found = Counter(population.pick(2, seed).ids for seed in range(DRAWS))

    assert set(found) == set(expected)
    for pair, share in expected.items():
        assert abs(found[pair] / DRAWS - share) < 4 * (share * (1 - share) / DRAWS) ** 0.5


def test_asking_for_all_gives_all_best_first() -> None:
    assert elite(5, members=7).pick(5, seed=3).ids == ("k0", "k1", "k2", "k3", "k4")
