"""What a reference does, recorded without data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.tasks.conftest import Load

from warpsmith.model.task import Family
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline

HONEST = Path(__file__).resolve().parent.parent / "honest"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gelu_tanh", Family.ELEMENTWISE),
        ("swiglu", Family.ELEMENTWISE),
        ("softmax", Family.ROW_REDUCTION),
        ("rms_norm_fp16", Family.ROW_REDUCTION),
        ("column_sum", Family.ROW_REDUCTION),
        ("max_with_index", Family.ROW_REDUCTION),
        ("mean_all", Family.FULL_REDUCTION),
        ("cross_entropy", Family.FULL_REDUCTION),
        ("matmul", Family.MATMUL),
        ("gemv", Family.MATMUL),
        ("attention", Family.OTHER),
        ("conv2d", Family.OTHER),
        ("sort_rows", Family.OTHER),
    ],
)
def test_family(name: str, family: Family) -> None:
    assert outline(load_task(HONEST / f"{name}.py")).family is family


def test_operations_name_values_and_axes() -> None:
    found = outline(load_task(HONEST / "swiglu.py"))

    silu, product = found.nodes
    assert (silu.op, product.op) == ("aten.silu.default", "aten.mul.Tensor")
    assert json.loads(silu.arguments) == [{"$": "gate"}]
    assert json.loads(product.arguments) == [{"$": silu.results[0].name}, {"$": "up"}]
    assert product.results[0].dims == ("tokens", "hidden")
    assert found.outputs == (product.results[0].name,)
    assert [value.name for value in found.inputs] == ["gate", "up"]


def test_axes_of_equal_extent_are_told_apart_and_products_are_spelled_out(native: Load) -> None:
    program = native("""
        @task(x=normal("rows, cols"), workloads=[{"rows": 64, "cols": 64}])
        def flat(x):
            return (x.t().reshape(-1) / x.shape[0]).sum()
    """)

    found = outline(program)

    assert found.nodes[0].results[0].dims == ("cols", "rows")
    assert found.nodes[-2].op == "aten.div.Tensor"
    assert found.nodes[-2].results[0].dims == ("rows*cols",)
    assert json.loads(found.nodes[-2].arguments)[1] == {"$": "rows"}


def test_a_number_that_is_divided_by_an_axis_is_spelled_out(native: Load) -> None:
    program = native("""
        @task(x=normal("rows, cols"), workloads=[{"rows": 64, "cols": 64}])
        def scaled(x):
            return x * (0.3 / x.shape[1]) * (1 / (x.shape[0] + 1))
    """)

    found = outline(program)

    assert [json.loads(node.arguments)[1] for node in found.nodes] == [{"$": "0.3/cols"}, {"$": "?"}]


def test_a_part_of_an_axis_is_spelled_out(native: Load) -> None:
    program = native("""
        @task(x=normal("rows, cols"), workloads=[{"rows": 6, "cols": 64}])
        def halves(x):
            first, second = x.chunk(2, -1)
            return first.sum(-1) * second.sum(-1)
    """)

    (split, *_) = outline(program).nodes

    assert [value.dims for value in split.results] == [("rows", "(cols+1)//2"), ("rows", "cols//2")]


def test_a_number_that_the_reference_makes_a_tensor_of_is_recorded(native: Load) -> None:
    program = native("""
        @task(x=normal("rows, cols"), workloads=[{"rows": 6, "cols": 64}])
        def limited(x):
            return torch.min(x, torch.tensor(0.5))
    """)

    found = outline(program)

    constant, least = found.nodes
    assert (constant.op, constant.arguments) == ("aten.scalar_tensor.default", "[0.5]")
    assert json.loads(least.arguments) == [{"$": "x"}, {"$": constant.results[0].name}]
    assert found.family is Family.ELEMENTWISE


def test_a_module_s_parameters_are_inputs(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(12, 7)

            def forward(self, x):
                return torch.relu(self.layer(x))

        def get_inputs():
            return [torch.randn(5, 12)]

        def get_init_inputs():
            return []
    """)

    found = outline(program)

    assert found.family is Family.MATMUL
    used = {name["$"] for node in found.nodes for name in json.loads(node.arguments) if isinstance(name, dict)}
    assert {"x", "layer_weight", "layer_bias"} <= used
    assert found.nodes[-1].results[0].dims == (5, 7)


def test_in_place_on_a_value_of_its_own_is_followed(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 64}])
        def chain(x):
            y = x * 2
            y.add_(1)
            return y.relu_()
    """)

    found = outline(program)

    assert found.family is Family.ELEMENTWISE
    assert json.loads(found.nodes[2].arguments) == [{"$": found.nodes[1].results[0].name}]
    assert found.outputs == (found.nodes[2].results[0].name,)


def test_in_place_through_a_view_is_not_pretended_to_be_understood(native: Load) -> None:
    program = native("""
        @task(x=normal("rows, 8"), workloads=[{"rows": 64}])
        def half(x):
            y = x * 2
            y[:, 4:].mul_(3)
            return y
    """)

    assert outline(program).family is Family.OTHER


def test_a_reference_that_only_runs_on_its_own_sizes_is_recorded_on_them(native: Load) -> None:
    program = native("""
        @task(x=normal("n, 8"), workloads=[{"n": 64}, {"n": 128}])
        def grouped(x):
            assert x.shape[0] % 64 == 0
            return torch.relu(x)
    """)

    found = outline(program)

    assert found.family is Family.ELEMENTWISE
    assert found.nodes[0].results[0].dims == ("n", 8)


def test_a_reference_that_looks_at_values_gives_an_outline_that_says_nothing(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 64}])
        def steps(x):
            return x * int(x.sum().item() > 0)
    """)

    assert outline(program).family is Family.OTHER


def test_some_operators_are_element_wise_although_older_versions_of_torch_do_not_say_so(
    native: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 64}])
        def leaky(x):
            return torch.nn.functional.leaky_relu(x, 0.01)
    """)
    monkeypatch.setattr(torch.Tag, "pointwise", torch.Tag.nondeterministic_seeded)  # which it has not

    assert outline(program).family is Family.ELEMENTWISE


@pytest.mark.parametrize("of", ["instance_norm(x)", "batch_norm(x, None, None, training=True)"])
def test_a_norm_with_the_statistics_of_its_input_is_a_reduction(of: str, native: Load) -> None:
    program = native(f"""
        @task(x=normal("n, 3, h"), workloads=[{{"n": 64, "h": 32}}])
        def norm(x):
            return torch.nn.functional.{of}
    """)

    assert outline(program).family is Family.ROW_REDUCTION
