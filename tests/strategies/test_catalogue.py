"""Every entry of the catalogue, and which of them are said for which problem."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.strategies.problems import make_problem
from warpsmith.hardware.roofline import Zone
from warpsmith.model.brief import Problem
from warpsmith.model.strategy import Plan, Strategy, StrategyChoice
from warpsmith.model.task import Family, Operation, Outline, OutlineValue, Precision
from warpsmith.strategies.catalogue import relevant_strategies, strategies, work_families

CATALOGUE = strategies()
LANGUAGES = {"cuda", "cpu", "triton"}
WORDS = {
    *(family.value for family in Family),
    *("attention", "convolution", "convolution-3x3", "gather", "normalisation", "pooling", "scan", "selection"),
    *("softmax", "structured", "transpose"),
}


def test_the_catalogue_is_as_rich_as_promised() -> None:
    assert len(CATALOGUE) >= 45
    for backend in ("cuda", "cpu"):
        for zone in (Zone.MEMORY, Zone.COMPUTE, Zone.LATENCY):
            named = [s for s in CATALOGUE.values() if backend in s.backends and zone in s.zones]
            assert len(named) >= 3, (backend, zone)


def test_no_two_entries_say_the_same() -> None:
    for texts in zip(*((s.title, s.advice, s.effect, s.example) for s in CATALOGUE.values()), strict=True):
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=lambda entry: entry.name)
def test_an_entry_is_complete_and_refers_to_what_exists(entry: Strategy) -> None:
    assert Plan.read(str(Plan((StrategyChoice(entry.name),)))) == Plan((StrategyChoice(entry.name),)), (
        "its name must be readable"
    )
    assert set(entry.backends) <= LANGUAGES
    assert entry.backends
    assert set(entry.zones) <= set(Zone)
    assert set(entry.families) <= WORDS
    assert set(entry.precisions) <= set(Precision)
    assert {*entry.needs, *entry.excludes} <= set(CATALOGUE)
    assert entry.name not in {*entry.needs, *entry.excludes}
    assert not set(entry.needs) & set(entry.excludes)
    assert entry.title.strip()
    assert len(entry.advice) >= 80, "advice that a reader can follow takes a sentence or two"
    assert len(entry.effect) >= 40
    assert len(entry.example.strip()) >= 20
    assert len(entry.example.splitlines()) <= 12
    for parameter in entry.parameters:
        assert parameter.name
        assert parameter.values
        assert len(set(parameter.values)) == len(parameter.values)


def test_advice_is_for_this_backend_and_device() -> None:
    old, new = (make_problem(backend="cuda", arch=arch, family=Family.MATMUL) for arch in ("sm_80", "sm_90a"))
    on_cpu = relevant_strategies(make_problem(backend="cpu", family=Family.MATMUL), 100)

    assert all("cpu" in strategy.backends for strategy in on_cpu)
    assert "tma-loads" not in {strategy.name for strategy in relevant_strategies(old, 100)}
    assert "tma-loads" in {strategy.name for strategy in relevant_strategies(new, 100)}


def test_advice_keeps_to_the_precision_class() -> None:
    strict, loose = (
        {
            s.name
            for s in relevant_strategies(make_problem(family=Family.MATMUL, precision=precision, zone="compute"), 100)
        }
        for precision in (Precision.FP32, Precision.BF16)
    )

    assert "wgmma" not in strict
    assert "wgmma" in loose


def test_advice_keeps_to_the_zone_and_between_the_ridges_both_sides_count() -> None:
    memory, compute, middle = (
        {s.name for s in relevant_strategies(make_problem(family=Family.MATMUL, zone=zone), 200)}
        for zone in ("memory", "compute", "middle")
    )

    assert "skinny-products" in memory - compute
    assert "strength-reduction" in compute - memory
    assert middle >= {"skinny-products", "strength-reduction"}


def test_what_names_the_kind_of_work_comes_first() -> None:
    pooled = make_problem(family=Family.OTHER, operations=("aten.max_pool2d_with_indices.default",))
    scanned = make_problem(family=Family.OTHER, operations=("aten.cumsum.default",))

    assert {s.name for s in relevant_strategies(pooled, 3)} >= {"halo-tiles", "sliding-window"}
    assert {s.name for s in relevant_strategies(scanned, 3)} == {"block-scan", "decoupled-look-back", "warp-scan"}


def test_advice_is_limited_and_always_the_same() -> None:
    problem = make_problem(family=Family.ROW_REDUCTION)

    assert len(relevant_strategies(problem, 5)) == 5
    assert relevant_strategies(problem, 5) == relevant_strategies(problem, 50)[:5]


def test_without_an_outline_the_source_tells_the_kind_of_work() -> None:
    conv = make_problem(family=None, source="def f(x, w):\n    return torch.conv2d(x, w)")
    attention = make_problem(family=None, source="def f(q, k, v):\n    return (q.matmul(k)).softmax(-1).matmul(v)")

    assert work_families(conv) == {"convolution"}
    assert "attention" in work_families(attention)


@pytest.mark.parametrize("precision", list(Precision))
def test_float32_products_are_advised_on_tensor_cores_in_parts_only(precision: Precision) -> None:
    problem = make_problem(family=Family.MATMUL, operations=("aten.mm.default",), zone="compute", precision=precision)
    advised = {each.name for each in relevant_strategies(problem, 6)}

    assert ("split-product" in advised) == (precision is Precision.FP32)
    assert ("tensor-cores" in advised) == (precision in (Precision.TF32, Precision.FP16, Precision.BF16))


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32])
def test_the_strategy_made_for_the_kind_of_work_comes_first(precision: Precision) -> None:
    products = ("aten.bmm.default", "aten._softmax.default", "aten.bmm.default")
    attention = make_problem(family=Family.OTHER, operations=products, zone="middle", precision=precision)
    triangular = make_problem(family=Family.OTHER, operations=("aten.mm.default", "aten.tril.default"), zone="compute")

    assert relevant_strategies(attention, 1)[0].name == "flash-attention-tiling"
    assert relevant_strategies(triangular, 1)[0].name == "structural-zeros"


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
@pytest.mark.parametrize(
    ("taps", "stride", "dilation", "groups", "advised"),
    [
        ((3, 3), 1, 1, 1, True),
        ((3, 3, 1), 1, 1, 1, True),
        ((1, 1), 1, 1, 1, False),
        ((3, 3), 2, 1, 1, False),
        ((3, 3), 1, 2, 1, False),
        ((3, 3), 1, 1, 64, False),
        ((3, 7), 1, 1, 1, False),
        ((3, 1), 1, 1, 1, False),
    ],
)
def test_winograd_is_advised_on_the_cpu_for_3x3_filters_with_stride_1(
    taps: tuple[int, ...], stride: int, dilation: int, groups: int, advised: bool, backend: str
) -> None:
    problem = _convolution(taps, stride, dilation, groups, backend)

    assert ("convolution" in work_families(problem)) == (set(taps) != {1})
    assert ("winograd" in {strategy.name for strategy in relevant_strategies(problem, 100)}) == (
        advised and backend == "cpu"  # on a GPU tensor cores are faster without it: benchmarks/winograd.json
    )


def _convolution(taps: tuple[int, ...], stride: int, dilation: int, groups: int, backend: str) -> Problem:
    each = [[number] * len(taps) for number in (stride, 0, dilation)]
    arguments = json.dumps([{"$": "x"}, {"$": "w"}, None, *each, False, [0] * len(taps), groups])
    weights = OutlineValue("w", "float32", (64, 64, *taps))
    node = Operation("aten.convolution.default", arguments, "{}", ())
    return replace(
        make_problem(backend=backend, zone="compute"), outline=Outline(Family.OTHER, (weights,), (node,), ())
    )


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_a_1x1_convolution_is_advised_like_a_product(backend: str) -> None:
    advised = [each.name for each in relevant_strategies(_convolution((1, 1), 1, 1, 1, backend), 100)]

    assert not {"sliding-window", "direct-convolution", "halo-tiles", "im2col"} & {*advised}
    assert "register-tile" in advised
    assert "sliding-window" in {each.name for each in relevant_strategies(_convolution((3, 1), 1, 1, 1, backend), 100)}


def test_without_the_filters_winograd_is_not_advised() -> None:
    problem = make_problem(family=Family.OTHER, operations=("aten.convolution.default",), zone="compute")
    assert "winograd" not in {each.name for each in relevant_strategies(problem, 100)}


def test_softmax_is_advised_where_there_are_exponentials() -> None:
    normed = make_problem(operations=("aten.native_layer_norm.default",))
    assert "online-softmax" not in {each.name for each in relevant_strategies(normed, 100)}
    assert relevant_strategies(make_problem(operations=("aten._softmax.default",)), 1)[0].name == "online-softmax"


def test_a_strategy_of_fast_kernels_for_similar_tasks_ranks_higher() -> None:
    problem = make_problem(operations=("aten.native_layer_norm.default",))
    before = [each.name for each in relevant_strategies(problem, 100)]
    low = before[12]
    after = [each.name for each in relevant_strategies(problem, 100, {low: 3.0})]

    assert after.index(low) < before.index(low)
    assert sorted(after) == sorted(before)
