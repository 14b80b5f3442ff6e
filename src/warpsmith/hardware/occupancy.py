"""Computes how many warps of a kernel an SM can hold, and which resource limits them.

The limits are those of NVIDIA's programming guide by architecture. Barriers, which are rarely the limit, and resources
that the hardware reserves in a cluster launch are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

WARP = 32
_REGISTER_UNIT = 256  # warps get registers in multiples of this number
_SHARED_UNIT_BYTES = 128
_RESERVED_SHARED_BYTES = 1024  # of each block, by the driver, since sm_80
_KIB = 1 << 10


@dataclass(frozen=True)
class Multiprocessor:
    """The resources of one SM of an architecture."""

    warps: int  # resident at most
    blocks: int
    shared_bytes: int  # for all blocks together
    shared_bytes_per_block: int  # at most, with opt-in
    registers: int = 64 << 10
    registers_per_thread: int = 255
    threads_per_block: int = 1024


MULTIPROCESSORS: dict[int, Multiprocessor] = {
    80: Multiprocessor(64, 32, 164 * _KIB, 163 * _KIB),
    86: Multiprocessor(48, 16, 100 * _KIB, 99 * _KIB),
    87: Multiprocessor(48, 16, 164 * _KIB, 163 * _KIB),
    89: Multiprocessor(48, 24, 100 * _KIB, 99 * _KIB),
    90: Multiprocessor(64, 32, 228 * _KIB, 227 * _KIB),
    100: Multiprocessor(64, 32, 228 * _KIB, 227 * _KIB),
    103: Multiprocessor(64, 32, 228 * _KIB, 227 * _KIB),
    120: Multiprocessor(48, 24, 100 * _KIB, 99 * _KIB),
}
"""The SMs by compute capability, 90 for 9.0."""


class OccupancyLimit(StrEnum):
    """The resource that limits the number of blocks on an SM."""

    REGISTERS = "registers"
    SHARED_MEMORY = "shared memory"
    BLOCK_SIZE = "block size"  # one more whole block has too many warps
    BLOCKS = "blocks per SM"  # the blocks are so small that their number is the limit


@dataclass(frozen=True)
class Occupancy:
    """The blocks and warps of a kernel on one SM."""

    blocks: int  # resident on one SM; 0 if the kernel cannot be launched
    warps: int
    share: float  # of the warps an SM can hold
    limit: OccupancyLimit

    @property
    def fits(self) -> bool:
        """Whether at least one block fits on an SM."""
        return self.blocks > 0


def multiprocessor(arch: str) -> Multiprocessor | None:
    """The SM of "sm_90a"; None for an architecture that is not in the table."""
    found = re.fullmatch(r"sm_(\d+)[a-z]?", arch)
    return MULTIPROCESSORS.get(int(found[1])) if found else None


def occupancy(arch: str, block_threads: int, registers: int, shared_bytes: int = 0) -> Occupancy | None:
    """The occupancy of a kernel with these resources; None for an unknown architecture or a block without threads."""
    sm = multiprocessor(arch)
    if sm is None or block_threads < 1:
        return None
    warps = -(-block_threads // WARP)
    limits = {OccupancyLimit.BLOCK_SIZE: sm.warps // warps, OccupancyLimit.BLOCKS: sm.blocks}
    if block_threads > sm.threads_per_block:
        limits[OccupancyLimit.BLOCK_SIZE] = 0
    if registers > 0:
        per_warp = -(-registers * WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        # Registers belong to one of four sub-partitions, so that warps come in multiples of four.
        resident = sm.registers // per_warp // 4 * 4
        limits[OccupancyLimit.REGISTERS] = 0 if registers > sm.registers_per_thread else resident // warps
    shared = -(-(shared_bytes + _RESERVED_SHARED_BYTES) // _SHARED_UNIT_BYTES) * _SHARED_UNIT_BYTES
    limits[OccupancyLimit.SHARED_MEMORY] = 0 if shared_bytes > sm.shared_bytes_per_block else sm.shared_bytes // shared
    # Of several equal limits, the one that a programmer can change most easily is named.
    order = (OccupancyLimit.REGISTERS, OccupancyLimit.SHARED_MEMORY, OccupancyLimit.BLOCK_SIZE, OccupancyLimit.BLOCKS)
    limit = min((each for each in order if each in limits), key=lambda each: limits[each])
    blocks = limits[limit]
    return Occupancy(blocks, blocks * warps, blocks * warps / sm.warps, limit)
