"""A vector over the channels that is added to the result of a convolution: it becomes the bias of the convolution."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from warpsmith.kernels.form_reading import values
from warpsmith.kernels.form_task import FormTask
from warpsmith.model.task import Dim, Operation

_CONVOLUTION, _BIAS = "aten.convolution.default", 2  # the place of the bias among its arguments
_VIEWS = frozenset(f"aten.{name}.default" for name in ("view", "_unsafe_view", "reshape", "unsqueeze", "alias"))
_OPERANDS = 2


def with_bias(task: FormTask) -> FormTask:
    """The task with such a vector as the bias of its one convolution; unchanged where there is none."""
    nodes = task.outline.nodes
    found = [node for node in nodes if node.op == _CONVOLUTION]
    if len(found) != 1 or len(found[0].results) != 1:
        return task
    (convolution,) = found
    (result,) = convolution.results
    arguments = json.loads(convolution.arguments)
    readers = [node for node in nodes if result.name in values(node)]
    added = readers[0] if len(readers) == 1 and result.name not in task.outline.outputs else None
    vector = _added_vector(task, added, result.name, result.dims) if added is not None else None
    if added is None or vector is None or len(arguments) <= _BIAS or arguments[_BIAS] is not None:
        return task
    arguments[_BIAS] = {"$": vector}
    biased = replace(convolution, arguments=json.dumps(arguments), results=added.results)
    rest = tuple(biased if node is convolution else node for node in nodes if node is not added)
    return FormTask(task.task, task.contract, replace(task.outline, nodes=rest))


def _added_vector(task: FormTask, node: Operation, result: str, dims: tuple[Dim, ...]) -> str | None:
    """The input that an operation adds to the result of the convolution, one number for each channel."""
    operands: list[Any] = json.loads(node.arguments)
    if node.op != "aten.add.Tensor" or json.loads(node.keywords) or len(operands) != _OPERANDS:
        return None
    names = [str(each["$"]) for each in operands if isinstance(each, dict) and "$" in each]
    if len(names) != _OPERANDS or names.count(result) != 1 or node.results[0].dims != dims:
        return None
    other = next(name for name in names if name != result)
    made = {each.name: node for node in task.outline.nodes for each in node.results}
    known = {each.name: each for each in (*task.outline.inputs, *(r for n in task.outline.nodes for r in n.results))}
    if other not in known or not _is_over_channels(known[other].dims, dims):
        return None
    while other in made:
        if made[other].op not in _VIEWS:
            return None
        other = str(json.loads(made[other].arguments)[0]["$"])
    source = next((each for each in task.outline.inputs if each.name == other), None)
    return other if source is not None and source.dtype == "float32" else None


def _is_over_channels(dims: tuple[Dim, ...], result: tuple[Dim, ...]) -> bool:
    """Whether a tensor with these extents has one number for each channel of the result, and no other axis."""
    axes = len(result) - 2  # behind the channels
    place = len(dims) - axes - 1
    return place >= 0 and dims[place] == result[1] != 1 and all(d == 1 for n, d in enumerate(dims) if n != place)
