"""Device memory at the same address in every process: what one process records, another can replay as it is.

Parameters of kernels are opaque bytes (pointers, structures of pointers, tensor maps), so addresses cannot be
translated afterwards. Each process reserves one window of virtual addresses as early as it can, at the address that
the judge drew, and maps the judge's memory into it. Standard library only: part of the process that loads a candidate.
"""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p
from dataclasses import dataclass

from warpsmith.evaluate.cudadriver import Driver

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
class Piece:
    """A part of the window with memory of its own behind it."""

    start: int  # from the beginning of the window
    nbytes: int  # whole granules
    writable: bool  # by kernels


class Window:
    """A range of virtual addresses of one process."""

    def __init__(self, driver: Driver, address: int, nbytes: int) -> None:
        self._driver = driver
        self.nbytes = nbytes
        self._mapped: dict[int, tuple[int, int]] = {}  # start: bytes, handle
        got = c_ulonglong()
        wanted = (c_size_t(0), c_ulonglong(address), c_ulonglong(0))
        driver.call("cuMemAddressReserve", byref(got), c_size_t(nbytes), *wanted)
        self.address = int(got.value)

    def make(self, piece: Piece) -> int:
        """Allocate memory for a piece and map it; a descriptor by which other processes open it."""
        handle, properties = c_ulonglong(), _Properties(_PINNED, _POSIX_FD, _ON_DEVICE, self._driver.index)
        self._driver.call("cuMemCreate", byref(handle), c_size_t(piece.nbytes), byref(properties), c_ulonglong(0))
        self._map(piece, int(handle.value), _READ_WRITE)
        fd = c_int(-1)
        self._driver.call("cuMemExportToShareableHandle", byref(fd), handle, c_int(_POSIX_FD), c_ulonglong(0))
        return fd.value

    def open(self, piece: Piece, fd: int, *, read_only: bool = False) -> None:
        """Map another process's piece; closes the descriptor."""
        handle = c_ulonglong()
        try:
            self._driver.call("cuMemImportFromShareableHandle", byref(handle), c_void_p(fd), c_int(_POSIX_FD))
        finally:
            os.close(fd)
        self._map(piece, int(handle.value), _READ if read_only else _READ_WRITE)

    def _map(self, piece: Piece, handle: int, flags: int) -> None:
        place, size = c_ulonglong(self.address + piece.start), c_size_t(piece.nbytes)
        self._driver.call("cuMemMap", place, size, c_size_t(0), c_ulonglong(handle), c_ulonglong(0))
        access = _Access(_ON_DEVICE, self._driver.index, flags)
        self._driver.call("cuMemSetAccess", place, size, byref(access), c_size_t(1))
        self._mapped[piece.start] = (piece.nbytes, handle)

    def release(self, start: int) -> None:
        """Unmap a piece and give its memory back, as far as this process holds it."""
        nbytes, handle = self._mapped.pop(start)
        self._driver.call("cuMemUnmap", c_ulonglong(self.address + start), c_size_t(nbytes))
        self._driver.call("cuMemRelease", c_ulonglong(handle))

    def close(self) -> None:
        """Give everything back."""
        for start in list(self._mapped):
            self.release(start)
        self._driver.call("cuMemAddressFree", c_ulonglong(self.address), c_size_t(self.nbytes))


def supported(driver: Driver) -> bool:
    """Whether memory can be handed to another process as a descriptor here."""
    return bool(driver.attribute(_SHAREABLE))


def reserve(driver: Driver, nbytes: int) -> Window:
    """A window at an address that other processes are likely to have free too."""
    window = Window(driver, _drawn(), nbytes)
    for _ in range(_TRIES):
        if window.address >= _FIRST and window.address % _STEP == 0:
            break
        window.close()
        window = Window(driver, _drawn(), nbytes)
    return window


def _drawn() -> int:
    return _FIRST + secrets.randbelow(_STEPS) * _STEP


def whole(nbytes: int) -> int:
    """In whole granules."""
    return -(-nbytes // GRANULE_BYTES) * GRANULE_BYTES


def rows(pieces: Sequence[Piece]) -> tuple[tuple[int, ...], ...]:
    """Pieces as a message holds them."""
    return tuple((p.start, p.nbytes, int(p.writable)) for p in pieces)


def pieces_of(given: Sequence[Sequence[int]]) -> tuple[Piece, ...]:
    """And back."""
    return tuple(Piece(start, nbytes, bool(writable)) for start, nbytes, writable in given)
