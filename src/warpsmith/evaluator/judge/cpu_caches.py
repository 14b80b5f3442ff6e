"""Pushes data out of the caches of the CPU, before either side of a sample."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import torch


class CpuCaches:
    """The caches of this machine.

    Overwriting pushes everything out of them, and takes 0.1 s where the last cache has 300 MB. Dropping the lines of
    known tensors takes a hundredth of that for a few megabytes, and leaves all other data where it is.
    """

    def __init__(self, last_cache_bytes: int, library: str) -> None:
        """`library`: native/lines.c as a library, "" if it could not be built."""
        self.overwritten_bytes = 2 * last_cache_bytes
        self._memory = ctypes.create_string_buffer(self.overwritten_bytes)
        self._drop = ctypes.CDLL(library).warpsmith_drop_lines if library else None
        if self._drop is not None:
            self._drop.argtypes, self._drop.restype = [ctypes.c_void_p, ctypes.c_int64], None

    def drops_lines(self, total_bytes: int) -> bool:
        """Whether lines of so many bytes can be dropped, and sooner than the caches are overwritten."""
        return self._drop is not None and total_bytes <= self.overwritten_bytes

    def overwrite(self) -> None:
        """Push all data out of the caches."""
        ctypes.memset(self._memory, 0x5A, self.overwritten_bytes)

    def drop(self, tensors: Iterable[torch.Tensor]) -> None:
        """Push the data of these tensors out of the caches."""
        assert self._drop is not None, "drops_lines says whether it is there"
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._drop(storage.data_ptr(), storage.nbytes())
