"""Where the harness's buffers lie inside one shared arena, and the red zones between them.

On the CPU every buffer has whole pages of its own and ends (to 64 bytes) at a page boundary: the host
maps those pages between inaccessible guard pages, so that the first element past the end faults. On CUDA
all buffers share one allocation, with red zones between them that the judge inspects. Standard library
only: the candidate's process imports this.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace

CANARY = 0xA5  # the byte that fills every red zone; as float32 -2.9e-16, as a bool not a bool
CPU_ALIGN = 64
CUDA_ALIGN = 256
CUDA_ZONE_BYTES = 64 << 10  # wide enough that an overrun by a row of a usual matrix does not jump it


@dataclass(frozen=True)
class Buffer:
    """What has to be laid out: one tensor of the contract."""

    name: str
    nbytes: int
    writable: bool


@dataclass(frozen=True)
class Slot:
    """One buffer inside the arena. [region_start, region_end) is its own; the data lies within."""

    name: str
    writable: bool
    start: int  # of the data
    nbytes: int
    region_start: int
    region_end: int

    @property
    def end(self) -> int:
        """One past the last data byte."""
        return self.start + self.nbytes

    @property
    def zones(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The red zones before and behind the data."""
        return (self.region_start, self.start), (self.end, self.region_end)


@dataclass(frozen=True)
class Layout:
    """Several sets of the same buffers at different addresses: first the inputs of all sets, then the outputs."""

    sets: tuple[tuple[Slot, ...], ...]
    input_bytes: int  # where the outputs begin
    total_bytes: int


def joined(layouts: Sequence[Layout], unit: int = mmap.PAGESIZE) -> tuple[tuple[Layout, ...], int, int]:
    """The same layouts in one arena, with how many bytes of it hold inputs and how many it has in all.

    All inputs come first: a process can then be given them to read and the rest to write, in whole `unit`s.
    """
    inputs = _up(sum(layout.input_bytes for layout in layouts), unit)
    placed, read_at, write_at = [], 0, inputs
    for layout in layouts:
        placed.append(_moved(layout, read_at, write_at - layout.input_bytes))
        read_at += layout.input_bytes
        write_at += layout.total_bytes - layout.input_bytes
    return tuple(placed), inputs, _up(write_at, unit)


def _moved(layout: Layout, inputs_by: int, outputs_by: int) -> Layout:
    def along(slot: Slot) -> Slot:
        by = outputs_by if slot.writable else inputs_by
        start, region_start, region_end = (n + by for n in (slot.start, slot.region_start, slot.region_end))
        return replace(slot, start=start, region_start=region_start, region_end=region_end)

    sets = tuple(tuple(along(slot) for slot in group) for group in layout.sets)
    return Layout(sets, layout.input_bytes, layout.total_bytes)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def arrange(buffers: Sequence[Buffer], sets: int, kind: str) -> Layout:
    """Lay out `sets` copies of the buffers for a kind of device."""
    place = _place_cpu if kind == "cpu" else _place_cuda
    offset = inputs = 0
    placed: list[list[Slot]] = [[] for _ in range(sets)]
    # All inputs of all sets come first, so that one checksum over one range covers them.
    for writable in (False, True):
        for group in placed:
            for buffer in buffers:
                if buffer.writable is writable:
                    group.append(place(buffer, offset))
                    offset = group[-1].region_end
        inputs = offset if not writable else inputs
    return Layout(tuple(map(tuple, placed)), inputs, max(offset, mmap.PAGESIZE))


def _place_cpu(buffer: Buffer, offset: int) -> Slot:
    size = _up(max(buffer.nbytes, 1), mmap.PAGESIZE)
    start = offset + size - _up(max(buffer.nbytes, 1), CPU_ALIGN)
    return Slot(buffer.name, buffer.writable, start, buffer.nbytes, offset, offset + size)


def _place_cuda(buffer: Buffer, offset: int) -> Slot:
    start = _up(offset + CUDA_ZONE_BYTES, CUDA_ALIGN)
    end = _up(start + buffer.nbytes + CUDA_ZONE_BYTES, CUDA_ALIGN)
    return Slot(buffer.name, buffer.writable, start, buffer.nbytes, offset, end)
