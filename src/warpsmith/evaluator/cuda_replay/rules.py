"""Which recorded calls may be replayed: only kernels of the candidate's own images, only memory that it may use.

The replayer checks what a host claims (`call_data`) before it launches anything. A refusal is no verdict: the candidate
is then timed without replay, and the reason becomes a note. What a kernel does with the addresses in its parameters is
not checked here: it can only reach memory that is mapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warpsmith.evaluator.cuda_replay.call_data import (
    NO_CLUSTER,
    DevicePlace,
    KernelLaunch,
    MemoryCopy,
    MemoryFill,
    RecordedCall,
    Size3,
)
from warpsmith.evaluator.cuda_replay.device_images import DeviceImage

_MOST_BLOCKS: Size3 = (2**31 - 1, 65_535, 65_535)
_MOST_THREADS: Size3 = (1024, 1024, 64)
_MOST_BLOCK_THREADS = 1024
_MOST_CLUSTER_BLOCKS = 16


class Unreplayable(Exception):
    """The candidate must be timed without replay; the text completes "because ..."."""


@dataclass(frozen=True)
class MappedRegion:
    """Memory of the judge, mapped in the replayer at the same address as in the host."""

    name: str
    start: int
    nbytes: int
    writable: bool

    def holds(self, address: int, nbytes: int) -> bool:
        """True if all these bytes lie inside the region."""
        return self.start <= address and address + nbytes <= self.start + self.nbytes


@dataclass(frozen=True)
class ReplayRules:
    """The images and memory that replayed calls of one candidate may use."""

    images: tuple[DeviceImage, ...]
    regions: tuple[MappedRegion, ...]
    most_shared_bytes: int  # of one block, dynamic and static

    def check(self, call: RecordedCall) -> None:
        """Raise Unreplayable if a step must not be replayed."""
        for step in call.steps:
            if isinstance(step, KernelLaunch):
                self._check_launch(step)
            elif isinstance(step, MemoryFill):
                self._check_place(step.target, step.nbytes, "fills", write=True)
            else:
                self._check_copy(step)

    def image_of(self, step: KernelLaunch) -> DeviceImage:
        """The image that defines a launched kernel."""
        return _only(self._having(step.name, step.image), f"the kernel {_short(step.name)}")

    def image_with(self, place: DevicePlace) -> DeviceImage:
        """The image that defines a variable."""
        known = [i for i in self._named(place.image) if any(v.name == place.symbol for v in i.variables)]
        return _only(known, f"the variable {_short(place.symbol)}")

    def _named(self, digest: str) -> Sequence[DeviceImage]:
        return [image for image in self.images if digest in ("", image.digest)]

    def _having(self, kernel: str, digest: str) -> Sequence[DeviceImage]:
        named = self._named(digest)
        known = [image for image in named if kernel in image.kernels]
        # The names in a compressed image are unknown: if there is just one such image, the driver decides.
        return known or [image for image in named if not image.legible]

    def _check_launch(self, step: KernelLaunch) -> None:
        self.image_of(step)
        name = _short(step.name)
        threads = step.block[0] * step.block[1] * step.block[2]
        fits = all(n <= most for n, most in zip(step.block, _MOST_THREADS, strict=True))
        if not fits or threads > _MOST_BLOCK_THREADS:
            raise Unreplayable(f"it launches {name} with blocks of {_by(step.block)} threads")
        if any(n > most for n, most in zip(step.grid, _MOST_BLOCKS, strict=True)):
            raise Unreplayable(f"it launches {name} with a grid of {_by(step.grid)} blocks")
        if step.shared_bytes > self.most_shared_bytes:
            raise Unreplayable(f"it launches {name} with {step.shared_bytes} bytes of shared memory")
        if step.cluster != NO_CLUSTER:
            blocks = step.cluster[0] * step.cluster[1] * step.cluster[2]
            whole = blocks and all(n % c == 0 for n, c in zip(step.grid, step.cluster, strict=True))
            if not whole or blocks > _MOST_CLUSTER_BLOCKS:
                raise Unreplayable(f"it launches {name} with clusters of {_by(step.cluster)} blocks")

    def _check_copy(self, step: MemoryCopy) -> None:
        self._check_place(step.target, step.nbytes, "copies to", write=True)
        if isinstance(step.source, DevicePlace):
            self._check_place(step.source, step.nbytes, "copies from", write=False)

    def _check_place(self, place: DevicePlace, nbytes: int, act: str, *, write: bool) -> None:
        if place.symbol:
            image = self.image_with(place)
            variable = next(v for v in image.variables if v.name == place.symbol)
            if place.address + nbytes > variable.nbytes:
                raise Unreplayable(f"it {act} {_short(place.symbol)} past its end")
            return
        region = next((r for r in self.regions if r.holds(place.address, nbytes)), None)
        if region is None:
            raise Unreplayable(f"it {act} memory that it allocated itself, or that is not there")
        if write and not region.writable:
            raise Unreplayable(f"it {act} {region.name}, which can only be read")


def check_delivery(call: RecordedCall, outputs: Iterable[tuple[int, int]]) -> None:
    """Raise Unreplayable unless a delivery consists of copies of whole results, one per output: it is not timed.

    `outputs`: the address and the size of every output of the call.
    """
    left = list(outputs)
    for step in call.steps:
        if not isinstance(step, MemoryCopy) or not isinstance(step.source, DevicePlace):
            raise Unreplayable("it computes while its results are copied")
        copied = (step.target.address, step.nbytes)
        if step.target.symbol or copied not in left:
            raise Unreplayable("it copies something else than its results when these are copied")
        left.remove(copied)


def _only(found: Sequence[DeviceImage], what: str) -> DeviceImage:
    if not found:
        raise Unreplayable(f"{what} is not in its own device code")
    if len(found) > 1:
        raise Unreplayable(f"{what} is in {len(found)} of its images, and nothing says which is meant")
    return found[0]


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}..."


def _by(size: Size3) -> str:
    return " x ".join(map(str, size))
