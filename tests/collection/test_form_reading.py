"""What makes no difference to the outputs of an outline: what is left out, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.collection.test_forms import described
from warpsmith.kernels.form_reading import in_order, simplified
from warpsmith.model.task import Family, Operation, Outline, OutlineValue

SIZES = '{"n": 6, "m": 5}'
TENSORS = 'a=normal("n"); b=normal("n, m"); c=normal("m, n")'


def value(name: str, *dims: int | str) -> OutlineValue:
    return OutlineValue(name, "float32", dims)


def operation(op: str, result: str, *arguments: object, **keywords: object) -> Operation:
    """An operation whose arguments that are text stand for values."""
    given = [{"$": each} if isinstance(each, str) else each for each in arguments]
    return Operation(f"aten.{op}", json.dumps(given), json.dumps(keywords), (value(result, 4),))


def outline_of(*nodes: Operation, outputs: tuple[str, ...] = ("%9",)) -> Outline:
    return Outline(Family.OTHER, (value("x", 4), value("y", 4)), nodes, outputs)


NEEDED = operation("relu.default", "%9", "x")
COPY = operation("clone.default", "%1", "y")
COUNTED = operation("add_.Tensor", "%2", "%1", 1)


def test_what_no_output_depends_on_is_left_out() -> None:
    found = simplified(outline_of(COPY, COUNTED, operation("mul_.Tensor", "%3", "%2", 2), NEEDED))

    assert found.nodes == (NEEDED,)
    assert [each.name for each in found.inputs] == ["x"]


MADE = operation("mm.default", "%1", "x", "y")


def test_element_wise_operations_in_place_become_ordinary_ones() -> None:
    found = simplified(
        outline_of(MADE, operation("add_.Tensor", "%2", "%1", "x"), operation("relu_.default", "%9", "%2"))
    )

    assert [node.op for node in found.nodes] == ["aten.mm.default", "aten.add.Tensor", "aten.relu.default"]


@pytest.mark.parametrize(
    "nodes",
    [
        # A view that was taken before, or that is taken of a result in place and read afterwards.
        (MADE, operation("view.default", "%3", "%1", [4]), operation("relu_.default", "%2", "%1"), NEEDED),
        (operation("t.default", "%1", "x"), operation("relu_.default", "%9", "%1")),
        (MADE, operation("relu_.default", "%2", "%1"), operation("mul.Tensor", "%9", "%1", "%2")),
        (MADE, operation("copy_.default", "%2", "%1", "x"), operation("neg.default", "%9", "%2")),
    ],
)
def test_operations_in_place_on_shared_memory_stay(nodes: tuple[Operation, ...]) -> None:
    given = outline_of(*nodes)
    assert any("_." in node.op for node in simplified(given).nodes)


@pytest.mark.parametrize(
    "nodes",
    [
        (operation("add_.Tensor", "%2", "x", 1), NEEDED),  # changes an input
        (COPY, operation("view.default", "%4", "%1", [4]), operation("add_.Tensor", "%5", "%4", 1), NEEDED),
        (COPY, COUNTED, operation("mul.Tensor", "%9", "x", "%1")),  # reads what was changed
        (COPY, operation("add_.Tensor", "%9", "%1", 1)),
        (COPY, operation("_foreach_add_.Scalar", "%2", ["%1"], 1), NEEDED),
        (operation("add.out", "%2", "x", "x", out={"$": "y"}), NEEDED),
        (operation("native_batch_norm.default", "%2", "x", None, None, "y", "y", True, 0.1, 1e-5), NEEDED),
    ],
)
def test_an_outline_in_which_something_is_written_stays_as_it_is(nodes: tuple[Operation, ...]) -> None:
    given = outline_of(*nodes)

    assert simplified(given) == given


def test_an_outline_without_known_outputs_stays_as_it_is() -> None:
    for outputs in ((), ("?",)):
        assert simplified(outline_of(NEEDED, outputs=outputs)).nodes == (NEEDED,)


@pytest.mark.parametrize("training", [True, False])
def test_only_training_does_not_depend_on_running_statistics(training: bool) -> None:
    copies = [operation("clone.default", name, "y") for name in ("%1", "%2")]
    norm = operation("native_batch_norm.default", "%9", "x", None, None, "%1", "%2", training, 0.1, 1e-5)

    found = simplified(outline_of(*copies, norm))

    arguments = json.loads(found.nodes[-1].arguments)
    if training:
        assert len(found.nodes) == 1
        assert arguments == [{"$": "x"}, None, None, None, None, True, None, 1e-5]
    else:
        assert found.nodes == (*copies, norm)


def test_statistics_that_an_output_depends_on_are_not_left_out() -> None:
    copies = [operation("clone.default", name, "y") for name in ("%1", "%2")]
    norm = operation("native_batch_norm.default", "%3", "x", None, None, "%1", "%2", True, 0.1, 1e-5)
    given = outline_of(*copies, norm, operation("add.Tensor", "%9", "%3", "%1"))

    assert simplified(given) == given


def test_a_diagonal_matrix_as_the_first_factor_is_a_factor_for_each_row(tmp_path: Path) -> None:
    _, _, recorded = described(tmp_path, TENSORS, SIZES, "torch.diag(a) @ b + torch.diag(a) @ b")

    names = [node.op.split(".")[1] for node in simplified(recorded).nodes]

    assert names == ["unsqueeze", "mul", "unsqueeze", "mul", "add"]


@pytest.mark.parametrize("result", ["c @ torch.diag(a)", "torch.diag(a, 1)[1:, :-1] @ b", "torch.diag(b[:, 0]).T @ b"])
def test_other_diagonal_matrices_are_left_alone(result: str, tmp_path: Path) -> None:
    _, _, recorded = described(tmp_path, TENSORS, SIZES, result)

    assert [node.op for node in simplified(recorded).nodes].count("aten.mm.default") == 1


def test_the_order_of_operations_follows_from_the_graph(tmp_path: Path) -> None:
    first = operation("abs.default", "%1", "x")
    second = operation("neg.default", "%2", "y")
    last = operation("add.Tensor", "%9", "%1", "%2")

    expected = (first, second, last)
    assert in_order(outline_of(second, first, last)).nodes == expected
    assert in_order(outline_of(*expected)).nodes == expected
    unread = outline_of(second, operation("exp.default", "%4", "x"), first, last)
    assert in_order(unread) == unread


def test_a_value_that_is_read_twice_comes_once() -> None:
    shared = operation("abs.default", "%1", "x")
    nodes = (shared, operation("exp.default", "%2", "%1"), operation("mul.Tensor", "%9", "%2", "%1"))

    assert in_order(outline_of(*nodes)).nodes == nodes
    assert in_order(replace(outline_of(*nodes), outputs=("%1", "%9"))).nodes == nodes
