"""What forms write about the parameters of a task: names that clash with those of the text, and large extents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collection.test_forms import described
from tests.cuda_front_end import compile_errors
from warpsmith.kernels.forms import form_kernel
from warpsmith.lowering.emitter import wide

CLASHES = [
    ('a=normal("m, p"); b=normal("p, n")', '{"m": 90, "p": 50, "n": 60}', "a @ b", "int64_t p_given,"),
    ('a=normal("m, p"); b=normal("p, n")', '{"m": 90, "p": 50, "n": 60}', "torch.triu(a @ b)", "int64_t p_given,"),
    ('policy=normal("b, n")', '{"b": 9, "n": 50}', "policy.softmax(-1)", "const float* policy_given,"),
    ('x=normal("Policy, n")', '{"Policy": 9, "n": 50}', "x.sum(0)", "int64_t Policy_given,"),
]


@pytest.mark.parametrize(("tensors", "sizes", "result", "parameter"), CLASHES)
def test_a_parameter_has_no_name_that_the_text_uses_itself(
    tensors: str, sizes: str, result: str, parameter: str, tmp_path: Path
) -> None:
    found = form_kernel(*described(tmp_path, tensors, sizes, result))

    assert found is not None
    assert parameter in found.source.partition('extern "C" int launch(')[2]


@pytest.mark.nvcc
def test_such_a_text_compiles(tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, *CLASHES[1][:3])
    found = form_kernel(task, contract, recorded)
    assert found is not None
    assert not compile_errors(found.source, contract, tmp_path)


@pytest.mark.parametrize(
    ("product", "said"),
    [
        ("1", "1"),
        ("7 * 9 * b", "7 * 9 * b"),
        ("b * 70000 * 70000", "b * 70000 * 70000"),
        ("70000 * b * 70000", "70000 * b * 70000"),
        ("4900000000 * b", "4900000000 * b"),
        ("46341 * 46341", "int64_t(46341) * 46341"),
        ("70000 * 70000 * b", "int64_t(70000) * 70000 * b"),
    ],
)
def test_numbers_whose_product_is_no_int_are_multiplied_in_64_bits(product: str, said: str) -> None:
    assert wide(product) == said


@pytest.mark.parametrize(
    ("result", "said"), [("x.sum(-1)", "reduce_last_axis(x, "), ("x.softmax(-1)", "reduce_all_rows(policy, ")]
)
def test_extents_that_are_numbers_are_multiplied_in_64_bits(result: str, said: str, tmp_path: Path) -> None:
    found = form_kernel(*described(tmp_path, 'x=normal("70000, 70000, n")', '{"n": 1}', result))

    assert found is not None
    assert f"{said}int64_t(70000) * 70000, n, " in found.source


def test_so_are_those_of_the_places_of_a_tensor(tmp_path: Path) -> None:
    tensors = 'x=normal("b, 50000, 50000, n"); s=normal("b, 1, 1, n")'
    found = form_kernel(*described(tmp_path, tensors, '{"b": 1, "n": 3}', "(x * s).sum(-1)"))

    assert found is not None
    assert "50000 * 50000" not in found.source.replace("int64_t(50000) * 50000", "")
    assert "const int64_t o1_ = o_ % (int64_t(50000) * 50000);" in found.source
