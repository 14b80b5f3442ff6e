"""CUDA: into how many tiles and parts a matrix product is cut, so that it fills a large device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from warpsmith.core.search import Problem
from warpsmith.strategies.templates.code import length
from warpsmith.strategies.templates.stages import Kind, Layout

_MULTIPROCESSORS = 132  # of a large device
_PLACES = 2 * _MULTIPROCESSORS  # for blocks with tiles of 128 by 128, of which a multiprocessor holds two
_MOST_TILES = 256  # with fewer, blocks that share the depth of a tile may be a gain
_LONG = 4096  # a depth that is worth sharing where most of the device is idle
_LEAST_DEPTH = 256  # of a part
_MOST_PARTS = 128


@dataclass(frozen=True)
class _Shape:
    """A product in one workload."""

    batch: int
    m: int
    n: int
    depth: int

    @property
    def tiles(self) -> int:
        """Of 128 by 128 results."""
        return self.batch * math.ceil(self.m / 128) * math.ceil(self.n / 128)

    @property
    def few(self) -> bool:
        return self.tiles <= _MOST_TILES

    @property
    def parts(self) -> int:
        """How many parts of the depth give every place of the device a block, as a power of two."""
        wanted = 1 << round(math.log2(max(1.0, _PLACES / max(1, self.tiles))))
        return max(2, min(wanted, _most_parts(self.depth)))


def _most_parts(depth: int) -> int:
    return min(_MOST_PARTS, 1 << int(math.log2(max(2, depth // _LEAST_DEPTH))))


def _shapes(problem: Problem, layout: Layout) -> Iterator[_Shape]:
    for stage in layout.stages:
        if stage.kind is Kind.PRODUCT:
            for workload in problem.task.workloads:
                *batch, m, n = (length(layout, group, workload) for group in stage.outer)
                yield _Shape(math.prod(batch), m, n, length(layout, stage.along, workload))


def few_tiles(problem: Problem, layout: Layout) -> bool:
    """Whether a product has so few results, in some workload, that they leave a device idle."""
    return any(shape.few for shape in _shapes(problem, layout))


def starved(problem: Problem, layout: Layout) -> bool:
    """Whether in every workload the results keep less than a quarter of a device busy, for long."""
    shapes = list(_shapes(problem, layout))
    return bool(shapes) and all(4 * s.tiles < _MULTIPROCESSORS and s.depth >= _LONG for s in shapes)


def tile_rows(problem: Problem, layout: Layout) -> tuple[str, ...]:
    """Rows of results of a thread: 16 first where tiles of 256 by 128 fill a device and their sums fit in registers.

    On an H200 a product of 2048 by 8192 by 4096 took a kernel written by hand in this form 2.9 ms with 16 rows, 3.1 ms
    with 8.
    """
    large = any(s.batch * (s.m // 256) * (s.n // 128) >= _MULTIPROCESSORS for s in _shapes(problem, layout))
    single = all(r.ctype == "float" for s in layout.stages if s.kind is Kind.PRODUCT for r in s.reduces)
    return ("16", "8", "4") if large and single else ("8", "4", "16")


def depth_parts(problem: Problem, layout: Layout) -> tuple[str, ...]:
    """Parts of the depth: first the number that fills a device, then half and double of it."""
    few = [shape for shape in _shapes(problem, layout) if shape.few]
    usual = [shape.parts for shape in few]
    near = [number for each in usual for number in (each // 2, each * 2)]
    most = max(_most_parts(shape.depth) for shape in few)
    return tuple(str(number) for number in dict.fromkeys([*usual, *near]) if 2 <= number <= most)
