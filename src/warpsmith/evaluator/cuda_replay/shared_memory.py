"""Device memory at the same virtual address in several processes, so that a recorded call can be replayed unchanged.

Kernel parameters are opaque bytes (pointers, structures of pointers, tensor maps), so addresses cannot be translated
later. Each process reserves the address range that the judge has chosen, as early as possible, and maps the judge's
memory into it. Standard library only: part of the process that loads a candidate.
"""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p
from dataclasses import dataclass

from warpsmith.evaluator.cuda_driver import Driver

GRANULE_BYTES = 2 << 20  # physical memory comes in these
_SHAREABLE = 103  # device attribute: memory can be handed on as a file descriptor
_POSIX_FD = 1
_PINNED = 1
_ON_DEVICE = 1
_READ, _READ_WRITE = 1, 3
_STEP = 1 << 40
_FIRST = 0x2000_0000_0000  # far from where programs, libraries and the driver's own allocations lie
_STEPS = 64
_TRIES = 8


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", c_int),
        ("device", c_int),
        ("win32", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", c_int), ("device", c_int), ("flags", c_int)]


@dataclass(frozen=True)
class SharedBlock:
    """A part of the address range that has memory of its own."""

    start: int  # offset in the address range
    nbytes: int  # whole granules
    writable: bool  # by kernels


class SharedMemory:
    """A reserved range of virtual addresses in one process, and the blocks mapped into it."""

    def __init__(self, driver: Driver, address: int, nbytes: int) -> None:
        self._driver = driver
        self.nbytes = nbytes
        self._mapped: dict[int, tuple[int, int]] = {}  # start: bytes, handle
        got = c_ulonglong()
        wanted = (c_size_t(0), c_ulonglong(address), c_ulonglong(0))
        driver.call("cuMemAddressReserve", byref(got), c_size_t(nbytes), *wanted)
        self.address = int(got.value)

    def allocate(self, block: SharedBlock) -> int:
        """Allocate and map a block; returns a descriptor by which other processes open it."""
        handle, properties = c_ulonglong(), _Properties(_PINNED, _POSIX_FD, _ON_DEVICE, self._driver.index)
        self._driver.call("cuMemCreate", byref(handle), c_size_t(block.nbytes), byref(properties), c_ulonglong(0))
        self._map(block, int(handle.value), _READ_WRITE)
        fd = c_int(-1)
        self._driver.call("cuMemExportToShareableHandle", byref(fd), handle, c_int(_POSIX_FD), c_ulonglong(0))
        return fd.value

    def open(self, block: SharedBlock, fd: int, *, read_only: bool = False) -> None:
        """Map a block of another process; closes the descriptor."""
        handle = c_ulonglong()
        try:
            self._driver.call("cuMemImportFromShareableHandle", byref(handle), c_void_p(fd), c_int(_POSIX_FD))
        finally:
            os.close(fd)
        self._map(block, int(handle.value), _READ if read_only else _READ_WRITE)

    def _map(self, block: SharedBlock, handle: int, flags: int) -> None:
        place, size = c_ulonglong(self.address + block.start), c_size_t(block.nbytes)
        self._driver.call("cuMemMap", place, size, c_size_t(0), c_ulonglong(handle), c_ulonglong(0))
        access = _Access(_ON_DEVICE, self._driver.index, flags)
        self._driver.call("cuMemSetAccess", place, size, byref(access), c_size_t(1))
        self._mapped[block.start] = (block.nbytes, handle)

    def release(self, start: int) -> None:
        """Unmap a block and release this process's reference to its memory."""
        nbytes, handle = self._mapped.pop(start)
        self._driver.call("cuMemUnmap", c_ulonglong(self.address + start), c_size_t(nbytes))
        self._driver.call("cuMemRelease", c_ulonglong(handle))

    def close(self) -> None:
        """Release all blocks and the address range."""
        for start in list(self._mapped):
            self.release(start)
        self._driver.call("cuMemAddressFree", c_ulonglong(self.address), c_size_t(self.nbytes))


def supported(driver: Driver) -> bool:
    """True if this device can share memory by file descriptor."""
    return bool(driver.attribute(_SHAREABLE))


def reserve(driver: Driver, nbytes: int) -> SharedMemory:
    """Reserve a range at an address that is probably free in other processes too."""
    memory = SharedMemory(driver, _random_address(), nbytes)
    for _ in range(_TRIES):
        if memory.address >= _FIRST and memory.address % _STEP == 0:
            break
        memory.close()
        memory = SharedMemory(driver, _random_address(), nbytes)
    return memory


def _random_address() -> int:
    return _FIRST + secrets.randbelow(_STEPS) * _STEP


def round_up(nbytes: int) -> int:
    """Round a size up to whole granules."""
    return -(-nbytes // GRANULE_BYTES) * GRANULE_BYTES


def encode_blocks(blocks: Sequence[SharedBlock]) -> tuple[tuple[int, ...], ...]:
    """Blocks as a message contains them."""
    return tuple((p.start, p.nbytes, int(p.writable)) for p in blocks)


def decode_blocks(given: Sequence[Sequence[int]]) -> tuple[SharedBlock, ...]:
    """The blocks that `encode_blocks` wrote."""
    return tuple(SharedBlock(start, nbytes, bool(writable)) for start, nbytes, writable in given)
