"""Estimates of what a convolution takes on an H200, by which the form chooses between the device library's kernels.

They need not be exact: they were fitted to the 60 convolutions of `benchmarks/h200/shape_sweep.json`, and the form asks
for a margin. `gathered_microseconds` says what `make_gathered_plan` of `convolution_gathered.cuh` says on the host.
"""

from __future__ import annotations

from dataclasses import dataclass

_PROCESSORS = 132
_LAUNCHES = 12.0  # microseconds for the launches of the general kernels
_BYTES = 3.3e6  # per microsecond, read or written
_SPLIT_BYTES = 2.3e6  # of the copies that the general kernels make of the input
_PLANE_TILE = 512  # pixels
_FEW_TAPS = 5
_MOST_STREAMED = 1 << 17  # pixels; kernels that read memory once are good for more
_MARGIN = 0.9
_DEPTH, _LEAST_STAGES, _MOST_SLICES = 16, 4, 32  # of convolution_gathered.cuh
_MOST_SUMS = 1 << 28  # bytes of the sums of all slices
WIDTHS = (64, 48, 32, 24, 16, 8)
"""Columns of the tiles of `convolution_gathered.cuh`."""


@dataclass(frozen=True)
class Sizes:
    """A convolution in numbers; a phase is one of the products that a transposed convolution consists of."""

    images: int
    groups: int
    ci: int  # per group
    co: int
    inside: int  # pixels of the input, and of the output
    outside: int
    phases: int
    pixels: int  # of a phase
    taps: int  # of the longest phase
    planes: int  # pixels of one padded phase, for the general kernels
    wide: bool  # neighbouring pixels stay neighbours, in fours

    @property
    def output_bytes(self) -> float:
        """Of the whole output."""
        return 4.0 * self.images * self.groups * self.co * self.outside

    @property
    def all_bytes(self) -> float:
        """Of input and output."""
        return self.output_bytes + 4.0 * self.images * self.groups * self.ci * self.inside

    @property
    def operations(self) -> float:
        """Multiplications and additions that are needed."""
        return 2.0 * self.images * self.groups * self.co * self.ci * self.taps * self.pixels * self.phases


