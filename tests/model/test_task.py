from __future__ import annotations

import pytest

from warpsmith.model.errors import TaskError
from warpsmith.model.task import (
    DTYPE_BYTES,
    Dim,
    Precision,
    ScalarKind,
    ScalarSpec,
    Task,
    TaskKind,
    TensorRole,
    TensorSpec,
    Workload,
)


def tensor(
    name: str, *dims: Dim, role: TensorRole = TensorRole.INPUT, dtype: str = "float32", origin: str = ""
) -> TensorSpec:
    return TensorSpec(name, dtype, dims, role, origin)


X = tensor("x", "rows", "cols")
OUT = tensor("out", "rows", "cols", role=TensorRole.OUTPUT)
SMALL = Workload("small", (("rows", 2), ("cols", 8)))
LARGE = Workload("large", (("rows", 64), ("cols", 8)))


def make(
    tensors: tuple[TensorSpec, ...] = (X, OUT),
    workloads: tuple[Workload, ...] = (SMALL, LARGE),
    scalars: tuple[ScalarSpec, ...] = (),
) -> Task:
    return Task(
        "softmax", "def softmax(x): ...", TaskKind.NATIVE, tensors, scalars, workloads, Precision.FP32, digest="d"
    )


def test_shapes_and_sizes_follow_the_workload() -> None:
    mixed = tensor("m", "rows", 3, "cols", dtype="float16")

    assert mixed.shape(SMALL.sizes) == (2, 3, 8)
    assert mixed.numel(SMALL.sizes) == 48
    assert mixed.nbytes(SMALL.sizes) == 96


def test_a_tensor_without_dimensions_has_one_element() -> None:
    total = tensor("total", dtype="float64")

    assert total.shape({}) == ()
    assert total.nbytes({}) == 8


def test_an_empty_tensor_has_none() -> None:
    assert tensor("x", 4, "n").nbytes({"n": 0}) == 0


@pytest.mark.parametrize("name", ["", "a b", "1st", "layer1.weight", "x-y"])
def test_a_tensor_name_is_an_identifier(name: str) -> None:
    with pytest.raises(TaskError, match="not an identifier; rename it"):
        tensor(name)


def test_an_unknown_element_type_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TaskError) as caught:
        tensor("x", dtype="float33")

    assert "'x'" in str(caught.value)
    assert "'float33'" in str(caught.value)
    assert all(known in str(caught.value) for known in DTYPE_BYTES)


def test_inputs_and_state_come_before_outputs_in_call_order() -> None:
    weight = tensor("weight", "cols", role=TensorRole.STATE, origin="layer.weight")
    task = make((X, weight, OUT))

    assert task.inputs == (X, weight)
    assert task.outputs == (OUT,)


@pytest.mark.parametrize(
    "twice",
    [(X, X, OUT), (X, tensor("x", "rows", role=TensorRole.OUTPUT))],
)
def test_a_name_is_used_once(twice: tuple[TensorSpec, ...]) -> None:
    with pytest.raises(TaskError, match="'softmax' names x more than once"):
        make(twice)


def test_a_scalar_does_not_share_its_name_with_a_tensor() -> None:
    with pytest.raises(TaskError, match="names x more than once"):
        make(scalars=(ScalarSpec("x", ScalarKind.INT, 3),))


def test_a_task_has_an_output() -> None:
    with pytest.raises(TaskError, match="'softmax' has no tensor output"):
        make((X,))


def test_a_task_has_a_workload() -> None:
    with pytest.raises(TaskError, match="'softmax' declares no workload; give at least one"):
        make(workloads=())


def test_every_workload_gives_every_axis_a_value() -> None:
    with pytest.raises(TaskError, match="'torn' of task 'softmax' gives the axes rows, another one rows, cols"):
        make(workloads=(SMALL, Workload("torn", (("rows", 2),))))


def test_axes_keep_their_order_and_fixed_ones_are_known() -> None:
    task = make()

    assert task.axes == ("rows", "cols")
    assert task.fixed_axes == {"cols": 8}


def test_with_one_workload_every_axis_is_fixed() -> None:
    assert make(workloads=(SMALL,)).fixed_axes == {"rows": 2, "cols": 8}


def test_a_task_without_axes_fixes_none() -> None:
    task = make((tensor("x", 4), tensor("out", 4, role=TensorRole.OUTPUT)), (Workload("only"),))

    assert task.axes == ()
    assert task.fixed_axes == {}


def test_tasks_are_values() -> None:
    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != make(workloads=(SMALL,))
