"""What a Python candidate returned: exactly the tensors the task wants, or a reason why not.

A subclass of Tensor can put off its work until somebody looks, so nothing but the exact type is taken. This runs in
the candidate's process and is a courtesy to the honest; against the others stands the judge, who times the copying.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor

from warpsmith.evaluate.hosts.pyfaults import Fault


@dataclass(frozen=True)
class Expected:
    """One output, and the judge's buffer for it."""

    name: str
    target: Tensor


def deliver(result: object, expected: Sequence[Expected]) -> None:
    """Copy what was returned into the judge's buffers; raises Fault where it does not fit."""
    found = list(_leaves(result))
    if len(found) != len(expected):
        names = ", ".join(each.name for each in expected)
        raise Fault(
            "mismatch",
            f"it returned {_counted(len(found))}, where the task has {_counted(len(expected))} ({names}).",
        )
    for tensor, each in zip(found, expected, strict=True):
        _check(tensor, each)
        carry(tensor, each.target)


def carry(tensor: Tensor, target: Tensor) -> None:
    """One plain copy on the CPU: torch's own takes several threads, and on a busy machine waits long for them."""
    plain = tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
    if plain and target.is_contiguous():
        ctypes.memmove(target.data_ptr(), tensor.data_ptr(), tensor.nbytes)
    else:
        target.copy_(tensor)


def _check(tensor: Tensor, each: Expected) -> None:
    if type(tensor) is not Tensor:
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        raise Fault("lazy", f"{each.name} was returned as {kind}; return a plain torch.Tensor, computed.")
    if tensor.is_meta or torch._is_functional_tensor(tensor):
        raise Fault("lazy", f"{each.name} was returned as a tensor without data; return one that is computed.")
    target = each.target
    if tensor.layout is not torch.strided:
        raise Fault("mismatch", f"{each.name} was returned as {tensor.layout}; return a dense tensor.")
    if tensor.device != target.device:
        raise Fault("mismatch", f"{each.name} was returned on {tensor.device}; it belongs on {target.device}.")
    if tensor.shape != target.shape or tensor.dtype != target.dtype:
        raise Fault("mismatch", f"{each.name} was returned as {_said(tensor)}, where {_said(target)} is expected.")


def _said(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _counted(count: int) -> str:
    return "no tensor" if count == 0 else "1 tensor" if count == 1 else f"{count} tensors"


def _leaves(result: object) -> Iterator[Tensor]:
    """Every tensor of a nested result, in order; anything else is left out, as it is for the reference."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from _leaves(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from _leaves(value)
    elif is_dataclass(result) and not isinstance(result, type):
        for field in fields(result):
            yield from _leaves(getattr(result, field.name))
