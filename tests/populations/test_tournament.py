"""Elitism, tournaments, and one place for each strategy."""

from __future__ import annotations

from collections import Counter

from warpsmith.model.brief import Member, Population
from warpsmith.model.method import PopulationSpec
from warpsmith.populations.create import create


def tournament(size: int = 4, rivals: int = 2) -> Population:
    return create(PopulationSpec("tournament", (("size", size), ("rivals", rivals))))


def filled(*scores: float, **options: int) -> Population:
    population = tournament(**options)
    for trial, score in enumerate(scores, start=1):
        population.insert(Member(f"k{trial}", score, trial))
    return population


def test_the_best_stay_and_the_worst_go() -> None:
    population = filled(1.0, 4.0, 2.0, 3.0, 5.0)

    assert [member.score for member in population.members] == [5.0, 4.0, 3.0, 2.0]
    population.remove("k5")
    assert [member.score for member in population.members] == [4.0, 3.0, 2.0, 1.0]


def test_the_more_rivals_the_more_often_the_best_wins() -> None:
    def wins(rivals: int) -> int:
        population = filled(1.0, 4.0, 2.0, 3.0, rivals=rivals)
        return Counter(population.pick(1, seed).ids[0] for seed in range(400))["k2"]

    assert wins(4) == 400  # all of them are drawn
    assert 170 < wins(2) < 230  # 1 - (3/4 · 2/3) of the times
    assert 70 < wins(1) < 130


def test_only_the_order_counts() -> None:
    near, far = filled(1.0, 1.1, 1.2), filled(1.0, 10.0, 100.0)

    assert [near.pick(2, seed) for seed in range(50)] == [far.pick(2, seed) for seed in range(50)]


def test_a_strategy_is_there_once_by_its_fastest_kernel() -> None:
    population = tournament()
    population.insert(Member("a", 2.0, 1, niche="simd"))
    population.insert(Member("b", 3.0, 2, niche="simd"))
    population.insert(Member("c", 1.0, 3, niche="unroll"))
    population.insert(Member("d", 0.5, 4))
    population.insert(Member("e", 0.4, 5))  # of these nothing is known: each stands for itself

    assert [member.id for member in population.members] == ["b", "c", "d", "e"]
    assert set(population.pick(4, 1).ids) == {"b", "c", "d", "e"}
    population.remove("b")
    assert [member.id for member in population.members] == ["a", "c", "d", "e"]


def test_a_member_moves_when_its_strategy_is_put_right() -> None:
    population = tournament()
    population.insert(Member("a", 2.0, 1, niche="simd"))
    population.insert(Member("b", 3.0, 2, niche="unroll"))
    population.insert(Member("b", 3.0, 2, niche="simd"))

    assert [member.id for member in population.members] == ["b"]
