"""Tensors without data, and the order in which trace modes are tried.

Meta tensors come first: they cost nothing to import. Fake tensors handle some programs that meta tensors do not, but
import torch's compiler, which takes more than a second. A program that reads values (`.item()`, numpy) is run on real
tensors if they are small.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from warpsmith.model.errors import TaskError
from warpsmith.tasks.intercept import TorchInterceptor
from warpsmith.tasks.meta_tracing import FastMetaOperators
from warpsmith.tasks.program import REAL_RUN_LIMIT_BYTES
from warpsmith.tasks.user_code import Attempt, error_sentence

T = TypeVar("T")


@dataclass(frozen=True)
class TraceMode:
    """A way of tracing: where tensors are created, under which torch mode, and whether they hold data."""

    name: str  # "meta", "fake" or "real"
    device: torch.device
    mode: contextlib.AbstractContextManager[Any]

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor in this mode."""
        with self.mode:
            return torch.empty(shape, dtype=dtype, device=self.device)

    def adopt(self, tensor: Tensor) -> Tensor:
        """A tensor that code of the task created, converted to this mode."""
        if tensor.device == self.device:
            return tensor
        with self.mode:
            return torch.empty_like(tensor, device=self.device, requires_grad=False)

    @contextlib.contextmanager
    def creating(self) -> Iterator[None]:
        """A context in which code of the task creates tensors in this mode."""
        with torch.no_grad(), self.mode, TorchInterceptor(self.device):
            yield


def _meta() -> TraceMode:
    return TraceMode("meta", torch.device("meta"), FastMetaOperators())


@cache
def _fake() -> TraceMode:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return TraceMode("fake", torch.device("cpu"), FakeTensorMode(allow_non_fake_inputs=True))


def _real() -> TraceMode:
    return TraceMode("real", torch.device("cpu"), contextlib.nullcontext())


class TooLarge(TaskError):
    """The tensors are too large to trace with data."""


def check_size(setting: TraceMode, size_bytes: int) -> None:
    """Raise `TooLarge` before a large reference is run only to learn its shapes."""
    if setting.name == "real" and size_bytes > REAL_RUN_LIMIT_BYTES:
        raise TooLarge("too large to be traced with data")


def _is_verdict(error: BaseException) -> bool:
    return isinstance(error, TaskError) and not isinstance(error, TooLarge)


def check_same_shapes(first: Sequence[Tensor], second: Sequence[Tensor]) -> None:
    """Raise a TaskError if the shapes of two results differ: they depend on the values of the inputs."""
    if [t.shape for t in first] != [t.shape for t in second]:
        raise TaskError("the shape of the result depends on values of the inputs; return a result of fixed shape.")


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Keep torch from logging the traceback of a failed trace: the error is told in one sentence."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def try_trace_modes(path: Path, doing: str, attempt: Callable[[TraceMode], T]) -> T:
    """The result of `attempt` in the first mode in which it works; raises a TaskError if none does."""
    errors: list[BaseException] = []
    for make in (_meta, _fake, _real):
        with _without_log(), Attempt(path) as trial:
            return attempt(make())
        assert trial.error is not None
        errors.append(trial.error)
        if isinstance(trial.error, ModuleNotFoundError) or _is_verdict(trial.error):
            break  # the other modes would fail, too
    # The error of the last mode is the one that PyTorch users know; `TooLarge` is no error of the task.
    told = next((error for error in reversed(errors) if not isinstance(error, TooLarge)), errors[-1])
    raise TaskError(error_sentence(told, path, doing)) from told
