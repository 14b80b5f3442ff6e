"""Problems for tests of strategies and proposers: plain data, no judge."""

from __future__ import annotations

from warpsmith.model.brief import Problem, WorkloadBound
from warpsmith.model.build import DeviceKind
from warpsmith.model.contract import Contract
from warpsmith.model.task import Family, Operation, Outline, Precision, Task, TaskKind, TensorRole, TensorSpec, Workload

SOURCE = "def f(x):\n    return x.softmax(-1)"


def make_problem(
    *,
    backend: str = "cuda",
    arch: str = "sm_90a",
    family: Family | None = Family.ROW_REDUCTION,
    operations: tuple[str, ...] = (),
    zone: str = "memory",
    precision: Precision = Precision.FP32,
    source: str = SOURCE,
) -> Problem:
    """One problem; without a family it has no outline."""
    tensors = (
        TensorSpec("x", "float32", ("rows", "cols"), TensorRole.INPUT),
        TensorSpec("out", "float32", ("rows", "cols"), TensorRole.OUTPUT),
    )
    axes = (("rows", 1024), ("cols", 1024))
    task = Task("softmax", source, TaskKind.NATIVE, tensors, (), (Workload("1024x1024", axes),), precision, "0" * 64)
    nodes = tuple(Operation(operation, "[]", "{}", ()) for operation in operations)
    kind = "cpu" if backend == "cpu" else "cuda"
    return Problem(
        task=task,
        contract=Contract("softmax", backend, "launch", (), (), "", ""),
        backend=backend,
        device="a device",
        kind=DeviceKind(kind),
        arch=arch if kind == "cuda" else "",
        bounds=(WorkloadBound("1024x1024", axes, 8 << 20, 1 << 20, 0.01, zone, 0.02),),
        outline=None if family is None else Outline(family, (), nodes, ("x",)),
    )
