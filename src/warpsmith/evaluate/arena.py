"""The judge's shared memory: allocated, poisoned and inspected by the judge, opened by hosts.

`CpuArena` is an anonymous file that hosts map between guard pages; `CudaArena` is one device allocation of
its own (never part of torch's pool, whose segments also hold expected results) that hosts open by handle.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from collections.abc import Iterable
from typing import Any, Protocol

import torch

from warpsmith.evaluate.cudadriver import Driver
from warpsmith.evaluate.layout import CANARY, Slot


class Arena(Protocol):
    """Memory that a host can open."""

    memory: torch.Tensor  # uint8, one dimension
    handle: str  # the IPC handle; "" on the CPU

    def descriptors(self) -> tuple[int, ...]:
        """What goes with the message that offers it: (read-only, read-write) on the CPU."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class CpuArena:
    """A sealed anonymous file."""

    def __init__(self, nbytes: int) -> None:
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._write_fd = os.memfd_create("warpsmith", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._write_fd, size)
        # A host that could shorten the file would kill us with SIGBUS.
        fcntl.fcntl(self._write_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self._read_fd = os.open(f"/proc/self/fd/{self._write_fd}", os.O_RDONLY | os.O_CLOEXEC)
        # The tensor alone holds the mapping: closing it by hand would pull it from under a view still alive.
        self.memory = torch.frombuffer(mmap.mmap(self._write_fd, size), dtype=torch.uint8)
        self.handle = ""

    def descriptors(self) -> tuple[int, ...]:
        return self._read_fd, self._write_fd

    def close(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        for fd in (self._read_fd, self._write_fd):
            os.close(fd)


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

    def descriptors(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)
        self._driver.free(self._pointer)


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
    """Recognises whether tensors were changed: a sum of all words weighted with secret numbers."""

    _WORDS = 1 << 22

    def __init__(self, device: torch.device) -> None:
        generator = torch.Generator(device=device)
        generator.seed()  # from the operating system
        self._weights = torch.randint(1, 1 << 62, (self._WORDS,), generator=generator, device=device, dtype=torch.int64)
        self._factor = secrets.randbits(62) | 1  # between parts: a public one could be cancelled across them

    def of(self, tensors: Iterable[torch.Tensor]) -> int:
        """The sum over all bytes of the tensors; integer overflow wraps, which is what a checksum wants."""
        total = torch.zeros((), dtype=torch.int64, device=self._weights.device)
        for position, tensor in enumerate(tensors):
            raw = tensor.contiguous().view(-1).view(torch.uint8)
            words = raw.numel() // 4
            parts: list[torch.Tensor] = list(raw[: words * 4].view(torch.int32).split(self._WORDS))
            parts.append(raw[words * 4 :])
            for number, part in enumerate(parts):
                if part.numel():
                    weighted = part.to(torch.int64) * self._weights[: part.numel()]
                    total = total * self._factor + weighted.sum() + position * 7919 + number
        return int(total)


def driver_for(device: torch.device) -> Driver | None:
    """The driver in torch's own context; None on the CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.init()
    return Driver(device.index or 0)


def allocate(nbytes: int, device: torch.device, driver: Driver | None) -> Arena:
    """An arena on the device."""
    made: Any = CpuArena(nbytes) if driver is None else CudaArena(nbytes, device, driver)
    arena: Arena = made
    return arena
