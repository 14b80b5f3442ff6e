"""The judge's shared memory: allocated, poisoned and inspected by the judge, opened by hosts.

`CpuArena` is anonymous files that hosts map between guard pages; `WindowArena` is device memory of its own (never
part of torch's pool, whose segments also hold expected results) that hosts map at the very same address. Where a
driver cannot do that there is `CudaArena`, one allocation that hosts open by handle, wherever it then lies.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch

from warpsmith.evaluate.correctness import fused
from warpsmith.evaluate.cudadriver import Driver
from warpsmith.evaluate.layout import CANARY, Slot
from warpsmith.evaluate.replay import ranges
from warpsmith.evaluate.replay.ranges import Piece, Window

_MAP_FIXED = 0x10


class Arena(Protocol):
    """Memory that a host can open."""

    memory: torch.Tensor  # uint8, one dimension
    handle: str  # the IPC handle; "" on the CPU and for a window
    window: Window | None  # its addresses, where hosts have the same
    pieces: tuple[Piece, ...]

    def descriptors(self) -> tuple[int, ...]:
        """What goes with the message that offers it: (read-only, read-write) on the CPU, one for each piece."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class CpuArena:
    """Sealed anonymous files, mapped as one piece.

    `writable` are the ranges (of whole pages) that hosts may write. They lie in a file of their own: whoever holds a
    writable mapping of a file can remap it to any other part of that file, and so must not share it with the inputs.
    Without them everything is one file, for either use.
    """

    def __init__(self, nbytes: int, writable: Iterable[tuple[int, int]] = ()) -> None:
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        own = _sealed_file(size)
        self._read_fd = os.open(f"/proc/self/fd/{own}", os.O_RDONLY | os.O_CLOEXEC)
        # The tensor alone holds the mapping: closing it by hand would pull it from under a view still alive.
        self.memory = torch.frombuffer(mmap.mmap(own, size), dtype=torch.uint8)
        ranges = list(writable)
        self._write_fd = _sealed_file(size) if ranges else own
        for start, end in ranges:
            _map_over(self.memory.data_ptr() + start, end - start, self._write_fd, start)
        if ranges:
            os.close(own)
        self.handle = ""
        self.window: Window | None = None
        self.pieces: tuple[Piece, ...] = ()

    def descriptors(self) -> tuple[int, ...]:
        return self._read_fd, self._write_fd

    def close(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        for fd in (self._read_fd, self._write_fd):
            os.close(fd)


def _sealed_file(size: int) -> int:
    """An anonymous file; pages that are never touched cost nothing."""
    fd = os.memfd_create("warpsmith", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    # A host that could shorten the file would kill us with SIGBUS.
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def _map_over(address: int, nbytes: int, fd: int, offset: int) -> None:
    """Put pages of another file into a mapping that is there already."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = mmap.MAP_SHARED | _MAP_FIXED
    if libc.mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, offset) != address:
        raise OSError(ctypes.get_errno(), f"cannot map {nbytes} bytes")


class _DeviceBytes:
    """Presents a raw device pointer to torch."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


class CudaArena:
    """One device allocation."""

    def __init__(self, nbytes: int, device: torch.device, driver: Driver) -> None:
        self._driver = driver
        self._pointer = driver.allocate(nbytes)
        self.memory: torch.Tensor = torch.as_tensor(_DeviceBytes(self._pointer, nbytes), device=device)
        self.handle = driver.export(self._pointer)
        self.window: Window | None = None
        self.pieces: tuple[Piece, ...] = ()

    def descriptors(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        self._driver.free(self._pointer)


class WindowArena:
    """Device memory in a window of addresses: what hosts may only read first, then what they may write."""

    def __init__(self, window: Window, pieces: Sequence[Piece], device: torch.device, *, owns: bool) -> None:
        self.window = window
        self.pieces = tuple(pieces)
        self.handle = ""
        self._owns = owns  # whether the window goes with it
        self._fds = tuple(window.make(piece) for piece in self.pieces)
        first, last = self.pieces[0], self.pieces[-1]
        raw = _DeviceBytes(window.address + first.start, last.start + last.nbytes - first.start)
        self.memory: torch.Tensor = torch.as_tensor(raw, device=device)

    def descriptors(self) -> tuple[int, ...]:
        return self._fds

    def close(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        for fd in self._fds:
            os.close(fd)
        if self._owns:
            self.window.close()
            return
        for piece in self.pieces:
            self.window.release(piece.start)


def view(memory: torch.Tensor, slot: Slot, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A slot of the arena as a tensor."""
    return memory[slot.start : slot.end].view(dtype).view(shape)


def fill_zones(memory: torch.Tensor, slots: Iterable[Slot]) -> None:
    """Write the canary into every red zone of these slots."""
    for slot in slots:
        for start, end in slot.zones:
            memory[start:end].fill_(CANARY)


def broken_zone(memory: torch.Tensor, slots: Iterable[Slot]) -> tuple[Slot, int] | None:
    """The first slot whose red zone was written to, and by how many bytes outside its data (negative: before)."""
    kept = list(slots)
    zones = [memory[a:b] for slot in kept for a, b in slot.zones]
    # One comparison over everything is the usual, intact case; only a breach is worth locating.
    if bool((torch.cat(zones) == CANARY).all()):
        return None
    for slot in kept:
        (before, start), (end, behind) = slot.zones
        bad = (memory[end:behind] != CANARY).nonzero()
        if bad.numel():
            return slot, int(bad[0]) + 1
        bad = (memory[before:start] != CANARY).nonzero()
        if bad.numel():
            return slot, int(bad[-1]) + before - start
    return None


class Seal:
    """Recognises whether tensors were changed: a sum of all words weighted with secret numbers.

    Words are taken in rows that share one set of weights, few enough to stay in a cache, and each row has a secret
    number of its own. In PyTorch's operations many rows at once, because on a GPU each operation costs a launch.
    """

    _WORDS = 1 << 12  # of a row
    _ROWS = 1 << 13  # at once

    def __init__(self, device: torch.device) -> None:
        self._generator = torch.Generator(device=device)
        self._generator.seed()  # from the operating system
        self._weights = self._secret(self._WORDS)
        self._numbers = self._secret(0)  # of the rows

    def of(self, tensors: Iterable[torch.Tensor]) -> int:
        """The sum over all bytes of the tensors; integer overflow wraps, which is what a checksum wants."""
        total, used = self._weights.new_zeros(()), 0
        for tensor in tensors:
            raw = tensor.contiguous().view(-1).view(torch.uint8)
            words = raw[: raw.numel() // 4 * 4].view(torch.int32)
            whole = words.numel() // self._WORDS
            numbers = self._rows(used, whole + 2)
            used += whole + 2
            total = total + self._whole(words[: whole * self._WORDS], numbers[:whole])
            for rest, number in ((words[whole * self._WORDS :], whole), (raw[words.numel() * 4 :], whole + 1)):
                total = total + (rest * self._weights[: rest.numel()]).sum() * numbers[number]
        return int(total)

    def _whole(self, words: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The sum over whole rows."""
        quick = fused.weighted(words, self._weights, numbers)
        if quick is not None:
            return quick
        rows = words.view(-1, self._WORDS)
        sums = [(rows[a : a + self._ROWS] * self._weights).sum(1) for a in range(0, len(rows), self._ROWS)]
        return (torch.cat([*sums, numbers[:0]]) * numbers).sum()  # widened to 64 bits on the way

    def _rows(self, first: int, count: int) -> torch.Tensor:
        """The numbers of some rows, which stay what they are."""
        missing = first + count - self._numbers.numel()
        if missing > 0:
            self._numbers = torch.cat([self._numbers, self._secret(2 * missing)])
        return self._numbers[first : first + count]

    def _secret(self, count: int) -> torch.Tensor:
        device = self._generator.device
        return torch.randint(1, 1 << 62, (count,), generator=self._generator, device=device, dtype=torch.int64)


def driver_for(device: torch.device) -> Driver | None:
    """The driver in torch's own context; None on the CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.init()
    return Driver(device.index or 0)


def allocate(
    nbytes: int,
    device: torch.device,
    driver: Driver | None,
    writable: Iterable[tuple[int, int]] = (),
    *,
    input_bytes: int = 0,
    room_bytes: int = 0,
) -> Arena:
    """An arena on the device.

    `writable` are the ranges that hosts may write, where the system can tell them apart; on a GPU all from
    `input_bytes` on, and `room_bytes` of addresses stay free behind it for `workspace`.
    """
    made: Any
    if driver is None:
        made = CpuArena(nbytes, writable)
    elif ranges.supported(driver):
        total = ranges.whole(nbytes)
        cuts = sorted({0, ranges.whole(input_bytes), total})
        pieces = [Piece(a, b - a, a >= input_bytes) for a, b in itertools.pairwise(cuts)]
        window = ranges.reserve(driver, total + ranges.whole(room_bytes))
        made = WindowArena(window, pieces, device, owns=True)
    else:
        made = CudaArena(nbytes, device, driver)
    arena: Arena = made
    return arena


def workspace(nbytes: int, device: torch.device, driver: Driver | None, beside: Arena) -> Arena:
    """Scratch memory for one candidate, in the window of an arena where that has one."""
    if beside.window is None:
        return allocate(nbytes, device, driver)
    last = beside.pieces[-1]
    piece = Piece(last.start + last.nbytes, ranges.whole(nbytes), True)
    made: Any = WindowArena(beside.window, [piece], device, owns=False)
    arena: Arena = made
    return arena
