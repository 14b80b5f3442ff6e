"""Convolutions: 1 to 3 axes, forward and transposed, any stride, padding, dilation, output padding and groups.

Which kernel of the device library suits a convolution follows the plans of `convolution.cuh`: `tile_columns` and
`streams` say beforehand what `make_plan` and `make_stream_plan` decide. Where the sizes of a call do not suit the
kernel that was chosen, the library takes its plain kernel, which is right for every convolution. Kernels that were
faster than the general one on an H200 (`convolution_held.cuh`, `_strided`, `_flat`) are written for convolutions like
those that were measured, and for no others. `convolution_gathered.cuh` and `convolution_few_terms.cuh` are
written where the estimates of `convolution_choice.py` prefer them at the task's own sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels.convolution_bias import with_bias
from warpsmith.kernels.convolution_choice import (
    Sizes,
    gathered_columns,
    general_microseconds,
    is_short_stream,
    plain_microseconds,
    prefers_few_terms,
    prefers_gathered,
    streamed_microseconds,
)
from warpsmith.kernels.form_task import FormKernel, FormTask, Step, numbers, require, text, tunable, value_name

WIDTHS = (8, 16, 24, 32, 48, 64)  # columns of a tile for which convolution.cuh has a kernel
MOST_PHASES = 8
_SHARED_BYTES = 227 * 1024
_TILE_HEAD, _PITCH = 256 + 2 * 2 * 256 * 4, 68  # of convolution.cuh
_SPAN = 192  # pixels between taps that share a stage, at most
_SHORT_SUM = 400
_MOST_FILTER = 49  # taps of a depthwise filter that a thread keeps in registers
LONGEST_SUM = 27  # steps of 16 terms that tensor cores add up: `kLongestSum` of convolution_held.cuh
HELD_ROWS = {16: (4, 2), 24: (4, 3), 32: (3, 4), 48: (2,), 64: (2,)}  # by columns; more rows spill registers
HELD_STEPS = 2  # the widest step of the output that was measured with sums held in registers
MOST_FOLDED = 128  # `kMaxFolded` of convolution.cuh
_FLAT_TERMS, _FLAT_PIXELS, _FLAT_COLUMNS = 32, 128, 64
_MASK_TAPS, _MOST_TAPS, _MOST_PRODUCTS = 32, 2048, 64  # bits of a word; `kMostTaps`, `kMostPhases` of `_gathered.cuh`
MOST_PLANNED_TAPS = 160  # `kMaxTaps` of convolution.cuh
_FEW_TERMS = 32  # `kMostTerms` of convolution_few_terms.cuh
WARP_ROWS, DEPTHS, COPIES = (32, 16), (16, 32), (3, 0, 2, 5)
"""Values of TUNE_WARP_ROWS and TUNE_DEPTH of `_gathered.cuh`, and TUNE_COPIES of `_stream.cuh`; the header's first."""
WINDOW_TILES, WINDOW_TERMS = (4, 2, 8), (128, 64, 256)
"""Values of the tunables of `cpu/convolution_windows.h`, the header's first."""
_FULL_WARP = 0.7  # of the lanes of `depthwise.cuh` that must have a column; `depthwise_any.cuh` otherwise


