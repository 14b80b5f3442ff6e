"""Values of constants while tracing without data.

Model code likes to compute plain numbers with torch: `[x.item() for x in torch.linspace(0, 0.1, 12)]`. A tensor
without data cannot answer that, so small constants carry a real twin, and whatever is computed from constants
alone gets one too. Inputs and random numbers have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

_TWIN = "_warpsmith_constant"
_LIMIT = 1 << 16  # elements; larger constants are not worth computing for the sake of a shape
_READS = frozenset(
    getattr(owner, name)
    for owner, names in (
        (Tensor, "__array__ __bool__ __contains__ __float__ __index__ __int__ all_close equal item numpy tolist"),
        (torch, "allclose equal is_nonzero"),
    )
    for name in names.split()
    if hasattr(owner, name)
)


def read(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Whether this call reads values that are known, and what it gives."""
    if func not in _READS or not _known((*args, *kwargs.values())):
        return False, None
    return True, func(*_twins(args), **_twins(kwargs))


def follow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, is_factory: bool) -> None:
    """Give the result of a call a twin where its value is known; take it away where it is not any more."""
    outputs = [result] if isinstance(result, Tensor) else result if isinstance(result, list | tuple) else []
    if not outputs or not all(isinstance(output, Tensor) for output in outputs):
        return
    given = (*args, *kwargs.values())
    has_tensors = any(True for _ in _tensors(given))
    if not (is_factory if not has_tensors else _known(given)):
        if _writes(func) and args and isinstance(args[0], Tensor):
            vars(args[0]).pop(_TWIN, None)
        return
    if any(output.numel() > _LIMIT for output in outputs):
        return
    placed = _twins(kwargs) | ({"device": torch.device("cpu")} if "device" in kwargs else {})
    twin = func(*_twins(args), **placed)
    for output, value in zip(outputs, [twin] if isinstance(twin, Tensor) else twin, strict=True):
        vars(output)[_TWIN] = value


def _writes(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name == "__setitem__" or name.startswith("__i")


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _known(values: Iterable[Any]) -> bool:
    found = list(_tensors(values))
    return bool(found) and all(_TWIN in vars(tensor) for tensor in found)


def _twins(value: Any) -> Any:
    """The arguments of a call with twins in place of tensors, and the CPU in place of no device at all."""
    if isinstance(value, Tensor):
        return vars(value)[_TWIN]
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, dict):
        return {key: _twins(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_twins(part) for part in value) if type(value) in (list, tuple) else value
    return value
