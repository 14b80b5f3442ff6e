"""Random numbers for the inputs of timed calls on a CPU.

Every timed call gets new inputs, and on a CPU most of the time of a verdict went into drawing them. `QuickRandom` makes
`torch.rand` and `torch.randn` faster with another generator of random bits. Every digit of every number is fresh.
Digits that occur again in later tensors would be a way to skip reading: a kernel that knew them found the largest of
four million values by reading a few thousand. Uniform numbers are the multiples of 2**-24 that PyTorch draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_FEWEST = 1 << 16  # elements for which this is worth its overhead
_CHUNK = 1 << 16  # elements made at a time: they and their bits stay in the cache
_DIGITS = 24  # of a float32
_OPTIONS = frozenset({"generator", "dtype", "device", "size"})


def random_bytes(count: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None) -> Tensor:
    """Bytes of which all 256 values are equally likely, eight from each number that is drawn."""
    numbers = torch.empty((count + 7) // 8, dtype=torch.int64, device=device)
    return numbers.random_(-(1 << 63), None, generator=generator).view(torch.uint8)[:count]


class QuickRandom(TorchFunctionMode):
    """A torch mode in which large tensors of `torch.rand` and `torch.randn` are drawn quickly on a CPU."""

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch instead of `func`, with this mode switched off."""
        kwargs = kwargs or {}
        if (func is torch.rand or func is torch.randn) and kwargs.keys() <= _OPTIONS:
            shape, dtype = _shape(args, kwargs), kwargs.get("dtype") or torch.get_default_dtype()
            device = kwargs.get("device") or torch.get_default_device()
            known = all(isinstance(size, int) for size in shape)  # PyTorch says what is wrong with other sizes
            if known and math.prod(shape) >= _FEWEST and dtype is torch.float32 and _is_cpu(device):
                return _draw(shape, kwargs.get("generator"), normal=func is torch.randn)
        return func(*args, **kwargs)


def _draw(shape: tuple[int, ...], generator: torch.Generator | None, *, normal: bool) -> Tensor:
    seed = random_bytes(16, generator=generator).view(torch.int64).tolist()
    bits = numpy.random.SFC64([number % (1 << 64) for number in seed])
    result = torch.empty(shape, dtype=torch.float32)
    for part in result.view(-1).split(_CHUNK):
        drawn = torch.from_numpy(bits.random_raw((len(part) + 1) // 2).view("int32"))
        part.copy_(drawn[: len(part)].bitwise_right_shift_(32 - _DIGITS))
        if normal:  # the middle of each of 2**24 intervals between -1 and 1
            part.add_(0.5).mul_(2.0 ** (1 - _DIGITS)).erfinv_().mul_(math.sqrt(2))
        else:
            part.mul_(2.0**-_DIGITS).add_(0.5)
    return result


def _shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    sizes = (kwargs["size"],) if "size" in kwargs else args
    return tuple(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)


def _is_cpu(device: torch.device | str | int) -> bool:
    return not isinstance(device, int) and torch.device(device).type == "cpu"