@dataclass(frozen=True)
class Convolution:
    """One convolution with the options that PyTorch names; lists have one entry per axis."""

    image: Any
    weight: Any
    bias: Any
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int
    batch: int | str
    channels: int  # of the input
    extents: list[int | str]
    ci: int  # per group
    co: int
    kernel: list[int]

    @property
    def axes(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    @property
    def active_phases(self) -> int:
        """Phases of the last axis of the output that some tap reaches."""
        step = self.stride[-1] if self.transposed else 1
        taps = range(self.kernel[-1])
        return sum(any((r + self.padding[-1] - k * self.dilation[-1]) % step == 0 for k in taps) for r in range(step))


@dataclass(frozen=True)
class SumFunction:
    """A function of an element of the result, which some kernels apply before they store it."""

    definition: str  # of the functor, in the kernel's own namespace
    made: str  # an expression that makes one in `launch`


def convolution(task: FormTask) -> FormKernel:
    """One convolution, or a depthwise one followed by a pointwise one; with a bias that is added afterwards, too."""
    task = with_bias(task)
    require(1 <= len(task.steps) <= 2 and all(step.name == "convolution" for step in task.steps))
    if len(task.steps) == 2:
        return _cpu_pair(task) if task.on_cpu else _separable(task)
    found = read_convolution(task, task.steps[0], task.tensor(task.steps[0].argument(0)).dims)
    kind = f"{'transposed ' if found.transposed else ''}{found.axes}-d convolution"
    if task.on_cpu:
        depthwise = found.groups == found.channels > 1 and not found.transposed
        return FormKernel(f"depthwise {kind}" if depthwise else kind, write_cpu(task, found))
    if is_depthwise(found) and fills_warps(task, found):
        return FormKernel(f"depthwise {kind}", write_depthwise(task, found))
    if found.groups > 1 and found.ci == 1 and found.axes <= 2 and not found.transposed:
        return FormKernel(f"depthwise {kind}", write_depthwise_any(task, found))
    if _takes_few_terms(task, found):
        return FormKernel(kind, write_few_terms(task, found))
    if found.groups > 1 and found.ci == 1:
        return FormKernel(kind, write_plain(task, found))
    if _gathers(task, found):
        return FormKernel(kind, write_gathered(task, found))
    if streams(found):
        return FormKernel(kind, write_streamed(task, found))
    if is_flat(task, found):
        return FormKernel(kind, write_flat(task, found))
    if strides_become_channels(found):
        return FormKernel(kind, write_strided(task, found))
    fold = held_fold(found)
    return FormKernel(kind, write_tiled(task, found) if fold is None else write_held(task, found, fold))


def read_convolution(task: FormTask, step: Step, dims: tuple[int | str, ...]) -> Convolution:
    """The options of an operation whose input has these extents."""
    require(len(step.arguments) == 9)
    image, weight, bias, stride, padding, dilation, transposed, output_padding, groups = step.arguments
    axes = len(dims) - 2
    filters = [task.size(dim) for dim in task.tensor(weight).dims]
    require(1 <= axes <= 3 and len(filters) == axes + 2 and type(groups) is int and type(transposed) is bool)
    channels = task.size(dims[1])
    require(channels % groups == 0)
    # The number of filters and their sizes are part of the text, so all workloads must have the same.
    fixed = task.task.fixed_axes
    require(all(isinstance(dim, int) or dim in fixed for dim in (dims[1], *task.tensor(weight).dims)))
    return Convolution(
        image=image,
        weight=weight,
        bias=bias,
        stride=numbers(stride, axes),
        padding=numbers(padding, axes),
        dilation=numbers(dilation, axes),
        transposed=transposed,
        output_padding=numbers(output_padding, axes),
        groups=groups,
        batch=dims[0],
        channels=channels,
        extents=list(dims[2:]),
        ci=channels // groups,
        co=filters[1] if transposed else filters[0] // groups,
        kernel=filters[2:],
    )


# --- the general kernel ---


def tile_columns(found: Convolution) -> int:
    """The columns of a tile: output channels times active phases of the last axis, in as few tiles as possible."""
    active = found.active_phases
    if not 1 <= active <= WIDTHS[-1]:
        return WIDTHS[0]
    tiles = -(-found.co // min(found.co, WIDTHS[-1] // active))
    wanted = -(-found.co // tiles) * active
    return next(width for width in WIDTHS if width >= wanted)


def tile_rows(task: FormTask, found: Convolution, columns: int) -> tuple[int, ...]:
    """Times 64 pixels that a warpgroup takes, the value to begin with first.

    Three are faster than four (measured on an H200) where sums are short, and where only then two stages of shared
    memory hold two steps of 16 terms each.
    """
    if columns != WIDTHS[-1] or _out_step(found) != 1:
        return (4,)

    def fits(rows: int) -> bool:
        pixels = 128 * rows + (found.kernel[-1] - 1) * found.dilation[-1]
        stage = 4 * 2 * ((pixels + 7) // 8 * 8) * 16 + found.kernel[-1] * 2 * 64 * columns
        return 2 * stage + _TILE_HEAD + 2 * columns * _PITCH * 4 <= _SHARED_BYTES

    short = found.ci * math.prod(found.kernel) <= _SHORT_SUM
    wide = task.size(found.extents[-1]) > _SPAN  # then taps of one row share a stage
    return (3, 4) if short or (wide and found.ci >= 32 and fits(3) and not fits(4)) else (4, 3)


def first_of(chosen: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """The values with the chosen one first; 0: as they are."""
    return (chosen, *(each for each in values if each != chosen)) if chosen else values


def write_tiled(
    task: FormTask, found: Convolution, columns: int = 0, rows: int = 0, after: SumFunction | None = None
) -> str:
    """With tiles of so many columns and rows; 0: what the form takes."""
    columns = columns or tile_columns(found)
    listed = first_of(rows, tile_rows(task, found, columns))
    height = "TUNE_ROWS" if len(listed) > 1 else listed[0]
    return text(
        _head(found, "convolution.cuh", after),
        tunable("TUNE_ROWS", listed) if len(listed) > 1 else "",
        _namespace(
            task,
            found,
            f"constexpr int kColumns = {columns};  // of a tile: output channels times phases of the last axis",
            f"constexpr int kRows = {height};  // times 64 pixels of a warpgroup",
            after=after,
        ),
        task.workspace_bytes(f"return workspace_of(best_plan(form_of({task.size_names}), kColumns, kRows));"),
        task.launch(
            f"return launch_convolution<kColumns, {_out_step(found)}, kRows>(form_of({task.size_names}), "
            f"{_pointers(task, found)}, {task.workspace}, static_cast<cudaStream_t>({task.stream}){_made(after)});"
        ),
    )


def write_plain(task: FormTask, found: Convolution) -> str:
    """Groups of one channel: too few terms for tensor cores."""
    return text(
        f"// {_words(found)}\n#include <warpsmith/convolution.cuh>",
        _namespace(task, found),
        task.launch(
            f"const Form f = form_of({task.size_names});",
            "if (int64_t(f.images) * f.groups * f.co * f.out_volume() == 0) return 0;",
            f"return launch_direct(f, {_pointers(task, found)}, nullptr, static_cast<cudaStream_t>({task.stream}), "
            "Identity());",
        ),
    )


# --- sums held in the registers of the tensor cores ---


def longest_sum(found: Convolution) -> int:
    """Steps of 16 terms of the longest sum, at most: for few channels the library's plan may need fewer."""
    taps = 1
    for axis in range(found.axes - 1):
        step = found.stride[axis] if found.transposed else 1
        distances = [found.padding[axis] - k * found.dilation[axis] for k in range(found.kernel[axis])]
        taps *= max(sum((r + distance) % step == 0 for distance in distances) for r in range(step))
    return taps * len(set(last_offsets(found))) * -(-found.ci // 16)


def is_short(found: Convolution) -> bool:
    """Whether tensor cores may add up whole sums."""
    return longest_sum(found) <= LONGEST_SUM


def held_fold(found: Convolution) -> int | None:
    """Steps after which `launch_held` adds to fp32 registers (0: all are short sums); None: the general kernel."""
    columns, short = tile_columns(found), is_short(found)
    if out_stride(found) > HELD_STEPS:
        return None
    if columns == 24:
        return 0 if short else LONGEST_SUM
    if columns == WIDTHS[-1] and found.active_phases == 1:
        return 0 if short else None
    return 0 if short and columns in (16, 32) else None


def write_held(task: FormTask, found: Convolution, fold: int, chosen: int = 0) -> str:
    """With so many rows; 0: what the form takes."""
    columns = tile_columns(found)
    rows = first_of(chosen, HELD_ROWS[columns])
    return text(
        f"// {_words(found)}\n#include <warpsmith/convolution_held.cuh>",
        tunable("TUNE_ROWS", rows) if len(rows) > 1 else "",
        _namespace(
            task,
            found,
            *_held_constants(columns, rows),
            f"constexpr int kFold = {fold};  // steps of 16 terms that are added in tensor cores; 0: the whole sum, "
            f"which has {LONGEST_SUM} or fewer",
        ),
        task.workspace_bytes(f"return workspace_of(best_plan(form_of({task.size_names}), kColumns, kRows));"),
        task.launch(
            f"return launch_held<kColumns, {_out_step(found)}, kRows, kTriple, kFold>(form_of({task.size_names}), "
            f"{_pointers(task, found)}, {task.workspace}, static_cast<cudaStream_t>({task.stream}));"
        ),
    )


def _held_constants(columns: int, rows: tuple[int, ...]) -> tuple[str, ...]:
    triple = "true" if columns == WIDTHS[-1] else "false"
    return (
        f"constexpr int kColumns = {columns};  // of a tile: output channels times phases of the last axis",
        f"constexpr int kRows = {'TUNE_ROWS' if len(rows) > 1 else rows[0]};  // times 64 pixels of a warpgroup",
        f"constexpr bool kTriple = {triple};  // three products of one width, or one of double width and one of single",
    )


# --- few channels ---


def strides_become_channels(found: Convolution) -> bool:
    """Whether `launch_strided` suits: blocks of stride x stride pixels have 16 to 128 values, their sums are short."""
    if found.transposed or found.groups != 1 or found.axes > 2 or found.ci >= 16 or any(d != 1 for d in found.dilation):
        return False
    channels = found.ci * math.prod(found.stride)
    taps = math.prod(-(-k // s) for k, s in zip(found.kernel, found.stride, strict=True))
    short = taps * -(-channels // 16) <= LONGEST_SUM
    return short and 16 <= channels <= MOST_FOLDED and tile_columns(found) in HELD_ROWS


def write_strided(task: FormTask, found: Convolution) -> str:
    columns = tile_columns(found)
    return text(
        f"// {_words(found)}\n#include <warpsmith/convolution_strided.cuh>",
        _namespace(task, found, *_held_constants(columns, HELD_ROWS[columns][:1])),
        task.workspace_bytes(f"return strided_workspace<kColumns, kRows>(form_of({task.size_names}));"),
        task.launch(
            f"return launch_strided<kColumns, kRows, kTriple>(form_of({task.size_names}), {_pointers(task, found)}, "
            f"{task.workspace}, static_cast<cudaStream_t>({task.stream}));"
        ),
    )


def is_flat(task: FormTask, found: Convolution) -> bool:
    """Whether `launch_flat` suits: two steps of terms, and taps near each other in memory at the task's own sizes."""
    if found.transposed or found.groups != 1 or found.co != _FLAT_COLUMNS or not is_short(found):
        return False
    if any(s != 1 for s in found.stride) or any(found.padding) or found.ci * math.prod(found.kernel) > _FLAT_TERMS:
        return False
    reach = found.dilation[-1] * (found.kernel[-1] - 1)
    if found.axes > 1:
        reach += found.dilation[-2] * (found.kernel[-2] - 1) * task.size(found.extents[-1])
    return reach <= _FLAT_PIXELS // 2


def write_flat(task: FormTask, found: Convolution) -> str:
    return text(
        f"// {_words(found)}\n#include <warpsmith/convolution_flat.cuh>",
        _namespace(task, found),
        task.workspace_bytes(f"return flat_workspace(form_of({task.size_names}));"),
        task.launch(
            f"return launch_flat(form_of({task.size_names}), {_pointers(task, found)}, {task.workspace}, "
            f"static_cast<cudaStream_t>({task.stream}));"
        ),
    )


# --- gathered pixels ---


def sizes_of(task: FormTask, found: Convolution) -> Sizes:
    """The convolution in numbers, with the sizes of the first workload."""
    inside = [task.size(each) for each in found.extents]
    outside, pixels, taps, planes = [], [], [], []
    for axis, extent in enumerate(inside):
        kernel, stride, padding = found.kernel[axis], found.stride[axis], found.padding[axis]
        reach = (kernel - 1) * found.dilation[axis]
        if not found.transposed:
            outside.append(max(0, (extent + 2 * padding - reach - 1) // stride + 1))
            pixels.append(outside[-1])
            taps.append(kernel)
            planes.append(outside[-1] + reach // stride)
            continue
        outside.append(max(0, (extent - 1) * stride - 2 * padding + reach + found.output_padding[axis] + 1))
        pixels.append(-(-outside[-1] // stride))
        distances = [[r + padding - k * found.dilation[axis] for k in range(kernel)] for r in range(stride)]
        taps.append(max(sum(each % stride == 0 for each in phase) for phase in distances))
        offsets = [each // stride for phase in distances for each in phase if each % stride == 0]
        planes.append(pixels[-1] + max(offsets) - min(offsets))
    one_tap = not found.transposed and has_one_tap(found)
    return Sizes(
        images=task.size(found.batch),
        groups=found.groups,
        ci=found.ci,
        co=found.co,
        inside=math.prod(inside),
        outside=math.prod(outside),
        phases=math.prod(found.stride) if found.transposed else 1,
        pixels=math.prod(pixels),
        taps=math.prod(taps),
        planes=math.prod(planes),
        wide=one_tap and math.prod(inside) % 4 == 0,
    )


def has_one_tap(found: Convolution) -> bool:
    return all(k == 1 for k in found.kernel) and all(s == 1 for s in found.stride) and not any(found.padding)


def _usual_microseconds(task: FormTask, found: Convolution) -> float:
    """What the convolution is expected to take otherwise, at the task's own sizes."""
    sizes = sizes_of(task, found)
    if is_flat(task, found) or sizes.images * sizes.outside == 0:
        return 0.0
    if streams(found):
        return streamed_microseconds(sizes) if is_short_stream(sizes) else 0.0
    if found.ci == 1 < found.groups or not _has_plan(found):
        return plain_microseconds(sizes)
    held = held_fold(found) is not None or strides_become_channels(found)
    return general_microseconds(sizes, tile_columns(found), max(1, found.active_phases), held)


def _gathers(task: FormTask, found: Convolution) -> bool:
    """Whether `convolution_gathered.cuh` is expected to be the fastest."""
    sizes = sizes_of(task, found)
    if not has_tables(found, sizes):
        return False
    return prefers_gathered(sizes, _usual_microseconds(task, found))


def _takes_few_terms(task: FormTask, found: Convolution) -> bool:
    """Whether `convolution_few_terms.cuh` is expected to be the fastest."""
    if not has_few_terms(found):
        return False
    return prefers_few_terms(sizes_of(task, found), _usual_microseconds(task, found))


def write_few_terms(task: FormTask, found: Convolution) -> str:
    extents = [1] * (3 - found.axes) + found.kernel
    return text(
        f"// {_words(found)}\n#include <warpsmith/convolution_few_terms.cuh>",
        _namespace(task, found),
        task.launch(
            f"return launch_few_terms<{', '.join(map(str, (found.ci, *extents)))}>(form_of({task.size_names}), "
            f"{_pointers(task, found)}, static_cast<cudaStream_t>({task.stream}));"
        ),
    )


def has_tables(found: Convolution, sizes: Sizes) -> bool:
    """Whether `convolution_gathered.cuh` has tables for all taps and phases."""
    return math.prod(found.kernel) <= _MOST_TAPS and sizes.phases <= _MOST_PRODUCTS


def has_few_terms(found: Convolution) -> bool:
    """Whether `convolution_few_terms.cuh` keeps all terms of a sum in registers."""
    return not found.transposed and found.ci * math.prod(found.kernel) <= _FEW_TERMS


def _has_plan(found: Convolution) -> bool:
    """Whether `make_plan` of `convolution.cuh` finds one; with few channels it can count taps as channels."""
    taps = math.prod(found.kernel)
    few = found.ci < 16 and not found.transposed and found.ci * taps <= MOST_FOLDED
    return (
        not (found.transposed and max(found.stride) > MOST_PHASES)
        and max(found.kernel) <= WIDTHS[-1]
        and (taps <= MOST_PLANNED_TAPS or few)
    )


def write_gathered(task: FormTask, found: Convolution, columns: int = 0, warp_rows: int = 0, depth: int = 0) -> str:
    """With these values of the kernel's tunables; 0: what the form takes."""
    taps = sizes_of(task, found).taps
    kind = "one" if taps <= 1 else "few" if taps <= _MASK_TAPS else "many"
    by_four = not found.transposed and found.ci * math.prod(found.kernel) % 4 == 0
    transposed = "true" if found.transposed else "false"
    words, include = f"// {_words(found)}", "#include <warpsmith/convolution_gathered.cuh>"
    ours = tunable("TUNE_COLUMNS", first_of(columns, gathered_columns(found.co)[:2]))
    warps = tunable("TUNE_WARP_ROWS", first_of(warp_rows, WARP_ROWS))
    stages = tunable("TUNE_DEPTH", first_of(depth, DEPTHS))
    usual = warp_rows in (0, WARP_ROWS[0]) and depth in (0, DEPTHS[0])
    return text(
        # The header has the usual values, too.
        *((f"{words}\n{include}", ours, warps) if usual else (words, warps, stages, include, ours)),
        _namespace(task, found, "constexpr int kColumns = TUNE_COLUMNS;  // output channels of a tile"),
        task.workspace_bytes(f"return gathered_workspace(form_of({task.size_names}), kColumns);"),
        task.launch(
            f"return launch_gathered<kColumns, gathered::Taps::{kind}, {'true' if by_four else 'false'}, {transposed}>("
            f"form_of({task.size_names}), {_pointers(task, found)}, {task.workspace}, "
            f"static_cast<cudaStream_t>({task.stream}));"
        ),
    )


# --- in one pass over memory ---


def streams(found: Convolution) -> bool:
    """Whether `convolution_stream.cuh` suits: one axis or one tap, all filters in shared memory beside the data."""
    one_tap = (
        not found.transposed
        and all(k == 1 for k in found.kernel)
        and all(s == 1 for s in found.stride)
        and not any(found.padding)
    )
    if found.groups != 1 or not (found.axes == 1 or one_tap) or found.ci < 16 or found.co not in (64, 128):
        return False
    if found.kernel[-1] > WIDTHS[-1] or found.active_phases != 1 or _out_step(found) != out_stride(found):
        return False
    blocks = -(-found.ci // 16)  # of 16 terms
    steps = 2 if blocks % 2 == 0 else 1
    parts = 1 if found.transposed else found.stride[-1]
    offsets = last_offsets(found)
    reach = max(offsets) // parts - min(offsets) // parts
    stage = parts * 4 * steps * ((128 * _rows(found) + reach + 7) // 8 * 8) * 16
    filters = len(offsets) * blocks * 4 * found.co * 16
    return (_SHARED_BYTES - (256 + 512 + 2 * 32 * 68 * 4 + filters)) // stage >= 2


def last_offsets(found: Convolution) -> list[int]:
    """Of the taps of the last axis, in pixels of the input for one pixel of the plan."""
    pad, dilation = found.padding[-1], found.dilation[-1]
    taps = range(found.kernel[-1])
    if not found.transposed:
        return [k * dilation - pad for k in taps]
    step = found.stride[-1]
    distances = [r + pad - k * dilation for r in range(step) for k in taps]
    return [distance // step for distance in distances if distance % step == 0]


def _rows(found: Convolution) -> int:
    return 1 if found.co == 128 else 2


def write_streamed(
    task: FormTask, found: Convolution, copies: int = COPIES[0], after: SumFunction | None = None
) -> str:
    """With so many batches of input on their way to shared memory."""
    words, _, include = _head(found, "convolution_stream.cuh", after).partition("\n")
    batches = tunable("TUNE_COPIES", (copies, *(each for each in COPIES if each != copies)))
    return text(
        f"{words}\n{include}" if copies == COPIES[0] else f"{words}\n\n{batches}\n\n{include}",
        _namespace(
            task,
            found,
            f"constexpr int kColumns = {found.co}, kRows = {_rows(found)};  // output channels; 64 pixels each of a "
            "warpgroup's tile",
            after=after,
        ),
        task.workspace_bytes(
            f"return stream_workspace(make_stream_plan(form_of({task.size_names}), kColumns, kRows));"
        ),
        task.launch(
            f"return launch_stream<kColumns, {_out_step(found)}, kRows, 256>(form_of({task.size_names}), "
            f"{_pointers(task, found)}, {task.workspace}, static_cast<cudaStream_t>({task.stream}){_made(after)});"
        ),
    )


# --- one filter per channel ---


def is_depthwise(found: Convolution) -> bool:
    same = all(k % 2 and p == k // 2 for k, p in zip(found.kernel, found.padding, strict=True))
    return (
        found.axes == 2
        and found.groups == found.channels > 1
        and found.co == 1
        and found.bias is None
        and not found.transposed
        and all(s == 1 for s in found.stride)
        and all(d == 1 for d in found.dilation)
        and (same or not any(found.padding))
        and found.kernel[0] * found.kernel[1] <= _MOST_FILTER
    )


def fills_warps(task: FormTask, found: Convolution) -> bool:
    """Whether rows of the output are long enough for `depthwise.cuh`: a warp takes 32 accesses of one row."""
    return full_lanes(task, found) >= _FULL_WARP


def full_lanes(task: FormTask, found: Convolution) -> float:
    """The share of the lanes of `depthwise.cuh` that have a column."""
    width = task.size(found.extents[-1])
    columns = width if any(found.padding) else width - found.kernel[-1] + 1
    vector = next(v for v in (4, 2, 1) if width % v == 0 and columns % v == 0)
    return columns / (-(-columns // (32 * vector)) * 32 * vector)


def write_depthwise_any(task: FormTask, found: Convolution) -> str:
    def both(values: list[int], missing: int) -> list[int]:
        return [missing] * (2 - len(values)) + values

    options = [
        *both(found.kernel, 1),
        *both(found.stride, 1),
        *both(found.padding, 0),
        *both(found.dilation, 1),
        found.co,
    ]
    extents = ["1"] * (2 - found.axes) + [task.extent(each) for each in found.extents]
    return text(
        f"// {_words(found)}\n#include <warpsmith/depthwise_any.cuh>",
        "// Kernel, stride, padding and dilation of both axes, output channels of a channel.\n"
        f"using Filter = warpsmith::depthwise_any::Options<{', '.join(map(str, options))}>;",
        task.launch(
            f"return warpsmith::filter_channels<Filter>({_pointers(task, found)}, {task.extent(found.batch)}, "
            f"{found.channels}, {', '.join(extents)}, {task.stream});"
        ),
    )


def depthwise_rows(found: Convolution) -> tuple[int, ...]:
    """Rows of the output that a thread computes, the fastest first."""
    height, width = found.kernel
    return (16, 8) if (height, width) == (3, 3) and not any(found.padding) else (6, 8) if width > 3 else (8, 16)


def write_depthwise(task: FormTask, found: Convolution, chosen: int = 0) -> str:
    """With so many rows of a thread; 0: what the form takes."""
    height, width = found.kernel
    padded = "_padded" if any(found.padding) else ""
    rows = first_of(chosen, depthwise_rows(found))
    return text(
        f"// {_words(found)}\n#include <warpsmith/depthwise.cuh>",
        tunable("TUNE_ROWS", rows),
        task.launch(
            f"return warpsmith::depthwise::launch{padded}<{height}, {width}, TUNE_ROWS>({task.pointer(found.image)}, "
            f"{task.pointer(found.weight)}, {task.out}, {task.extent(found.batch)}, {found.channels}, "
            f"{task.extent(found.extents[0])}, {task.extent(found.extents[1])}, {task.stream});"
        ),
    )


def _separable(task: FormTask) -> FormKernel:
    """A 3 x 3 filter for every channel, then a mixture of all channels at every pixel."""
    first, second = task.steps
    filters = read_convolution(task, first, task.tensor(first.argument(0)).dims)
    mixture = read_convolution(task, second, first.result.dims)
    require(value_name(second.argument(0)) == first.result.name)
    require(is_depthwise(filters) and filters.kernel == [3, 3] and filters.padding == [1, 1])
    require(mixture.bias is None and mixture.kernel == [1, 1] and not mixture.transposed and streams(mixture))
    source = text(
        "// A 3 x 3 filter for every channel, then a mixture of all channels at every pixel.\n"
        "#include <warpsmith/convolution_stream.cuh>",
        _namespace(task, mixture, f"constexpr int kColumns = {mixture.co}, kRows = {_rows(mixture)};"),
        task.workspace_bytes(
            f"const Form f = form_of({task.size_names}); "
            "return separable_workspace(f, make_stream_plan(f, kColumns, kRows));"
        ),
        task.launch(
            f"return launch_separable<kColumns, kRows, 256>(form_of({task.size_names}), {task.pointer(filters.image)}, "
            f"{task.pointer(filters.weight)}, {task.pointer(mixture.weight)}, {task.out}, {task.workspace}, "
            f"static_cast<cudaStream_t>({task.stream}));"
        ),
    )
    return FormKernel("depthwise separable 2-d convolution", source)


# --- on the CPU ---


def write_cpu(task: FormTask, found: Convolution) -> str:
    """Sums of runs of a padded grid."""
    return _on_cpu(task, found, "convolution.h", "workspace_of", "run_convolution")


def write_cpu_windows(task: FormTask, found: Convolution, tiles: int = 0, terms: int = 0) -> str:
    """Products of windows laid out as a matrix of so many tiles and terms; 0: the usual number."""
    numbers = tunable("TUNE_TILES", first_of(tiles, WINDOW_TILES)), tunable("TUNE_TERMS", first_of(terms, WINDOW_TERMS))
    return _on_cpu(task, found, "convolution_windows.h", "windows_workspace", "run_windows", numbers)


def _on_cpu(
    task: FormTask, found: Convolution, header: str, workspace: str, run: str, numbers: tuple[str, ...] = ()
) -> str:
    words, include = f"// {_words(found)}", f"#include <warpsmith/cpu/{header}>"
    return text(
        *((words, *numbers, include) if numbers else (f"{words}\n{include}",)),
        _namespace(task, found),
        task.workspace_bytes(f"return {workspace}(form_of({task.size_names}));"),
        task.launch(f"return {run}(form_of({task.size_names}), {_pointers(task, found)}, {task.workspace});"),
    )


def _cpu_pair(task: FormTask) -> FormKernel:
    """A convolution of the result of a convolution: of a depthwise one, say."""
    one, other = task.steps
    first = read_convolution(task, one, task.tensor(one.argument(0)).dims)
    require(value_name(other.argument(0)) == one.result.name)
    second = read_convolution(task, other, one.result.dims)
    depthwise = first.groups == first.channels > 1 and not first.transposed
    separable = depthwise and not second.transposed and all(k == 1 for k in second.kernel)
    kind = f"depthwise separable {first.axes}-d convolution" if separable else "two convolutions"
    forms = [
        _function(task, "first_of", _make_form(task, first)),
        _function(
            task,
            "second_of",
            f"const Form first = first_of({task.size_names});",
            _make_form(task, second, "first.images", "first.out"),
        ),
    ]
    calls = f"first_of({task.size_names})", f"second_of({task.size_names})"
    source = text(
        f"// {_words(first)}\n// Then: {_words(second)}\n#include <warpsmith/cpu/convolution.h>",
        "\n".join(["namespace {", "using namespace warpsmith::conv;", *forms, "}  // namespace"]),
        task.workspace_bytes(f"return pair_workspace({', '.join(calls)});"),
        task.launch(
            f"return run_pair({calls[0]}, {task.pointer(first.image)}, {_parameters(task, first)}, {calls[1]}, "
            f"{_parameters(task, second)}, {task.out}, {task.workspace});"
        ),
    )
    return FormKernel(kind, source)


# --- parts of the text ---


def _namespace(task: FormTask, found: Convolution, *constants: str, after: SumFunction | None = None) -> str:
    function = _function(task, "form_of", _make_form(task, found))
    parts = [*constants, *([after.definition] if after else []), function]
    return "\n".join(["namespace {", "using namespace warpsmith::conv;", *parts, "}  // namespace"])


def _head(found: Convolution, header: str, after: SumFunction | None) -> str:
    """The comment and the includes."""
    words, include = f"// {_words(found)}", f"#include <warpsmith/{header}>"
    if after is None:
        return f"{words}\n{include}"
    words = f"{words[:-1]}, and element-wise operations on its result."
    more = "\n#include <warpsmith/packs.cuh>" if "warpsmith::" in after.definition else ""  # max_nan, min_nan
    return f"{words}\n{include}{more}"


def _made(after: SumFunction | None) -> str:
    """The last argument of a launch."""
    return f", {after.made}" if after else ""


def _function(task: FormTask, name: str, *lines: str) -> str:
    """A function of the sizes that returns the value of the last line."""
    body = [*lines[:-1], f"return {lines[-1]};"]
    return "\n".join([f"Form {name}({task.size_parameters}) {{", *(f"  {line}" for line in body), "}"])


def _make_form(task: FormTask, found: Convolution, images: str = "", inside: str = "") -> str:
    """The call that describes a convolution; its images and the extents of its input may be given as text."""
    extents = [] if inside else [task.extent(each) for each in found.extents]
    options = [
        images or task.extent(found.batch),
        str(found.groups),
        str(found.ci),
        str(found.co),
        inside or _axes([each if each.isdigit() else f"int({each})" for each in extents], "1"),
        _axes(found.kernel, "1"),
        _axes(found.stride, "1"),
        _axes(found.padding, "0"),
        _axes(found.dilation, "1"),
        "true" if found.transposed else "false",
        _axes(found.output_padding, "0"),
    ]
    return f"make_form({', '.join(options)})"


def _axes(values: list[Any], missing: str) -> str:
    """Depth, height and width; axes that are missing come first."""
    return "{" + ", ".join([missing] * (3 - len(values)) + [str(each) for each in values]) + "}"


def _pointers(task: FormTask, found: Convolution) -> str:
    return f"{task.pointer(found.image)}, {_parameters(task, found)}, {task.out}"


def _parameters(task: FormTask, found: Convolution) -> str:
    return f"{task.pointer(found.weight)}, {'nullptr' if found.bias is None else task.pointer(found.bias)}"


def out_stride(found: Convolution) -> int:
    return found.stride[-1] if found.transposed else 1


def _out_step(found: Convolution) -> int:
    """The stride of the last axis of a transposed convolution, where the library has a kernel for it; else 1."""
    return out_stride(found) if out_stride(found) <= MOST_PHASES else 1


def _words(found: Convolution) -> str:
    """What the kernel computes, for its readers."""

    def side(values: list[int]) -> str:
        return " x ".join(map(str, values))

    parts = [f"A {'transposed ' if found.transposed else ''}{found.axes}-d convolution: kernel {side(found.kernel)}"]
    parts += [f"stride {side(found.stride)}"] if any(s != 1 for s in found.stride) else []
    parts += [f"padding {side(found.padding)}"] if any(found.padding) else []
    parts += [f"dilation {side(found.dilation)}"] if any(d != 1 for d in found.dilation) else []
    parts += [f"output padding {side(found.output_padding)}"] if any(found.output_padding) else []
    parts += [f"{found.groups} groups"] if found.groups > 1 else []
    parts += ["with bias"] if found.bias is not None else []
    return ", ".join(parts) + "."
