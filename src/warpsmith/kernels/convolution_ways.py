"""The ways in which the device library can compute one convolution, and on the CPU its two.

`form_convolution` writes one of them; which one is decided there. Here stand all that the library has for a
convolution, with what `convolution_choice` expects them to take on an H200. Kernels that suit a convolution only in
part (a plan that does not exist, sums that are too long) would take the library's plain kernel: they are no ways.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from warpsmith.kernels.convolution_bias import with_bias
from warpsmith.kernels.convolution_choice import (
    Sizes,
    few_terms_microseconds,
    gathered_columns,
    gathered_microseconds,
    general_microseconds,
    plain_microseconds,
    read_once_microseconds,
    streamed_microseconds,
)
from warpsmith.kernels.form_convolution import (
    COPIES,
    DEPTHS,
    HELD_ROWS,
    HELD_STEPS,
    LONGEST_SUM,
    MOST_FOLDED,
    MOST_PHASES,
    MOST_PLANNED_TAPS,
    WARP_ROWS,
    WIDTHS,
    WINDOW_TERMS,
    WINDOW_TILES,
    Convolution,
    SumFunction,
    depthwise_rows,
    first_of,
    full_lanes,
    has_few_terms,
    has_one_tap,
    has_tables,
    held_fold,
    is_depthwise,
    is_flat,
    is_short,
    last_offsets,
    out_stride,
    read_convolution,
    sizes_of,
    streams,
    strides_become_channels,
    tile_columns,
    tile_rows,
    write_cpu,
    write_cpu_windows,
    write_depthwise,
    write_depthwise_any,
    write_few_terms,
    write_flat,
    write_gathered,
    write_held,
    write_plain,
    write_streamed,
    write_strided,
    write_tiled,
)
from warpsmith.kernels.form_task import FormTask, require
from warpsmith.kernels.form_ways import FormWay, WayParameter

_HEIGHTS = (4, 3, 2)  # rows of a tile of `convolution.cuh`, times 64 pixels; the places of a tile are 256 at most
_OTHER_COLUMNS = 2  # widths of tiles that are offered beside the form's own
_MOST_PROBLEMS = 16  # `kMaxProblems` of convolution.cuh
_MOST_GROUPS = 65535  # images times groups, of a grid
_HELD_DOUBT = 1.05  # long sums in registers: measured with 24 columns only


def convolution_ways(task: FormTask, after: SumFunction | None = None) -> tuple[FormWay, ...]:
    """The ways for one convolution, in no order; those that can apply a function to their sums where there is one."""
    task = with_bias(task)
    require(len(task.steps) == 1 and task.steps[0].name == "convolution")
    found = read_convolution(task, task.steps[0], task.tensor(task.steps[0].argument(0)).dims)
    if after is not None:
        return tuple(_ways_with_function(task, found, after))
    return tuple(_cpu_ways(task, found) if task.on_cpu else _cuda_ways(task, found))


def _cpu_ways(task: FormTask, found: Convolution) -> Iterator[FormWay]:
    yield FormWay("direct-convolution", r"\breturn run_convolution\(", lambda _: write_cpu(task, found))
    depthwise = found.ci == found.co == 1
    if not depthwise and (found.transposed or not has_one_tap(found)):  # one tap: the input is the matrix
        yield FormWay(
            "im2col",
            r"\breturn run_windows\(",
            lambda s: write_cpu_windows(task, found, int(s["tiles"]), int(s["terms"])),
            (_numbers("tiles", WINDOW_TILES, "TUNE_TILES"), _numbers("terms", WINDOW_TERMS, "TUNE_TERMS")),
        )


def _ways_with_function(task: FormTask, found: Convolution, after: SumFunction) -> Iterator[FormWay]:
    """Only two kernels apply a function to their sums."""
    require(not task.on_cpu)
    sizes = sizes_of(task, found)
    if has_general_plan(found) and sizes.images * sizes.groups <= _MOST_GROUPS:
        yield _tiled_way(task, found, sizes, after)
    if streams(found):
        yield _streamed_way(task, found, sizes, after)


def _cuda_ways(task: FormTask, found: Convolution) -> Iterator[FormWay]:
    sizes = sizes_of(task, found)
    if has_general_plan(found) and sizes.images * sizes.groups <= _MOST_GROUPS:
        yield _tiled_way(task, found, sizes)
        yield from _held_ways(task, found, sizes)
    if has_tables(found, sizes):
        yield FormWay(
            "implicit-gemm",
            r"\breturn launch_gathered<",
            lambda s: write_gathered(task, found, int(s["columns"]), int(s["warp-rows"]), int(s["depth"])),
            (
                _numbers("columns", gathered_columns(found.co)[:3], "TUNE_COLUMNS"),
                _numbers("warp-rows", WARP_ROWS, "TUNE_WARP_ROWS"),
                _numbers("depth", DEPTHS, "TUNE_DEPTH"),
            ),
            gathered_microseconds(sizes),
        )
    if streams(found):
        yield _streamed_way(task, found, sizes)
    if is_flat(task, found):
        time = streamed_microseconds(sizes)
        yield FormWay("taps-as-channels", r"\breturn launch_flat\(", lambda _: write_flat(task, found), (), time)
    if has_few_terms(found):
        time = few_terms_microseconds(sizes)
        write = _fixed(write_few_terms, task, found)
        yield FormWay("terms-in-registers", r"\breturn launch_few_terms<", write, (), time)
    yield from _depthwise_ways(task, found, sizes)
    write = _fixed(write_plain, task, found)
    yield FormWay("grid-stride", r"\breturn launch_direct\(", write, (), plain_microseconds(sizes))


def _streamed_way(task: FormTask, found: Convolution, sizes: Sizes, after: SumFunction | None = None) -> FormWay:
    """One pass over memory."""
    return FormWay(
        "one-pass-convolution",
        r"\breturn launch_stream<",
        lambda s: write_streamed(task, found, int(s.get("copies", COPIES[0])), after),
        (_numbers("copies", COPIES, "TUNE_COPIES"),) if has_one_tap(found) and not found.transposed else (),
        streamed_microseconds(sizes),
    )


def _tiled_way(task: FormTask, found: Convolution, sizes: Sizes, after: SumFunction | None = None) -> FormWay:
    """Padded planes, in which a tap is a constant distance."""
    columns = tile_columns(found)
    return FormWay(
        "shifted-taps",
        r"\breturn launch_convolution<",
        lambda s: write_tiled(task, found, int(s["columns"]), int(s["rows"]), after),
        (
            _numbers("columns", consistent_columns(found), constant=r"\bkColumns = (\d+)"),
            _numbers("rows", first_of(tile_rows(task, found, columns)[0], _HEIGHTS), "TUNE_ROWS", r"\bkRows = (\d+)"),
        ),
        general_microseconds(sizes, columns, max(1, found.active_phases), held=False),
    )


def _held_ways(task: FormTask, found: Convolution, sizes: Sizes) -> Iterator[FormWay]:
    """The same planes, with sums held in the tensor cores' registers."""
    columns, phases = tile_columns(found), max(1, found.active_phases)
    if columns in HELD_ROWS and out_stride(found) <= HELD_STEPS:
        fold = 0 if is_short(found) else LONGEST_SUM
        rows = HELD_ROWS[columns]
        measured = held_fold(found) is not None
        yield FormWay(
            "held-sums",
            r"\breturn launch_held<",
            lambda s: write_held(task, found, fold, int(s.get("rows", 0))),
            (_numbers("rows", rows, "TUNE_ROWS", r"\bkRows = (\d+)"),) if len(rows) > 1 else (),
            general_microseconds(sizes, columns, phases, held=measured) * (1.0 if measured else _HELD_DOUBT),
        )
    if strides_become_channels(found) and max(found.stride) > 1:
        time = general_microseconds(sizes, columns, phases, held=True)
        write = _fixed(write_strided, task, found)
        yield FormWay("strides-as-channels", r"\breturn launch_strided<", write, (), time)


