"""The judge's shared memory: allocated, filled and inspected by the judge, mapped by hosts.

`CpuArena`: anonymous files that hosts map between guard pages. `MappedArena`: device memory that hosts map at the same
addresses; it is never part of torch's pool, whose segments also hold expected results. `IpcArena`, for drivers that
cannot map memory at given addresses: one allocation that hosts open by an IPC handle.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import mmap
import os
from collections.abc import Iterable, Sequence

import torch

from warpsmith.evaluator.cuda_driver import Driver
from warpsmith.evaluator.cuda_replay import shared_memory
from warpsmith.evaluator.cuda_replay.shared_memory import SharedBlock, SharedMemory
from warpsmith.evaluator.judge.numerics import gpu_passes
from warpsmith.evaluator.protocol.buffer_layout import CANARY, BufferSlot

_MAP_FIXED = 0x10


class Arena:
    """Memory that a host can map."""

    memory: torch.Tensor  # uint8, one dimension
    handle: str = ""  # the IPC handle, for an IpcArena
    window: SharedMemory | None = None  # the addresses that hosts share, for a MappedArena
    pieces: tuple[SharedBlock, ...] = ()

    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to send to a host: (read-only, read-write) on the CPU, one for each piece on a GPU."""
        return ()

    def close(self) -> None:
        """Release the memory."""
        self.memory = torch.empty(0, dtype=torch.uint8)


class CpuArena(Arena):
    """Sealed anonymous files, mapped side by side.

    `writable` are the ranges of whole pages that hosts may write. They lie in a file of their own: a process with a
    writable mapping of a file can remap it to any other part of that file, which must not hold inputs. Without such
    ranges one file is both read and written.
    """

    def __init__(self, nbytes: int, writable: Iterable[tuple[int, int]] = ()) -> None:
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        own = _sealed_file(size)
        self._read_fd = os.open(f"/proc/self/fd/{own}", os.O_RDONLY | os.O_CLOEXEC)
        # Only the tensor owns the mapping: unmapping it explicitly would invalidate views that are still in use.
        self.memory = torch.frombuffer(mmap.mmap(own, size), dtype=torch.uint8)
        pages = list(writable)
        self._write_fd = _sealed_file(size) if pages else own
        for start, end in pages:
            _map_over(self.memory.data_ptr() + start, end - start, self._write_fd, start)
        if pages:
            os.close(own)

    def descriptors(self) -> tuple[int, ...]:
        return self._read_fd, self._write_fd

    def close(self) -> None:
        super().close()
        for fd in (self._read_fd, self._write_fd):
            os.close(fd)


