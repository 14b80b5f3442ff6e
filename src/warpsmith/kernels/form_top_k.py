"""Top-k: the largest or smallest elements of each row with their places, `torch.topk` along the last axis."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels.form_task import FormKernel, FormTask, require, text, value_name
from warpsmith.model.task import Dim

MOST = 128
"""Of more elements a block of `row_top_k.cuh` has no room for the best."""

_VIEWS = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "clone", "alias", "detach")  # the order stays
_DEFAULTS = (None, None, -1, True, True)  # x, k, dim, largest, sorted


@dataclass(frozen=True)
class TopK:
    """The largest or smallest elements of the rows of x[rows, columns]."""

    count: int
    largest: bool
    rows: tuple[Dim, ...]
    columns: Dim
    results: tuple[str, ...]  # for each output "values" or "indices"


def read_top_k(task: FormTask) -> TopK:
    """One top-k along the last axis, with views before and after it that leave the elements in their order.

    A kernel writes sorted results. If a call allows any order, values are compared with those of PyTorch one by one all
    the same, so only a call whose values are not used is claimed.
    """
    outline = task.outline
    require(len(task.task.inputs) == len(outline.inputs) == 1 and outline.inputs[0].dtype == "float32")
    given = outline.inputs[0]
    held, dims = {given.name: "x"}, {given.name: given.dims}  # by the names of values
    call: list[Any] = []
    shape: tuple[Dim, ...] = ()
    for node in outline.nodes:
        arguments = json.loads(node.arguments)
        source = value_name(arguments[0])
        require(source in held and node.op.startswith("aten."))
        whats = [held[source]]
        if node.op == "aten.topk.default":
            require(not call and held[source] == "x" and node.keywords == "{}")
            call, shape, whats = arguments, dims[source], ["values", "indices"]
        else:
            order = json.loads(node.keywords).get("memory_format")
            require(node.op.split(".")[1] in _VIEWS and not node.op.endswith(".dtype"))
            require(order in (None, "contiguous_format"))
        for result, what in zip(node.results, whats, strict=True):
            held[result.name], dims[result.name] = what, result.dims
    require(bool(call) and bool(shape))
    count, axis, largest, in_order = [*call, *_DEFAULTS[len(call) :]][1:]
    require(type(count) is int and 1 <= count <= MOST and axis in (-1, len(shape) - 1))
    results = tuple(held.get(name, "") for name in outline.outputs)
    require(len(results) == len(task.task.outputs) and results in _RESULTS)
    require(in_order is True or results == ("indices",))
    return TopK(count, largest is True, shape[:-1], shape[-1], results)


_RESULTS = (("values",), ("indices",), ("values", "indices"), ("indices", "values"))


def top_k(task: FormTask) -> FormKernel:
    """The best elements of each row."""
    require(not task.on_cpu)
    found = read_top_k(task)
    names = dict(zip(found.results, (task.parameter(each.name) for each in task.task.outputs), strict=True))
    outputs = f"{names.get('values', 'nullptr')}, {names.get('indices', 'nullptr')}"
    extents = f"{task.product(found.rows)}, {task.extent(found.columns)}"
    source = task.pointer({"$": task.outline.inputs[0].name})
    kind = "largest" if found.largest else "smallest"
    parameters = f"{found.count}, {'true' if found.largest else 'false'}"
    said = f"// The {found.count} {kind} elements of each row, sorted, with their places."
    written = text(
        f"{said}\n#include <warpsmith/row_top_k.cuh>",
        task.workspace_bytes(f"return warpsmith::top_k_bytes<{found.count}>({extents});"),
        task.launch(
            f"return warpsmith::top_of_rows<{parameters}>({source}, {outputs}, {extents}, "
            f"{task.workspace}, {task.stream});"
        ),
    )
    return FormKernel(f"top {found.count} of each row", written)