def _depthwise_ways(task: FormTask, found: Convolution, sizes: Sizes) -> Iterator[FormWay]:
    """Filters for single channels."""
    time = read_once_microseconds(sizes)
    if is_depthwise(found):
        rows = _numbers("rows", depthwise_rows(found), "TUNE_ROWS")
        yield FormWay(
            "direct-convolution",
            r"\breturn warpsmith::depthwise::launch",
            lambda s: write_depthwise(task, found, int(s["rows"])),
            (rows,),
            time / full_lanes(task, found),
        )
    if found.groups > 1 and found.ci == 1 and found.axes <= 2 and not found.transposed:
        write = _fixed(write_depthwise_any, task, found)
        yield FormWay("halo-tiles", r"\breturn warpsmith::filter_channels<", write, (), time)


def _fixed(write: Callable[[FormTask, Convolution], str], task: FormTask, found: Convolution) -> Callable[..., str]:
    """Writes a kernel without parameters."""
    return lambda _: write(task, found)


def _numbers(name: str, values: tuple[int, ...], macro: str = "", constant: str = "") -> WayParameter:
    return WayParameter(name, tuple(map(str, values)), macro, constant)


def consistent_columns(found: Convolution) -> tuple[int, ...]:
    """Columns for which `make_plan` finds a tile of just that width, the form's own first, then the next wider ones."""
    active, own = found.active_phases, tile_columns(found)
    others = []
    for width in (each for each in reversed(WIDTHS) if each != own and each >= active):
        channels = min(found.co, width // active)
        even = -(-found.co // -(-found.co // channels))
        if next(each for each in WIDTHS if each >= even * active) == width:
            others.append(width)
    return (own, *others[:_OTHER_COLUMNS])


def has_general_plan(found: Convolution) -> bool:
    """Whether `best_plan` of `convolution.cuh` finds a plan with such tiles; sizes may still be too large."""
    steps = found.stride if found.transposed else [1] * found.axes
    if max(steps) > MOST_PHASES or max(found.kernel) > WIDTHS[-1] or not 1 <= found.active_phases <= WIDTHS[-1]:
        return False
    if math.prod(steps[:-1]) > _MOST_PROBLEMS:
        return False
    counts = [*found.kernel[:-1], len(set(last_offsets(found)))]
    if counts[-1] > WIDTHS[-1]:
        return False
    for folded in range(1 << found.axes if found.ci < 16 else 1):  # terms of a step
        inside = [bool(folded >> axis & 1) for axis in range(found.axes)]
        if any(inside[axis] and steps[axis] > 1 for axis in range(found.axes - 1)):
            continue  # phases have taps of their own
        terms = found.ci * math.prod(n for n, each in zip(counts, inside, strict=True) if each)
        taps = math.prod(n for n, each in zip(counts, inside, strict=True) if not each)
        if taps <= MOST_PLANNED_TAPS and (not folded or terms <= MOST_FOLDED):
            return True
    return False
