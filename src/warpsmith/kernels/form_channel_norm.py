"""Batch normalisation with the statistics of the batch, as in training, for channels that are not large."""

from __future__ import annotations

import math

from warpsmith.kernels.form_task import FormKernel, FormTask, Step, require, text, tunable, value_name
from warpsmith.model.task import Dim

_LARGE = (
    1 << 24
)  # bytes of a channel: cuda/batch_norm.cu keeps larger ones in shared memory, which costs a wait for each


def channel_norm(task: FormTask) -> FormKernel:
    """One batch normalisation, with weights and a bias or without, and perhaps a ReLU after it."""
    require(not task.on_cpu)
    steps = task.steps
    require([step.name for step in steps] in (["native_batch_norm"], ["native_batch_norm", "relu"]))
    norm = steps[0]
    require(len(norm.arguments) == 8 and norm.arguments[3:6] == [None, None, True])
    source = task.tensor(norm.arguments[0])
    require(len(source.dims) >= 3 and norm.result.dims == source.dims)
    require(len(steps) == 1 or value_name(steps[1].argument(0)) == norm.result.name)
    batch, channels, *plane = source.dims
    weight, bias = (_of_channels(task, each, channels) for each in norm.arguments[1:3])
    for workload in task.task.workloads:
        pixels = math.prod(task.size(dim, workload) for dim in plane)
        require(pixels % 4 != 0 or 4 * pixels * task.size(batch, workload) <= _LARGE)
    extents = f"{task.extent(batch)}, {task.extent(channels)}, {task.product(plane)}"
    after = "NotNegative" if len(steps) == 2 else "AsItIs"
    pointers = f"{task.pointer(norm.arguments[0])}, {weight}, {bias}, {task.out}"
    written = text(
        f"// Batch normalisation with the statistics of the batch{', then ReLU' if len(steps) == 2 else ''}.\n"
        "#include <warpsmith/channel_norm.cuh>",
        tunable("TUNE_PARTS", (8, 4, 16)),
        task.workspace_bytes(f"return warpsmith::channel_norm_bytes({extents});"),
        task.launch(
            f"return warpsmith::normalise_channels<warpsmith::{after}>("
            f"{pointers}, {_eps(task, norm)}, {extents}, {task.workspace}, {task.stream});"
        ),
    )
    return FormKernel("batch normalisation", written)


def _of_channels(task: FormTask, value: object, channels: Dim) -> str:
    """The parameter for a number per channel, or a null pointer."""
    if value is None:
        return "nullptr"
    require(task.tensor(value).dims == (channels,))
    return task.pointer(value)


def _eps(task: FormTask, norm: Step) -> str:
    """The number that is added to the variance: a parameter of the task, or a constant."""
    eps = norm.arguments[7]
    require(type(eps) in (int, float) and len(task.task.scalars) <= 1)
    for scalar in task.task.scalars:
        require(scalar.value == eps)
        return task.parameter(scalar.name)
    return repr(float(eps))