def gathered_columns(co: int) -> tuple[int, ...]:
    """Columns of a tile for so many output channels, the best first: gathering pixels costs as much as 12 columns."""
    return tuple(sorted(WIDTHS, key=lambda width: -(-co // width) * (width + 12)))


def gathered_microseconds(sizes: Sizes) -> float:
    """By `convolution_gathered.cuh`."""
    columns = gathered_columns(sizes.co)[0]
    stages = max(1, -(-sizes.ci * sizes.taps // _DEPTH))
    products = []
    for rows in (128, 64):
        blocks = -(-sizes.images * sizes.pixels // rows) * -(-sizes.co // columns) * sizes.groups * sizes.phases
        for slices in range(1, _MOST_SLICES + 1):
            each = -(-stages // slices)
            fits = each >= _LEAST_STAGES and (slices - 1) * each < stages and sizes.output_bytes * slices <= _MOST_SUMS
            if slices == 1 or fits:
                adding = 3.5 + sizes.output_bytes * (2 * slices + 1) / 2.5e6 if slices > 1 else 0.0
                products.append(_product(rows, columns, blocks * slices, each, sizes.wide) + adding)
    return max(sizes.all_bytes / _BYTES + 4.5, min(products))


def _product(rows: int, columns: int, blocks: int, stages: int, wide: bool) -> float:
    """`microseconds_of` in convolution_gathered.cuh explains these numbers."""
    products = rows * columns * _DEPTH * 3 / 600
    gathered = rows * _DEPTH / 128 * (2 if wide else 11) + columns * _DEPTH / 128 * 3
    warp_columns = 24 if columns % 24 == 0 else min(columns, 32)
    warp_rows = 32 if rows == 128 or columns > 32 else 16
    warps = rows // warp_rows * (columns // warp_columns)
    split = warps / 2 * (warp_rows + warp_columns + 3 * (warp_rows // 16) * (warp_columns // 8))
    busy = 1.4 * max(products, gathered + split)
    each = -(-blocks // _PROCESSORS)
    resident = min(each, 2 if rows * columns > 4096 else 4)
    return 4.5 + each * (max(busy, 750 / resident) * stages + 1200 / resident) / 1750


def general_microseconds(sizes: Sizes, columns: int, phases: int, held: bool) -> float:
    """By `convolution.cuh` with tiles of so many columns and phases of the last axis; `held`: by a variant of it."""
    tiles = sizes.images * sizes.groups * -(-sizes.planes // _PLANE_TILE) * max(1, sizes.phases // phases)
    tiles *= -(-sizes.co * phases // columns)
    columns = max(columns, 32)  # narrower ones take as long: the pixels come from shared memory every time
    waves = -(-tiles // _PROCESSORS) * _PROCESSORS
    terms = -(-sizes.ci // 16) * 16 * sizes.taps if sizes.ci >= 16 else -(-sizes.ci * sizes.taps // 16) * 16
    operations = 2.0 * waves * _PLANE_TILE * columns * terms
    rate = 2e8 if sizes.taps >= _FEW_TAPS else 1.4e8 if held else 1e8  # per microsecond
    split = 8.0 * sizes.images * sizes.groups * max(sizes.ci, 8) * sizes.inside / _SPLIT_BYTES
    return _LAUNCHES + split * (0.5 if held else 1.0) + operations / rate + sizes.output_bytes / _BYTES


def streamed_microseconds(sizes: Sizes) -> float:
    """By `convolution_stream.cuh`."""
    return _LAUNCHES + max(sizes.all_bytes / 1.9e6, sizes.operations / 7e7)


def read_once_microseconds(sizes: Sizes) -> float:
    """By `depthwise.cuh` and `depthwise_any.cuh`: the input is read once, the output written once."""
    return 4.5 + sizes.all_bytes / _BYTES


def pass_microseconds(sizes: Sizes) -> float:
    """By a kernel that reads the result and writes it again, element by element."""
    return 4.5 + 2 * sizes.output_bytes / _BYTES


def few_terms_microseconds(sizes: Sizes) -> float:
    """By `convolution_few_terms.cuh`: instructions of four schedulers, or memory."""
    terms = sizes.ci * sizes.taps
    pixels = 4 if terms <= 12 else 2
    threads = -(-sizes.images * sizes.pixels // pixels) * sizes.groups
    channels = sizes.co * (pixels * (terms + 1) + -(-terms // 4) + 4)
    instructions = threads / 32 * (-(-sizes.co // 64) * pixels * (terms * 10 + 40) + channels)
    return 4.5 + max(sizes.all_bytes / _BYTES, instructions / (4 * _PROCESSORS * 0.8 * 1750))


def plain_microseconds(sizes: Sizes) -> float:
    """By the plain kernel."""
    return 5.0 + sizes.operations / 5e5


def prefers_gathered(sizes: Sizes, general: float) -> bool:
    """Whether the gathered kernel is the faster one by a margin.

    The margin is small where the general kernels spend their time on launches.
    """
    return gathered_microseconds(sizes) < general * (_MARGIN if general < 50 else 0.72)


def prefers_few_terms(sizes: Sizes, general: float) -> bool:
    """Whether the kernel for few terms is faster than the general ones by a margin, and no slower than the gathered."""
    time = few_terms_microseconds(sizes)
    return time < general * _MARGIN and time * _MARGIN <= gathered_microseconds(sizes)


def is_short_stream(sizes: Sizes) -> bool:
    """Whether there are too few pixels for a kernel that keeps all filters in shared memory."""
    return sizes.images * sizes.pixels <= _MOST_STREAMED
