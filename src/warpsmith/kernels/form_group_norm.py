"""Group normalisation of tensors with any number of axes, and functions of its single elements after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warpsmith.kernels.form_tail import Tail
from warpsmith.kernels.form_task import FormKernel, FormTask, Step, require, text
from warpsmith.lowering.emitter import nest
from warpsmith.model.task import Dim

_NORM = "native_group_norm"


def group_norm(task: FormTask) -> FormKernel:
    """One group normalisation, with a weight and a bias for each channel or without."""
    require(not task.on_cpu and all(spec.dtype == "float32" for spec in task.task.tensors))
    nodes, outputs = task.outline.nodes, task.outline.outputs
    require(len(task.task.outputs) == len(outputs) == 1 and bool(nodes) and nodes[0].op == f"aten.{_NORM}.default")
    result = nodes[0].results[0]
    head = FormTask(task.task, task.contract, replace(task.outline, nodes=nodes[:1], outputs=(result.name,)))
    tail = None if outputs[0] == result.name else Tail(task, result, nodes[1:])
    require(tail is None or (tail.is_local and not tail.others))
    return FormKernel("group normalisation", _source(task, *_read(head), tail))


def _read(head: FormTask) -> tuple[Step, tuple[Dim, ...]]:
    """The normalisation and the extents of its input."""
    steps = head.steps
    require([step.name for step in steps] == [_NORM] and len(steps[0].arguments) == 8)
    norm = steps[0]
    dims = head.tensor(norm.argument(0)).dims
    require(len(dims) >= 2 and norm.result.dims == dims)
    require((norm.argument(1) is None) == (norm.argument(2) is None))
    for place in (1, 2) if norm.argument(1) is not None else ():
        require(head.tensor(norm.argument(place)).dims == (dims[1],))
    groups, eps = norm.arguments[6:]
    require(type(groups) is int and type(eps) in (int, float))
    return norm, dims


def _source(task: FormTask, norm: Step, dims: Sequence[Dim], tail: Tail | None) -> str:
    groups, eps = norm.arguments[6:]
    affine = norm.argument(1) is not None
    batch, channels, plane = task.extent(dims[0]), task.extent(dims[1]), task.product(dims[2:])
    weight, bias = (task.pointer(norm.argument(place)) if affine else "nullptr" for place in (1, 2))
    after, function = "warpsmith::Same", ""
    if tail is not None:
        after, function = "After", "\n".join(_function(tail))
    rows, cols = f"{batch} * {groups}", f"{channels} / {groups} * ({plane})"
    policy = f"warpsmith::group_norm_policy<{after}, {str(affine).lower()}>"
    given = f"{task.pointer(norm.argument(0))}, {weight}, {bias}, {task.out}, {float(eps)!r}, {groups}, {channels}"
    return text(
        f"// Group normalisation{', then a function of each element' if tail else ''}.\n"
        "#include <warpsmith/lagged.cuh>\n#include <warpsmith/group_norm.cuh>",
        "\n".join(
            [
                "namespace {",
                *([function] if function else []),
                f"using Policy = warpsmith::GroupNorm<{after}, {str(affine).lower()}>;",
                "}  // namespace",
            ]
        ),
        task.workspace_bytes(f"return warpsmith::rows_workspace<Policy>({rows}, {cols});"),
        task.launch(
            f"return warpsmith::reduce_any_rows({policy}({given}, {plane}), {rows}, {cols}, "
            f"{task.workspace}, {task.stream});"
        ),
    )


def _function(tail: Tail) -> list[str]:
    """What follows, as a function of one element."""
    lines = tail.function()
    require(not tail.given(lines))
    lines[0] = lines[0].replace("float operator()(float head_) const", "float apply(float head_)")
    shared = [part for part in [tail.context.prelude()] if part]
    return [*shared, "struct After {", *nest([f"static {lines[0]}", *lines[1:]]), "};"]
