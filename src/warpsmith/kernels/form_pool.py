"""Pooling: the largest or the average of windows along one, two or three axes.

`pool.cuh` has fast kernels for some windows and a general one for all others, `pool_ahead.cuh` a faster one for the
largest of small square windows with stride one, `cpu/pool.h` one for all that its buffer holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm, numbers, require, text, tunable, value_name
from warpsmith.model.task import Dim

_OPERATION = re.compile(r"(avg|max)_pool([123])d(?:_with_indices)?")
_WIDEST = 64  # elements of a window along one axis that are kept in registers
_TALLEST = 16  # rows of windows side by side
_NEAR = 2  # columns beside a pack that `pool2_ahead` loads
_ROWS_AHEAD = 4  # rows that `pool2_ahead` loads together, about
_CPU_BUFFER = 4096  # columns of a window, at most: `kBuffer` of cpu/pool.h


@dataclass(frozen=True)
class Pooling:
    """One pooling; lists have one entry per axis."""

    largest: bool
    image: object
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    dims: tuple[Dim, ...]  # of the input
    out: tuple[Dim, ...]  # of the output
    plain: bool  # no ceil_mode, padding counts, no other divisor
    counts_padding: bool
    divisor: int  # 0: the number of elements

    @property
    def policy(self) -> str:
        """The operation, as `pool.cuh` names it."""
        return "warpsmith::MaxPool" if self.largest else "warpsmith::AvgPool"


def pooling(task: FormTask) -> FormKernel:
    """One pooling."""
    found = read_pooling(task)
    axes = len(found.kernel)
    kind = f"{'max' if found.largest else 'average'} pooling, {axes}-d"
    if task.on_cpu:
        return FormKernel(kind, _cpu(task, found))
    try:
        require(found.plain)
        written = {1: _one_axis, 2: _two_axes, 3: _three_axes}[axes](task, found)
    except NotThisForm:
        written = _any_windows(task, found)
    header = "pool_ahead.cuh" if _looks_ahead(found) else "pool.cuh"
    return FormKernel(kind, text(f"// {_words(found)}\n#include <warpsmith/{header}>", *written))


def read_pooling(task: FormTask) -> Pooling:
    """The pooling that a task is."""
    steps = list(task.steps)
    one_axis = len(steps) == 3 and steps[0].name == "unsqueeze" and steps[2].name == "squeeze"
    require(len(steps) == 1 or one_axis)
    step = steps[1] if one_axis else steps[0]
    matched = _OPERATION.fullmatch(step.name)
    require(matched is not None)
    assert matched is not None
    axes, largest = int(matched[2]), matched[1] == "max"
    # The first result of a pooling with indices is its values.
    values = task.tensor(steps[0].argument(0) if one_axis else step.argument(0))
    kernel, given = numbers(step.argument(1), axes), step.argument(2, [])
    stride = numbers(given, axes) if given else kernel
    padding = numbers(step.argument(3, [0]), axes)
    dilation = numbers(step.argument(4, [1]), axes) if largest else [1] * axes
    ceil = step.argument(5 if largest else 4, False)
    counts_padding, divisor = (True, None) if largest else (step.argument(5, True), step.argument(6))
    require(type(ceil) is bool and type(counts_padding) is bool and (divisor is None or type(divisor) is int))
    out = task.task.outputs[0].dims
    if one_axis:
        require(axes == 2 and (kernel[0], stride[0], padding[0], dilation[0]) == (1, 1, 0, 1))
        require(steps[0].argument(1) == -2 and steps[2].argument(1) == -2 and len(values.dims) == 3)
        require(value_name(step.argument(0)) == steps[0].result.name)
        require(value_name(steps[2].argument(0)) == step.result.name)
        kernel, stride, padding, dilation = kernel[1:], stride[1:], padding[1:], dilation[1:]
    else:
        require(axes > 1 and len(values.dims) == axes + 2)
    require(step.result.dtype == "float32")
    return Pooling(
        largest=largest,
        image={"$": values.name},
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        dims=values.dims,
        out=out,
        plain=not ceil and counts_padding and divisor is None,
        counts_padding=counts_padding,
        divisor=divisor or 0,
    )


def _cpu(task: FormTask, found: Pooling) -> str:
    require((found.kernel[-1] - 1) * found.dilation[-1] < _CPU_BUFFER)
    policy = "Largest" if found.largest else "Average"
    return text(
        f"// {_words(found)}\n#include <warpsmith/cpu/pool.h>",
        task.launch(
            f"const warpsmith::pool::Windows windows = {_windows(task, found, str)};",
            f"return warpsmith::pool::run<warpsmith::pool::{policy}>"
            f"(windows, {task.pointer(found.image)}, {task.out});",
        ),
    )


def _any_windows(task: FormTask, found: Pooling) -> Sequence[str]:
    return (
        task.launch(
            f"const warpsmith::Windows windows = {_windows(task, found, 'int({})'.format)};",
            f"return warpsmith::pool_windows<{found.policy}>"
            f"({task.pointer(found.image)}, {task.out}, windows, {task.stream});",
        ),
    )


def _windows(task: FormTask, found: Pooling, extent: Callable[[str], str]) -> str:
    """All options as the initialiser of `Windows`, which both headers have; `extent` writes a size."""

    def three(values: Sequence[object], missing: int) -> str:
        return "{" + ", ".join(map(str, [*[missing] * (3 - len(values)), *values])) + "}"

    options = [
        task.product(found.dims[:2]),
        three([extent(task.extent(dim)) for dim in found.dims[2:]], 1),
        three([extent(task.extent(dim)) for dim in found.out[2:]], 1),
        three(found.kernel, 1),
        three(found.stride, 1),
        three(found.padding, 0),
        three(found.dilation, 1),
        "true" if found.counts_padding else "false",
        str(found.divisor),
    ]
    return f"{{{', '.join(options)}}}"


def _one_axis(task: FormTask, found: Pooling) -> Sequence[str]:
    ((kernel,), (stride,), (padding,), (dilation,)) = found.kernel, found.stride, found.padding, found.dilation
    require(stride == 1 and (kernel - 1) * dilation < _WIDEST)
    return (
        f"{tunable('TUNE_THREADS', (256, 128))}\n{tunable('TUNE_UNROLL', (1, 2))}",
        task.launch(
            f"return warpsmith::pool1<{found.policy}, {kernel}, {padding}, {dilation}, TUNE_THREADS, TUNE_UNROLL>("
            f"{_arguments(task, found)});"
        ),
    )


def _looks_ahead(found: Pooling) -> bool:
    """Whether `pool2_ahead` has its windows: square, stride one, and no further than its edges to either side."""
    options = list(zip(found.kernel, found.stride, found.padding, found.dilation, strict=True))
    kernel, stride, padding, dilation = options[0]
    return (
        (found.largest and found.plain and len(options) == 2 and options[0] == options[1])
        and (stride == dilation == 1 and kernel > 1)
        and max(padding, kernel - 1 - padding) <= _NEAR
    )


def _two_axes(task: FormTask, found: Pooling) -> Sequence[str]:
    (kernel, width), (stride, across), (padding, beside) = found.kernel, found.stride, found.padding
    require(kernel == width and stride == across and padding == beside and found.dilation == [1, 1])
    if stride == kernel and not padding and kernel <= _TALLEST:
        return (
            tunable("TUNE_THREADS", (512, 256)),
            task.launch(
                f"return warpsmith::pool2_side_by_side<{found.policy}, {kernel}, TUNE_THREADS>("
                f"{_arguments(task, found)});"
            ),
        )
    if _looks_ahead(found):
        together = max(_ROWS_AHEAD // kernel, 1) * kernel
        strip = 64 // together * together
        return (
            f"{tunable('TUNE_WARPS', (4, 8))}\n{tunable('TUNE_STRIP', (strip, 2 * strip))}\n"
            f"{tunable('TUNE_BLOCKS', (4, 5))}",
            task.launch(
                f"return warpsmith::pool2_ahead<{found.policy}, {kernel}, {padding}, TUNE_WARPS, TUNE_STRIP, "
                f"{together}, TUNE_BLOCKS>({_arguments(task, found)});"
            ),
        )
    if stride == 1 and kernel > 1 and padding <= 4 and kernel - 1 - padding <= 4:
        strip = 64 // kernel * kernel
        return (
            f"{tunable('TUNE_WARPS', (4, 8))}\n{tunable('TUNE_STRIP', (strip, strip // kernel // 2 * kernel))}",
            task.launch(
                f"return warpsmith::pool2<{found.policy}, {kernel}, {padding}, TUNE_WARPS, TUNE_STRIP, {kernel}>("
                f"{_arguments(task, found)});"
            ),
        )
    raise NotThisForm


def _three_axes(task: FormTask, found: Pooling) -> Sequence[str]:
    require((found.kernel, found.stride, found.padding) == ([3, 3, 3], [2, 2, 2], [1, 1, 1]))
    require(found.dilation in ([1, 1, 1], [3, 3, 3]))
    return (
        f"{tunable('TUNE_WARPS', (8, 4))}\n{tunable('TUNE_BLOCKS', (4, 2))}",
        task.launch(
            f"return warpsmith::pool3<{found.policy}, {found.dilation[0]}, TUNE_WARPS, TUNE_BLOCKS>("
            f"{_arguments(task, found)});"
        ),
    )


def _places(task: FormTask, found: Pooling) -> tuple[str, ...]:
    """The input, the number of planes, and the extents of input and output."""
    planes = task.product(found.dims[:2])
    return (task.pointer(found.image), planes, *(task.extent(dim) for dim in (*found.dims[2:], *found.out[2:])))


def _arguments(task: FormTask, found: Pooling) -> str:
    image, *rest = _places(task, found)
    return ", ".join((image, task.out, *rest, task.stream))


def _words(found: Pooling) -> str:
    def side(values: list[int]) -> str:
        return " x ".join(map(str, values))

    return (
        f"{'The largest' if found.largest else 'The average'} of windows of {side(found.kernel)}, stride "
        f"{side(found.stride)}, padding {side(found.padding)}, dilation {side(found.dilation)}."
    )
