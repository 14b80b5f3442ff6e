"""Random numbers for the inputs of timed calls on a CPU.

Every timed call gets new inputs, and on a CPU most of the time of a verdict went into drawing them. `QuickRandom` makes
`torch.rand` and `torch.randn` up to three times faster: the eight leading bits of each number are fresh, and the digits
below them come from numbers that were drawn once. The distribution is the same. Who knows all earlier numbers still
does not know in which of 256 equally likely ranges a new one lies, and so no sum, no maximum and no row in advance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_RANGES = 256  # that one fresh byte chooses among
_FEWEST = 1 << 16  # elements for which this is worth its overhead
_CHUNK = 1 << 16  # elements made at a time: they and the bytes stay in the cache
_KEPT = 1 << 20  # numbers that are drawn once, of each type
_TYPES = (torch.float32, torch.float64)
_OPTIONS = frozenset({"generator", "dtype", "device", "size"})


def random_bytes(count: int, *, device: torch.device | str = "cpu", generator: torch.Generator | None = None) -> Tensor:
    """Bytes of which all 256 values are equally likely, eight from each number that is drawn."""
    numbers = torch.empty((count + 7) // 8, dtype=torch.int64, device=device)
    return numbers.random_(-(1 << 63), None, generator=generator).view(torch.uint8)[:count]


class QuickRandom(TorchFunctionMode):
    """A torch mode in which large tensors of `torch.rand` and `torch.randn` are drawn quickly on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[torch.dtype, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch instead of `func`, with this mode switched off."""
        kwargs = kwargs or {}
        if (func is torch.rand or func is torch.randn) and kwargs.keys() <= _OPTIONS:
            shape, dtype = _shape(args, kwargs), kwargs.get("dtype") or torch.get_default_dtype()
            device = kwargs.get("device") or torch.get_default_device()
            known = all(isinstance(size, int) for size in shape)  # PyTorch says what is wrong with other sizes
            if known and math.prod(shape) >= _FEWEST and dtype in _TYPES and _is_cpu(device):
                return self._draw(shape, dtype, kwargs.get("generator"), normal=func is torch.randn)
        return func(*args, **kwargs)

    def _draw(
        self, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator | None, normal: bool
    ) -> Tensor:
        result = torch.empty(shape, dtype=dtype)
        # Below 1 by as little as float32 can show: the inverse of the distribution is infinite at 1.
        below_one = 1 - torch.finfo(torch.float32).eps / 2
        for part in result.view(-1).split(_CHUNK):
            drawn = random_bytes(8 + len(part), generator=generator)
            start = int(drawn[:8].view(torch.int64)) % (_KEPT - _CHUNK)
            part.copy_(drawn[8:])
            part.add_(self._finer(dtype)[start : start + len(part)])
            if normal:
                part.mul_(2 / _RANGES).sub_(1).clamp_(-below_one, below_one).erfinv_().mul_(math.sqrt(2))
            else:
                part.mul_(1 / _RANGES).clamp_(max=below_one)
        return result

    def _finer(self, dtype: torch.dtype) -> Tensor:
        """Where in its range each number lies, from 0 to 1."""
        if dtype not in self._kept:
            secret = torch.Generator()
            secret.seed()
            self._kept[dtype] = torch.rand(_KEPT, dtype=dtype, generator=secret)
        return self._kept[dtype]


def _shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    sizes = (kwargs["size"],) if "size" in kwargs else args
    return tuple(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)


def _is_cpu(device: torch.device | str | int) -> bool:
    return not isinstance(device, int) and torch.device(device).type == "cpu"
