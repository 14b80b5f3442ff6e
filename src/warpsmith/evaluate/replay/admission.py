"""What of a recorded call may be replayed: only kernels of the candidate's own images, only memory that is its to use.

Asked by trusted processes about what a host claims (`callgraph`), before anything is launched. A refusal says nothing
against the candidate: it is then timed in another way, and the reason becomes a note. What kernels do once they run is
not looked at here: the addresses in their parameters are theirs, and what is mapped decides what they can reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.evaluate.replay.callgraph import NO_CLUSTER, Call, Copy, Fill, Launch, Place, Size
from warpsmith.evaluate.replay.fatbin import DeviceImage

_MOST_BLOCKS: Size = (2**31 - 1, 65_535, 65_535)
_MOST_THREADS: Size = (1024, 1024, 64)
_MOST_BLOCK_THREADS = 1024
_MOST_CLUSTER_BLOCKS = 16


class Inadmissible(Exception):
    """This call cannot be replayed; the text completes "because ..."."""


@dataclass(frozen=True)
class Region:
    """Memory of the judge's that is mapped where the call is replayed, at the same address as in the host."""

    name: str
    start: int
    nbytes: int
    writable: bool

    def holds(self, address: int, nbytes: int) -> bool:
        """Whether all of it lies inside."""
        return self.start <= address and address + nbytes <= self.start + self.nbytes


@dataclass(frozen=True)
class Realm:
    """All that a candidate's replayed calls may name."""

    images: tuple[DeviceImage, ...]
    regions: tuple[Region, ...]
    most_shared_bytes: int  # of one block, dynamic and static

    def admit(self, call: Call) -> None:
        """Raise Inadmissible where a step is not one of those that can be replayed."""
        for step in call.steps:
            if isinstance(step, Launch):
                self._admit_launch(step)
            elif isinstance(step, Fill):
                self._admit_place(step.target, step.nbytes, "fills", write=True)
            else:
                self._admit_copy(step)

    def image_of(self, step: Launch) -> DeviceImage:
        """The image that a launched kernel is in."""
        return _only(self._having(step.name, step.image), f"the kernel {_short(step.name)}")

    def image_with(self, place: Place) -> DeviceImage:
        """The image that a variable is in."""
        known = [i for i in self._named(place.image) if any(v.name == place.symbol for v in i.variables)]
        return _only(known, f"the variable {_short(place.symbol)}")

    def _named(self, digest: str) -> Sequence[DeviceImage]:
        return [image for image in self.images if digest in ("", image.digest)]

    def _having(self, kernel: str, digest: str) -> Sequence[DeviceImage]:
        named = self._named(digest)
        known = [image for image in named if kernel in image.kernels]
        # A compressed image does not say what it holds: then the driver has the last word, if there is just one.
        return known or [image for image in named if not image.legible]

    def _admit_launch(self, step: Launch) -> None:
        self.image_of(step)
        name = _short(step.name)
        threads = step.block[0] * step.block[1] * step.block[2]
        fits = all(n <= most for n, most in zip(step.block, _MOST_THREADS, strict=True))
        if not fits or threads > _MOST_BLOCK_THREADS:
            raise Inadmissible(f"it launches {name} with blocks of {_by(step.block)} threads")
        if any(n > most for n, most in zip(step.grid, _MOST_BLOCKS, strict=True)):
            raise Inadmissible(f"it launches {name} with a grid of {_by(step.grid)} blocks")
        if step.shared_bytes > self.most_shared_bytes:
            raise Inadmissible(f"it launches {name} with {step.shared_bytes} bytes of shared memory")
        if step.cluster != NO_CLUSTER:
            blocks = step.cluster[0] * step.cluster[1] * step.cluster[2]
            whole = blocks and all(n % c == 0 for n, c in zip(step.grid, step.cluster, strict=True))
            if not whole or blocks > _MOST_CLUSTER_BLOCKS:
                raise Inadmissible(f"it launches {name} with clusters of {_by(step.cluster)} blocks")

    def _admit_copy(self, step: Copy) -> None:
        self._admit_place(step.target, step.nbytes, "copies to", write=True)
        if isinstance(step.source, Place):
            self._admit_place(step.source, step.nbytes, "copies from", write=False)

    def _admit_place(self, place: Place, nbytes: int, act: str, *, write: bool) -> None:
        if place.symbol:
            image = self.image_with(place)
            variable = next(v for v in image.variables if v.name == place.symbol)
            if place.address + nbytes > variable.nbytes:
                raise Inadmissible(f"it {act} {_short(place.symbol)} past its end")
            return
        region = next((r for r in self.regions if r.holds(place.address, nbytes)), None)
        if region is None:
            raise Inadmissible(f"it {act} memory that it allocated itself, or that is not there")
        if write and not region.writable:
            raise Inadmissible(f"it {act} {region.name}, which can only be read")


def _only(found: Sequence[DeviceImage], what: str) -> DeviceImage:
    if not found:
        raise Inadmissible(f"{what} is not in its own device code")
    if len(found) > 1:
        raise Inadmissible(f"{what} is in {len(found)} of its images, and nothing says which is meant")
    return found[0]


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}..."


def _by(size: Size) -> str:
    return " x ".join(map(str, size))
