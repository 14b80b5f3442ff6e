"""The positions of the judge's buffers in one shared arena, and the red zones between them.

On the CPU, every buffer has whole pages of its own and ends (to 64 bytes) at a page boundary. The host maps these pages
between inaccessible guard pages, so that an access past the end faults. On CUDA, all buffers share one allocation, and
the judge inspects red zones between them. Standard library only: part of the process that loads a candidate.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace

CANARY = 0xA5  # the byte that fills every red zone; as float32 -2.9e-16, as a bool not a bool
CPU_ALIGN = 64
CUDA_ALIGN = 256
CUDA_ZONE_BYTES = 64 << 10  # wider than a row of a usual matrix, so that an overrun by one row hits it


@dataclass(frozen=True)
class Buffer:
    """One tensor of the contract that needs memory."""

    name: str
    nbytes: int
    writable: bool


@dataclass(frozen=True)
class BufferSlot:
    """One buffer in the arena. [region_start, region_end) belongs to it and contains the data."""

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
        """The red zones before and after the data."""
        return (self.region_start, self.start), (self.end, self.region_end)


@dataclass(frozen=True)
class BufferLayout:
    """Several sets of the same buffers at different addresses: first the inputs of all sets, then the outputs."""

    sets: tuple[tuple[BufferSlot, ...], ...]
    input_bytes: int  # where the outputs begin
    total_bytes: int


def join_layouts(
    layouts: Sequence[BufferLayout], unit: int = mmap.PAGESIZE
) -> tuple[tuple[BufferLayout, ...], int, int]:
    """Put several layouts into one arena; returns them with the bytes of all inputs and of the whole arena.

    All inputs come first, in whole `unit`s, so that a process can map them read-only and the rest writable.
    """
    inputs = _up(sum(layout.input_bytes for layout in layouts), unit)
    placed, read_at, write_at = [], 0, inputs
    for layout in layouts:
        placed.append(_moved(layout, read_at, write_at - layout.input_bytes))
        read_at += layout.input_bytes
        write_at += layout.total_bytes - layout.input_bytes
    return tuple(placed), inputs, _up(write_at, unit)


def _moved(layout: BufferLayout, inputs_by: int, outputs_by: int) -> BufferLayout:
    def along(slot: BufferSlot) -> BufferSlot:
        by = outputs_by if slot.writable else inputs_by
        start, region_start, region_end = (n + by for n in (slot.start, slot.region_start, slot.region_end))
        return replace(slot, start=start, region_start=region_start, region_end=region_end)

    sets = tuple(tuple(along(slot) for slot in group) for group in layout.sets)
    return BufferLayout(sets, layout.input_bytes, layout.total_bytes)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def lay_out(buffers: Sequence[Buffer], sets: int, kind: str) -> BufferLayout:
    """Lay out `sets` copies of the buffers for a kind of device."""
    place = _place_cpu if kind == "cpu" else _place_cuda
    offset = inputs = 0
    placed: list[list[BufferSlot]] = [[] for _ in range(sets)]
    # All inputs of all sets come first, so that one checksum over one range covers them.
    for writable in (False, True):
        for group in placed:
            for buffer in buffers:
                if buffer.writable is writable:
                    group.append(place(buffer, offset))
                    offset = group[-1].region_end
        inputs = offset if not writable else inputs
    return BufferLayout(tuple(map(tuple, placed)), inputs, max(offset, mmap.PAGESIZE))


def _place_cpu(buffer: Buffer, offset: int) -> BufferSlot:
    size = _up(max(buffer.nbytes, 1), mmap.PAGESIZE)
    start = offset + size - _up(max(buffer.nbytes, 1), CPU_ALIGN)
    return BufferSlot(buffer.name, buffer.writable, start, buffer.nbytes, offset, offset + size)


def _place_cuda(buffer: Buffer, offset: int) -> BufferSlot:
    start = _up(offset + CUDA_ZONE_BYTES, CUDA_ALIGN)
    end = _up(start + buffer.nbytes + CUDA_ZONE_BYTES, CUDA_ALIGN)
    return BufferSlot(buffer.name, buffer.writable, start, buffer.nbytes, offset, end)
