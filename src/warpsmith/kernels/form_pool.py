"""Pooling: the largest or the average of windows along one, two or three axes.

`pool_bands.cuh` has kernels for all windows and sizes. `pool.cuh` and `pool_ahead.cuh` have kernels for some windows of
images whose rows begin at multiples of four elements and fill the columns that a warp or a block takes; a form chooses
those by the sizes of the largest workload. `cpu/pool.h` has one for all windows that its buffer holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm, numbers, require, text, tunable, value_name
from warpsmith.model.task import Dim, Workload

_OPERATION = re.compile(r"(avg|max)_pool([123])d(?:_with_indices)?")
_WIDEST = 64  # elements of a window along one axis that are kept in registers
_LOWEST, _TALLEST = 4, 16  # rows of windows side by side for `pool2_side_by_side`
_NEAR = 2  # columns beside a pack that `pool2_ahead` loads
_ROWS_AHEAD = 4  # rows that `pool2_ahead` loads together, about
_TILE = 128  # columns that a warp of these kernels takes
_FILLED = 0.75  # of the tiles of a row: with less, `pool_bands` is chosen
_LONG = 512  # elements of a row that fill a block of `pool1` well enough
_BROAD = 1024  # columns that fill a block of `pool2_side_by_side`
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
    rounds_up: bool  # `ceil_mode`
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
        header = "pool_ahead.cuh" if _looks_ahead(found) else "pool.cuh"
    except NotThisForm:
        written, header = _bands(task, found), "pool_bands.cuh"
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
        rounds_up=ceil,
        divisor=divisor or 0,
    )


def _cpu(task: FormTask, found: Pooling) -> str:
    require((found.kernel[-1] - 1) * found.dilation[-1] < _CPU_BUFFER)
    policy = "Largest" if found.largest else "Average"
    return text(
        f"// {_words(found)}\n#include <warpsmith/cpu/pool.h>",
        task.launch(
            f"const warpsmith::pool::Windows windows = {_windows(task, found)};",
            f"return warpsmith::pool::run<warpsmith::pool::{policy}>"
            f"(windows, {task.pointer(found.image)}, {task.out});",
        ),
    )


def _bands(task: FormTask, found: Pooling) -> Sequence[str]:
    options = {"kernel": 1, "stride": 1, "padding": 0, "dilation": 1}
    lists = ", ".join(f"{name}[3] = {_three(getattr(found, name), missing)}" for name, missing in options.items())
    deep = found.kernel[0] > 1 and len(found.kernel) == 3
    threads, room = ((256, 128), (45000, 28000)) if deep else ((128, 256), (28000, 20000))
    sizes = (
        each for dims in (found.dims[2:], found.out[2:]) for each in (*["1"] * (3 - len(dims)), *map(task.extent, dims))
    )
    return (
        f"{tunable('TUNE_THREADS', threads)}\n{tunable('TUNE_BYTES', room)}",
        f"struct Shape {{\n  static constexpr int {lists};\n"
        f"  static constexpr bool counts_padding = {_truth(found.counts_padding)};\n"
        f"  static constexpr int divisor = {found.divisor};\n"
        f"  static constexpr bool rounds_up = {_truth(found.rounds_up)};\n}};",
        task.launch(
            f"return warpsmith::pool_bands<{found.policy}, Shape, TUNE_THREADS, TUNE_BYTES>("
            f"{task.pointer(found.image)}, {task.out}, {task.product(found.dims[:2])}, {', '.join(sizes)}, "
            f"{task.stream});"
        ),
    )


def _three(values: Sequence[object], missing: int) -> str:
    """A value for each of three axes as an initialiser; the first ones may be missing."""
    return "{" + ", ".join(map(str, [*[missing] * (3 - len(values)), *values])) + "}"


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _width(task: FormTask, found: Pooling) -> int:
    """The columns of the largest workload."""

    def elements(workload: Workload) -> int:
        return math.prod(task.size(dim, workload) for dim in found.dims)

    return task.size(found.dims[-1], max(task.task.workloads, key=elements))


def _fills_tiles(task: FormTask, found: Pooling) -> bool:
    width = _width(task, found)
    return width % 4 == 0 and width >= _FILLED * -(-width // _TILE) * _TILE


def _windows(task: FormTask, found: Pooling) -> str:
    """All options as the initialiser of `Windows` of cpu/pool.h."""
    options = [
        task.product(found.dims[:2]),
        _three([task.extent(dim) for dim in found.dims[2:]], 1),
        _three([task.extent(dim) for dim in found.out[2:]], 1),
        _three(found.kernel, 1),
        _three(found.stride, 1),
        _three(found.padding, 0),
        _three(found.dilation, 1),
        _truth(found.counts_padding),
        str(found.divisor),
    ]
    return f"{{{', '.join(options)}}}"


def _one_axis(task: FormTask, found: Pooling) -> Sequence[str]:
    ((kernel,), (stride,), (padding,), (dilation,)) = found.kernel, found.stride, found.padding, found.dilation
    require(stride == 1 and (kernel - 1) * dilation < _WIDEST and _width(task, found) >= _LONG)
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
    if stride == kernel and not padding:
        columns = _width(task, found)
        require(_LOWEST <= kernel <= _TALLEST and columns % 4 == 0 and columns >= _BROAD)
        return (
            tunable("TUNE_THREADS", (512, 256)),
            task.launch(
                f"return warpsmith::pool2_side_by_side<{found.policy}, {kernel}, TUNE_THREADS>("
                f"{_arguments(task, found)});"
            ),
        )
    require(_fills_tiles(task, found))
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
    require(found.dilation in ([1, 1, 1], [3, 3, 3]) and _fills_tiles(task, found))
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
