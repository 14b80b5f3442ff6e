"""Lists the torch operators of a Python call by name, and tensors that are handed to NumPy.

Runs inside the candidate's process, so it catches candidates that do not tamper with it. Three tools see different
things: the dispatch mode sees the operators that remain of composite ones, the profiler sees operators that hide from
the mode, and the interpreter's profile hook sees tensors that leave torch. None of them sees an extension that links a
library directly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

_LARGE = 1024  # elements; a handful of numbers may be computed anywhere
_LEAVING = frozenset(("numpy", "__dlpack__", "to_dlpack"))  # methods of a tensor
_COMING = frozenset(("from_numpy", "frombuffer", "_from_dlpack"))  # functions of torch
_watch_interpreter = sys.setprofile  # as it was before the candidate was imported


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import dynamo: that takes seconds and creates a CUDA context

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found.setdefault(str(func))
        return func(*args, **(kwargs or {}))


def list_operators(call: Callable[[], object], *, deep: bool = False) -> tuple[str, ...]:
    """The operators of one call, e.g. "aten.mm.default"; `deep` uses all three tools: on the CPU there is no CUPTI."""
    if not deep:
        with _Names() as names:
            call()
        return tuple(names.found)
    borrowed: dict[str, None] = {}

    def watch(_frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument.__name__ in _LEAVING:
            owner = getattr(argument, "__self__", None)
            if isinstance(owner, torch.Tensor) and owner.numel() >= _LARGE:
                borrowed.setdefault(f"numpy.{argument.__name__}")
        elif event == "c_call" and argument.__name__ in _COMING:
            borrowed.setdefault(f"numpy.{argument.__name__}")

    with profile() as seen:
        with _Names() as names:
            _watch_interpreter(watch)
            try:
                call()
            finally:
                _watch_interpreter(None)
    return tuple({**names.found, **dict.fromkeys(_outermost(seen)), **borrowed})


def _outermost(seen: Any) -> list[str]:
    """Operators that no other operator of torch called."""
    found = []
    for event in seen.function_events or ():
        above = event.cpu_parent
        while above is not None and not above.name.startswith("aten::"):
            above = above.cpu_parent
        if above is None and "::" in event.name and not event.name.startswith("["):
            found.append(event.name)
    return found
