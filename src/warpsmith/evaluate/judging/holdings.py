"""How much of a GPU's memory is taken, and by whom: what a candidate took for itself shows in what is left."""

from __future__ import annotations

import torch

from warpsmith.core.config import Limits
from warpsmith.core.evaluation import Status
from warpsmith.evaluate.cudadriver import Driver
from warpsmith.evaluate.judging.findings import Condemned

_ROOM_BYTES = 4 << 30  # for contexts and flush buffers of the hosts that start next


class Holdings:
    """The memory of one device; everything is well on the CPU, where the system sets limits."""

    def __init__(self, driver: Driver | None, device: torch.device, limits: Limits) -> None:
        self._driver = driver
        self._device = device
        self._limit = limits.memory_bytes + limits.workspace_bytes

    def has_room(self) -> bool:
        """Whether another host can start."""
        return self._driver is None or self._driver.memory()[0] >= _ROOM_BYTES

    def taken_bytes(self) -> int:
        """What is in use, but not by this process's torch."""
        if self._driver is None:
            return 0
        free, total = self._driver.memory()
        return total - free - torch.cuda.memory_reserved(self._device)

    def check(self, taken_before: int) -> None:
        """Condemn a candidate that holds more than it may."""
        held = self.taken_bytes() - taken_before
        if held > self._limit:
            raise Condemned(
                Status.OUT_OF_MEMORY,
                f"the candidate holds {held / 1e9:.1f} GB of device memory; the limit is {self._limit / 1e9:.1f} GB.",
            )
