"""The bytes of a storage that strided tensors cover, and lower bounds on unions of such sets.

Arithmetic on offsets, strides and sizes, without torch. Every count is exact or too small, never too large, because it
bounds the bytes that any kernel must read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

_MOST_REGIONS = 256  # per storage; further ones are ignored, which only lowers the bound


@dataclass(frozen=True)
class ByteRegion:
    """The bytes of a strided tensor; `dims` are (stride in bytes, extent > 1), largest stride first."""

    start: int
    dims: tuple[tuple[int, int], ...]
    item: int  # bytes per element

    @staticmethod
    def of(offset: int, strides: Sequence[int], shape: Sequence[int], item: int) -> ByteRegion:
        """The region of a tensor with this offset, strides and shape in elements, without broadcast dimensions."""
        dims = [(s * item, n) for s, n in zip(strides, shape, strict=True) if n > 1 and s != 0]
        return ByteRegion(offset * item, tuple(sorted(dims, reverse=True)), 0 if 0 in shape else item)

    @cached_property
    def nbytes(self) -> int:
        """The number of distinct bytes; a lower bound where dimensions overlap (sliding windows)."""
        return _distinct(self.dims) * self.item

    @cached_property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.start + sum(stride * (n - 1) for stride, n in self.dims) + self.item

    def moved(self, by: int) -> ByteRegion:
        """The region shifted by a number of bytes."""
        return ByteRegion(self.start + by, self.dims, self.item)

    def disjoint(self, other: ByteRegion) -> bool:
        """Whether two regions surely share no byte: as intervals, or as intervals modulo a stride."""
        if self.end <= other.start or other.end <= self.start:
            return True
        return any(self._apart_modulo(other, period) for period, _ in {*self.dims, *other.dims})

    def _apart_modulo(self, other: ByteRegion, period: int) -> bool:
        spans = []
        for region in (self, other):
            if any(stride % period for stride, _ in region.dims if stride >= period):
                return False
            first = region.start % period
            last = first + sum(stride * (n - 1) for stride, n in region.dims if stride < period) + region.item
            if last > period:
                return False
            spans.append((first, last))
        (a, b), (c, d) = spans
        return b <= c or d <= a


@lru_cache(maxsize=4096)
def _distinct(dims: tuple[tuple[int, int], ...]) -> int:
    """The number of distinct offsets: exact without overlap, else that of the largest dimensions without overlap."""
    kept: list[tuple[int, int]] = []
    for dim in sorted(dims, key=lambda d: -d[1]):
        reach = 0
        for stride, n in sorted([*kept, dim]):
            if stride <= reach:
                break
            reach += stride * (n - 1)
        else:
            kept.append(dim)
    return math.prod(n for _, n in kept)


@dataclass(frozen=True)
class NeededBytes:
    """At least `nbytes` of a storage are needed: inside `region`, or at an unknown place if it is None."""

    nbytes: int
    region: ByteRegion | None = None
    line: int = 0  # if not 0: at least one element of every line of `region` along this byte stride is needed

    @staticmethod
    def all_of(region: ByteRegion) -> NeededBytes:
        """Every byte of a region."""
        return NeededBytes(region.nbytes, region)


def union_bytes(touches: Iterable[NeededBytes]) -> int:
    """A lower bound on the bytes of the union: disjoint regions add up, of overlapping ones the largest counts."""
    unique = sorted(set(touches), key=lambda t: -t.nbytes)[:_MOST_REGIONS]
    kept: list[ByteRegion] = []
    total = 0
    for touch in unique:
        if touch.region is not None and all(touch.region.disjoint(region) for region in kept):
            kept.append(touch.region)
            total += touch.nbytes
    return max([total, *(t.nbytes for t in unique)])


@dataclass(frozen=True)
class SlidingWindow:
    """One spatial dimension of a convolution or pooling."""

    extent: int  # of the input, or of the output of a transposed convolution
    positions: int  # number of windows: the extent of the output, or of the input of a transposed convolution
    taps: int
    stride: int
    padding: int
    dilation: int


@dataclass(frozen=True)
class WindowCoverage:
    """The elements that the windows of one dimension touch."""

    elements: int  # distinct elements under at least one tap
    taps: int  # taps that meet an element, not only padding
    positions: int  # windows that meet an element
    pairs: int  # (window, tap) pairs that meet an element


@lru_cache(maxsize=1024)
def window_coverage(window: SlidingWindow) -> WindowCoverage:
    """The exact number of touched elements, without gaps of a stride, uncovered ends and padding."""
    touched = bytearray(window.extent)
    seen = bytearray(window.positions)
    taps = pairs = 0
    for tap in range(window.taps):
        shift = tap * window.dilation - window.padding
        first = max(0, -(shift // window.stride))  # smallest position with position * stride + shift >= 0
        last = min(window.positions - 1, (window.extent - 1 - shift) // window.stride)
        if last < first:
            continue
        count = last - first + 1
        taps, pairs = taps + 1, pairs + count
        begin = first * window.stride + shift
        touched[begin : begin + (count - 1) * window.stride + 1 : window.stride] = b"\1" * count
        seen[first : last + 1] = b"\1" * count
    return WindowCoverage(touched.count(1), taps, seen.count(1), pairs)