def _sealed_file(size: int) -> int:
    """An anonymous file of fixed size; untouched pages cost nothing."""
    fd = os.memfd_create("warpsmith", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    # A host that could shorten the file would kill the judge with SIGBUS.
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def _map_over(address: int, nbytes: int, fd: int, offset: int) -> None:
    """Map pages of a file over an existing mapping."""
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


class IpcArena(Arena):
    """One device allocation."""

    def __init__(self, nbytes: int, device: torch.device, driver: Driver) -> None:
        self._driver = driver
        self._pointer = driver.allocate(nbytes)
        self.memory = torch.as_tensor(_DeviceBytes(self._pointer, nbytes), device=device)
        self.handle = driver.export(self._pointer)

    def close(self) -> None:
        super().close()
        self._driver.free(self._pointer)


class MappedArena(Arena):
    """Device memory at addresses that hosts share: first what hosts may only read, then what they may write."""

    def __init__(
        self, window: SharedMemory, pieces: Sequence[SharedBlock], device: torch.device, *, owns: bool
    ) -> None:
        self.window: SharedMemory = window
        self.pieces = tuple(pieces)
        self._owns = owns  # whether closing the arena closes the window
        self._fds = tuple(window.allocate(piece) for piece in self.pieces)
        first, last = self.pieces[0], self.pieces[-1]
        raw = _DeviceBytes(window.address + first.start, last.start + last.nbytes - first.start)
        self.memory = torch.as_tensor(raw, device=device)

    def descriptors(self) -> tuple[int, ...]:
        return self._fds

    def close(self) -> None:
        super().close()
        for fd in self._fds:
            os.close(fd)
        if self._owns:
            self.window.close()
            return
        for piece in self.pieces:
            self.window.release(piece.start)


def view(memory: torch.Tensor, slot: BufferSlot, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A slot of the arena as a tensor."""
    return memory[slot.start : slot.end].view(dtype).view(shape)


def fill_zones(memory: torch.Tensor, slots: Iterable[BufferSlot]) -> None:
    """Write the canary into every red zone of these slots."""
    for slot in slots:
        for start, end in slot.zones:
            memory[start:end].fill_(CANARY)


def broken_zone(memory: torch.Tensor, slots: Iterable[BufferSlot]) -> tuple[BufferSlot, int] | None:
    """The first slot whose red zone was written to, and how many bytes outside its data (negative: before)."""
    kept = list(slots)
    zones = [memory[a:b] for slot in kept for a, b in slot.zones]
    # All zones are usually intact: one comparison over all of them, and a search only if it fails.
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


class SecretChecksum:
    """A checksum that a candidate cannot forge: the sum of all words, weighted with secret numbers.

    Words are taken in rows. All rows share one list of weights, short enough to stay in a cache, and each row has a
    secret number of its own. PyTorch's operations take many rows at once: on a GPU each operation costs a launch.
    """

    _WORDS = 1 << 12  # of a row
    _ROWS = 1 << 13  # at once

    def __init__(self, device: torch.device) -> None:
        self._generator = torch.Generator(device=device)
        self._generator.seed()  # from the operating system
        self._weights = self._secret(self._WORDS)
        self._numbers = self._secret(0)  # of the rows

    def of(self, tensors: Iterable[torch.Tensor]) -> int:
        """The checksum of all bytes of the tensors, modulo 2**64."""
        total, used = self._weights.new_zeros(()), 0
        for tensor in tensors:
            raw = tensor.contiguous().view(-1).view(torch.uint8)
            words = raw[: raw.numel() // 4 * 4].view(torch.int32)
            whole = words.numel() // self._WORDS
            numbers = self._rows(used, whole + 2)
            used += whole + 2
            total = total + self._whole_rows(words[: whole * self._WORDS], numbers[:whole])
            for rest, number in ((words[whole * self._WORDS :], whole), (raw[words.numel() * 4 :], whole + 1)):
                total = total + (rest * self._weights[: rest.numel()]).sum() * numbers[number]
        return int(total)

    def _whole_rows(self, words: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The weighted sum over complete rows."""
        quick = gpu_passes.weighted_sum(words, self._weights, numbers)
        if quick is not None:
            return quick
        rows = words.view(-1, self._WORDS)
        sums = [(rows[a : a + self._ROWS] * self._weights).sum(1) for a in range(0, len(rows), self._ROWS)]
        return (torch.cat([*sums, numbers[:0]]) * numbers).sum()  # widened to 64 bits on the way

    def _rows(self, first: int, count: int) -> torch.Tensor:
        """The secret numbers of these rows; they are drawn once."""
        missing = first + count - self._numbers.numel()
        if missing > 0:
            self._numbers = torch.cat([self._numbers, self._secret(2 * missing)])
        return self._numbers[first : first + count]

    def _secret(self, count: int) -> torch.Tensor:
        device = self._generator.device
        return torch.randint(1, 1 << 62, (count,), generator=self._generator, device=device, dtype=torch.int64)


def driver_for(device: torch.device) -> Driver | None:
    """The CUDA driver in torch's context; None on the CPU."""
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
    """Allocate an arena on the device.

    `writable` are the ranges that hosts may write: used on the CPU. On a GPU hosts may write everything from
    `input_bytes` on, and `room_bytes` of addresses after the arena stay free for `workspace`.
    """
    if driver is None:
        return CpuArena(nbytes, writable)
    if not shared_memory.supported(driver):
        return IpcArena(nbytes, device, driver)
    total = shared_memory.round_up(nbytes)
    cuts = sorted({0, shared_memory.round_up(input_bytes), total})
    pieces = [SharedBlock(a, b - a, a >= input_bytes) for a, b in itertools.pairwise(cuts)]
    window = shared_memory.reserve(driver, total + shared_memory.round_up(room_bytes))
    return MappedArena(window, pieces, device, owns=True)


def workspace(nbytes: int, device: torch.device, driver: Driver | None, beside: Arena) -> Arena:
    """Scratch memory for one candidate, at the addresses after an arena if hosts share its addresses."""
    if beside.window is None:
        return allocate(nbytes, device, driver)
    last = beside.pieces[-1]
    piece = SharedBlock(last.start + last.nbytes, shared_memory.round_up(nbytes), True)
    return MappedArena(beside.window, [piece], device, owns=False)
