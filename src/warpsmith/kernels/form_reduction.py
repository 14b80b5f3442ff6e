"""Reductions over neighbouring axes or over all elements: sums, means, products, extremes and their places."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm, require, text, tunable
from warpsmith.model.task import Dim, Operation, OutlineValue

_VIEWS = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "clone")  # the order of the elements stays
_POLICIES = {
    "sum": "SumOver",
    "mean": "SumOver",
    "prod": "ProductOver",
    **dict.fromkeys(("amax", "max"), "ExtremeOver<true>"),
    **dict.fromkeys(("amin", "min"), "ExtremeOver<false>"),
    "argmax": "PlaceOver<true>",
    "argmin": "PlaceOver<false>",
}
_SAID = {
    "sum": "sum",
    "mean": "mean",
    "prod": "product",
    **dict.fromkeys(("amax", "max"), "largest element"),
    **dict.fromkeys(("amin", "min"), "smallest element"),
    "argmax": "place of the largest element",
    "argmin": "place of the smallest element",
}


@dataclass(frozen=True)
class AxisReduction:
    """A reduction of x[batch, rows, columns] over its rows."""

    operation: str  # a key of `_POLICIES`
    batch: tuple[Dim, ...]
    rows: tuple[Dim, ...]
    columns: tuple[Dim, ...]


def read_reduction(task: FormTask) -> AxisReduction:
    """One reduction, with views before and after it that leave the elements in their order."""
    outline = task.outline
    require(len(task.task.inputs) == len(outline.outputs) == len(task.task.outputs) == len(outline.inputs) == 1)
    require(bool(outline.nodes) and outline.inputs[0].dtype == "float32")
    value = outline.inputs[0]
    found: AxisReduction | None = None
    for place, node in enumerate(outline.nodes):
        parts = node.op.split(".")
        require(len(parts) == 3 and parts[0] == "aten")
        arguments = json.loads(node.arguments)
        require(arguments[0] == {"$": value.name})
        result = _used(node, outline.nodes[place + 1 :], outline.outputs[0])
        if parts[1] not in _VIEWS:
            require(found is None)
            found = _reduction(node, parts[1], arguments, value, result)
        value = result
    require(found is not None)
    assert found is not None
    return found


def _used(node: Operation, following: Sequence[Operation], output: str) -> OutlineValue:
    """The result that the next operation or the task takes."""
    wanted = json.loads(following[0].arguments)[0] if following else {"$": output}
    for each in node.results:
        if wanted == {"$": each.name}:
            return each
    raise NotThisForm


def _reduction(
    node: Operation, name: str, arguments: Sequence[object], value: OutlineValue, result: OutlineValue
) -> AxisReduction:
    require(name in _POLICIES)
    keywords = {key: given for key, given in json.loads(node.keywords).items() if given is not None}
    require(keywords in ({}, {"dtype": "float32"}))
    if name in ("max", "min") and result.dtype == "int64":
        name = f"arg{name}"
    require(result.dtype == ("int64" if name.startswith("arg") else "float32"))
    axes = arguments[1] if len(arguments) > 1 else None
    if type(axes) is int:
        axes = [axes]
    count = len(value.dims)
    require(count > 0)
    if axes is None or axes == []:
        axes = list(range(count))
    require(isinstance(axes, list) and all(type(axis) is int for axis in axes))
    assert isinstance(axes, list)
    places = sorted(axis % count for axis in axes)
    first, last = places[0], places[-1]
    between = [axis for axis in range(first, last + 1) if axis not in places]
    require(all(value.dims[axis] == 1 for axis in between))
    return AxisReduction(name, value.dims[:first], value.dims[first : last + 1], value.dims[last + 1 :])


def reduction(task: FormTask) -> FormKernel:
    """A reduction over neighbouring axes."""
    require(not task.on_cpu)
    found = read_reduction(task)
    source = task.pointer({"$": task.outline.inputs[0].name})
    batch, rows, columns = (task.product(dims) for dims in (found.batch, found.rows, found.columns))
    factor = f"1.0f / float({rows})" if found.operation == "mean" else "1.0f"
    name = _POLICIES[found.operation]
    policy = {"SumOver": f"{{{{{task.out}, {factor}}}}}", "ProductOver": f"{{{task.out}}}"}.get(
        name, f"{{{{{task.out}}}}}"
    )
    last = columns == "1"
    call, extents = ("reduce_last_axis", [batch, rows]) if last else ("reduce_axis", [batch, rows, columns])
    whole = last and batch == "1"
    where = "all elements" if whole else "the last axis" if last else "an axis that is not the last"
    given = ", ".join((source, *extents))
    written = text(
        f"// The {_SAID[found.operation]} over {where}.\n#include <warpsmith/axis_reduction.cuh>",
        "" if last else tunable("TUNE_FLAT_PACKS", (4, 2)),
        f"using Policy = warpsmith::{name};",
        task.workspace_bytes(f"return warpsmith::axis_bytes<Policy>({batch}, {rows}, {columns});"),
        task.launch(f"return warpsmith::{call}({given}, Policy{policy}, {task.workspace}, {task.stream});"),
    )
    return FormKernel(f"{found.operation} over {where}", written)
